"""Images in arrays of files of their own, of which sibling files speak item by item: as cases, with their persons and split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from m3b.data.spec.model import Files, FromMember, FromPath, FromTable, Images, LeftOut, SplitRule, Value
from m3b.data.spec.proposals.image_set import ImageSet, literal
from m3b.data.spec.value_sources import ROW
from m3b.data.survey.facts import Member
from m3b.data.survey.groups import evidence_of
from m3b.data.survey.item_facts import PART, ItemSet, SiblingArray, SiblingTable
from m3b.data.survey.relations import Survey
from m3b.data.survey.sides import is_split, sides_of
from m3b.data.survey.table_facts import Column


def item_images(survey: Survey) -> list[ImageSet]:
    """The item sets of a survey as sets of images."""
    return [_set(survey, one) for one in survey.items]


def _set(survey: Survey, one: ItemSet) -> ImageSet:
    files = Files(pattern="re:" + one.pattern, member=f"{literal(one.key)}[#]")
    member = Member(key=one.key, files=len(one.files), content=one.content, rows=one.rows, role="image")
    groups = tuple(survey.group(id) for id in one.groups)
    return ImageSet(groups, Images(files=files), one.rows, {}, member=member, items=one)


def value_of(one: SiblingArray) -> FromMember:
    """What an array says of an item, as a value of a spec."""
    return FromMember(key=f"{one.key}[#]", file=one.file)


def cell_of(survey: Survey, items: ItemSet, one: SiblingTable, column: str) -> FromTable:
    """The cell of an item's row: by its place, or by the column that numbers the items."""
    table = survey.table(one.tables[0])
    pattern = "re:" + one.pattern
    return FromTable(
        file=pattern, sheet=table.sheet, header=table.header, row="{" + (one.index or ROW) + "}", image="{index}",
        rule="exact", column=column, within={pattern: items.file},
    )  # fmt: skip


def columns_of(survey: Survey, one: SiblingTable) -> Iterator[tuple[Column, dict[str, int]]]:
    """The columns that all tables of the parts have, each with the vocabulary of all; none where one has too many values."""
    tables = [survey.table(id) for id in one.tables]
    for column in tables[0].columns:
        same = [next((other for other in table.columns if other.name == column.name), None) for table in tables]
        if column.name == one.index or any(other is None for other in same):
            continue
        values: dict[str, int] = {}
        whole = all(other is not None and (other.values or not other.filled) for other in same)
        for value in (value for other in same if other is not None for value in other.values) if whole else ():
            values[value.text] = values.get(value.text, 0) + value.count
        yield column, values


def grouping_values(survey: Survey, items: ItemSet) -> Iterator[tuple[str, Value, str]]:
    """(evidence, value, where it stands) of arrays and columns that are called after persons, cases or sources."""
    for one in items.arrays:
        if one.role != "mask" and one.distinct < one.rows and (codes := evidence_of(one.word)):
            yield codes[0], value_of(one), f"the arrays {one.file}"
    for table in items.tables:
        for column, _ in columns_of(survey, table):
            repeated = 1 < column.distinct < column.filled and column.type not in ("text", "boolean", "number", "empty")
            if repeated and (codes := evidence_of(column.name)):
                yield (
                    codes[0],
                    cell_of(survey, items, table, column.name),
                    f"the column {column.name!r} of {told(survey, table)}",
                )


def told(survey: Survey, one: SiblingTable) -> str:
    """The tables of a set's parts, for people."""
    more = f" and {len(one.tables) - 1} more" if len(one.tables) > 1 else ""
    return f"{survey.table(one.tables[0]).path}{more}, a row an item"


def own_split(items: ItemSet) -> tuple[SplitRule, str] | None:
    """The data set's own split, by the names of its files or an array of sides, and what is said of it; None without one."""
    slot = next((one for one in items.slots if one.name == PART), None)
    values = {value.text: value.count for value in slot.values} if slot is not None else {}
    source: Value = FromPath(value="{" + PART + "}")
    if slot is None:
        array = next((one for one in items.arrays if one.role == "text" and is_split(v.text for v in one.values)), None)
        if array is None:
            return None
        values, source = {value.text: value.count for value in array.values}, value_of(array)
    sides = sides_of(values)
    train, val, test = (tuple(text for text in values if sides[text] == side) for side in ("train", "val", "test"))
    if not train or not (test or val):
        return None
    rule = SplitRule(source=source, train=train, val=val if test else (), test=test or val)
    counts = ", ".join(f"{text} {values[text]}" for text in (*train, *val, *test))
    return (
        rule,
        f"the data set's own split (names): {counts}" if slot is not None else f"the data set's own split: {counts}",
    )


def beside(
    survey: Survey, images: ImageSet, taken: Iterable[Value], also: Iterable[str] = ()
) -> tuple[set[str], tuple[LeftOut, ...]]:
    """Of a set of items: the groups of its sibling arrays, and those of these that a reading makes no use of, file by file.

    Args:
        taken: the values that the reading takes.
        also: keys of files that it takes otherwise, as its masks.
    """
    items = images.items
    if items is None:
        return set(), ()
    used = {one.file for one in taken if isinstance(one, FromMember)} | set(also)
    left = [one for one in items.arrays if one.file not in used]
    out = tuple(
        LeftOut(pattern="re:" + one.pattern, reason=f"no part of this reading: {one.file[:80]}") for one in left
    )
    return {id for one in items.arrays for id in one.groups}, out
