"""Divisions into training, validation and test that a folder brings along: folders, lists, columns, tables, keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from m3b.data.survey.columns import fold
from m3b.data.survey.divisions import Division, keys_by_path
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.keys import key
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.relations import FoundSplit, Join, SplitPart
from m3b.data.survey.sides import beside_a_test_part, is_split, side_of, sides_of
from m3b.data.survey.tables import Loaded
from m3b.data.survey.written_splits import written

ENDS = ("path", "level", "part", "tag")
"""What of files a column may name, the surest first."""


def splits_of(found: Gathering, tables: Sequence[Loaded], joins: Sequence[Join]) -> list[Division]:
    """Every split that a folder brings, in a fixed order."""
    made = [division for group in found.groups if group.fact.kind in IMAGES for division in _folders(group)]
    made += written(found, tables, joins)
    made += _columns(found, tables, joins)
    made += _members(found)
    for number, one in enumerate(made, 1):
        one.fact = one.fact.model_copy(update={"id": f"s{number}"})
    return made


def _folders(group: Gathered) -> list[Division]:
    made = []
    for part in group.fact.parts:
        if part.kind not in ("word", "text"):
            continue
        of = sides_of([value.text for value in part.values])
        if not is_split(of):
            of = beside_a_test_part({value.text: value.count for value in part.values})
            if not of or not part.slot.startswith("level"):
                continue
        texts = group.values[part.slot]
        sides = {
            path: of.get(text) or side_of(text)
            for path, text in zip(group.looked, texts, strict=True)
            if text is not None
        }
        parts = tuple(
            SplitPart(name=value.text, side=of[value.text] or "other", where=value.text, named=value.count,
                      present=value.count)
            for value in part.values
        )  # fmt: skip
        fact = FoundSplit(id="", source="folders" if part.slot.startswith("level") else "names", owner=group.id, name=part.slot,
                     parts=parts, covers=round(len(sides) / max(len(group.looked), 1), 4))  # fmt: skip
        made.append(Division(fact, group.id, {path: side for path, side in sides.items() if side}))
    return made


def _columns(found: Gathering, tables: Sequence[Loaded], joins: Sequence[Join]) -> list[Division]:
    made = []
    for table in tables:
        for column in table.fact.columns:
            if column.type != "category" or len(column.values) > 8 or not is_split(one.text for one in column.values):
                continue
            named = [one for one in joins if one.left.owner == table.fact.id and one.files and one.chance < 0.5]
            join = next((one for kind in ENDS for one in named if one.right.kind == kind), None)
            made.append(_column(found, table, column.name, join))
    return made


def _column(found: Gathering, table: Loaded, name: str, join: Join | None) -> Division:
    values = [fold(items[0]) if items else "" for items in table.cells(name)]
    group = next((one for one in found.groups if join and one.id == join.right.owner), None)
    sides: dict[str, str] = {}
    if group and join:
        by_key = defaultdict(set)
        for items, value in zip(table.cells(join.left.name), values, strict=True):
            for item in items:
                by_key[key(join.rule, item)].add(value)
        for path, made in keys_by_path(group, join).items():
            if (some := by_key.get(made)) and len(some) == 1:
                sides[path] = side_of(next(iter(some))) or "other"
    column = next(one for one in table.fact.columns if one.name == name)
    parts = tuple(
        SplitPart(name=value.text, side=side_of(value.text) or "other", where=f"{table.fact.path}:{name}",
                  named=value.count, present=sum(1 for side in sides.values() if side == side_of(value.text)))
        for value in column.values
    )  # fmt: skip
    covers = len(sides) / max(group.merged.count, 1) if group else 0.0
    fact = FoundSplit(id="", source="column", owner=table.fact.id, name=name, parts=parts, covers=round(covers, 4),
                 rule=join.rule if join else "exact")  # fmt: skip
    return Division(fact, group.id if group else "", sides)


def _members(found: Gathering) -> list[Division]:
    made = []
    for group in found.groups:
        members = [one for one in (group.container.members if group.container else ()) if one.split and one.rows]
        if len({one.split for one in members}) < 2:
            continue
        rows = {one.split: one for one in sorted(members, key=lambda one: one.role != "image")[::-1]}
        parts = tuple(
            SplitPart(
                name=one.key, side=one.split or "other", where=one.key, named=one.rows or 0, present=one.rows or 0
            )
            for one in rows.values()
        )
        made.append(Division(FoundSplit(id="", source="members", owner=group.id, parts=parts, covers=1.0), group.id))
    return made
