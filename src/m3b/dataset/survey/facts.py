"""What a survey states about a data folder: the typed contract between the survey and whoever reads it.

Paths are below the surveyed folder, with `/`. `pattern`, `key`, `image` and `match` are written as a manifest writes them
(`m3b.dataset.manifest.model`). Ids (`g1`, `t1`, ...) do not depend on the order of the file system, and hold within one survey.
`sensitive` marks values that must be masked before they are shown: "identity" (names, numbers of persons), "free_text".
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from m3b.dataset.manifest.model import Match

VERSION = 4
"""Of the form of the facts; a stored survey of another version is made again."""

Sensitive = Literal["", "identity", "free_text"]
Side = Literal["train", "val", "test", ""]
"""Of a split; "" for none."""


class Fact(BaseModel):
    """Frozen, compared by value, from and to JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SurveyLimits(Fact):
    """What a survey may spend; what is left out for that is a note. Bytes, seconds and counts."""

    files: int = 2_000_000
    depth: int = 128
    seconds: float = 120.0
    samples: int = 8
    """Files of one group that are opened."""
    file_bytes: int = 256 * 2**20
    """A larger sample is not opened."""
    pixels: int = 2**27
    """Values of one sample, unpacked."""
    table_bytes: int = 64 * 2**20
    tables: int = 200
    groups: int = 400
    keys: int = 200_000
    """Keys of a column or group that a join compares; of more, the same share of both sides is compared."""
    hashed_bytes: int = 512 * 2**20
    """Read in all to find files of equal bytes."""
    headers: int = 4_000
    """DICOM headers read."""


class Note(Fact):
    """Something that is no data or could not be looked at.

    Args:
        code: link, special, unreadable, undecodable, deep, empty, stray, sparse, cut_off, large, damaged, time, ...
    """

    code: str
    count: int
    examples: tuple[str, ...] = ()
    detail: str = ""


class ValueCount(Fact):
    """A value and how often it occurs."""

    text: str
    count: int


SlotKind = Literal["number", "word", "date", "uid", "hash", "text"]


class Slot(Fact):
    """A part of the path that varies within a group.

    Args:
        name: as in the pattern of the group; of a whole folder or stem (`*` in the pattern) the column of the path, such as
            `folder0` or `stem`.
        level: number of the folder it stands in, from the top; -1 for the name.
        is_whole: whether it is a whole folder name, or the whole stem.
        before: the fixed text before it within its folder or name ("patient_", "_slice").
        values: all with counts if there are at most 60, else the ten most frequent.
        width: digits of numbers that are padded with zeros; None if the width varies.
        low, high: of numbers.
        crossing: for at most 60 values: of the paths without this slot, the share that occurs with more than one value.
            Near 1 for channels, views, and masks beside images; near 0 for classes and splits.
        role_hint: what its values or the text before it mean by the term lists: split, side, patient, mask, ...; "" if nothing.
    """

    name: str
    kind: SlotKind
    level: int = -1
    is_whole: bool = False
    before: str = ""
    distinct: int
    values: tuple[ValueCount, ...] = ()
    width: int | None = None
    low: int | None = None
    high: int | None = None
    crossing: float | None = None
    role_hint: str = ""
    sensitive: Sensitive = ""


ValueKind = Literal[
    "binary",
    "lossy_binary",
    "few_integers",
    "instance_ids",
    "colour_labels",
    "colour_regions",
    "float_probability",
    "grey",
    "colour",
    "constant",
    "unknown",
]
"""binary: two exact values; lossy_binary: two levels with the noise of compression around; few_integers: few whole values;
instance_ids: whole values that number the objects of each picture; colour_labels: few exact colours; colour_regions: many exact
colours, each of one region; constant: one value."""

MASK_KINDS: frozenset[ValueKind] = frozenset(
    {"binary", "lossy_binary", "few_integers", "instance_ids", "colour_labels", "colour_regions"}
)
"""Value kinds of masks and label maps."""


class Level(Fact):
    """A pixel value and how much of the samples has it.

    Args:
        value: the number as stored (before any slope), or a colour "#rrggbb".
        share: of all pixels of the samples; all shares of one content add up to 1.
        samples: that have it.
        colour: of a palette, "#rrggbb".
    """

    value: str
    share: float
    samples: int
    colour: str = ""


class Shape(Fact):
    """A shape (rows, columns[, slices]) and how many samples have it."""

    shape: tuple[int, ...]
    count: int


class Layers(Fact):
    """Layers of masks along the last axis of arrays, which exclude each other.

    Args:
        background: place of the layer that marks what all others leave; None if none does.
    """

    count: int
    background: int | None = None


