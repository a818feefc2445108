"""One look at every image: does it open, what are its pixels, and which others does it resemble?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.reading import read_image
from m3b.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIDE = 24
NEAR = 0.9985
"""Correlation of two 24 x 24 thumbnails above which two images count as nearly the same. Two radiographs of
different people stay below 0.99 as a rule; re-compressed or slightly rescaled copies lie above 0.999."""
MOST_COMPARED = 12_000


@dataclass(frozen=True)
class Look:
    """What one image showed; with `error` set, nothing else is."""

    shape: str = ""
    digest: str = ""
    thumbnail: NDArray[np.float32] | None = None
    flat: bool = False
    error: str = ""


def examine(image: str | tuple[str, ...], work: Path) -> Look:
    """Open one image; a failure becomes `Look.error`."""
    try:
        array = read_image(image if isinstance(image, str) else list(image), str(work)).array
    except DataError as error:
        return Look(error=str(error))
    thumbnail, flat = _thumbnail(array)
    digest = hashlib.blake2b(f"{array.shape}{array.dtype}".encode(), digest_size=16)
    digest.update(array.tobytes())
    return Look("x".join(map(str, array.shape)), digest.hexdigest(), thumbnail, flat)


def _thumbnail(array: Any) -> tuple[NDArray[np.float32], bool]:
    """Zero-mean, unit-norm block means of the first channel (of the middle slice of a volume)."""
    import numpy as np

    plane = np.asarray(array[0], dtype=np.float32)
    if plane.ndim == 3:
        plane = plane[:, :, plane.shape[2] // 2]
    plane = np.nan_to_num(plane)
    flat = bool(np.ptp(np.asarray(array[0])) == 0)
    rows = np.linspace(0, plane.shape[0], SIDE + 1).astype(int)
    columns = np.linspace(0, plane.shape[1], SIDE + 1).astype(int)
    rows_at, columns_at = np.minimum(rows[:-1], plane.shape[0] - 1), np.minimum(columns[:-1], plane.shape[1] - 1)
    sums = np.add.reduceat(np.add.reduceat(plane, rows_at, axis=0), columns_at, axis=1)
    heights = np.maximum(np.diff(rows), 1)[:, None]
    small = sums / (heights * np.maximum(np.diff(columns), 1)[None, :])
    small = (small - small.mean()).ravel()
    norm = float(np.linalg.norm(small))
    return (small / norm if norm > 0 else small).astype(np.float32), flat


def near_pairs(looks: dict[str, Look]) -> list[tuple[str, str]]:
    """Pairs of different images whose thumbnails correlate above `NEAR`; exact copies are left out.

    At most `MOST_COMPARED` images are compared, in blocks, so memory stays below a few hundred MiB.
    """
    import numpy as np

    keys = [key for key, look in looks.items() if look.thumbnail is not None and not look.flat][:MOST_COMPARED]
    if len(keys) < 2:
        return []
    matrix = np.stack([_pixels(looks[key]) for key in keys])
    pairs = []
    for start in range(0, len(keys), 1024):
        alike = np.argwhere(matrix[start : start + 1024] @ matrix.T > NEAR)
        for row, column in alike:
            one, other = keys[start + int(row)], keys[int(column)]
            if start + row < column and looks[one].digest != looks[other].digest:
                pairs.append((one, other))
    return pairs


def _pixels(look: Look) -> NDArray[np.float32]:
    if look.thumbnail is None:
        raise ValueError("a look without pixels cannot be compared")
    return look.thumbnail
