"""Tables of one form of which each names a part of the images, such as `train.csv` and `test.csv`: read as one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from m3b.data.spec.model import FromTable, SplitRule, Value
from m3b.data.spec.proposals.group_files import escaped, files_of
from m3b.data.spec.proposals.image_joins import beside, best_join
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.scopes import Scope, parts_of_one, scope_of, side_told
from m3b.data.spec.proposals.surroundings import from_column
from m3b.data.survey.groups import names_patients
from m3b.data.survey.kinds import cut
from m3b.data.survey.relations import Join, Survey
from m3b.data.survey.sides import side_of
from m3b.data.survey.table_facts import Column, Table

MIN_KEYS = 10
"""Fewer values than this may be the same in two tables by chance."""
MAX_STEPS = 3
"""Tables between one with labels and one that names images."""
FILE = "(file)"
"""The column of a row's own path."""


@dataclass(frozen=True)
class Tables:
    """One table that is joined with the images, or several parts of one.

    Args:
        files: images that have a row, in all parts.
        named, matched: values of the joined column, and those of images that are there.
        through: a table of these names no image, but has a column in common with these that do, or that do by way of
            others again (`join` is theirs).
        shared: that column.
        scopes: which images each part speaks of, where names alone do not say it.
    """

    parts: tuple[Table, ...]
    join: Join
    files: int
    named: int
    matched: int
    through: Tables | None = None
    shared: str = ""
    scopes: tuple[Scope, ...] = ()

    @property
    def first(self) -> Table:
        """The part whose columns speak for all."""
        return self.parts[0]

    @property
    def title(self) -> str:
        """For people."""
        return " and ".join(p.path if p.files == 1 else f"{p.files:,} files like {p.path}" for p in self.parts)

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def told(self) -> tuple[str, ...]:
        """What shows which images the rows speak of, where their names stand for several."""
        return tuple(one.told for one in self.scopes if one.told)

    @property
    def unclear(self) -> str:
        """What a person should say of which images the rows speak of; empty where it is known."""
        own = next((one.unclear for one in self.scopes if one.unclear), "")
        return own or (self.through.unclear if self.through is not None else "")

    def values(self, column: str) -> dict[str, int]:
        """The vocabulary of a column over all parts."""
        found: Counter[str] = Counter()
        for part in self.parts:
            for one in part.columns:
                if one.name == column:
                    found.update({value.text: value.count for value in one.values})
        return dict(found)

    def column(self, survey: Survey, images: ImageSet, name: str) -> FromTable:
        """A column of all parts, for a spec."""
        if self.through is not None:
            table = self.first
            return FromTable(
                file=files_of(survey, table), sheet=table.sheet, header=table.header, row=f"{{{self.shared}}}", column=name,
                records=table.record_path if table.format in ("json", "xml", "text") else "",
                through=self.through.column(survey, images, self.shared),
            )  # fmt: skip
        value = from_column(survey, images, self.join, name)
        if len(self.parts) == 1:
            return value
        within = {
            escaped(part.path): one.folder for part, one in zip(self.parts, self.scopes, strict=True) if one.folder
        }
        pattern = "re:" + "|".join(re.escape(part.path) for part in self.parts)
        return value.model_copy(update={"file": pattern, "within": within})

    def together(self, survey: Survey, images: ImageSet) -> tuple[Value, ...]:
        """What several images with one row have in common."""
        if self.through is not None:
            return (self.through.column(survey, images, self.shared),)
        several = beside(survey, images, self.join)
        return (self.column(survey, images, self.join.left.name),) if several else ()

    def patient(self, survey: Survey, images: ImageSet) -> FromTable | None:
        """The column of patients of a table that names no image itself; None where no such table has one."""
        at: Tables | None = self
        while at is not None and at.through is not None:
            for column in at.first.columns:
                if names_patients(column.name) and not column.missing and column.distinct > 1 and column.type != "text":
                    return at.column(survey, images, column.name)
            at = at.through
        return None

    def split(self, survey: Survey, images: ImageSet) -> SplitRule | None:
        """The split that the parts themselves are; None of one table, or where a side is missing."""
        sides: dict[str, list[str]] = {"train": [], "val": [], "test": []}
        for part in self.parts:
            sides.get(side_told(part.path), []).append(part.path)
        if not sides["test"]:
            sides["test"], sides["val"] = sides["val"], []
        if len(self.parts) < 2 or not sides["train"] or not sides["test"]:
            return None
        return SplitRule(source=self.column(survey, images, FILE), train=tuple(sides["train"]), val=tuple(sides["val"]),
                     test=tuple(sides["test"]))  # fmt: skip


