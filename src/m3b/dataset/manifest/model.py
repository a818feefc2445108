"""The manifest: which files of a folder are the cases of a data set, and where targets, patients and split come from.

A manifest says what; `m3b.dataset.manifest.resolve` finds it in the folder and `execute` makes the index. It is plain JSON
that a survey proposes, that an agent or a person edits, and that a run keeps. The page for agents and the JSON schema are
generated from this module (`m3b.dataset.manifest.reference`).

**Columns.** Each image is one row of a frame. Its columns are

- of its path: `{path}`, `{folder}`, `{name}`, `{stem}`, `{suffix}`, `{folder0}`, `{folder1}` and so on (the folders on its way,
  from the top) and `{parent}` (the last of them), and the slots of the pattern that found it:
  `images/{patient}_{side}.png`;
- of items in a container: `{member}`, `{index}` (place along the first axis, from 0), and `{member.KEY}` (value of another
  array of the same file for the same item, such as a label; KEY may have columns in it, `{member.{part}_labels}`, and of an
  array with a column a class `{member.labels[0]}` is the first);
- of DICOM headers: `{tag.PatientID}`;
- of each table that `tables` names and joins: `{TABLE.COLUMN}`.

**Templates** are texts with columns in braces: `"{patient}_{tag.SeriesNumber}"`. Where a template gives nothing (an empty
cell, a row that is missing) there is no value.

**Patterns** (`files`) match paths below the data folder: `{slot}` stands for any text within one folder or name,
`{slot:number}` for digits, `{slot:word}` for letters, `*` for anything within a name, `**` for any folders, `{jpg,png}` for
one of several; after `re:` comes a regular expression for the whole path with named groups. Letter case does not matter.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Task = Literal["diagnosis", "segmentation", "detection", "report", "grading", "regression", "survival"]

Match = Literal["exact", "path_tail", "basename", "stem", "normalized", "number"]
"""How two keys are compared; letter case and spaces around never count.

exact: the whole texts. path_tail: paths, of which one ends with the other at a folder. basename: the last part of a path.
stem: the last part without suffixes. normalized: the stem as its letters and numbers alone, numbers without leading zeros
("Case_007-L.png" is "case 7 l"). number: the digits of the stem alone, without leading zeros ("Case_007-L2.png" is "7 2").
"""


class ManifestPart(BaseModel):
    """Frozen; a misspelt key is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _parse_value(value: object) -> object:
    return {"value": value} if isinstance(value, str) else value


def _parse_texts(value: object) -> object:
    """One text or number stands for a list of it; numbers for their texts."""
    items = [value] if isinstance(value, str | int | float) else value
    if isinstance(items, list | tuple):
        return tuple(
            str(item) if isinstance(item, int | float) and not isinstance(item, bool) else item for item in items
        )
    return items


def _parse_codes(value: object) -> object:
    return (value,) if isinstance(value, str | int) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_parse_texts)]
Codes = Annotated[tuple[int | str, ...], BeforeValidator(_parse_codes)]


class ValueSource(ManifestPart):
    """One text a case. A bare template is short for one without anything else.

    Args:
        value: template.
        find: regular expression that is looked for in the text; its first group, or all that it matches, is the value.
            Without a match there is no value.
        unknown: texts that mean that nobody knows (`-1`, `999`, `NA`); they count as nothing.
        missing: the value of cases for which the template gives nothing.
    """

    value: str
    find: str = ""
    unknown: Texts = ()
    missing: str | None = None


Value = Annotated[ValueSource, BeforeValidator(_parse_value)]


def _parse_values(value: object) -> object:
    """One value stands for a list of it."""
    return (value,) if isinstance(value, str | dict) else value


