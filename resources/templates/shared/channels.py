"""Several images of one case as the channels of one image, by name: sequences of an MR study, CT and PET, two stains.

`image_path` is then an object, channel name -> path. The order of the names is that of the channels, and it is kept in
plan.json (`channel_names`): a model finds its channels by name, never by place. All lie on the grid of the first; others
are resampled to it where both files say how they lie, and refused where they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING or __package__:
    from . import clips, geometry, grids, images
    from .formats import Image, ImageError
    from .geometry import Geometry
else:  # loaded by its path, for an `images` module that was loaded in the same way
    import sys

    images = sys.modules[__name__.rsplit("_", 1)[0]]
    clips, grids, geometry = images.clips, images.neighbour("grids"), images.geometry
    Image, ImageError, Geometry = images.Image, images.ImageError, geometry.Geometry

Path_ = str | Sequence[str] | Mapping[str, str]
HALF = 0.5
"""Voxels by which the corners of two grids may differ and still count as one grid."""


# --- names --------------------------------------------------------------------------------------------------------


def names_of(records: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The channels of an index, in order; None where its images have no named channels. Ends the program for a mixture."""
    found: dict[tuple[str, ...] | None, Any] = {}
    for record in records:
        path = record["image_path"]
        found.setdefault(tuple(path) if isinstance(path, Mapping) else None, path)
    if len(found) > 1:
        told = "; ".join(", ".join(names) if names else f"no names ({found[names]})" for names in list(found)[:3])
        raise SystemExit(f"train.json: every image_path must name the same channels in the same order; found {told}")
    only = next(iter(found), None)
    return list(only) if only else None


def arranged(path: Path_, names: Sequence[str] | None) -> Path_:
    """The path as a model takes it: of named channels those of the model, in its order. Raises ImageError naming what
    is missing or too much."""
    if not names:
        if isinstance(path, Mapping):
            raise ImageError(f"channels {', '.join(path)} were given, but this model takes one image a case")
        return path
    if not isinstance(path, Mapping):
        shown = path if isinstance(path, str) else list(path)
        raise ImageError(f"{shown}: this model takes {len(names)} images a case, by name: {wanted(names)}")
    missing = [name for name in names if not path.get(name)]
    if missing:
        raise ImageError(
            f"the case has no {', '.join(missing)} (given: {', '.join(path) or 'nothing'}); {wanted(names)}"
        )
    strange = [name for name in path if name not in names]
    if strange:
        raise ImageError(f"this model has no channel {', '.join(strange)}; {wanted(names)}")
    return {name: path[name] for name in names}


def wanted(names: Sequence[str]) -> str:
    """How the channels of a case are given."""
    return " ".join(f"{name}=PATH" for name in names)


def cases_of(words: Sequence[str], names: Sequence[str] | None) -> list[Any]:
    """Cases out of the words of a command line: paths, or `flair=a.nii t1=b.nii` where channels have names; a name that
    comes again begins the next case. Raises ImageError for a word without a name that the model knows."""
    if not names:
        return list(words)
    cases: list[dict[str, str]] = []
    for word in words:
        name, sign, path = word.partition("=")
        if not sign or name not in names or not path:
            raise ImageError(f"{word}: this model takes {len(names)} images a case, by name: {wanted(names)}")
        if not cases or name in cases[-1]:
            cases.append({})
        cases[-1][name] = path
    return cases


# --- pixels -------------------------------------------------------------------------------------------------------


def read_case(path: Path_, plan: Mapping[str, Any], base: str | Path = ".") -> Image:
    """The image of a case with the channels that plan.json names, or as many frames of a clip. Raises ImageError."""
    names = plan.get("channel_names")
    if names and int(plan.get("channels", len(names))) < len(names):
        raise ImageError(f"plan.json has channels={plan['channels']} for the {len(names)} channels {', '.join(names)}")
    wanted_path = arranged(path, names)
    if isinstance(wanted_path, str):
        wanted_path = clips.asked(wanted_path, plan.get("frames"))
    image: Image = images.read_image(wanted_path, base)
    return image


def join(paths: Mapping[str, str], base: str | Path = ".") -> Image:
    """One image whose channels are the images named, in order, on the grid of the first. Raises ImageError."""
    grids.grid_path(paths)
    parts = {name: images.read_image(path, base) for name, path in paths.items()}
    for name, part in parts.items():
        if len(part.array) != 1:
            raise ImageError(
                f"channel {name} ({paths[name]}): has {len(part.array)} channels itself (colours, or a series over time); "
                "a named channel is one image of one channel"
            )
    first, *others = parts
    grid, planes = None, [parts[first].array]
    for name in others:
        if grid is None:
            grid = grids.grid_of(paths[first], base)
        planes.append(_onto(parts[name], f"channel {name} ({paths[name]})", paths[name], parts[first], grid, base))
    kinds = tuple((part.modality, part.array.dtype == np.uint8) for part in parts.values())
    modality = kinds[0][0] if len({kind for kind, _ in kinds}) == 1 else ""
    return Image(np.concatenate(planes), parts[first].spacing, parts[first].dims, modality, kinds)


def _onto(image: Image, name: str, path: str, first: Image, grid: Geometry, base: str | Path) -> np.ndarray:
    """(1, *shape of the first channel): as it is on the same grid, else by linear interpolation between voxel centres."""
    own, same = grids.grid_of(path, base), image.array.shape == first.array.shape
    if own.affine is None or grid.affine is None:
        if same:
            return image.array
        sizes = f"{list(image.array.shape[1:])}, the first channel {list(first.array.shape[1:])}"
        raise ImageError(f"{name}: its size is {sizes}, and nothing says how they lie to each other")
    if same and geometry.apart(own.affine, grid.affine, grid.shape) <= HALF * min(geometry.spacing_of(grid.affine)):
        return image.array
    return _resampled(image, own, first, grid, name)


def _resampled(image: Image, own: Geometry, first: Image, grid: Geometry, name: str) -> np.ndarray:
    from scipy import ndimage

    across = np.linalg.inv(own.affine) @ grid.affine
    volume = image.array[0].astype(np.float32)
    volume = volume if volume.ndim == 3 else volume[..., None]
    shape = (*first.array.shape[1:], 1)[:3]
    corners = np.array([(a, b, c, 1) for a in (0, shape[0] - 1) for b in (0, shape[1] - 1) for c in (0, shape[2] - 1)])
    reached = (corners @ across.T)[:, :3]
    if ((reached.max(axis=0) < 0) | (reached.min(axis=0) > np.array(volume.shape) - 1)).any():
        raise ImageError(f"{name}: lies outside the first channel; is it an image of another case, or badly placed?")
    # smoothed along axes that get coarser, else fine detail turns into stripes
    steps = np.linalg.norm(across[:3, :3], axis=1)
    sigma = [max(0.0, (step - 1.0) / 2) for step in steps]
    smooth = ndimage.gaussian_filter(volume, sigma) if max(sigma) > 0 else volume
    dark = float(volume.min())
    moved = ndimage.affine_transform(
        smooth, across[:3, :3], across[:3, 3], shape, order=1, mode="constant", cval=dark, prefilter=False
    )
    return np.asarray(moved, np.float32).reshape(first.array.shape)
