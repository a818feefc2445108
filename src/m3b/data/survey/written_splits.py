"""Splits that are written down: a list or table for each side, or a document with a list for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from m3b.data.survey.columns import is_missing
from m3b.data.survey.divisions import Division, keys_by_path
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.keys import key
from m3b.data.survey.kinds import cut
from m3b.data.survey.relations import FoundSplit, Join, SplitPart
from m3b.data.survey.sides import SIDES, Side, all_but_test, side_of
from m3b.data.survey.tables import Loaded


@dataclass
class _Named:
    """One side of a split that is written down: where, and the texts that it names."""

    side: Side
    where: str
    table: Loaded
    column: str
    texts: list[str]


def written(found: Gathering, tables: Sequence[Loaded], joins: Sequence[Join]) -> list[Division]:
    """Lists and tables of which each is one side, and JSON documents with a list for each side."""
    sets: dict[tuple[str, ...], list[_Named]] = defaultdict(list)
    for table in tables:
        stem = cut(table.fact.path.rpartition("/")[2])[0]
        folder = table.fact.path.rpartition("/")[0]
        if side := side_of(stem):
            rest = _without(stem)
            for column in table.fact.columns:
                if column.type in ("identifier", "path", "integer", "category"):
                    texts = _texts(table, column.name)
                    sets[folder, rest, table.fact.format, column.name].append(
                        _Named(side, table.fact.path, table, column.name, texts)
                    )
        if len(table.rows) == 1 and table.fact.format == "json":
            for column in table.fact.columns:
                if (side := side_of(column.name)) and column.lists:
                    sets[table.fact.path, "keys"].append(
                        _Named(side, f"{table.fact.path}:{column.name}", table, column.name, _texts(table, column.name))
                    )
    made = [division for where, some in sorted(sets.items()) if (division := _division(found, where, some, joins))]
    return _as_one(_without_repeats(made))


def _without(stem: str) -> str:
    """A list's name without the word of its side."""
    words = [word for word in stem.replace("-", "_").replace(".", "_").split("_") if word and not side_of(word)]
    return "_".join(words).lower()


def _texts(table: Loaded, column: str) -> list[str]:
    return [text for items in table.cells(column) for text in items if not is_missing(text)]


def _with_training(some: list[_Named]) -> list[_Named]:
    """Lists of training and validation together are the training side, where no other list is."""
    if any(one.side == "train" for one in some):
        return some
    return [replace(one, side="train") if all_but_test(cut(one.where.rpartition("/")[2])[0]) else one for one in some]


def _division(found: Gathering, where: tuple[str, ...], some: list[_Named], joins: Sequence[Join]) -> Division | None:
    some = _with_training(some)
    if len({one.side for one in some} & set(SIDES)) < 2:
        return None
    images = {group.id for group in found.groups if group.is_images}
    join = _best(joins, some, images)
    if join is None:
        return None
    group = next(one for one in found.groups if one.id == join.right.owner)
    keys = keys_by_path(group, join)
    sides: dict[str, str] = {}
    present: dict[str, int] = {}
    seen: dict[str, set[str]] = {}
    for one in sorted(some, key=lambda named: (named.side == "other", named.where)):
        mine = {made for text in one.texts if (made := key(join.rule, text))}
        here = [path for path, made in keys.items() if made in mine]
        present[one.where] = len(here)
        if one.side != "other":
            seen[one.where] = mine
            sides.update(dict.fromkeys(here, one.side))
    all_keys = [made for mine in seen.values() for made in mine]
    fact = FoundSplit(
        id="", source="lists" if some[0].table.fact.format in ("list",) or where[-1] == "keys" else "tables",
        owner=group.id, name=join.left.name, rule=join.rule,
        parts=tuple(
            SplitPart(name=cut(one.where.rpartition("/")[2])[0], side=one.side, where=one.where,
                      named=len(set(one.texts)), present=present[one.where]) for one in some
        ),
        overlap=len(all_keys) - len(set(all_keys)) if not _nested(some) else 0,
        covers=round(len(sides) / max(group.merged.count, 1), 4),
    )  # fmt: skip
    return Division(fact, group.id, sides)


def _nested(some: Sequence[_Named]) -> bool:
    """Whether several lists of one side lie beside one that holds them all (train, train_1, train_2)."""
    sides = [one.side for one in some]
    return len(sides) > len(set(sides))


def _best(joins: Sequence[Join], some: Sequence[_Named], images: set[str]) -> Join | None:
    """The join by which the most files are found, among those of all sides' columns; images before other files."""
    owners = {(one.table.fact.id, one.column) for one in some}
    files = [
        join for join in joins
        if (join.left.owner, join.left.name) in owners and join.right.kind in ("path", "level", "part", "tag")
        and join.files and join.chance < 0.5
    ]  # fmt: skip
    if not files:
        return None
    by_end: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for join in files:
        by_end[join.right.kind, join.right.owner, join.right.name, join.rule] += join.files
    return max(
        files,
        key=lambda join: (join.right.owner in images, by_end[join.right.kind, join.right.owner, join.right.name, join.rule],
                          join.right.kind == "path", -int(join.right.owner[1:])),
    )  # fmt: skip


def _as_one(made: list[Division]) -> list[Division]:
    """Lists a side for each class, of which no two name the same file, as one split beside them."""
    by: dict[tuple[str, str, str], list[Division]] = defaultdict(list)
    for one in made:
        if one.fact.source == "lists" and not any(":" in part.where for part in one.fact.parts):
            by[one.group, one.fact.name, one.fact.rule].append(one)
    for some in by.values():
        sides = {frozenset(part.side for part in one.fact.parts) for one in some}
        named = sum(len(one.sides) for one in some)
        together = {path: side for one in some for path, side in one.sides.items()}
        names = [part.name for one in some for part in one.fact.parts]
        if len(some) > 1 and len(sides) == 1 and named == len(together) and len(names) == len(set(names)):
            fact = some[0].fact.model_copy(update={
                "parts": tuple(part for one in some for part in one.fact.parts), "overlap": sum(one.fact.overlap for one in some),
                "covers": round(sum(one.fact.covers for one in some), 4),
            })  # fmt: skip
            made = [Division(fact, some[0].group, together), *made]
    return made


def _without_repeats(made: list[Division]) -> list[Division]:
    """Of several columns of the same tables, the one that covers the most."""
    best: dict[tuple[str, ...], Division] = {}
    for one in made:
        where = (one.group, *sorted(part.where for part in one.fact.parts))
        if where not in best or one.fact.covers > best[where].fact.covers:
            best[where] = one
    return list(best.values())