class Files(ManifestPart):
    """Files of the folder, or arrays and members in them.

    Args:
        files: pattern, or several.
        exclude: patterns of files that are left out again.
        member: array or member of a container (`images`), a pattern with slots; with `[#]` at its end its items along the
            first axis (`train_images[#]`).
        where: template -> the texts that it must give (`{"{tag.Modality}": ["CT"]}`).
    """

    files: tuple[str, ...] | str
    exclude: Texts = ()
    member: str = ""
    where: dict[str, Texts] = Field(default={})

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of `files`."""
        return (self.files,) if isinstance(self.files, str) else self.files


class Channel(Files):
    """A further image of each case on the same anatomy: a sequence or modality.

    Args:
        name: of the channel.
        key, image, match: templates of this file and of the case's image, and how both are compared.
        missing: what becomes of cases without this channel: `leave_out`, or `keep`: a model sees them without it.
    """

    name: str
    key: str
    image: str
    match: Match = "exact"
    missing: Literal["leave_out", "keep"] = "leave_out"


class Images(Files):
    """The images, and what makes several of them one case.

    Args:
        case: template; images with the same text are one case.
        several: what the images of a case are: `one` (no second), `slices` of a volume in natural order, or `views` of a
            study.
        unit: `file`, or `folder` if a case is a folder of slices or of one DICOM series.
        min_files: files of a case; those of fewer (scouts) are left out.
        frames: of clips (videos, animated GIFs): how many evenly spaced frames are the case, as the slices of a volume; 1, or
            0 for none stated, is the middle frame as a picture.
        name: of the first channel, if there are `channels`.
        channels: further channels, put on the grid of the first, on which the masks lie too.
    """

    case: str = "{path}"
    several: Literal["one", "slices", "views"] = "one"
    unit: Literal["file", "folder"] = "file"
    min_files: int = Field(default=1, ge=1)
    frames: int = Field(default=0, ge=0, le=64)
    name: str = ""
    channels: tuple[Channel, ...] = ()

    @model_validator(mode="after")
    def _check_clips(self) -> Images:
        if self.frames and (self.several != "one" or self.unit != "file" or self.channels or self.member):
            raise ValueError("images.frames: a clip is one file; no slices, folders, channels or members go with it")
        return self


class ColumnChoice(ManifestPart):
    """A column whose cell comes from one of several columns of its table, by what an image shows: a side, a level, a visit.

    Args:
        image: template of the image's columns.
        columns: its text -> column of the table.
    """

    image: str
    columns: dict[str, str] = Field(min_length=2)


class Agreement(ManifestPart):
    """A column with the text on which several readers agree; where they differ, that of their consensus.

    Args:
        readers: columns of the table.
        consensus: column of the table, filled where they differ.
    """

    readers: tuple[str, ...] = Field(min_length=2)
    consensus: str


class Table(ManifestPart):
    """Rows that are joined to images. Anything with rows is a table: CSV, TSV, workbooks, JSON, XML, Parquet, lists of lines,
    one-dimensional arrays, and small text or JSON files of which each is one row.

    Args:
        files: path, or a pattern of several of one form, which are stacked; slots of the pattern are columns.
        form: `auto`, or `lines` (a row a line, column `line`), `text` (a row a file, column `text`).
        sheet: of a workbook. Default: the one with most rows.
        records: where the rows lie in a JSON or XML document or container (`images`, `annotations`, `/train/labels`).
        header: number of the header row, from 0; -1 for none (columns are then `0`, `1`, ...). Default: found.
        key: template of the row's columns; `{(row)}` is its place in its file, from 0, and `{(file)}` the path of that. Of
            several files `{folder}`, `{stem}` and so on are columns too.
            Several: each of them names an image (left and right).
        image: template of the image's columns, which may include those of tables named before.
        match: how both are compared.
        choices: name of a further column -> the columns from which its cells come, if a row has a column for each of several images
            (`{"grade": {"image": "{side}", "columns": {"L": "grade left", "R": "grade right"}}}`).
        agreements: name of a further column -> the columns of readers, and that of their consensus.
    """

    files: tuple[str, ...] | str
    form: Literal["auto", "lines", "text"] = "auto"
    sheet: str = ""
    records: str = ""
    header: int | None = Field(default=None, ge=-1)
    key: tuple[str, ...] | str
    image: str
    match: Match = "exact"
    choices: dict[str, ColumnChoice] = Field(default={})
    agreements: dict[str, Agreement] = Field(default={})

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of `files`."""
        return (self.files,) if isinstance(self.files, str) else self.files

    @property
    def keys(self) -> tuple[str, ...]:
        """The templates of `key`."""
        return (self.key,) if isinstance(self.key, str) else self.key


