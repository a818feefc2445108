"""Readings of a folder where a person has said parts of them: the facts of the survey are narrowed to what was named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from m3b.data.spec.given import DRAWN, FOLDERS, Given, is_match, masked
from m3b.data.spec.model import Files, FromTable, IndexSpec, SplitRule
from m3b.data.spec.patterns import compiled
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.surroundings import GIVEN
from m3b.data.spec.readers import Readers
from m3b.data.survey.relations import End, FoundSplit, Grouping, Join, SplitPart, Survey
from m3b.data.survey.sides import Side, side_of
from m3b.data.survey.table_facts import Table
from m3b.errors import DataError

_WIDE = 50
"""Readings that are looked through for what was given."""


def propose_given(survey: Survey, ask: Ask, given: Given, root: Path, most: int = 5) -> list[Proposal]:
    """The readings that keep to what was given, best first.

    Raises:
        DataError: no reading does; the message says what was found in its stead.
    """
    from m3b.data.spec.proposals import propose

    asked = replace(ask, classes=given.classes or ask.classes, label_column=given.label_column)
    found = propose(narrowed(survey, given), asked, _WIDE)
    files = masked(given, Readers(root).files()) if given.masks else set()
    kept = [made for one in found if (made := _kept(one, given, files)) is not None]
    if not kept:
        raise DataError(_nothing(survey, found, given))
    return kept[:most]


def narrowed(survey: Survey, given: Given) -> Survey:
    """The survey without what was not meant, and with what was said of patients and split."""
    tables = [one for one in survey.tables if not given.labels or one.path == given.labels]
    joins = tuple(one for one in survey.joins if _named(one, tables, given))
    made = survey.model_copy(update={"joins": joins})
    if given.patient_column:
        own = tuple(grouping for table in _with(tables, given.patient_column) for grouping in
                    _groupings(made, table, given.patient_column))  # fmt: skip
        others = tuple(one for one in survey.groupings if not any(end.kind == "column" for end in one.ends))
        made = made.model_copy(update={"groupings": (*own, *others)})
    return made.model_copy(update={"splits": _splits(made, tables, given)}) if given.split else made


def _with(tables: Sequence[Table], column: str) -> list[Table]:
    return [table for table in tables if any(one.name == column for one in table.columns)]


def _named(join: Join, tables: Sequence[Table], given: Given) -> bool:
    """Whether a join may be used: by the column of images, where one was named."""
    if not given.image_column or join.left.kind != "column":
        return True
    mine = _with([one for one in tables if one.id == join.left.owner], given.image_column)
    return not mine or join.left.name == given.image_column


def _groupings(survey: Survey, table: Table, column: str) -> list[Grouping]:
    """A column as whose case an image is, for every group of images that the table names."""
    fact = next(one for one in table.columns if one.name == column)
    groups = {one.right.owner for one in survey.joins if one.left.owner == table.id and one.files}
    return [
        Grouping(group=group, ends=(End(kind="column", owner=table.id, name=column),), distinct=fact.distinct,
                 files=table.rows, per_value=(1, 1, 1), evidence=(GIVEN,), strength=1.0)
        for group in sorted(groups)
    ]  # fmt: skip


def _splits(survey: Survey, tables: Sequence[Table], given: Given) -> tuple[FoundSplit, ...]:
    """The divisions that are meant; one of a column is made where the survey saw none in it."""
    if given.split == DRAWN:
        return ()
    if given.split == FOLDERS:
        return tuple(one for one in survey.splits if one.source in ("folders", "names"))
    listed = tuple(
        one for one in survey.splits if any(is_match(part.where.split(":")[0], given.split) for part in one.parts)
    )
    listed += tuple(
        made for table in survey.tables if table.path == given.split for made in _list_splits(survey, table)
    )
    columns = tuple(one for one in survey.splits if one.source == "column" and one.name == given.split)
    if listed or columns:
        return listed or columns
    return tuple(_column_split(table, given.split) for table in _with(tables, given.split)[:1])


def _list_splits(survey: Survey, table: Table) -> list[FoundSplit]:
    """One list of names as a split of each group of images that it speaks of: for testing, unless its name says that they
    are for training; the rest is the other part."""
    stem = table.path.rpartition("/")[2].rpartition(".")[0]
    side: Side = "train" if side_of(stem) == "train" else "test"
    named: dict[str, int] = {}
    for join in survey.joins:
        if join.left.owner == table.id and join.files and any(one.id == join.right.owner for one in survey.groups):
            named[join.right.owner] = max(join.files, named.get(join.right.owner, 0))
    return [
        FoundSplit(id="given", source="lists", owner=group, covers=1.0, parts=(
            SplitPart(name=stem, side=side, where=table.path, named=table.rows, present=files),
            SplitPart(name="others", side="test" if side == "train" else "train", where="", named=0,
                      present=max(1, survey.group(group).count - files)),
        ))
        for group, files in sorted(named.items())
    ]  # fmt: skip


def _column_split(table: Table, column: str) -> FoundSplit:
    values = next(one for one in table.columns if one.name == column).values
    parts = tuple(
        SplitPart(name=value.text, side=side_of(value.text) or "other", where=f"{table.path}:{column}", named=value.count,
                  present=value.count) for value in values
    )  # fmt: skip
    return FoundSplit(id="given", source="column", owner=table.id, name=column, parts=parts, covers=1.0)


def _kept(one: Proposal, given: Given, files: set[str]) -> Proposal | None:
    """A proposal that keeps to what was given, narrowed to the masks that were; None where it does not."""
    spec = one.spec
    if (given.labels or given.label_column) and not _of_labels(spec, given):
        return None
    if given.split and given.split != DRAWN and spec.split.source is None:
        return None
    if given.classes and {name.casefold() for name in spec.classes} != {name.casefold() for name in given.classes}:
        return None
    if files:
        if spec.masks is None or not (part := _masks(spec.masks.files, given, files)):
            return None
        spec = spec.model_copy(update={"masks": spec.masks.model_copy(update={"files": part})})
    if given.split == DRAWN:
        spec = spec.model_copy(update={"split": SplitRule()})
    if given.patient_column and not (
        isinstance(spec.patient, FromTable) and spec.patient.column == given.patient_column
    ):
        return None
    return replace(one, spec=spec, unclear="" if given.label_column or given.classes else one.unclear)


def _of_labels(spec: IndexSpec, given: Given) -> bool:
    """Whether labels (or reports) come from the table and column that were named."""
    if spec.labels is not None:
        sources = list(spec.labels.sources)
    elif spec.value is not None:
        sources = [spec.value.source]
    elif spec.states is not None and spec.masks is None:
        sources = [spec.states.source]
    elif spec.survival is not None:
        sources = [spec.survival.time.source]
    elif spec.report is not None:
        sources = [one for one in (spec.report.findings, spec.report.impression) if one is not None]
    else:
        return spec.boxes is not None and (
            not given.labels or compiled(spec.boxes.files.pattern).match(given.labels) is not None
        )
    tables = [one for one in sources if isinstance(one, FromTable)]
    if given.labels and not any(compiled(one.file).match(given.labels) for one in tables):
        return False
    return not given.label_column or [one.column for one in tables] == [given.label_column]


def _masks(part: Files, given: Given, files: set[str]) -> Files | None:
    """The mask files of a reading that were named; None where there are none."""
    pattern = compiled(part.pattern)
    mine = {path for path in files if pattern.match(path) is not None}
    if not mine:
        return None
    wanted = given.masks.strip("/").removeprefix("./")
    if all(path.startswith(f"{wanted}/") for path in mine):
        limit = re.escape(wanted) + "/.*"
    else:
        limit = compiled(wanted if "/" in wanted else f"**/{wanted}").regex.pattern
        limit = re.sub(r"\(\?P<\w+>", "(?:", limit)
    return part.model_copy(update={"pattern": f"re:(?=(?:{limit})$){pattern.regex.pattern}"})


def _nothing(survey: Survey, found: Sequence[Proposal], given: Given) -> str:
    """Why no reading keeps to what was given."""
    named = ", ".join(
        f"--{name.replace('_', '-')} {', '.join(value) if isinstance(value, tuple) else value}"
        for name, value in given.model_dump(exclude={"index"}).items() if value
    )  # fmt: skip
    if not found:
        tables = ", ".join(table.path for table in survey.tables[:8]) or "none"
        return (f"No reading of the folder keeps to {named}: nothing that was named could be brought together with images. "
                f"Tables: {tables}. Give --image-column where a table names images in several columns.")  # fmt: skip
    there = "; ".join(f"{one.title} (classes {', '.join(one.spec.classes[:8]) or 'none'})" for one in found[:4])
    return f"No reading of the folder keeps to {named}. Found were: {there}."
