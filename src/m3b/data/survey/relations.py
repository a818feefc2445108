"""What a survey states about how the parts of a folder belong together, and the survey itself."""

from __future__ import annotations

from typing import Literal, TypeVar

from m3b.data.survey.facts import VERSION, Container, Fact, FileGroup, Note, Sensitive, Series, SurveyLimits, Value
from m3b.data.survey.item_facts import ItemSet
from m3b.data.survey.table_facts import Annotation, Legend, Table

_Named = TypeVar("_Named", FileGroup, Table)

Rule = Literal[
    "path", "tail5", "tail4", "tail3", "tail", "name", "stem", "number", "folded", "unpadded", "exact", "prefixed",
    "up0", "up1", "up2", "up3", "up4", "up5",
]  # fmt: skip
"""How two texts are brought to one key, from the strictest to the loosest; `m3b.data.survey.keys.key` computes it.

path: relative path with `/`; tail: the last folder and the name; tail3, tail4, tail5: so many last parts, for paths that begin at
another folder; name: file name; stem: without suffixes; number: the
digits without leading zeros; folded: the stem without spaces, `-`, `_` and `.`; unpadded: folded, its numbers without
leading zeros; exact: as it stands; prefixed: of a part, the word before it and its value, folded; up1: of a path the folder in
which it lies, up2 the one above that and so on, up0 its last part, each against a text without folders as it stands. None minds case.
"""


class End(Fact):
    """One side of a join: `owner` is a table's, group's or annotation's id, `name` a column, slot, tag or ""."""

    kind: Literal["column", "path", "part", "level", "tag", "images", "member"]
    """path: the files' own paths; level: a folder on the way, by its number; images: what annotations name."""
    owner: str
    name: str = ""


class FolderHits(Fact):
    """A folder in which a join finds files that are called like those of other folders."""

    folder: str
    files: int
    """Of the group, below it."""
    matched: int
    """Files below it that the left end names."""
    named: int
    """Values of the left end that find one there."""


class Join(Fact):
    """Two ends whose values agree, counted on both sides (distinct values)."""

    left: End
    right: End
    rule: Rule
    left_values: int
    left_matched: int
    right_values: int
    right_matched: int
    most_left: int
    """Most rows or files of the left end that share one key."""
    most_right: int
    files: int = 0
    """Files of the right group whose key is matched; 0 where the right end is no group."""
    folders: tuple[FolderHits, ...] = ()
    """Of paths: where one name finds files of several folders, those folders; nothing of the name tells which is meant."""
    unmatched_left: tuple[str, ...] = ()
    unmatched_right: tuple[str, ...] = ()
    near: int = 0
    """Unmatched files that are called nearly as one unmatched row each; `near_names` has an example."""
    near_names: tuple[str, ...] = ()
    chance: float = 0.0
    """Share that would match by chance, as small running numbers do."""

    @property
    def left_share(self) -> float:
        """Of the left end's values, the share that is found on the right."""
        return self.left_matched / self.left_values if self.left_values else 0.0

    @property
    def right_share(self) -> float:
        """Of the right end's values, the share that is found on the left."""
        return self.right_matched / self.right_values if self.right_values else 0.0


class Tested(Fact):
    """The images of a split's test part, and how many of them have a file of a pairing's right group."""

    split: str
    files: int
    matched: int


class Pairing(Fact):
    """Files of two groups that lie on the same case: an image and its mask, or two images."""

    left: str
    """The group of images."""
    right: str
    kind: Literal["one_to_one", "many_to_one", "per_class", "per_key"]
    """many_to_one: several right files an image (one an instance); per_class: one right file an image and class;
    per_key: image and mask are keys of the same file (`left_key`, `right_key`)."""
    role: Literal["mask", "image", "annotation", "table"]
    """mask: the right group holds masks; image: another channel, view or frame of the case."""
    left_slots: tuple[str, ...] = ()
    """The recipes of `m3b.data.survey.pairing_keys`, for folders and name; `match` there applies them."""
    right_slots: tuple[str, ...] = ()
    rule: Rule = "exact"
    left_key: str = ""
    right_key: str = ""
    left_units: Literal["files", "folders"] = "files"
    """What is counted and matched: of DICOM series in folders of their own, the folders."""
    right_units: Literal["files", "folders"] = "files"
    left_files: int
    left_matched: int
    shared: int = 0
    """Left files that have a right file which others have too, and nothing tells whose it is."""
    right_files: int
    right_matched: int
    per_left: tuple[int, int, int] = (1, 1, 1)
    """Right files an image: least, median, most, of those matched."""
    class_slot: str = ""
    classes: tuple[Value, ...] = ()
    compared: int = 0
    """Pairs whose grids were compared."""
    same_grid: int = 0
    fits: float | None = None
    """Share of compared pairs on one grid, or where one is a whole multiple of the other in every axis."""
    tested: tuple[Tested, ...] = ()
    """Of each split of the left group that has a test part."""
    unmatched_left: tuple[str, ...] = ()
    unmatched_right: tuple[str, ...] = ()


