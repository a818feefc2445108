"""What a person says of how a folder is to be read: a whole spec, or parts that narrow what is proposed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from m3b.data.opening import Unreadable
from m3b.data.spec.model import IndexSpec, SpecPart
from m3b.data.spec.patterns import compiled
from m3b.data.spec.readers import Readers
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.reading_tables import read_rows
from m3b.data.survey.sides import side_of
from m3b.errors import DataError

FOLDERS, DRAWN = "folders", "drawn"
"""Values of `split` beside a column and a file: the folders say it, or m3b draws one."""
TABLES = (".csv", ".tsv", ".tab", ".txt", ".xlsx", ".xlsm", ".json", ".jsonl", ".ndjson", ".xml")
_SHOWN = 12


class Given(SpecPart):
    """A person's word on how a folder is to be read. Each part may be given alone.

    Args:
        index: the whole reading, which then stands as it is.
        labels: the table with the labels, below the data folder.
        image_column, label_column, patient_column: of that table, or of any where `labels` is empty.
        masks: a folder of masks below the data folder, or a pattern of their paths.
        classes: the classes of the index.
        split: a column, `folders`, a file that names a part of the images, or `drawn` for one that m3b draws.
    """

    index: IndexSpec | None = None
    labels: str = ""
    image_column: str = ""
    label_column: str = ""
    patient_column: str = ""
    masks: str = ""
    classes: tuple[str, ...] = ()
    split: str = ""

    @property
    def narrows(self) -> bool:
        """Whether anything but a whole reading is given."""
        return any(getattr(self, name) for name in type(self).model_fields if name != "index")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are named."""
        return tuple(one for one in (self.image_column, self.label_column, self.patient_column) if one)


def spec_of(raw: object) -> IndexSpec:
    """A spec from the values of its JSON object.

    Raises:
        DataError: it is none; the message names the places that are wrong.
    """
    try:
        return IndexSpec.model_validate(raw)
    except ValidationError as error:
        raise DataError("; ".join(_fault(one) for one in error.errors(include_url=False)[:5])) from error


def _fault(one: Any) -> str:
    """One fault of a spec: where, and what was found."""
    place = ".".join(str(part) for part in one["loc"] if part not in ("path", "table", "tag", "member", "list"))
    return f"{place or 'the spec'}: {one['msg'].removeprefix('Value error, ')}"


def masked(given: Given, files: Iterable[str]) -> set[str]:
    """The files that `masks` names."""
    wanted = given.masks.strip("/").removeprefix("./")
    inside = {path for path in files if path.startswith(f"{wanted}/")}
    return inside or {path for path in files if is_match(path, wanted)}


def is_match(path: str, wanted: str) -> bool:
    """Whether a path is meant by a pattern of the shell, of a whole path or of a name."""
    if "/" not in wanted:
        return fnmatchcase(path.rpartition("/")[2], wanted)
    return compiled(wanted).match(path) is not None


def check_names(given: Given, root: Path) -> None:
    """That whatever is named is there.

    Raises:
        DataError: a file, column, folder or split that is not there; the message says what there is.
    """
    files = Readers(root).files()
    tables = [path for path in files if path.lower().endswith(TABLES)]
    if given.labels and given.labels not in tables:
        raise DataError(f"--labels: there is no table {given.labels!r} below {root}; {_there('tables', tables)}.")
    looked = [given.labels] if given.labels else tables[:50]
    known = {path: columns_of(root, path) for path in looked} if given.columns or given.labels else {}
    if given.labels and not known[given.labels]:
        raise DataError(f"--labels: {given.labels} cannot be read as a table with columns.")
    every = sorted({column for columns in known.values() for column in columns})
    where = given.labels or f"no table below {root}"
    has = "has no" if given.labels else "has a"
    for option in ("image_column", "label_column", "patient_column"):
        column = getattr(given, option)
        if column and column not in every:
            raise DataError(
                f"--{option.replace('_', '-')}: {where} {has} column {column!r}; {_there('columns', every)}."
            )
    if given.masks and not masked(given, files):
        folders = sorted({path.rpartition("/")[0] for path in files if "/" in path})
        raise DataError(f"--masks: no file lies in or matches {given.masks!r}; {_there('folders', folders)}.")
    if given.split:
        _check_split(given, files, root, tables)


def _check_split(given: Given, files: Sequence[str], root: Path, tables: Sequence[str]) -> None:
    """A split that is there: folders called after sides, a file, or a column."""
    if given.split == DRAWN or given.split in files or any(is_match(path, given.split) for path in files):
        return
    if given.split == FOLDERS:
        levels = {part for path in files for part in path.split("/")[:-1]}
        if {"train", "test"} & {side_of(level) for level in levels}:
            return
        raise DataError(
            f"--split folders: no folder is called after a part (train, test); {_there('folders', sorted(levels))}."
        )
    every = sorted(
        {one for path in ([given.labels] if given.labels else tables[:50]) for one in columns_of(root, path)}
    )
    if given.split not in every:
        raise DataError(
            f"--split: {given.split!r} is no column and no file below {root}, and neither {FOLDERS!r} nor {DRAWN!r}; "
            f"{_there('columns', every)}."
        )


def columns_of(root: Path, path: str) -> list[str]:
    """The columns of a table, of all its sheets; empty where it cannot be read."""
    try:
        read = read_rows(root / path, Path(path).suffix.lower(), SurveyLimits())
    except (Unreadable, ValueError, OSError):
        return []
    return list(dict.fromkeys(name for one in read for row in one.rows[:50] for name in row))


def _there(what: str, names: Sequence[str]) -> str:
    if not names:
        return f"there are no {what}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}: {', '.join(names[:_SHOWN])}{more}"
