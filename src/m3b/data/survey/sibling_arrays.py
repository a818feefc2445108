"""Arrays of items that lie in files of their own: images, and in siblings called alike the labels, persons or masks of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal

from m3b.data.survey.array_texts import text_of, texts_of
from m3b.data.survey.facts import Value
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.item_arrays import (
    CHANNELS,
    MOST_ARRAYS,
    MOST_LAYERS,
    MOST_VALUES,
    ItemArray,
    item_arrays,
    looked,
    mask_layers,
    mask_values,
)
from m3b.data.survey.item_facts import ItemSet, ItemSlot, SiblingArray, SiblingTable
from m3b.data.survey.kinds import cut
from m3b.data.survey.samples import MASKS
from m3b.data.survey.sibling_names import Parts, one_word, parts_of, tokens
from m3b.data.survey.tables import Loaded

FEW = 3
"""Files of stacks that neither a fourth axis nor a vector beside them tells from volumes."""
NUMBERS = frozenset({"", "index", "idx", "id", "unnamed: 0", "(column 0)", "row", "item"})
"""Columns that may number items."""


def item_sets(found: Gathering, tables: Sequence[Loaded]) -> list[ItemSet]:
    """The sets of images in arrays of which sibling files, arrays or tables, speak item by item."""
    arrays = list(islice(item_arrays(found), MOST_ARRAYS + 1))
    if len(arrays) > MOST_ARRAYS:
        return []
    beside = {one.path: list(_beside(one, arrays, tables)) for one in arrays if one.pictures}
    images = {path: some for path, some in beside.items() if some}
    if not images:
        return []
    held = {one.path: one for one in arrays}
    sets: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for path, some in images.items():
        word = next((mine for mine, _, _ in some if mine), "")
        sets[_kind(held[path], word)].append(path)
    for one in arrays:  # a part of which no sibling says anything: a test part without labels
        for kind in sets if one.pictures and one.path not in images else ():
            if _kind(one, kind[-1]) == kind and not _is_mask(one):
                sets[kind].append(one.path)
    made = [_set(kind[-1], sorted(paths), held, images) for kind, paths in sorted(sets.items(), key=str)]
    return [one.model_copy(update={"id": f"i{at}"}) for at, one in enumerate(filter(None, made), 1)]


def _is_mask(one: ItemArray) -> bool:
    content = looked(one)
    return content is not None and content.values in (*MASKS, "constant")


def _beside(
    image: ItemArray, arrays: Sequence[ItemArray], tables: Sequence[Loaded]
) -> Iterator[tuple[str, str, ItemArray | Loaded]]:
    """(the images' word, the other's, what it is) of every sibling of as many items; nothing where it is no array of images."""
    vectors, masks = [], []
    for one in arrays:
        if one.rows == image.rows and one.path != image.path and (words := one_word(image.path, one.path)):
            if one.vector:
                vectors.append((*words, one))
            elif one.pictures and one.sides == image.sides:
                masks.append((*words, one))
    rows = [
        (*words, table)
        for table in tables
        if _rows_fit(table, image) and (words := one_word(image.path, table.fact.path))
    ]
    stack = len(image.shape) >= 4 or vectors or rows or _few_alike(image, arrays)
    if not stack or not (vectors or rows or masks) or _is_mask(image):
        return
    yield from vectors
    yield from (one for one in masks if _is_mask(one[2]))
    yield from rows


def _few_alike(image: ItemArray, arrays: Sequence[ItemArray]) -> bool:
    """Whether three axes are items, rows and columns: there are so few such files that each as one volume would be no data set,
    and they count no cases."""
    alike = [one for one in arrays if len(one.shape) == 3 and len(tokens(one.path)) == len(tokens(image.path))]
    return len(alike) <= 2 * FEW and image.rows > FEW


def _rows_fit(table: Loaded, image: ItemArray) -> bool:
    """Whether a table has a row an item; of one that was cut off, as many as were read."""
    fact = table.fact
    return fact.files == 1 and (fact.rows == image.rows or (not fact.exact and fact.rows < image.rows))


def _kind(one: ItemArray, word: str) -> tuple[Any, ...]:
    """What images of one set have in common: the form of their paths, around their word, and of their items."""
    form = tuple(text if word and text == word else kind for kind, text in tokens(one.path))
    return form, cut(one.path)[1], one.key, one.shape[3:], word


def _set(
    word: str, paths: Sequence[str], held: dict[str, ItemArray],
    images: dict[str, list[tuple[str, str, ItemArray | Loaded]]],
) -> ItemSet | None:  # fmt: skip
    parts = parts_of(paths)
    said = [one for path in paths for _, _, one in images.get(path, ())]
    itemised = any(not isinstance(one, ItemArray) or one.vector for one in said)
    if parts is None or not (itemised or len(paths) <= 2 * FEW):
        return None  # many arrays with masks alone are volumes, a case each
    file, pattern = parts.named(paths[0])
    mine = [held[path] for path in paths]
    arrays: dict[tuple[str, str, str], dict[str, ItemArray]] = defaultdict(dict)
    tables: dict[tuple[str, str], dict[str, Loaded]] = defaultdict(dict)
    for path in paths:
        for _, its, one in images.get(path, ()):
            if isinstance(one, ItemArray):
                arrays[(its, parts.named(one.path, path)[0], one.key)][path] = one
            else:
                tables[(its, parts.named(one.fact.path, path)[0])][path] = one
    slots = tuple(
        ItemSlot(name=name, values=_counted(zip(texts, (one.rows for one in mine), strict=True)))
        for name, texts in parts.slots.items()
    )
    return ItemSet(
        id="", groups=tuple(dict.fromkeys(one.group for one in mine)), pattern=pattern, file=file, word=word, key=mine[0].key,
        files=tuple(paths), rows=sum(one.rows for one in mine), content=looked(mine[0]), slots=slots,
        arrays=tuple(made for known, some in sorted(arrays.items()) if (made := _array(parts, known, some, mine[0].shape))),
        tables=tuple(_table(parts, known, some) for known, some in sorted(tables.items())),
    )  # fmt: skip


def _counted(pairs: Any) -> tuple[Value, ...]:
    counts = Counter[str]()
    for text, count in pairs:
        counts[text] += count
    return tuple(Value(text=text, count=count) for text, count in sorted(counts.items()))


def _array(
    parts: Parts, known: tuple[str, str, str], some: dict[str, ItemArray], images: tuple[int, ...]
) -> SiblingArray | None:
    word, file, key = known
    image, first = next(iter(some.items()))
    facts: dict[str, Any] = {
        "word": word, "file": file, "key": key, "pattern": parts.named(first.path, image)[1], "files": len(some),
        "groups": tuple(dict.fromkeys(one.group for one in some.values())), "rows": sum(one.rows for one in some.values()),
    }  # fmt: skip
    return _vector(facts, some) if first.vector else _mask(facts, some, images)


def _mask(facts: dict[str, Any], some: dict[str, ItemArray], images: tuple[int, ...]) -> SiblingArray | None:
    """Masks, of one layer or of several along their last axis: an axis that the images, as volumes, have too is none of layers."""
    first = next(iter(some.values()))
    volumes = first.shape == images and images[-1] not in CHANNELS
    layers = first.shape[3] if len(first.shape) == 4 and first.shape[3] > 1 and first.sides == first.shape[1:3] else 1
    if volumes or layers == 1:
        counts = sum((one.asked("values", mask_values) or Counter() for one in some.values()), Counter[str]())
        values = tuple(Value(text=text, count=counts[text]) for text in sorted(counts, key=float))
        return SiblingArray(**facts, role="mask", content=looked(first), values=values, distinct=len(counts))
    if layers > MOST_LAYERS:
        return None
    exclusive, rest = first.asked("layers", mask_layers) or (False, None)
    return SiblingArray(**facts, role="mask", content=looked(first), layers=layers, exclusive=exclusive, rest=rest)


def _vector(facts: dict[str, Any], some: dict[str, ItemArray]) -> SiblingArray | None:
    """A value for each item, and the vocabulary of all files; None where items have several values."""
    counts = Counter[str]()
    for one in some.values():
        texts = one.asked("texts", lambda inner: texts_of(inner.read(None)))
        if texts is None or any(text is None for text in texts):
            return None
        counts.update(texts)
    numbers = all(_is_number(text) for text in counts)
    whole = numbers and all(float(text).is_integer() for text in counts)
    role: Literal["labels", "text", "number"] = "labels" if whole else "number" if numbers else "text"
    values = (
        tuple(Value(text=text, count=counts[text]) for text in sorted(counts)) if len(counts) <= MOST_VALUES else ()
    )
    return SiblingArray(**facts, role=role, values=values, distinct=len(counts))


def _is_number(text: str) -> bool:
    try:
        return float(text) is not None
    except ValueError:
        return False


def _table(parts: Parts, known: tuple[str, str], some: dict[str, Loaded]) -> SiblingTable:
    image, first = next(iter(some.items()))
    every = list(some.values())
    return SiblingTable(
        word=known[0], pattern=parts.named(first.fact.path, image)[1], tables=tuple(one.fact.id for one in every),
        index=next((name for name in first.names if all(_numbers_items(one, name) for one in every)), ""),
        rows=sum(one.fact.rows for one in every),
    )  # fmt: skip


def _numbers_items(table: Loaded, name: str) -> bool:
    """Whether a column called after items numbers them from 0 in another order than that of the rows."""
    column = next((one for one in table.fact.columns if one.name == name), None)
    if column is None or name.strip().lower() not in NUMBERS or column.type != "integer":
        return False
    numbers = [text_of(cell[0]) if cell else "" for cell in table.cells(name)]
    own = [str(at) for at in range(len(numbers))]
    return numbers != own and sorted(map(str, numbers)) == sorted(own)
