"""Several images of one case as the channels of one image, by name: sequences of an MR study, CT and PET, two stains.

All channels lie on the grid of the first; others are resampled to it if both files say how they lie, and refused if not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base import Image
from .errors import DataError
from .geometry import Geometry, corner_distance, spacing_of

SAME_GRID_SHARE = 0.5
"""Share of a voxel by which the corners of two grids may differ and still count as one grid."""


def select_channels(path: Any, names: Sequence[str] | None) -> Any:
    """Return the path of a case as a model with these channels takes it: of named channels those of the model, in its order.

    Channels that the case lacks are left out.

    Raises:
        DataError: all channels are missing, one is unknown, or the model takes one image a case.
    """
    if not names:
        if isinstance(path, Mapping):
            raise DataError(f"channels {', '.join(path)} were given, but this model takes one image a case")
        return path
    usage = describe_channels(names)
    if not isinstance(path, Mapping):
        names_text = path if isinstance(path, str) else list(path)
        raise DataError(f"{names_text}: this model takes {len(names)} images a case, by name: {usage}")
    unknown = [name for name in path if name not in names]
    if unknown:
        raise DataError(f"this model has no channel {', '.join(unknown)}; {usage}")
    given = {name: path[name] for name in names if path.get(name)}
    if not given:
        raise DataError(f"the case has none of the channels {', '.join(names)}; {usage}")
    return given


def describe_channels(names: Sequence[str]) -> str:
    """Return how the channels of a case are given on a command line."""
    return " ".join(f"{name}=PATH" for name in names)


def parse_cases(arguments: Sequence[str], names: Sequence[str] | None) -> list[Any]:
    """Return the cases of a command line: paths, or objects channel -> path for `flair=a.nii t1=b.nii`.

    A channel that is named again begins the next case.

    Raises:
        DataError: an argument without the name of a channel.
    """
    if not names:
        return list(arguments)
    cases: list[dict[str, str]] = []
    for argument in arguments:
        name, sign, path = argument.partition("=")
        if not sign or name not in names or not path:
            raise DataError(
                f"{argument}: this model takes {len(names)} images a case, by name: {describe_channels(names)}"
            )
        if not cases or name in cases[-1]:
            cases.append({})
        cases[-1][name] = path
    return list(cases)


def first_channel(paths: Mapping[str, str]) -> str | Sequence[str]:
    """Return the path of the first channel, whose grid counts. Raises DataError for none at all."""
    if not paths:
        raise DataError("an object of channels without any channel is no image")
    return next(iter(paths.values()))


def join_channels(parts: Mapping[str, Image], paths: Mapping[str, str]) -> Image:
    """Return one image whose channels are the images named, in order, on the grid of the first. Raises DataError.

    Args:
        paths: their paths, for messages.
    """
    for name, part in parts.items():
        if len(part.array) != 1:
            raise DataError(
                f"channel {name} ({paths[name]}): has {len(part.array)} channels itself (colours, or a series over time); "
                "a named channel is one image of one channel"
            )
    first_name, *other_names = parts
    first = parts[first_name]
    planes = [first.array]
    planes += [_on_grid(parts[name], f"channel {name} ({paths[name]})", first) for name in other_names]
    kinds = tuple((part.modality, part.array.dtype == np.uint8) for part in parts.values())
    modality = first.modality if len({kind for kind, _ in kinds}) == 1 else ""
    notes = tuple(note for part in parts.values() for note in part.notes)
    return Image(np.concatenate(planes), first.spacing, first.dims, modality, kinds, first.affine, notes=notes)


def is_same_grid(first: Geometry, second: Geometry) -> bool:
    """Return whether two grids with affines lie on one another."""
    if first.affine is None or second.affine is None or first.shape != second.shape:
        return False
    return corner_distance(first.affine, second.affine, first.shape) <= SAME_GRID_SHARE * min(spacing_of(first.affine))


def _on_grid(image: Image, name: str, first: Image) -> np.ndarray:
    """Return (1, ...) in the shape of the first channel: as it is on the same grid, else interpolated linearly."""
    if image.affine is None or first.affine is None:
        if image.array.shape == first.array.shape:
            return image.array
        sizes = f"{list(image.array.shape[1:])}, the first channel {list(first.array.shape[1:])}"
        raise DataError(f"{name}: its size is {sizes}, and nothing says how they lie to each other")
    if is_same_grid(first.geometry, image.geometry):
        return image.array
    from scipy import ndimage

    across = np.linalg.inv(image.affine) @ first.affine
    volume = image.array[0].astype(np.float32)
    volume = volume if volume.ndim == 3 else volume[..., None]
    shape = (*first.array.shape[1:], 1)[:3]
    corners = np.array([(a, b, c, 1) for a in (0, shape[0] - 1) for b in (0, shape[1] - 1) for c in (0, shape[2] - 1)])
    reached = (corners @ across.T)[:, :3]
    if ((reached.max(axis=0) < 0) | (reached.min(axis=0) > np.array(volume.shape) - 1)).any():
        raise DataError(f"{name}: lies outside the first channel; is it an image of another case, or badly placed?")
    # smoothed along axes that get coarser, else fine detail turns into stripes
    steps = np.linalg.norm(across[:3, :3], axis=1)
    sigma = [max(0.0, (step - 1.0) / 2) for step in steps]
    smooth = ndimage.gaussian_filter(volume, sigma) if max(sigma) > 0 else volume
    moved = ndimage.affine_transform(
        smooth,
        across[:3, :3],
        across[:3, 3],
        shape,
        order=1,
        mode="constant",
        cval=float(volume.min()),
        prefilter=False,
    )
    return np.asarray(moved, np.float32).reshape(first.array.shape)
