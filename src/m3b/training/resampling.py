"""Arrays on finer or coarser grids of the same extent.

Along an axis that shrinks, an output cell is the mean of the input under it (cells in part counted in part); along one that
grows, values are interpolated linearly between the centres of cells. The centre of output cell i lies at
(i + 0.5) * have / want - 0.5 in both, so that nothing moves, whatever the ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import ndimage, sparse

from m3b.training.ignored_voxels import IGNORE


def resize(array: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return float32 (C, *size) of an array (C, ...)."""
    full_box = tuple(slice(0, length) for length in array.shape[1:])
    return _resize_part(np.asarray(array, np.float32), full_box, array.shape[1:], tuple(size))[0]


def resize_ids(ids: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return class numbers (0: background) on a grid of `size`: the class, or background, that fills most of each cell.

    Each class is resampled by itself within its own box, so that memory does not grow with their number. A cell is ignored if its
    nearest voxel is; in the others only labelled voxels count.
    """
    size = tuple(size)
    if ids.shape == size:
        return ids
    filled, best_share = np.zeros(size, np.float32), np.zeros(size, np.float32)
    classes = np.zeros(size, ids.dtype)
    for number, box in enumerate(ndimage.find_objects(ids), start=1):
        if box is None:
            continue
        share, region = _resize_part((ids[box] == number)[None].astype(np.float32), box, ids.shape, size)
        filled[region] += share[0]
        if number == IGNORE:
            continue
        higher = share[0] > best_share[region]
        classes[region][higher] = number
        best_share[region][higher] = share[0][higher]
    classes[1 - filled >= best_share] = 0
    classes[take_nearest(ids == IGNORE, size)] = IGNORE
    return classes


def resize_mask(mask: np.ndarray, size: Sequence[int], ignored: np.ndarray | None = None) -> np.ndarray:
    """Return bool (*size) where a boolean mask fills half of the labelled part of a cell; it is False in `ignored` voxels."""
    if mask.shape == tuple(size):
        return mask
    labelled = 1.0 if ignored is None else resize(~ignored[None], size)[0]
    filled: np.ndarray = (resize(mask[None], size)[0] >= 0.5 * labelled) & (labelled > 0)
    return filled


def take_nearest(array: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return an array on a grid of `size`, each cell with the value at its centre."""
    cells = [((np.arange(target) + 0.5) * n / target).astype(int) for n, target in zip(array.shape, size, strict=True)]
    return array[np.ix_(*cells)]


def _resize_part(
    part: np.ndarray, box: Sequence[slice], shape: Sequence[int], size: Sequence[int]
) -> tuple[np.ndarray, tuple[slice, ...]]:
    """Return the resampled `part`, which fills `box` of a grid of `shape`, zero elsewhere; and its place on the grid of `size`."""
    regions = [slice(0, target) for target in size]
    for axis in sorted(range(len(size)), key=lambda axis: size[axis] / shape[axis]):
        if shape[axis] == size[axis]:
            regions[axis] = box[axis]
            continue
        weights = _weights(shape[axis], size[axis])[:, box[axis]]
        rows_used = np.flatnonzero(np.diff(weights.indptr))
        regions[axis] = slice(int(rows_used[0]), int(rows_used[-1]) + 1)
        moved = np.moveaxis(part, axis + 1, 0)
        rows = weights[regions[axis]] @ moved.reshape(len(moved), -1)
        part = np.moveaxis(rows.reshape(len(rows), *moved.shape[1:]), 0, axis + 1)
    return np.ascontiguousarray(part), tuple(regions)


@lru_cache(maxsize=256)
def _weights(length: int, target: int) -> sparse.csr_array:
    """Return (want, have): what each input cell gives to each output cell of an axis; rows sum to 1."""
    ratio = length / target
    centres = (np.arange(target) + 0.5) * ratio
    if ratio > 1:
        low, high = centres - ratio / 2, centres + ratio / 2
        count = int(np.ceil(ratio)) + 1
        cells = np.floor(low + 1e-9).astype(int)[:, None] + np.arange(count)
        shares = np.minimum(high[:, None], cells + 1) - np.maximum(low[:, None], cells)
    else:
        positions = np.clip(centres - 0.5, 0, length - 1)
        cells = np.floor(positions).astype(int)[:, None] + np.arange(2)
        shares = 1 - np.abs(cells - positions[:, None])
    cells = cells.clip(0, length - 1)
    shares = shares.clip(0) * (shares > 1e-9)
    shares = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
    rows = np.repeat(np.arange(target), cells.shape[1])
    matrix = sparse.csr_array((shares.ravel(), (rows, cells.ravel())), shape=(target, length))
    matrix.eliminate_zeros()
    return matrix