class Content(Fact):
    """What the opened samples of a group, or of one member of containers, hold.

    Args:
        samples: files that were looked at, of which `failed` do not open.
        errors: codes of why, if none opens.
        dims: 2 or 3; None if samples differ.
        channels: numbers of channels that occur.
        colour: whether the channels of most samples differ; False for grey stored as colour.
        spacing: mm, median.
        bits: bits stored a value, as far as the files say it.
        levels: of mask-like content, at most 60.
        cut: of lossy_binary: the value between the two levels.
        slope: of volumes with a scale factor other than 1: stored whole values become fractions.
        foreground: least, median and most share of non-background values.
        empty: samples with background alone.
        objects: least and most connected parts of the foreground.
        turned: samples that an EXIF orientation turns.
        slides: samples that are whole-slide images.
        layers: of masks with a layer for each class; `levels` are then the places of layers, counted from 1.
    """

    samples: int
    failed: int = 0
    errors: tuple[str, ...] = ()
    dims: int | None = None
    channels: tuple[int, ...] = ()
    colour: bool = False
    frames: tuple[int, int] | None = None
    shapes: tuple[Shape, ...] = ()
    spacing: tuple[float, ...] | None = None
    dtypes: tuple[str, ...] = ()
    bits: tuple[int, ...] = ()
    modality: tuple[str, ...] = ()
    values: ValueKind = "unknown"
    low: float | None = None
    high: float | None = None
    levels: tuple[Level, ...] = ()
    cut: float | None = None
    slope: float | None = None
    palette: bool = False
    foreground: tuple[float, float, float] | None = None
    empty: int = 0
    objects: tuple[int, int] | None = None
    turned: int = 0
    slides: int = 0
    truncated: int = 0
    layers: Layers | None = None

    @property
    def is_mask(self) -> bool:
        """Whether the values are those of a mask or label map."""
        return self.values in MASK_KINDS


class FileGroup(Fact):
    """Files of one name template, format and kind of content.

    Args:
        pattern: manifest pattern that matches the paths, with a slot for each varying part.
        exclude: patterns of files that `pattern` matches too and that belong to another group.
        family: groups of one family lie in the same folders and have the same format and kind of content; only their names have
            another form (`IMG_001.png`, `IMG_001test.png`). "" if there is no other.
        format: family of the file format: picture, dicom, nifti, itk, array, hdf5, mat, video, archive, table, json, xml, text,
            document, other.
        exact: whether `bytes` was measured on every file.
        content: of image files.
        stray: documents, system files, and voxels beside their headers (`.img` of `.hdr`): no case can be made of them.
        annotations: DICOM files among them that annotate images (segmentations, structure sets) and are no images themselves.
    """

    id: str
    pattern: str
    exclude: tuple[str, ...] = ()
    family: str = ""
    format: str
    suffixes: tuple[str, ...]
    count: int
    bytes: int
    exact: bool = True
    folders: int = 1
    slots: tuple[Slot, ...] = ()
    examples: tuple[str, ...] = ()
    content: Content | None = None
    stray: bool = False
    annotations: int = 0

    def slot(self, name: str) -> Slot | None:
        """The slot of that name."""
        return next((slot for slot in self.slots if slot.name == name), None)


class Member(Fact):
    """An array, image or file within the containers of a group.

    Args:
        key: with numbers as `{number}` if keys are numbered.
        files: opened containers that have it.
        keys: keys of this form in one container (median).
        length: of the first axis, if it counts items.
        kind: images, masks, vector (one value an item), scalar (one value a file), text, unknown.
        values: vocabulary of a vector with counts, at most 60.
        side: train, val or test, if the key says it.
    """

    key: str
    files: int
    keys: int = 1
    length: int | None = None
    lengths_differ: bool = False
    shape: tuple[int, ...] = ()
    dtype: str = ""
    kind: Literal["images", "masks", "vector", "scalar", "text", "unknown"] = "unknown"
    content: Content | None = None
    distinct: int = 0
    values: tuple[ValueCount, ...] = ()
    side: Side = ""


class Container(Fact):
    """What lies within the files of one group: arrays of NPZ, HDF5 and MAT files, members of archives."""

    group: str
    format: str
    files: int
    samples: int
    members: tuple[Member, ...] = ()


class Tag(Fact):
    """A DICOM header field: files that have it, and what it holds."""

    keyword: str
    files: int
    distinct: int
    values: tuple[ValueCount, ...] = ()
    sensitive: Sensitive = ""


