"""Where the texts of a case come from: its path, a table, a header, another array, a list; parts of an `IndexSpec`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from m3b.data.survey.relations import Rule

ROW = "(row)"
"""The column of every table that numbers its rows from 0."""


class SpecPart(BaseModel):
    """Frozen; a misspelt key is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Files(SpecPart):
    """Files of the data folder.

    Args:
        pattern: see the module.
        exclude: patterns of files that are left out again.
        member: the array of a container (`image`), or with `[#]` its items along the first axis (`train_images[#]`).
        tags: of DICOM files that names do not tell apart: keyword -> the texts of which their header must have one
            (`{"Modality": ["CT"]}`).
    """

    pattern: str
    exclude: tuple[str, ...] = ()
    member: str = ""
    tags: dict[str, tuple[str, ...]] = Field(default={})


class FromPath(SpecPart):
    """A text made of a file's own slots, such as the class folder `{level0}`.

    Args:
        value: key.
        find: a regular expression that is looked for in it; its first group, or all that it matches, is the text.
    """

    kind: Literal["path"] = "path"
    value: str
    find: str = ""


class FromTable(SpecPart):
    """The cell of a table row that names the file or its case.

    Args:
        file: the table, or a pattern of several of the same form.
        sheet, records: of a workbook; where in a JSON or XML document the records lie (`images`, `[]`).
        header: False for a table without one, whose columns are `0`, `1`, ...
        row: key of a row, of its columns: `{filename}`; `{(row)}` is its place from 0, in tables with a row an item of an array.
        also: further keys of a row, where one row names several files: the left and the right eye.
        image: key of a file or case: `{stem}`.
        rule: how both keys are brought together.
        column: the cell that is taken.
        within: table (a pattern, as of `file`) -> the folder whose files alone it speaks of, as a key of the table's path: where
            names stand for files of several folders (`train.csv` beside `train/001.png` and `test/001.png`).
        through: another table whose `column` gives the key instead of `image`, for rows of studies or patients that only
            another table brings together with files.
    """

    kind: Literal["table"] = "table"
    file: str
    sheet: str = ""
    records: str = ""
    header: bool = True
    row: str
    also: tuple[str, ...] = ()
    image: str = "{name}"
    rule: Rule = "exact"
    column: str
    within: dict[str, str] = Field(default={})
    through: FromTable | None = None


class FromTag(SpecPart):
    """A DICOM header field of the case's first file."""

    kind: Literal["tag"] = "tag"
    keyword: str


class FromMember(SpecPart):
    """Another array: `train_labels[#]` beside `train_images[#]`, or one value a file.

    Args:
        key: of the array, with `[#]` its item at the place of the image; empty, or `[#]` alone, in a file of one array.
        file: key of the path of the file that holds it (`labels_{part}.npy`), of the image's slots; empty where the image's own
            file does. Where that file is not there, the case has no value.
    """

    kind: Literal["member"] = "member"
    key: str
    file: str = ""


class FromList(SpecPart):
    """The side whose list names the file: for splits.

    Args:
        lists: side or class -> files (patterns) whose lines, or cells of the column where they are tables, name images.
        image: key of a file that a line names.
        rest: side of the files that no list names; empty gives them none.
    """

    kind: Literal["list"] = "list"
    lists: dict[str, tuple[str, ...]]
    column: str = ""
    image: str = "{stem}"
    rule: Rule = "exact"
    rest: str = ""


_TOLD_BY = {"lists": "list", "value": "path", "column": "table", "keyword": "tag", "key": "member"}


def _kinded(value: Any) -> Any:
    """A bare text is a key of the path; `kind` may be left out where the other names tell it."""
    if isinstance(value, str):
        return {"kind": "path", "value": value}
    if isinstance(value, dict) and "kind" not in value:
        told = [kind for name, kind in _TOLD_BY.items() if name in value]
        return {**value, "kind": told[0]} if told else value
    return value


Value = Annotated[
    FromPath | FromTable | FromTag | FromMember | FromList, Field(discriminator="kind"), BeforeValidator(_kinded)
]
"""Where one text of a case comes from; `"{patient}"` alone is short for `{"kind": "path", "value": "{patient}"}`."""
