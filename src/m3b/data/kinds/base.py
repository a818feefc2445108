"""What every kind of index record has in common, and what a kind says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from m3b.data.records import Record

Item = Mapping[str, Any]
"""One record as the JSON of an index file has it."""


class RecordKind(ABC):
    """How the cases of a task stand in its index files. Stateless; a kind overrides what is different.

    Attributes:
        name: the task.
        title: as in "Index of a diagnosis data set".
        needed: keys that each record must have besides `image_path` and `patient`.
        fewest_classes: how many classes an index has at least.
        empty_vocabulary: whether label_dict.json may be `{}`.
        separate_images: whether several paths of a record are images of their own, as the views of a study are, and not
            the slices of one volume.
        cases_word: what a case is called in counts of opened ones.
        taught: what a record teaches, in one word; what to do where two records of one image teach different things;
            and what to do where copies of an image do.
        targets: what of a reading (`labels`, `masks`, `boxes`, `states`, `report`, `value`) may be what is to be learnt;
            exactly one of them is.
        beside: what may be given besides.
        ordered: whether the classes are grades, from low to high.
        takes_views: whether a model of it may be given several views of a study, where `separate_images` does not say so anyway.
        takes_covariates: whether a model may be given numbers and texts of a case beside its image.
        takes_unlabelled: whether images without a target may be a part of the index, for self-training.
        counts_labels: whether the audit sums up labels and not cases.
    """

    name: str = ""
    title: str = ""
    needed: tuple[str, ...] = ()
    fewest_classes: int = 1
    empty_vocabulary: bool = False
    separate_images: bool = False
    cases_word: str = "images"
    taught: tuple[str, str, str] = ("targets", "Keep one record an image.", "Keep one copy of each.")
    targets: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    ordered: bool = False
    takes_views: bool = False
    takes_covariates: bool = False
    takes_unlabelled: bool = False
    counts_labels: bool = False

    # --- what a record holds -----------------------------------------------------------------------------------------

    @abstractmethod
    def properties(self) -> dict[str, Any]:
        """JSON Schema of each key besides `image_path` and `patient`."""

    def choice(self) -> dict[str, Any]:
        """JSON Schema keywords that rule how the keys go together."""
        return {}

    def missing(self, item: Item) -> tuple[str, ...]:
        """Those of the needed keys that an item lacks.

        Raises:
            ValueError: keys that exclude each other.
        """
        return tuple(key for key in self.needed if key not in item)

    @abstractmethod
    def parse(self, item: Item) -> dict[str, Any]:
        """The fields of `Record` besides image and patient. What none of them fits goes into `extra`, as JSON values.

        Raises:
            ValueError: what is wrong, in a few words.
        """

    def target(self, record: Record) -> dict[str, Any]:
        """Undoes `parse`; by default what `extra` holds."""
        return dict(record.extra)

    def mixed(self, records: Sequence[Record]) -> str:
        """Why these records cannot stand in one index; empty where they can."""
        return ""

    # --- what it is told by ------------------------------------------------------------------------------------------

    def in_items(self, items: Sequence[Item]) -> bool:
        """Whether the records of an index file are of this kind, by their keys."""
        return any(key in item for item in items for key in self.needed)

    def in_records(self, records: Sequence[Record]) -> bool:
        """Whether records are of this kind, by what they hold."""
        return any(set(record.extra) & set(self.properties()) for record in records)

    # --- what an index of them is ------------------------------------------------------------------------------------

    def masked(self, records: Sequence[Record]) -> bool:
        """Whether the targets are masks; then label_dict.json has the values in them."""
        return False

    def boxed(self, records: Sequence[Record]) -> bool:
        """Whether the targets are boxes."""
        return False

    def stated(self, records: Sequence[Record]) -> bool:
        """Whether the targets say of each image only whether it is abnormal."""
        return False

    def multi_label(self, records: Sequence[Record]) -> bool:
        """Whether several classes, or none, can apply: to a case, or with masks of their own to a voxel."""
        return False

    # --- worked examples ---------------------------------------------------------------------------------------------

    @abstractmethod
    def example(self) -> list[dict[str, Any]]:
        """A few records, one for each way in which an image and what is known of it can be named."""

    def example_labels(self) -> dict[str, int]:
        """The label dictionary that goes with `example`."""
        return {}
