"""One look at what is marked in an image: its mask, or a mask for each class."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.mask_sense import Sense, joined, sense_of
from m3b.data.reading import geometry, read_mask, shared, stores_fractions, upright
from m3b.data.records import Mask, Record, Reference
from m3b.errors import DataError

CHUNK = 1 << 22
"""Voxels that are counted at a time, so that counting takes little memory."""
MAX_VALUES = 4096
LOOKS_LIKE_AN_IMAGE = 100


@dataclass(frozen=True)
class MaskLook:
    """What one case's mask showed; with `error` set, only `file` is.

    Args:
        file: the mask, or of several the first at fault.
        found: voxels a class.
        unnamed: voxels a value that label_dict.json does not name.
        moved: by how much the mask lies beside its image, in voxels; None where one of them has no position.
        unplaced: whether the image has a position and the mask has none.
        sense: what it looks like as a drawing; None where nothing that was asked for is marked.
    """

    file: str
    error: str = ""
    shape: tuple[int, ...] = ()
    same_shape: bool = True
    moved: float | None = None
    unplaced: bool = False
    floats: bool = False
    is_image: bool = False
    digest: str = ""
    found: dict[str, int] = field(default_factory=dict)
    unnamed: dict[int, int] = field(default_factory=dict)
    sense: Sense | None = field(default=None, compare=False)

    @property
    def empty(self) -> bool:
        return not self.error and not any(self.found.values())


def digest_of(array: Any) -> str:
    """The same for two arrays of the same shape, type and content only."""
    import numpy as np

    digest = hashlib.blake2b(f"{array.shape}{array.dtype}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


# --- masks --------------------------------------------------------------------------------------------------------


def look_at_masks(record: Record, values: Mapping[str, int], work: Path, image: Any) -> MaskLook | None:
    """Open the mask of a case and hold it against its image, `(C, H, W[, D])`; None where nothing is marked."""
    mask = record.mask
    if mask is None:
        return None
    try:
        if not isinstance(mask, Mapping):
            return _look(_Opened(record, mask, work, image), values)
        looks = [_look(_Opened(record, path, work, image), {name: 0}) for name, path in mask.items()]
    except DataError as error:
        return MaskLook(record.targets[0], error=str(error))
    return _joined(looks)


class _Opened:
    """A mask file, opened, beside its image."""

    def __init__(self, record: Record, path: str | tuple[str, ...], work: Path, image: Any) -> None:
        self.path, self.work, self.image_path = path, str(work), record.reference
        self.image = image
        self.name = path if isinstance(path, str) else path[0]
        try:
            self.mask = upright(read_mask(path, self.work), self.image_path, self.work)
        except DataError as error:
            said = str(error).replace(f"{self.work}/", "")
            raise DataError(said if self.name in said else f"{self.name}: {said}") from error

    def moved(self) -> tuple[float | None, bool]:
        """Voxels between the two grids' corners, and whether only the image has a position."""
        if self.mask.affine is None and not _placed(self.image_path, self.work):
            return None, False
        grid = geometry(self.image_path, self.work)
        if grid.affine is None or self.mask.affine is None:
            return None, grid.affine is not None
        import numpy as np

        sizes = (*grid.shape, 1)[:3]
        corners = np.array([(*(np.array(at) * (np.array(sizes) - 1)), 1.0) for at in np.ndindex(2, 2, 2)])
        there = corners @ (np.linalg.pinv(grid.affine) @ self.mask.affine).T
        return float(np.abs(there - corners)[:, :3].max()), False


def _placed(path: Reference, work: str) -> bool:
    path = next(iter(path.values())) if isinstance(path, Mapping) else path
    return isinstance(path, str) and shared().kind_of(str(Path(work) / path)) in ("nifti", "itk")


def _look(opened: _Opened, values: Mapping[str, int]) -> MaskLook:
    """`values` of 0 stand for a binary mask: whatever is not 0 is the class."""
    import numpy as np

    array, image = opened.mask.array, opened.image
    counts = value_counts(array)
    same = tuple(array.shape) == tuple(image.shape[1:])
    moved, unplaced = opened.moved() if same else (None, False)
    binary = set(values.values()) == {0}
    marked = sum(count for value, count in counts.items() if value)
    found = dict.fromkeys(values, marked) if binary else {name: counts.get(value, 0) for name, value in values.items()}
    named = {0, *values.values()}
    return MaskLook(
        opened.name,
        shape=tuple(array.shape),
        same_shape=same,
        moved=moved,
        unplaced=unplaced,
        floats=stored_float(opened.path, opened.work),
        is_image=bool(same and marked and np.array_equal(image[0], array)),
        digest=digest_of(array),
        found=found,
        unnamed={} if binary else {value: count for value, count in counts.items() if value not in named},
        sense=sense_of(array, _marked(array, values, binary=binary), image) if any(found.values()) else None,
    )


def _marked(array: Any, values: Mapping[str, int], *, binary: bool) -> Any:
    import numpy as np

    return array != 0 if binary else np.isin(array, list(values.values()))


def value_counts(array: Any) -> dict[int, int]:
    """Voxels a value, counted in pieces; at most `MAX_VALUES` values are kept."""
    import numpy as np

    flat = array.reshape(-1)
    found: dict[int, int] = {}
    for start in range(0, flat.size, CHUNK):
        piece = flat[start : start + CHUNK]
        if int(piece.max(initial=0)) < 65536:
            table = np.bincount(piece)
            values = np.nonzero(table)[0]
            amounts = table[values]
        else:
            values, amounts = np.unique(piece, return_counts=True)
        for value, amount in zip(values.tolist(), amounts.tolist(), strict=True):
            if value in found or len(found) < MAX_VALUES:
                found[value] = found.get(value, 0) + amount
    return found


def _joined(looks: list[MaskLook]) -> MaskLook:
    """The masks of one case, a class each, as one; of what is wrong, the worst."""
    worst = max(looks, key=lambda look: (not look.same_shape, look.moved or 0.0, look.unplaced, look.is_image))
    return MaskLook(
        worst.file,
        shape=worst.shape,
        same_shape=worst.same_shape,
        moved=worst.moved,
        unplaced=worst.unplaced,
        floats=any(look.floats for look in looks),
        is_image=any(look.is_image for look in looks),
        digest="|".join(f"{name} {look.digest}" for look in looks for name in look.found),
        found={name: count for look in looks for name, count in look.found.items()},
        sense=joined([look.sense for look in looks if look.sense is not None]),
    )


def stored_float(path: Mask, work: str) -> bool:
    """Whether a mask file holds floating-point numbers, where its header tells."""
    if not isinstance(path, str) or not (Path(work) / path).is_file():
        return False
    return stores_fractions(str(Path(work) / path))
