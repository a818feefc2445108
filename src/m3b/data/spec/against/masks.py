"""Masks of an index against those of the archive: the same file, or the same pixels."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.mask_probe import value_counts
from m3b.data.reading import read_mask
from m3b.data.records import Mask, Record
from m3b.data.spec.against.reading import HeldReading, HeldTargets, MadeIndex
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.masks import MaskSource
from m3b.errors import DataError

MASKS = "masks"
MAX_OPENED = 120
"""Cases of which masks are opened, evenly over the index; the same files need not be opened."""
OPEN_S = 60.0
SAME = 0.01
"""Share of the marked pixels that may differ: a lossy mask may be cut here or there."""
MAX_CLASSES = 60

Marked = frozenset[str]
"""The classes, case folded, that apply to a pixel; empty for background."""


@dataclass(frozen=True)
class _Pixels:
    """Pixels of one case by what the archive and the index say of them.

    Args:
        counts: (the archive's, the index's) -> how many.
        inner: of those that lie more than a pixel from any outline of the archive's.
    """

    name: str
    counts: Counter[tuple[Marked, Marked]]
    inner: Counter[tuple[Marked, Marked]]


def hold_masks(reading: HeldReading, made: MadeIndex, scratch: Path) -> HeldTargets:
    """Cases whose masks are neither the archive's files nor hold the same.

    Args:
        scratch: an empty folder, for masks that the reading derives.
    """
    spec = reading.spec.masks
    if spec is None or all(record.mask is None for record in made.cases.values()):
        return HeldTargets(MASKS)
    prefix, cases = f"data/{made.name}/", list(reading.cases.values())
    try:
        source = MaskSource(spec, reading.folder, reading.accounting, prefix, scratch, cases)
    except DataError:
        return HeldTargets(MASKS)
    renamed = [name for name, value in spec.classes.items() if made.values.get(name, value) != value]
    same, left, differing = 0, [], []
    for case, record in reading.shared(made):
        raw = {item.reference for item in source.items_of(case)}
        named = {path.removeprefix(prefix) for path in record.masks}
        if raw and named and not (named <= raw and spec.combine == "one"):
            left.append((case, record))
        elif raw and named:
            same += 1
            differing += [(case.name, f"{renamed[0]!r} is another value there")] if renamed else []
        elif raw or (named and spec.empty == "healthy"):
            same += 1
            words = "no mask in the index, one there" if raw else "a mask in the index, none there"
            differing.append((case.name, words))
    opened, odd = _compared(source, reading, made, left, scratch)
    return HeldTargets(MASKS, same + opened, (*differing, *odd))


def _compared(
    source: MaskSource, reading: HeldReading, made: MadeIndex, left: Sequence[tuple[CaseDraft, Record]], scratch: Path
) -> tuple[int, list[tuple[str, str]]]:
    """How many cases could be compared by their pixels, and those that differ."""
    end, step = time.monotonic() + OPEN_S, max(1, -(-len(left) // MAX_OPENED))
    found, unfit = [], []
    for case, record in left[::step]:
        if time.monotonic() >= end:
            break
        try:
            mask = source.mask_of(case)
            if mask is None or record.mask is None:
                continue
            root = reading.folder.root
            theirs = _OpenedMask.read(_placed(mask, source.prefix, root, scratch), source.masks.classes)
            own = _OpenedMask.read(_placed(record.mask, source.prefix, root, made.base), made.values)
        except (LeaveOut, DataError):
            continue
        if theirs.array.shape != own.array.shape:
            unfit.append((case.name, f"a mask of {_size(own)} in the index, of {_size(theirs)} there"))
        else:
            found.append(_pixels(case.name, theirs, own))
    odd = _differing(found, source.masks.classes, made.values, drawn=source.masks.format != "image")
    return len(found) + len(unfit), [*unfit, *odd]


@dataclass(frozen=True)
class _OpenedMask:
    """A mask as numbers, and the classes that each number means."""

    array: Any
    means: Mapping[int, Marked]

    @classmethod
    def read(cls, mask: Mask, values: Mapping[str, int]) -> _OpenedMask:
        """A label map, or the masks of several classes as bits of one.

        Raises:
            DataError: it cannot be opened, or has too many classes, or masks of different shapes.
        """
        import numpy as np

        if not isinstance(mask, Mapping):
            named = {value: frozenset([name.casefold()]) for name, value in values.items()}
            array = read_mask(mask).array
            return cls(np.where(np.isin(array, list(named)), array, 0).astype(np.int64), named)
        if len(mask) > MAX_CLASSES:
            raise DataError("too many classes")
        layers = [read_mask(path).array != 0 for path in mask.values()]
        if len({layer.shape for layer in layers}) != 1:
            raise DataError("its masks have different shapes")
        array = sum(layer.astype(np.int64) << bit for bit, layer in enumerate(layers))
        names = [name.casefold() for name in mask]
        used = (int(code) for code in value_counts(array))
        return cls(array, {c: frozenset(name for bit, name in enumerate(names) if c >> bit & 1) for c in used})


def _placed(mask: Mask, prefix: str, root: Path, base: Path) -> Mask:
    """A mask by full paths: raw files lie below the data folder, others below `base`."""

    def place(path: str) -> str:
        return str(root / path.removeprefix(prefix) if path.startswith(prefix) else base / path)

    if isinstance(mask, str):
        return place(mask)
    return {name: place(path) for name, path in mask.items()} if isinstance(mask, Mapping) else tuple(map(place, mask))


def _pixels(name: str, theirs: _OpenedMask, own: _OpenedMask) -> _Pixels:
    span = int(own.array.max(initial=0)) + 1
    both = theirs.array * span + own.array
    even = _even(theirs.array)

    def named(counts: Mapping[int, int]) -> Counter[tuple[Marked, Marked]]:
        found: Counter[tuple[Marked, Marked]] = Counter()
        for code, count in counts.items():
            their, mine = divmod(code, span)
            found[theirs.means.get(their, frozenset()), own.means.get(mine, frozenset())] += count
        return found

    return _Pixels(name, named(value_counts(both)), named(value_counts(both[even])))


def _even(array: Any) -> Any:
    """Where all neighbours within a slice have the same value."""
    from scipy import ndimage

    size = (3, 3, *(1,) * (array.ndim - 2))
    return ndimage.minimum_filter(array, size) == ndimage.maximum_filter(array, size)


def _differing(
    found: Sequence[_Pixels], theirs: Mapping[str, int], own: Mapping[str, int], *, drawn: bool
) -> list[tuple[str, str]]:
    """The cases that differ in more than a little; of outlines, those that do so off their line."""
    counted: dict[Marked, Counter[Marked]] = defaultdict(Counter)
    for one in found:
        for (their, mine), count in one.counts.items():
            counted[their][mine] += count
    same = {name.casefold() for name in theirs} == {name.casefold() for name in own}
    meant = {their: their if same or not their else counts.most_common(1)[0][0] for their, counts in counted.items()}
    constant = not any(meant.values())
    differing = []
    for one in found:
        marked = sum(count for (their, mine), count in one.counts.items() if their or mine)
        pixels = one.inner if drawn else one.counts
        odd = sum(count for (their, mine), count in pixels.items() if meant[their] != mine)
        if marked and (constant or odd > SAME * marked):
            differing.append((one.name, f"{odd or marked:,} of {marked:,} marked pixels are not as they are there"))
    return differing


def _size(mask: _OpenedMask) -> str:
    return "x".join(map(str, mask.array.shape))