class DicomFacts(Fact):
    """DICOM files of one group and modality, by their headers.

    Args:
        read: headers that were read, of `files`.
        slices: files a series, least and most.
        folders_are_series: whether every folder holds one series and every series lies in one folder.
        single: whether every file is a series of its own.
        localizers: files whose ImageType says LOCALIZER.
        duplicates: files that repeat a SOPInstanceUID.
        gaps: series with a missing slice, by their positions.
        tilted: series with a gantry tilt.
        phases: series with several images at one position (phases, echoes).
        rescales: "slope/intercept" and files; several within one group change the meaning of the values.
    """

    group: str
    modality: str
    files: int
    read: int
    series: int
    studies: int
    patients: int
    slices: tuple[int, int]
    folders_are_series: bool
    single: bool
    localizers: int = 0
    duplicates: int = 0
    gaps: int = 0
    gap_examples: tuple[str, ...] = ()
    tilted: int = 0
    phases: int = 0
    rescales: tuple[ValueCount, ...] = ()
    tags: tuple[Tag, ...] = ()


class Column(Fact):
    """A column of a table; see `m3b.dataset.tables.describe_columns`."""

    name: str
    kind: str
    distinct: int
    missing: int
    values: tuple[ValueCount, ...] = ()
    examples: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    unit: str = ""
    decimal_comma: bool = False
    is_integer: bool = False
    separator: str = ""
    role_hint: str = ""
    sensitive: Sensitive = ""


class TableFacts(Fact):
    """A table, or small files of one form that are stacked.

    Args:
        files: path, or the pattern of several; as `Table.files` of a manifest.
        form, sheet, records, header: as in a manifest.
        group: the file group it lies in.
        notes: what the reader of tables noted: title rows, encodings, cells too many.
        exact: whether every row was read.
    """

    id: str
    files: str
    form: str = "auto"
    sheet: str = ""
    records: str = ""
    header: int | None = None
    group: str = ""
    file_count: int = 1
    rows: int
    columns: tuple[Column, ...] = ()
    notes: tuple[str, ...] = ()
    exact: bool = True


class Join(Fact):
    """A column (or two) of a table that names files, as `Table(key=..., image=..., match=...)` takes it.

    Args:
        table: id of the table.
        group: id of the group, or `group#key` for items of a container.
        key, image: templates of the row's and of the file's columns.
        rows, rows_matched: rows with a key, and those that name a file.
        files, files_matched: files of the group, and those that are named.
        rows_per_file, files_per_row: the most that share one key.
        chance: share of files that would be matched if numbers meant nothing, as with small running numbers.
        unmatched_files: examples.
    """

    table: str
    group: str
    key: str
    image: str
    match: Match
    rows: int
    rows_matched: int
    files: int
    files_matched: int
    rows_per_file: int
    files_per_row: int
    chance: float = 0.0
    unmatched_files: tuple[str, ...] = ()

    @property
    def files_share(self) -> float:
        """Share of the files that a row names."""
        return self.files_matched / self.files if self.files else 0.0

    @property
    def rows_share(self) -> float:
        """Share of the rows that name a file."""
        return self.rows_matched / self.rows if self.rows else 0.0


class Pairing(Fact):
    """Files of two groups that belong together by their paths, as `Masks(key=..., image=..., match=...)` takes it.

    Args:
        image_group: group of the images; `partner_group`: of masks, other channels or files beside them.
        key, image: templates of the partner and of the image.
        per_image: least, median and most partners of a matched image.
        images_per_partner: the most images that share one partner.
        extra_slot: slot of the partner group that tells apart the partners of one image (instance, class, observer).
        partner_words: words of the names that only the partners have ("mask").
        compared, same_grid: pairs whose grids were compared, and those that have the same.
        turned_grid: pairs that have the same grid if rows and columns are exchanged.
        sizes: of a pair whose grids differ: "path 100x80, path 50x40".
        overlap: median intersection over union of two partners of one image: near 1 of several drawings of the same, near 0
            of objects and most classes; None if an image has one partner, or they do not open.
    """

    image_group: str
    partner_group: str
    key: str
    image: str
    match: Match
    image_files: int
    images_matched: int
    partner_files: int
    partners_matched: int
    per_image: tuple[int, int, int] = (1, 1, 1)
    images_per_partner: int = 1
    extra_slot: str = ""
    partner_words: tuple[str, ...] = ()
    compared: int = 0
    same_grid: int = 0
    turned_grid: int = 0
    sizes: tuple[str, ...] = ()
    overlap: float | None = None


class SplitSide(Fact):
    """One text of a split, the side that its words mean ("" if none) and how many files or rows have it."""

    text: str
    side: Side
    count: int


class SplitFacts(Fact):
    """A division that the folder brings along, as `Split(value=...)` of a manifest takes it.

    Args:
        source: folder, name, column, lists (a file for each side), member.
        owner: id of the group, table or container.
        value: template; `find` a regular expression that is looked for in it.
        missing: side of files without a match.
        sides: the texts.
        covers: share of the group's files that have a side.
        overlap: keys that stand on several sides.
        crossing: stems (or name counters) that occur on several sides, and examples.
    """

    source: Literal["folder", "name", "column", "lists", "member"]
    owner: str
    group: str = ""
    value: str
    find: str = ""
    missing: str = ""
    sides: tuple[SplitSide, ...]
    covers: float = 1.0
    overlap: int = 0
    crossing: int = 0
    crossing_examples: tuple[str, ...] = ()