class Labels(ManifestPart):
    """Class labels.

    Args:
        value: of one text a case. With `separator` it holds several labels.
        columns: instead: class -> template of a yes/no text (one-hot and multi-label columns). Cases with an uncertain (-1)
            or empty cell are left out, unless `missing` of the value says what it means. With `multi_label` such a cell
            makes that label unknown, and the case counts for its other labels.
        classes: class -> texts of the value that mean it, in the order of the model's outputs. Texts of no class leave the
            case out, with that reason; with `multi_label` they are ignored. A class without texts is its own text; one with
            the text `"*"` has the cases with labels of no other class.
        separator: between labels in one text.
        multi_label: whether several classes, or none, can apply to one case. Cases without any need no class name.
        ordered: whether the classes are grades from low to high.
        unlabelled: what becomes of images that no row or cell gives a label: left out, or `keep`: they are a part of their own, which
            self-training may use and nothing else (diagnosis).
    """

    value: Value | None = None
    columns: dict[str, Value] = Field(default={})
    classes: dict[str, Texts] = Field(default={})
    separator: str = ""
    multi_label: bool = False
    ordered: bool = False
    unlabelled: Literal["leave_out", "keep"] = "leave_out"

    @model_validator(mode="after")
    def _check_sources(self) -> Labels:
        if (self.value is None) == (not self.columns):
            raise ValueError("labels needs either `value` with `classes`, or `columns`")
        if self.value is not None and not self.classes:
            raise ValueError("labels.value needs `classes`: class -> texts that mean it")
        return self


ClassCodes = dict[str, Codes]
"""Class -> what means it in the files: whole numbers, colours ("#ff8000"), or names of regions and categories."""


class Masks(ManifestPart):
    """Masks, from image files or an annotation format.

    Args:
        format: `image`, or the name of an annotation format (`m3b.dataset.annotations`), or `table` for run lengths in a
            table.
        files: mask or annotation files; for `table` empty.
        exclude: patterns of files that are left out again.
        member: array of a container, as for images; the image's own file if `files` equals that of the images.
        key, image, match: templates of mask file and image that belong together. Formats that name their images themselves
            (COCO, CVAT, VIA, RTSTRUCT, DICOM SEG) need none.
        classes: class -> codes. Codes that no class has are background. A class with the code `"*"` is anything but
            background (0). With `per_file`, `layers` and `above` codes are left empty.
        void: codes of pixels that nobody labelled (borders, unsure, everything between scribbles), which no class has. Training
            and figures leave these pixels out. Of files a class, a pixel that is void in one of them is left out for every class
            if classes overlap; else another file may say its class.
        per_file: class -> texts of `class_key`: each file is a binary mask of one class; several files of a class are
            united.
        class_key: template of the mask file.
        above: for lossy or grey masks: values above it are the class.
        layers: class -> places of its layers along the last axis, from 0.
        overlapping: whether classes may overlap: one binary mask a class is then written.
        resized: whether flat masks of another size than their image, in its proportions, are brought to its size; and outlines of
            annotation files that were drawn on images of another size.
        category_key: which of several category keys of COCO files names the classes, such as `category_id_3`; images of files
            without it are left out.
        finished: tag of annotation files: images without it were not looked at, and are left out.
        unassessable: tags of annotation files: images with one of them and without marks could not be assessed, and are left out.
        empty: what an image without a mask is: left out, or healthy.
        table, columns, order, first, relative: of run lengths: name of a table, role (`runs`, `class`) -> column, whether
            pixels are counted down the columns or along the rows, the number of the first pixel, and whether starts count
            from the end of the run before.
    """

    format: str = "image"
    files: tuple[str, ...] | str = ()
    exclude: Texts = ()
    member: str = ""
    key: str = ""
    image: str = ""
    match: Match = "exact"
    classes: ClassCodes
    void: Codes = ()
    per_file: dict[str, Texts] = Field(default={})
    class_key: str = ""
    above: float | None = None
    layers: dict[str, tuple[int, ...]] = Field(default={})
    overlapping: bool = False
    resized: bool = False
    category_key: str = ""
    finished: str = ""
    unassessable: Texts = ()
    empty: Literal["leave_out", "healthy"] = "leave_out"
    table: str = ""
    columns: dict[str, str] = Field(default={})
    order: Literal["columns", "rows"] = "columns"
    first: int = 1
    relative: bool = False

    @model_validator(mode="after")
    def _check_void(self) -> Masks:
        if self.void and (self.format != "image" or self.layers or self.above is not None):
            raise ValueError("masks.void: only mask files with a code a class have void pixels; leave `void` empty")
        void = {str(code).casefold() for code in self.void}
        for name, codes in self.classes.items():
            if both := [code for code in codes if str(code).casefold() in void]:
                raise ValueError(f"masks.void: {both[0]} is also a code of the class {name!r}; name it in one of them")
        return self