def joined_tables(survey: Survey, images: ImageSet) -> list[Tables]:
    """Every table that names images of a set; parts of one form once, together."""
    known = [(table, join) for table in survey.tables if (join := best_join(survey, images, table.id)) is not None]
    found: list[Tables] = []
    taken: set[str] = set()
    for table, join in known:
        if table.id in taken:
            continue
        parts = _parts(survey, images, (table, join), [one for one in known if one[0].id not in taken])
        taken.update(one.id for one, _ in parts)
        scopes = tuple(scope_of(survey, one, its) for one, its in parts)
        also = [every for _, one in parts for every in beside(survey, images, one)]
        joins = [*(one for _, one in parts), *also]
        files = sum(one.files for one in scopes) + sum(one.files for one in also)
        found.append(Tables(tuple(one for one, _ in parts), join, files, sum(one.left_values for one in joins),
                            sum(one.named for one in scopes) + sum(one.left_matched for one in also), scopes=scopes))  # fmt: skip
    return [*found, *_through(survey, [_alone(survey, table, join) for table, join in known])]


def _parts(
    survey: Survey, images: ImageSet, one: tuple[Table, Join], known: list[tuple[Table, Join]]
) -> list[tuple[Table, Join]]:
    """A table with the further parts of it, those of its own folder first: as many as name no more images than there are."""
    left = sum(group.count for group in images.groups) - scope_of(survey, *one).files
    parts = [one]
    for other in sorted(known, key=lambda its: _folder(its[0]) != _folder(one[0])):
        if other[0].id == one[0].id or not parts_of_one(survey, images, one, other):
            continue
        files = scope_of(survey, *other).files
        if files <= left:
            parts.append(other)
            left -= files
    return parts


def _folder(table: Table) -> str:
    return table.path.rpartition("/")[0]


def _alone(survey: Survey, table: Table, join: Join) -> Tables:
    return Tables((table,), join, join.files, 0, 0, scopes=(scope_of(survey, table, join),))


def _through(survey: Survey, known: list[Tables]) -> list[Tables]:
    """Tables of studies or patients that name no image: those that share a column with one that does, in steps."""
    found: list[Tables] = []
    for _ in range(MAX_STEPS):
        taken = {one.first.id for one in (*known, *found)}
        made = [one for table in survey.tables if table.id not in taken and (one := _step(table, [*known, *found]))]
        if not made:
            break
        found += made
    return found


def _step(table: Table, known: list[Tables]) -> Tables | None:
    for other in known:
        shared = _shared_key(table, other.first, other.join)
        if shared is not None and shared.name != other.shared:
            return Tables((table,), other.join, other.files, shared.distinct, shared.distinct, other, shared.name)
    return None


def _shared_key(table: Table, other: Table, join: Join) -> Column | None:
    """A column of both that numbers the rows of the first once each, and of which the other has about as many."""
    theirs = {column.name: column for column in other.columns if column.name != join.left.name}
    for column in table.columns:
        same = theirs.get(column.name)
        once = column.distinct >= MIN_KEYS and column.distinct == table.rows
        if same is not None and once and 0.5 * column.distinct <= same.distinct <= 1.1 * column.distinct:
            return column
    return None


def subject_of(table: Table) -> str:
    """What a table's name speaks of beside the side of a split: `acl` of `train-acl.csv`."""
    stem = cut(table.path.rpartition("/")[2])[0]
    return " ".join(word for word in re.split(r"[\W_]+", stem) if word and not side_of(word)).casefold()