class NameGroups(Fact):
    """Files of a group that share a part of the name: several images of a patient, eyes, slices, counters.

    Args:
        value: template of what they share.
        groups: distinct values; `files`: files that have it.
        largest: most files of one value.
        crosses: split source -> groups that lie on several of its sides.
    """

    group: str
    value: str
    groups: int
    files: int
    largest: int
    crosses: dict[str, int] = {}
    examples: tuple[str, ...] = ()


class CrossTable(Fact):
    """How values of two slots or columns of one group's files go together.

    Args:
        rows, columns: templates of both.
        counts: (row value, column value, files), at most 200.
        agree: share of files whose two values are equal, letter case apart.
        one_to_one: share of files that remain if each value goes with the one value that it is most often seen with, in the
            direction in which fewer do; 1 if the two are the same under other names.
    """

    group: str
    rows: str
    columns: str
    counts: tuple[tuple[str, str, int], ...]
    agree: float = 0.0
    one_to_one: float = 0.0


class Legend(Fact):
    """What numbers, colours or short names mean, as a document of the folder says.

    Args:
        source: path, and where in it.
        names: (code, name).
        hint: a column, mask or key that it is about.
        kind: `codes` of numbers, a `list` of names (codes are their places from 0), or `abbreviations`.
    """

    source: str
    names: tuple[tuple[str, str], ...]
    hint: str = ""
    kind: Literal["codes", "list", "abbreviations"] = "codes"


class Document(Fact):
    """A small text file, whole, with identities masked; `cut` if it is longer."""

    path: str
    text: str
    bytes: int
    cut: bool = False


class AnnotationFacts(Fact):
    """Files of an annotation format; see `m3b.dataset.annotations`.

    Args:
        groups: ids of the file groups that hold the files; `group` holds the first file.
        images_renamed: those of `images_found` that have another suffix than the annotations say.
        images_by_group: file group -> images found in it; `images_found` are those of `images_group`, which has the most.
        names_series: whether the images are DICOM series, each of which has one or more files.
        category_key: key of COCO files that names these classes, if the files have several.
        tags: texts that some images have as a whole, and not all, with the number of images; of free texts none.
    """

    format: str
    files: tuple[str, ...]
    file_count: int
    group: str = ""
    groups: tuple[str, ...] = ()
    shapes: tuple[str, ...]
    classes: tuple[ValueCount, ...]
    images: int
    images_found: int = 0
    images_renamed: int = 0
    images_group: str = ""
    images_by_group: dict[str, int] = {}
    names_series: bool = False
    category_key: str = ""
    tags: tuple[ValueCount, ...] = ()
    notes: tuple[str, ...] = ()


class Duplicates(Fact):
    """Files of equal bytes.

    Args:
        sets: groups of equal files; `files`: files in them.
        crossing_folders: sets whose files lie in several folders.
        copied_groups: ids of groups all of whose files repeat files of a larger group.
    """

    sets: int
    files: int
    compared: int
    crossing_folders: int = 0
    copied_groups: tuple[str, ...] = ()
    examples: tuple[tuple[str, ...], ...] = ()


class Survey(Fact):
    """The facts of a folder.

    Args:
        exact: whether `bytes` was measured on every file.
    """

    version: int = VERSION
    name: str
    fingerprint: str
    limits: SurveyLimits
    files: int
    folders: int
    bytes: int
    exact: bool
    groups: tuple[FileGroup, ...] = ()
    containers: tuple[Container, ...] = ()
    dicom: tuple[DicomFacts, ...] = ()
    tables: tuple[TableFacts, ...] = ()
    annotations: tuple[AnnotationFacts, ...] = ()
    joins: tuple[Join, ...] = ()
    pairings: tuple[Pairing, ...] = ()
    splits: tuple[SplitFacts, ...] = ()
    name_groups: tuple[NameGroups, ...] = ()
    cross_tables: tuple[CrossTable, ...] = ()
    legends: tuple[Legend, ...] = ()
    documents: tuple[Document, ...] = ()
    duplicates: Duplicates | None = None
    notes: tuple[Note, ...] = ()

    def group(self, id: str) -> FileGroup:
        """The group of that id."""
        return next(group for group in self.groups if group.id == id)

    def table(self, id: str) -> TableFacts:
        """The table of that id."""
        return next(table for table in self.tables if table.id == id)