class Boxes(ManifestPart):
    """Boxes, from an annotation format or a table with a row a box; in a segmentation they stand for masks that nobody drew.

    Args:
        format: name of an annotation format, or `table`.
        files: annotation files; for `table` empty.
        key, image, match: as for masks.
        classes: class -> names or numbers in the files. A class with the code `"*"` takes every box.
        table, columns: name of a table, and role -> column. Roles: `class`; `xmin`, `ymin`, `xmax`, `ymax`; or a corner
            `x`, `y` or a middle `cx`, `cy` with `width`, `height`; of volumes also `zmin`, `zmax`, or `z` or `cz` with
            `depth`; or a middle with `radius` or `diameter`; or `corners`, `sides` or `centres` for a list of numbers in
            one cell. `image_width` and `image_height` hold the size of the image on which a box was drawn, if the image that is
            there is another size.
        space: what coordinates count: pixels (or voxels along the file's axes), `shares` or `percent` of the image's sides,
            or mm of the patient (`lps`, `ras`).
        sizes_mm: whether sizes are in mm though coordinates are not.
        resized: whether boxes of annotation files that were drawn on images of another size are brought to that of their image.
        scale: pixels of the image to one unit of coordinates, along columns and rows; 0.25 if boxes were drawn on
            originals four times as large.
        category_key: which of several category keys of COCO files names the classes, such as `category_id_3`; images of files
            without it are left out.
        finished: tag of annotation files: images without it were not looked at, and are left out.
        unassessable: tags of annotation files: images with one of them and without marks could not be assessed, and are left out.
        empty: whether an image without a box is healthy or was not looked at.
    """

    format: str
    files: tuple[str, ...] | str = ()
    key: str = ""
    image: str = ""
    match: Match = "exact"
    classes: ClassCodes
    table: str = ""
    columns: dict[str, str] = Field(default={})
    space: Literal["pixels", "shares", "percent", "lps", "ras"] = "pixels"
    sizes_mm: bool = False
    resized: bool = False
    scale: tuple[float, float] = (1.0, 1.0)
    category_key: str = ""
    finished: str = ""
    unassessable: Texts = ()
    empty: Literal["leave_out", "healthy"] = "healthy"


class States(ManifestPart):
    """Whether a case is abnormal, if nothing more is known of it; beside masks: which images have nothing to mark.

    Args:
        value: text that says it.
        normal, abnormal: texts that mean each; no `abnormal`: every other text.
        name: what the anomaly is called.
    """

    value: Value
    normal: Texts = Field(min_length=1)
    abnormal: Texts = ()
    name: str = "anomaly"


class Report(ManifestPart):
    """The report of a case; either part may be missing, not both."""

    findings: Value | None = None
    impression: Value | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Report:
        if self.findings is None and self.impression is None:
            raise ValueError("report needs `findings` or `impression`")
        return self


class Number(ManifestPart):
    """A measured number; cells such as "12,5 ml" are read with decimal comma and unit.

    Args:
        title: what is measured.
        unit: as in the folder or the request ("years", "g/cm2", "ml").
    """

    value: Value
    title: str
    unit: str = ""


