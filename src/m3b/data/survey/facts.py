"""What a survey of a data folder states: the typed contract between the survey and whoever reads a folder with it.

Every path is relative to the surveyed folder, with `/`. Identifiers (`g1`, `t1`, ...) are given in an order that does
not depend on the file system, and hold within one survey. `sensitive` marks values that must be masked before they
leave as text: "identity" (names, numbers of persons), "free_text" (prose), "" (neither).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from m3b.data.pixels import ValueKind

VERSION = 9
"""Of the facts' form; a stored survey of another version is made again."""

Sensitive = Literal["", "identity", "free_text"]


class Fact(BaseModel):
    """Frozen, compared by value, from and to JSON (`model_dump_json`, `model_validate_json`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SurveyLimits(Fact):
    """What a survey may spend; beyond, it says so in a note. Bytes, seconds and counts."""

    files: int = 2_000_000
    depth: int = 128
    seconds: float = 120.0
    samples: int = 8
    """Files of one group that are opened."""
    file_bytes: int = 256 * 2**20
    """A sample larger than this is not opened."""
    pixels: int = 2**27
    """Values of one sample, unpacked."""
    table_bytes: int = 64 * 2**20
    rows: int = 200_000
    """Rows of a table that are read."""
    tables: int = 200
    groups: int = 400
    keys: int = 200_000
    """Keys of a group, column or part that a join compares."""
    hashed_bytes: int = 512 * 2**20
    """Read in all to find exact and near copies."""
    headers: int = 4_000
    """DICOM headers read."""


class Note(Fact):
    """Something seen that is no data or could not be looked at: a code, how often, and a few places."""

    code: str
    """link, special, unreadable, undecodable, deep, empty, stray, sparse, large, bomb, damaged, python_objects, cut_off, time, ..."""
    count: int
    examples: tuple[str, ...] = ()
    detail: str = ""


class Value(Fact):
    """One value of a small vocabulary, as it is spelled most often, and how often it occurs."""

    text: str
    count: int


PartKind = Literal["word", "number", "side", "date", "uid", "hash", "text"]


class PathPart(Fact):
    """A piece of a path that varies within a group.

    `slot` names it within its group: "level0" is the folder below the surveyed one, "name0" the first varying piece
    of the file's name. For a folder that holds several pieces ("site3_pat017") "level1.0", "level1.1".
    """

    slot: str
    kind: PartKind
    before: str = ""
    """The fixed text in front of it ("patient", "_slice"): often what it is a number of."""
    distinct: int
    values: tuple[Value, ...] = ()
    """All of them where there are at most 60, else the ten most frequent."""
    width: int | None = None
    """Digits of a zero-padded number; None where the width varies."""
    low: int | None = None
    high: int | None = None
    crossing: float | None = None
    """For at most 60 values: of the paths with this piece taken out, the share that occurs with more than one value.
    Near 1 for channels, views or images and masks; near 0 for classes and splits."""
    sensitive: Sensitive = ""


"""mask: exactly two values; lossy_mask: two levels with compression noise around; labels: few whole values."""


class Level(Fact):
    """A pixel value and the share of all pixels that have it (median of the samples that have it)."""

    value: float
    share: float
    samples: int


class Shape(Fact):
    """A shape in the axes of the file and how many samples have it."""

    shape: tuple[int, ...]
    count: int


class Content(Fact):
    """What the opened samples of a group (or of one key of a container) hold."""

    looked: int
    failed: int = 0
    dims: int | None = None
    """2 or 3; None where samples differ."""
    channels: tuple[int, ...] = ()
    """Numbers of channels that occur; colour with three equal channels counts as one."""
    frames: tuple[int, int] | None = None
    """Least and most, of files with several pages, frames or volumes."""
    shapes: tuple[Shape, ...] = ()
    spacing: tuple[float, ...] | None = None
    """mm, median over the samples; None where no file says it."""
    dtypes: tuple[str, ...] = ()
    modality: tuple[str, ...] = ()
    values: ValueKind = "unknown"
    low: float | None = None
    high: float | None = None
    levels: tuple[Level, ...] = ()
    """Of masks and labels, 40 at most; of lossy masks the two centres."""
    cut: float | None = None
    """Of a lossy mask: the value between the two levels."""
    foreground: tuple[float, float, float] | None = None
    """Least, median and most share of non-background pixels, of masks and labels."""
    empty: int = 0
    """Samples with background alone."""
    alike: float | None = None
    """Mean overlap (Dice) of samples with each other, of masks and labels: near 1 where every case has the same."""
    covers_border: float | None = None
    """Share of samples in which the foreground is one field that fills the middle, as a field of view does."""
    several_objects: float | None = None
    """Mean number of connected parts of a mask."""
    counted: tuple[int, int] | None = None
    """Of labels that number the objects of each picture one by one, whatever they are: least and most objects."""


FileKind = Literal[
    "picture", "dicom", "nifti", "itk", "array", "hdf5", "mat", "video", "archive", "table", "json", "xml", "text",
    "list", "document", "other",
]  # fmt: skip


class FileGroup(Fact):
    """Files of one name template and one kind of content."""

    id: str
    template: str
    """Readable: "images/{number}_{side}.png"."""
    pattern: str
    """A regular expression for whole relative paths, with a named group for each part's slot (dots as "_")."""
    kind: FileKind
    suffixes: tuple[str, ...]
    count: int
    bytes: int
    exact: bool = True
    """Whether `bytes` was measured on every file."""
    parts: tuple[PathPart, ...] = ()
    looked: int = 0
    """Paths from which the parts were counted: all, or of very many some spread evenly."""
    examples: tuple[str, ...] = ()
    content: Content | None = None
    stray: bool = False
    """Documents, licences, system files: nothing that a case could be made of."""
    modality: tuple[str, ...] = ()
    """Of DICOM files that are called like those of other groups: what their headers say."""

    @property
    def title(self) -> str:
        """Its template, with what tells it from a group of the same one."""
        return f"{self.template} ({', '.join(self.modality)})" if self.modality else self.template


