"""One look at every image: does it open, what are its pixels, and which others does it resemble?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.altered import SIDE as FINE
from m3b.data.altered import fine_structure
from m3b.data.box_targets import BoxLook
from m3b.data.image_headers import codes_of, frames_over_time
from m3b.data.mask_probe import MaskLook, digest_of
from m3b.data.reading import read_image
from m3b.data.records import Channels, Image, paths_of, plain
from m3b.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Target = tuple[MaskLook | None, BoxLook | None]
SIDE = 24
WHOLE = (16, 16, 12)
"""Means along rows, columns and slices by which whole volumes are compared."""
SAMPLED = 8
"""Voxels along an axis that a mean is taken of, at most: of large volumes every n-th counts."""
NEAR = 0.9985
"""Correlation of two 24 x 24 thumbnails above which two images count as nearly the same. Two radiographs of
different people stay below 0.99 as a rule; re-compressed or slightly rescaled copies lie above 0.999."""
MAX_COMPARED = 12_000
MAX_PAIRS = 20_000


@dataclass(frozen=True)
class ImageProbe:
    """What one image showed; with `error` set, nothing else is."""

    shape: str = ""
    digest: str = ""
    thumbnail: NDArray[np.float32] | None = None
    detail: NDArray[np.float32] | None = None
    whole: NDArray[np.float32] | None = None
    """Of a volume, the same of all of it: one slice may be that of another scan, and a copy's may not."""
    flat: bool = False
    error: str = ""
    size: tuple[int, ...] = ()
    """(C, H, W) or (C, H, W, D)."""
    spacing: tuple[float, ...] | None = None
    bytes: int = 0
    mask: MaskLook | None = None
    boxes: BoxLook | None = None
    header: Mapping[str, str] = field(default_factory=dict)
    """Coded fields of a DICOM header."""
    frames: tuple[int, float] = (0, 0.0)
    """Volumes along an axis that the header calls time, and seconds between them."""


def examine(image: Image, work: Path, target: Callable[[Any], Target] | None = None) -> ImageProbe:
    """Open one image; a failure becomes `ImageProbe.error`.

    Args:
        target: looks at what is marked in the image, given its array.
    """
    try:
        read = read_image(plain(image), str(work))
    except DataError as error:
        return ImageProbe(error=str(error))
    array = read.array
    if not array.size:
        return ImageProbe(error=f"{image}: an image of shape {'x'.join(map(str, array.shape))}, which holds no pixels")
    thumbnail, detail, flat = _thumbnail(array)
    mask, boxes = target(array) if target else (None, None)
    return ImageProbe(
        "x".join(map(str, array.shape)),
        digest_of(array),
        thumbnail,
        detail,
        whole=_whole(array[0]) if array.ndim == 4 else None,
        flat=flat,
        size=tuple(array.shape),
        spacing=read.spacing,
        bytes=array.nbytes,
        mask=mask,
        boxes=boxes,
        header=codes_of(image if isinstance(image, str) else paths_of(image), work),
        frames=frames_over_time(image, work)
        if array.ndim == 4 and array.shape[0] > 1 and not isinstance(image, Channels)
        else (0, 0.0),
    )


def _thumbnail(array: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
    """Zero-mean, unit-norm area means of the first channel (of the middle slice of a volume), its fine structure, and
    whether the channel has a single value."""
    import numpy as np

    plane = np.asarray(array[0])
    if plane.ndim == 3:
        plane = plane[:, :, plane.shape[2] // 2]
    flat = bool(np.ptp(np.asarray(array[0])) == 0)
    plane = np.nan_to_num(plane.astype(np.float64), posinf=0.0, neginf=0.0)
    fine = fine_structure(area_means(area_means(plane, FINE).T, FINE).T)
    small = area_means(area_means(plane, SIDE).T, SIDE).T
    small = (small - small.mean()).ravel()
    norm = float(np.linalg.norm(small))
    return (small / norm if norm > 1e-9 else np.zeros_like(small)).astype(np.float32), fine, flat


def _whole(volume: Any) -> NDArray[np.float32] | None:
    """Zero-mean, unit-norm area means of a volume (H, W, D); None where they are all the same."""
    import numpy as np

    steps = tuple(max(1, have // (SAMPLED * want)) for have, want in zip(volume.shape, WHOLE, strict=True))
    small = np.asarray(volume[tuple(slice(None, None, step) for step in steps)], dtype=np.float64)
    small = np.nan_to_num(small, posinf=0.0, neginf=0.0)
    for side in WHOLE:  # each pass takes the first axis and puts it last
        rest = small.shape[1:]
        small = np.moveaxis(area_means(small.reshape(len(small), -1), side).reshape(side, *rest), 0, -1)
    small = (small - small.mean()).ravel()
    norm = float(np.linalg.norm(small))
    return (small / norm).astype(np.float32) if norm > 1e-9 else None


def area_means(plane: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """`side` rows of exact means: a row that two of them share counts for each by its share."""
    import numpy as np

    height = len(plane)
    sums = np.concatenate([np.zeros((1, plane.shape[1])), np.cumsum(plane, axis=0)])
    edges = np.linspace(0, height, side + 1)
    below = np.minimum(edges.astype(int), height - 1)
    at_edges = sums[below] + (edges - below)[:, None] * plane[below]
    return np.asarray(np.diff(at_edges, axis=0) * (side / height))


def near_pairs(looks: dict[str, ImageProbe]) -> list[tuple[str, str]]:
    """Pairs of different images whose thumbnails correlate above `NEAR`; exact copies are left out. Two volumes are compared
    by the whole of both, a volume and a picture by its middle slice.

    At most `MAX_COMPARED` images are compared, in blocks, so memory stays below a few hundred MiB; the search ends
    at `MAX_PAIRS`.
    """
    keys = [key for key, look in looks.items() if look.thumbnail is not None and not look.flat][:MAX_COMPARED]
    volumes = [key for key in keys if looks[key].whole is not None]
    deep = frozenset(volumes)
    flat = [pair for pair in _alike(keys, looks, _pixels) if not deep.issuperset(pair)]
    return sorted([*flat, *_alike(volumes, looks, _volume)])[:MAX_PAIRS]


def _alike(
    keys: Sequence[str], looks: Mapping[str, ImageProbe], take: Callable[[ImageProbe], NDArray[np.float32]]
) -> list[tuple[str, str]]:
    import numpy as np

    if len(keys) < 2:
        return []
    matrix = np.stack([take(looks[key]) for key in keys])
    digests = np.unique([looks[key].digest for key in keys], return_inverse=True)[1]
    pairs: list[tuple[str, str]] = []
    for start in range(0, len(keys), 512):
        alike = matrix[start : start + 512] @ matrix.T > NEAR
        alike &= digests[start : start + 512, None] != digests[None]
        rows, columns = np.nonzero(np.triu(alike, start + 1))
        room = MAX_PAIRS - len(pairs)
        pairs += [(keys[start + row], keys[column]) for row, column in zip(rows[:room], columns[:room], strict=True)]
        if len(pairs) >= MAX_PAIRS:
            break
    return pairs


def _pixels(look: ImageProbe) -> NDArray[np.float32]:
    if look.thumbnail is None:
        raise ValueError("a look without pixels cannot be compared")
    return look.thumbnail


def _volume(look: ImageProbe) -> NDArray[np.float32]:
    if look.whole is None:
        raise ValueError("a look at a picture cannot be compared as a volume")
    return look.whole
