"""Near copies among images, judged against how much the other images of the set resemble each other.

Compared is the structure of the images minus what all have in common: two people's radiographs agree in their coarse look,
a copy and its original in every edge. A pair is a near copy if it correlates far more than either image does with the set, so
that films which all look alike are no copies of each other. Mirrored and turned copies are found, crops of more than a few
percent are not.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

THUMBNAIL_SIDE, DETAIL_SIDE = 24, 32
VOLUME_GRID = (16, 16, 12)
"""Means along rows, columns and slices by which whole volumes are compared."""
MAX_SAMPLED = 8
"""Voxels along an axis of which a mean is taken, at most: of large volumes every n-th counts."""
NEAR = 0.9985
"""Correlation of the thumbnails of two neighbours of a series."""
MIN_COARSE = 0.9
"""Correlation of the thumbnails of copies."""
MIN_CORRELATION, MIN_CORRELATION_OF_FEW, MAX_CORRELATION = 0.85, 0.93, 0.99999
"""Correlation of the structure of copies; the second applies to sets that are too small to have a distribution. On ten public
data sets different images stay below 0.9, copies with 25 % of noise reach 0.95."""
MIN_FOR_COMMON, MIN_FOR_DISTRIBUTION = 8, 20
"""Images from which on what they have in common is subtracted, and from which on pairs are judged by the distribution."""
QUANTILES, OUTLIER_SPREADS = (0.6, 0.9), 2.5
"""A copy lies above the upper quantile of an image's correlations (Fisher's z) by this many distances between the two: 3.9
standard deviations of a normal distribution, and robust to a tenth of copies."""
MAX_REFERENCES = 1_000
MAX_FIRST, MAX_SECOND = 8_000, 2_000
MAX_PAIRS = 5_000
_BLOCK = 512
"""Images of a side whose small versions are put together at the same time."""
_TURNS: tuple[Callable[[Any], Any], ...] = (
    lambda a: a,
    lambda a: a[:, :, ::-1],
    lambda a: a[:, ::-1],
    lambda a: a[:, ::-1, ::-1],
    lambda a: a.swapaxes(1, 2),
    lambda a: a.swapaxes(1, 2)[:, :, ::-1],
    lambda a: a.swapaxes(1, 2)[:, ::-1],
    lambda a: a.swapaxes(1, 2)[:, ::-1, ::-1],
)
_UNDO_TURNS = (*_TURNS[:5], _TURNS[6], _TURNS[5], _TURNS[7])
"""The ways to mirror and turn a stack of square pictures, or of volumes slice by slice."""


class Fingerprint(Protocol):
    """What is compared of an image: small versions of it, its hash, and whether it has one value everywhere.

    `volume_means` are those of a whole volume, None for pictures; the others are of its middle slice then.
    """

    @property
    def digest(self) -> str: ...

    @property
    def thumbnail(self) -> NDArray[np.floating[Any]] | None: ...

    @property
    def detail(self) -> NDArray[np.floating[Any]] | None: ...

    @property
    def volume_means(self) -> NDArray[np.floating[Any]] | None: ...

    @property
    def flat(self) -> bool: ...


def find_near_copies(
    fingerprints: Mapping[str, Fingerprint], first_keys: Sequence[str], second_keys: Sequence[str]
) -> list[tuple[str, str]]:
    """Return pairs of an image of each side that are one picture, altered; exact copies are left out.

    At most `MAX_FIRST` images are compared with `MAX_SECOND` images, those that come first.
    """
    sides = [
        _select_usable(fingerprints, first_keys)[:MAX_FIRST],
        _select_usable(fingerprints, second_keys)[:MAX_SECOND],
    ]
    volumes = [[key for key in keys if fingerprints[key].volume_means is not None] for keys in sides]
    is_volume = {key for keys in volumes for key in keys}
    pairs = dict.fromkeys(_compare(fingerprints, volumes[0], volumes[1], "volume_means", "volume_means"))
    if any(key not in is_volume for keys in sides for key in keys):
        by_slice = _compare(fingerprints, sides[0], sides[1], "detail", "thumbnail")
        pairs.update(dict.fromkeys(pair for pair in by_slice if not is_volume.issuperset(pair)))
    return [pair for pair in pairs if fingerprints[pair[0]].digest != fingerprints[pair[1]].digest][:MAX_PAIRS]


class ComparedSample:
    """Which images `find_near_copies` will compare, while images are opened one after another.

    Their small versions are all that must be kept of many images.
    """

    def __init__(self, first_keys: Sequence[str], second_keys: Sequence[str]) -> None:
        """The arguments are those of `find_near_copies`."""
        self._places = {key: place for place, key in enumerate(first_keys)}
        self._places.update((key, ~place) for place, key in enumerate(second_keys))  # below 0, to tell the sides apart
        self._kept: tuple[list[tuple[int, str]], list[tuple[int, str]]] = ([], [])

    def add(self, key: str, fingerprint: Fingerprint) -> str | None:
        """Take note of an image; return the key of one that will not be compared, this or an earlier one, None if all may be."""
        if key not in self._places or fingerprint.detail is None or fingerprint.flat:
            return key
        signed_place = self._places[key]
        side, place = int(signed_place < 0), max(signed_place, ~signed_place)
        kept, limit = self._kept[side], (MAX_FIRST, MAX_SECOND)[side]
        if len(kept) < limit:
            heapq.heappush(kept, (-place, key))
            return None
        return heapq.heappushpop(kept, (-place, key))[1]


def _select_usable(fingerprints: Mapping[str, Fingerprint], keys: Sequence[str]) -> list[str]:
    return [
        key
        for key in keys
        if (candidate := fingerprints.get(key)) is not None and candidate.detail is not None and not candidate.flat
    ]


@dataclass(frozen=True)
class _Side:
    """Images as they are compared: unit vectors, the correlation above which each would be a copy, and thumbnails."""

    vectors: NDArray[np.float32]
    limits: NDArray[np.float32]
    coarse: NDArray[np.float32]

    def find_copies(self, opposite: _Side) -> NDArray[np.bool_]:
        """Return which pairs of these images and those of another side are copies of each other."""
        alike: NDArray[np.bool_] = self.vectors @ opposite.vectors.T > np.maximum.outer(self.limits, opposite.limits)
        return alike & (self.coarse @ opposite.coarse.T > MIN_COARSE) if alike.any() else alike


@dataclass(frozen=True)
class _Reference:
    """The structure of some images of the set, and what all have in common."""

    common: NDArray[np.float32]
    vectors: NDArray[np.float32]

    def describe(
        self,
        structure: NDArray[np.floating[Any]],
        coarse: NDArray[np.floating[Any]],
        limits: NDArray[np.float32] | None = None,
    ) -> _Side:
        """Return images as they are compared; `limits` are theirs if they are known."""
        vectors = _unit(structure - self.common)
        if limits is None:
            limits = self._find_limits(vectors)
        return _Side(vectors, limits, coarse.reshape(len(coarse), -1).astype(np.float32))

    def _find_limits(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(self.vectors) < MIN_FOR_DISTRIBUTION:
            return np.full(len(vectors), MIN_CORRELATION_OF_FEW, np.float32)
        scores = vectors @ self.vectors.T
        np.arctanh(np.clip(scores, -MAX_CORRELATION, MAX_CORRELATION, out=scores), out=scores)
        middle, upper = np.quantile(scores, QUANTILES, axis=1, overwrite_input=True)
        limits: NDArray[np.float32] = np.maximum(np.tanh(upper + OUTLIER_SPREADS * (upper - middle)), MIN_CORRELATION)
        return limits.astype(np.float32)


@dataclass
class _Block:
    """Some images of a side; their small versions are put together when they are compared."""

    fingerprints: Mapping[str, Fingerprint]
    start: int
    keys: Sequence[str]
    structure: str
    coarse: str
    limits: NDArray[np.float32] | None = None
    """Of the images as they lie."""

    def describe(self, reference: _Reference) -> _Side:
        side = reference.describe(*self._stacks(), self.limits)
        self.limits = side.limits
        return side

    def describe_turned(self, reference: _Reference, turn: Callable[[Any], Any]) -> _Side:
        return reference.describe(*map(turn, self._stacks()))

    def _stacks(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
        stacks = (_stack(self.fingerprints, self.keys, part) for part in (self.structure, self.coarse))
        return next(stacks), next(stacks)


def _compare(
    fingerprints: Mapping[str, Fingerprint], left: Sequence[str], right: Sequence[str], structure: str, coarse: str
) -> list[tuple[str, str]]:
    if not left or not right:
        return []
    own_blocks, other_blocks = (
        [
            _Block(fingerprints, start, keys[start : start + _BLOCK], structure, coarse)
            for start in range(0, len(keys), _BLOCK)
        ]
        for keys in (left, right)
    )
    reference = _make_reference(fingerprints, [*left, *right], structure)
    pairs: list[tuple[str, str]] = []
    for turn, undo in zip(_TURNS, _UNDO_TURNS, strict=True):
        places: list[tuple[int, int]] = []
        for other_block in other_blocks:
            other, turned = other_block.describe(reference), other_block.describe_turned(reference, undo)
            for own_block in own_blocks:
                alike = own_block.describe(reference).find_copies(turned)
                # a copy is one in both ways to lay the two over each other; only in one of them both lie as the set does
                if alike.any() and turn is not _TURNS[0]:
                    alike &= own_block.describe_turned(reference, turn).find_copies(other)
                rows, columns = np.nonzero(alike)
                places += zip((rows + own_block.start).tolist(), (columns + other_block.start).tolist(), strict=True)
        pairs += [(left[own], right[opposite]) for own, opposite in sorted(places)]
        if len(pairs) >= MAX_PAIRS:
            break
    return pairs


def _make_reference(fingerprints: Mapping[str, Fingerprint], keys: Sequence[str], part: str) -> _Reference:
    places = np.linspace(0, len(keys) - 1, min(len(keys), MAX_REFERENCES)).astype(int)
    sample = _stack(fingerprints, [keys[place] for place in places], part)
    common = np.zeros(sample.shape[1:], np.float32)
    if len(keys) >= MIN_FOR_COMMON:
        for start in range(0, len(keys), _BLOCK):
            common += _stack(fingerprints, keys[start : start + _BLOCK], part).sum(axis=0, dtype=np.float32)
        common /= len(keys)
    return _Reference(common, _unit(sample - common))


def _stack(fingerprints: Mapping[str, Fingerprint], keys: Sequence[str], part: str) -> NDArray[np.floating[Any]]:
    stack = np.stack([getattr(fingerprints[key], part) for key in keys])
    side = round(stack[0].size ** 0.5)
    return stack.reshape(-1, *(VOLUME_GRID if part == "volume_means" else (side, side)))


def _unit(stack: NDArray[Any]) -> NDArray[np.float32]:
    """Return the vectors of unit length, in the memory of the stack if it has single precision."""
    flat: NDArray[np.float32] = stack.reshape(len(stack), -1).astype(np.float32, copy=False)
    flat /= np.maximum(np.sqrt(np.einsum("ij,ij->i", flat, flat)), 1e-9)[:, None]
    return flat


# --- small versions of images -------------------------------------------------------------------------------------


def make_thumbnails(array: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return zero-mean, unit-norm area means of the first channel (of the middle slice of a volume), and its detail.

    The detail is a square of area means minus its blur over 5 x 5, with unit norm.
    """
    plane = np.asarray(array[0])
    if plane.ndim == 3:
        plane = plane[:, :, plane.shape[2] // 2]
    if plane.dtype.kind == "f" and not np.isfinite(plane).all():
        plane = np.nan_to_num(plane, posinf=0.0, neginf=0.0)
    small = area_means(area_means(plane, DETAIL_SIDE).T, DETAIL_SIDE).T
    padded = np.pad(small, 2, mode="edge")
    sums = np.cumsum(np.cumsum(np.pad(padded, ((1, 0), (1, 0))), axis=0), axis=1)
    detail = small - (sums[5:, 5:] - sums[:-5, 5:] - sums[5:, :-5] + sums[:-5, :-5]) / 25
    thumbnail = area_means(area_means(plane, THUMBNAIL_SIDE).T, THUMBNAIL_SIDE).T
    return _centre(thumbnail), np.asarray(detail / max(float(np.linalg.norm(detail)), 1e-9), dtype=np.float32)


def make_volume_means(volume: Any) -> NDArray[np.float32] | None:
    """Return zero-mean, unit-norm area means of a volume (H, W, D); None if all are the same."""
    steps = tuple(
        max(1, side // (MAX_SAMPLED * wanted)) for side, wanted in zip(volume.shape, VOLUME_GRID, strict=True)
    )
    small = np.asarray(volume[tuple(slice(None, None, step) for step in steps)], dtype=np.float64)
    small = np.nan_to_num(small, posinf=0.0, neginf=0.0)
    for side in VOLUME_GRID:  # each pass takes the first axis and puts it last
        shape = small.shape[1:]
        small = np.moveaxis(area_means(small.reshape(len(small), -1), side).reshape(side, *shape), 0, -1)
    centred = _centre(small)
    return centred if centred.any() else None


def area_means(plane: NDArray[Any], side: int) -> NDArray[np.float64]:
    """Return `side` rows of exact means: a row that two of them share counts for each by its share."""
    height = len(plane)
    edges = np.linspace(0, height, side + 1)
    below = np.minimum(edges.astype(int), height - 1)
    shares = (edges - below)[:, None] * plane[below]
    if height < 2 * side:
        sums = np.concatenate([np.zeros((1, plane.shape[1])), np.cumsum(plane, axis=0, dtype=np.float64)])
        return np.asarray(np.diff(sums[below] + shares, axis=0) * (side / height))
    shares[-1] = 0.0  # the last sum goes to the end
    sums = np.add.reduceat(plane, below[:-1], axis=0, dtype=np.float64)
    return np.asarray((sums - shares[:-1] + shares[1:]) * (side / height))


def _centre(small: NDArray[np.float64]) -> NDArray[np.float32]:
    centred = (small - small.mean()).ravel()
    norm = float(np.linalg.norm(centred))
    return np.asarray(centred / norm if norm > 1e-9 else np.zeros_like(centred), dtype=np.float32)