class Member(Fact):
    """One key of a container's files: an HDF5 data set, an NPZ array, a page, a file in an archive."""

    key: str
    """With numbers as `#` where keys are numbered."""
    files: int
    """Samples that have it."""
    keys: int = 1
    """Keys of this form in one file (median)."""
    content: Content | None = None
    rows: int | None = None
    """Length of the first axis where members share it: items stacked in one array."""
    role: Literal["image", "mask", "labels", "text", "scalar", "unknown"] = "unknown"
    split: Literal["", "train", "val", "test"] = ""
    values: tuple[Value, ...] = ()
    """Of labels, and of single values a file: the vocabulary and its counts."""
    read: int = 0
    """Of single values a file: the files that were asked for theirs."""
    distinct: int = 0
    """Of single values a file: how many differ."""


class Container(Fact):
    """What lies within the files of one group."""

    group: str
    format: Literal["npz", "npy", "hdf5", "mat", "tiff_stack", "ome_tiff", "zip", "tar", "video", "volume4d", "pt"]
    files: int
    looked: int
    members: tuple[Member, ...] = ()
    axes: str = ""
    """Of OME-TIFF and 4D files, such as "TCZYX"."""
    frames_per_second: float | None = None
    note: str = ""


class Series(Fact):
    """DICOM files of one group and modality, by their headers."""

    group: str
    modality: str
    files: int
    series: int
    studies: int
    patients: int
    slices: tuple[int, int]
    """Files a series, least and most."""
    folders_are_series: bool
    """Whether every folder holds one series and every series lies in one folder."""
    per_file: bool
    """Whether every file is a series of its own: single images."""
    read: int
    """Headers read; of more files, some were."""
    tags: tuple[Tag, ...] = ()


class Tag(Fact):
    """A header field: how many files have it and what it holds."""

    keyword: str
    files: int
    distinct: int
    values: tuple[Value, ...] = ()
    sensitive: Sensitive = ""


Series.model_rebuild()