class Survival(ManifestPart):
    """Time to an event, and whether it was observed.

    Args:
        observed: texts of `event` that mean that the event took place at that time.
        censored: texts that mean that it had not until then. Empty: every other text.
    """

    time: Number
    event: Value
    observed: Texts = Field(min_length=1)
    censored: Texts = ()


class Covariate(ManifestPart):
    """What a model is given beside the image.

    Args:
        kind: `number`, or `category` for texts.
        unit: as of a measured number.
    """

    value: Value
    kind: Literal["number", "category"] = "number"
    unit: str = ""


class Split(ManifestPart):
    """Which cases are for testing.

    Args:
        value: text that says the side of the folder's own split. None: a split is drawn by patient, stratified by class.
        train, val, test: texts that mean each side; cases of `val` train with m3b, which holds out its own. Cases with
            another text are left out.
        missing: side of cases without a text.
        test_images: images (paths in the folder) of the cases that are for testing, whatever `value` says; every other case
            trains, except those that `value` gives to testing, which are left out. Written by `m3b data extend`.
        share, seed: of a drawn split.
    """

    value: Value | None = None
    train: Texts = ()
    val: Texts = ()
    test: Texts = ()
    missing: Literal["", "train", "val", "test"] = ""
    test_images: Texts = ()
    share: float = Field(default=0.2, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)

    @property
    def is_given(self) -> bool:
        """Whether names, tables or a list say which cases are for testing, so that none is drawn."""
        return self.value is not None or bool(self.test_images)


class Exclusion(ManifestPart):
    """Files that are no part of the index, and why: neither images nor masks are taken from them.

    Args:
        files: pattern.
        reason: for people.
    """

    files: str
    reason: str = Field(min_length=3)


class CaseFilter(ManifestPart):
    """Cases that are meant.

    Args:
        texts: of `value`; cases with another text, or with none, are left out.
        without: texts of `value` with which cases are left out, in place of `texts`; cases with none stay.
        reason: why they are; default: the text that they have.
    """

    value: Value
    texts: Texts = ()
    without: Texts = ()
    reason: str = ""

    @model_validator(mode="after")
    def _needs_texts(self) -> CaseFilter:
        if bool(self.texts) == bool(self.without):
            raise ValueError("`only` needs `texts` that are meant, or texts that are not (`without`), and not both.")
        return self


class Manifest(ManifestPart):
    """How a data folder is to be read.

    Args:
        version: of this form.
        task: what a model learns.
        images: the images of the cases.
        tables: name -> table that is joined to the images; names are short words (`labels`, `patients`).
        patient: whose case it is. None: unknown, which is said wherever a figure stands.
        only: which cases are meant, if the images hold others too; all of them must hold.
        together: further texts that the split must not divide: slices of one stack, copies.
        attributes: what figures are told apart by at the end (sex, age, site); no model is shown them.
        covariates: what a model is given beside the image.
        keep_copies: whether images with equal pixels are all kept; by default one is.
        exclude: files that the index does not use, with the reason, which the report then states. `exclude` of `images` and `masks`
            keeps a pattern of theirs from files of another kind, which other parts may use.
        explained: codes of the audit that were answered, with the answer, so that they are not asked again.
    """

    version: Literal[2] = 2
    task: Task
    images: Images
    tables: dict[str, Table] = Field(default={})
    labels: Labels | None = None
    masks: Masks | None = None
    boxes: Boxes | None = None
    states: States | None = None
    report: Report | None = None
    value: Number | None = None
    survival: Survival | None = None
    patient: Value | None = None
    only: tuple[CaseFilter, ...] = ()
    together: Annotated[tuple[Value, ...], BeforeValidator(_parse_values)] = ()
    attributes: dict[str, Value] = Field(default={})
    covariates: dict[str, Covariate] = Field(default={})
    keep_copies: bool = False
    split: Split = Split()
    exclude: tuple[Exclusion, ...] = ()
    explained: dict[str, str] = Field(default={})