class SplitPart(Fact):
    """One side of a split: how it is called, what it is, how many it names and how many of those are there."""

    name: str
    side: Literal["train", "val", "test", "other"]
    where: str
    """A path of a list or table, a folder's name, a column's value, a container's key."""
    named: int
    present: int


class FoundSplit(Fact):
    """A division into training, validation and test that the folder brings along."""

    id: str
    source: Literal["folders", "lists", "column", "tables", "members", "names"]
    owner: str
    """The group, table or container that it divides."""
    name: str = ""
    """The slot, column or rule."""
    parts: tuple[SplitPart, ...]
    overlap: int = 0
    """Cases on more than one side (a list of all beside its parts is left out of this count)."""
    covers: float = 0.0
    """Share of the owner's files or rows that are on some side."""
    rule: Rule = "exact"


class Crossing(Fact):
    """How many groups or copies lie on several sides of a split."""

    split: str
    count: int


class Grouping(Fact):
    """What could be a patient, a case or a source: a value that several files share."""

    group: str
    ends: tuple[End, ...]
    """One, or several that make the value together (a folder's number and a name's)."""
    distinct: int
    files: int
    """Files of the group that have a value."""
    per_value: tuple[int, int, int]
    """Least, median, most files a value."""
    evidence: tuple[str, ...]
    """Of "tag_patient", "word_patient", "word_case", "column_patient", "column_source", "side_follows", "folder_of_several",
    "column_alike", "copies_agree", "consecutive", "source_word", "augmentation"."""
    strength: float
    """0 to 1: how sure it is that this is a person or one source, by the evidence."""
    crosses: tuple[Crossing, ...] = ()
    examples: tuple[str, ...] = ()
    sensitive: Sensitive = "identity"


class Copies(Fact):
    """Files that are the same picture, exactly, nearly, or by their names."""

    kind: Literal["exact", "near", "named"]
    group: str
    other: str = ""
    """A second group, for copies between two."""
    clusters: int
    files: int
    checked: int
    """Files that were compared."""
    rule: str = ""
    """Of names: what was taken off to find the original, such as "_transformed_#_"."""
    originals: int = 0
    crosses: tuple[Crossing, ...] = ()
    label_conflicts: int = 0
    """Clusters whose files lie in different class folders."""
    examples: tuple[tuple[str, ...], ...] = ()


class Family(Fact):
    """Groups whose templates differ in one word: classes, channels or roles written into names."""

    slot: str
    groups: tuple[str, ...]
    values: tuple[str, ...]
    crossing: float
    """Of the paths with that word taken out, the share that occurs in more than one of the groups."""


class Survey(Fact):
    """All that is known of a folder after one bounded look."""

    version: int = VERSION
    name: str
    fingerprint: str
    """Of names, sizes and times of all files: a stored survey with the same one still holds."""
    limits: SurveyLimits
    files: int
    folders: int
    bytes: int
    exact: bool
    groups: tuple[FileGroup, ...] = ()
    families: tuple[Family, ...] = ()
    containers: tuple[Container, ...] = ()
    series: tuple[Series, ...] = ()
    tables: tuple[Table, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    legends: tuple[Legend, ...] = ()
    joins: tuple[Join, ...] = ()
    pairings: tuple[Pairing, ...] = ()
    splits: tuple[FoundSplit, ...] = ()
    groupings: tuple[Grouping, ...] = ()
    copies: tuple[Copies, ...] = ()
    items: tuple[ItemSet, ...] = ()
    notes: tuple[Note, ...] = ()

    def group(self, id: str) -> FileGroup:
        """The group of that id.

        Raises:
            KeyError: there is none.
        """
        return _of(self.groups, id)

    def table(self, id: str) -> Table:
        """The table of that id.

        Raises:
            KeyError: there is none.
        """
        return _of(self.tables, id)

    def joins_of(self, owner: str) -> tuple[Join, ...]:
        """The joins in which a table, group or annotation takes part."""
        return tuple(one for one in self.joins if owner in (one.left.owner, one.right.owner))


def _of(facts: tuple[_Named, ...], id: str) -> _Named:
    for one in facts:
        if one.id == id:
            return one
    raise KeyError(id)
