"""Files that hold one array of items each, and what these items are, as far as is looked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.array_files import opened_members
from m3b.data.survey.array_members import Inner
from m3b.data.survey.facts import Content
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.kinds import cut
from m3b.data.survey.samples import MASKS, FileSample, content, from_array

MOST_FILES = 64
"""Files of one group, from more of which on each is a case of its own."""
LEAST_SIDE = 8
"""Of pictures, in pixels."""
CHANNELS = (1, 3, 4)
MOST_LAYERS, SAMPLES = 32, 12
MOST_READ = 2**26
"""Bytes of one array that are looked at."""
MOST_ARRAYS = 256
"""Files with an array of items, from more of which on they are cases and no sets."""
HALF = 0.5
MOST_COLUMNS = 60
"""Of one-hot rows."""
MOST_VALUES = 200


@dataclass
class ItemArray:
    """The one array of items of a file; what it holds is looked at when it is wanted."""

    path: str
    group: str
    key: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[Callable[[Inner], Any]], Any]
    """Opens the file and answers what a function finds in the array."""
    _known: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def vector(self) -> bool:
        """Whether it has a value, or a one-hot row, for each item."""
        return max(self.shape[1:], default=1) == 1 or (len(self.shape) == 2 and self.shape[1] <= MOST_COLUMNS)

    @property
    def pictures(self) -> bool:
        """Whether its items have rows and columns."""
        return 3 <= len(self.shape) <= 5 and min(self.sides) >= LEAST_SIDE

    @property
    def sides(self) -> tuple[int, ...]:
        """Rows and columns of its items, which may have few channels before or behind them."""
        channels_first = len(self.shape) == 4 and self.shape[1] in CHANNELS and self.shape[3] not in CHANNELS
        return self.shape[2:4] if channels_first else self.shape[1:3]

    def asked(self, what: str, look: Callable[[Inner], Any]) -> Any:
        """What a function finds in the array, once; None where it does not open."""
        if what not in self._known:
            try:
                self._known[what] = self.read(look)
            except Unreadable:
                self._known[what] = None
        return self._known[what]


def item_arrays(found: Gathering) -> Iterator[ItemArray]:
    """Every file that holds one array of items, whatever single values beside it."""
    for group in found.groups:
        if group.fact.kind not in ("array", "hdf5", "mat") or group.fact.stray or group.merged.count > MOST_FILES:
            continue
        for path in group.paths:
            if found.tree.late:
                found.tree.notes.add("time", path)
                return
            suffix = cut(path.rpartition("/")[2])[1]
            try:
                inners = attempt(partial(_headers, found, path, suffix), found.tree.root / path)
            except Unreadable:
                continue
            several = [one for one in inners if one.shape and one.shape[0] > 1]
            if len(several) == 1:
                one = several[0]
                read = partial(_asked, found, path, suffix, one.key)
                yield ItemArray(path, group.id, one.key, one.shape, one.dtype, read)


def _headers(found: Gathering, path: str, suffix: str) -> list[Inner]:
    with opened_members(found.tree.root / path, suffix) as (_, inners):
        return inners


def _asked(found: Gathering, path: str, suffix: str, key: str, look: Callable[[Inner], Any]) -> Any:
    def answer() -> Any:
        if found.tree.late:
            raise Unreadable("time", "there is no time left")
        with opened_members(found.tree.root / path, suffix) as (_, inners):
            return look(next(one for one in inners if one.key == key))

    return attempt(answer, found.tree.root / path)


def looked(one: ItemArray) -> Content | None:
    """What some of the first items hold; of masks of several layers, whether any marks a pixel."""
    looked: Content | None = one.asked("content", _content_of)
    return looked


def _content_of(inner: Inner) -> Content | None:
    items = _part(inner)
    if items.dtype.kind not in "biuf":
        return None
    return content([_sample(items[at], inner.dtype) for at in range(0, len(items), max(1, len(items) // SAMPLES))])


def _sample(item: Any, dtype: str) -> FileSample:
    """A look at one picture, with its channels before or behind it, at one volume, or at the layers of a mask."""
    import numpy as np

    if item.ndim == 3 and item.shape[-1] in CHANNELS:
        item = np.moveaxis(item, -1, 0)
    elif item.ndim == 3 and item.shape[0] not in CHANNELS:
        whole = from_array(item[None], 3, dtype=dtype)
        layered = item.shape[-1] <= MOST_LAYERS and whole.values.kind in MASKS and whole.values.kind != "lossy_mask"
        return from_array((item > 0).any(axis=-1)[None], 2) if layered else whole
    return from_array(item if item.ndim == 3 else item.reshape(1, *item.shape[-2:]), 2, dtype=dtype)


def _part(inner: Inner) -> Any:
    """The first items, as many as are looked at."""
    import numpy as np

    each = np.dtype(inner.dtype).itemsize if "object" not in inner.dtype else 8
    items = max(1, min(inner.shape[0], MOST_READ // max(1, each * prod(inner.shape[1:]))))
    return np.asarray(inner.read((slice(0, items),)))[:items]


def mask_values(inner: Inner) -> Counter[str]:
    """Whole values of a mask, each with its pixels; none where a value is a fraction, or there are very many."""
    import numpy as np

    flat = _part(inner).ravel()
    if flat.dtype.kind == "f" and not (np.isfinite(flat).all() and (flat == np.round(flat)).all()):
        return Counter()
    if flat.size == 0 or flat.min() < 0 or flat.max() >= 2**16:
        return Counter()
    counts = np.bincount(flat.astype(np.int64))
    held = np.flatnonzero(counts)
    return Counter({str(value): int(counts[value]) for value in held}) if len(held) <= MOST_VALUES else Counter()


def mask_layers(inner: Inner) -> tuple[bool, int | None]:
    """Whether layers of a mask exclude each other, and which one holds just what the others leave: of layers that together cover
    every pixel, the first or the last where it covers most."""
    marked = _part(inner) > 0
    places = marked.sum(axis=-1)
    last = marked.shape[-1] - 1
    left = [at for at in range(last + 1) if (marked[..., at] == (places - marked[..., at] == 0)).all()]
    if len(left) > 1:
        left = [at for at in left if at in (0, last) and marked[..., at].mean() > HALF]
    return bool((places <= 1).all()), left[0] if len(left) == 1 else None
