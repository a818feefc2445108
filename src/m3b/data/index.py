"""Index files: which image belongs to which split, with what is known of it and of which patient."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data import kinds
from m3b.data.kinds.covariates import mixed_covariates
from m3b.data.kinds.parts import mixed_channels, mixed_views, overlapping
from m3b.data.records import BoxLabel, Mask, Record, Report, kind
from m3b.data.schemas import example, example_boxes, example_labels, json_schema
from m3b.errors import DataError
from m3b.isolation import untrusted
from m3b.writing import is_text, to_one_line

__all__ = [
    "LABELS",
    "TEST",
    "TRAIN",
    "UNLABELLED",
    "BoxLabel",
    "Index",
    "Mask",
    "Record",
    "RecordFile",
    "Report",
    "counts",
    "example",
    "example_boxes",
    "example_labels",
    "format_patient_count",
    "format_records",
    "guess_task",
    "iterate_items",
    "json_schema",
    "read_index",
    "read_labels",
    "read_records",
    "read_unlabelled",
    "read_values",
    "write_records",
    "write_unlabelled",
]

TRAIN, TEST, LABELS = "Datapath/train.json", "Datapath/test.json", "Datapath/label_dict.json"
"""Where the three files lie in the working directory."""
UNLABELLED = "Datapath/unlabelled.json"
"""Where the images without a label lie, if the index has this part."""
MAX_BYTES = 2**30
"""Of one index file."""
MAX_FAULTS = 1000
"""Records that break the schema after which a file is not read on."""


@dataclass(frozen=True)
class Index:
    """Both splits and the label vocabulary.

    Args:
        classes: the names in the order of their numbers, which is that of the model's outputs.
        values: the number of each name as `label_dict.json` has it; for masks the value in the file.
            Counted from 0, and from 1 for masks, where not given.
        unlabelled: images without a label, which only self-training uses; none in most indexes. Not among `records`.
    """

    train: tuple[Record, ...]
    test: tuple[Record, ...]
    classes: tuple[str, ...]
    task: str = "diagnosis"
    values: dict[str, int] = field(default_factory=dict, hash=False)
    unlabelled: tuple[Record, ...] = ()

    def __post_init__(self) -> None:
        if not self.values:
            start = 1 if self.masked else 0
            numbered = {name: number for number, name in enumerate(self.classes, start)}
            object.__setattr__(self, "values", numbered)

    @property
    def records(self) -> tuple[Record, ...]:
        return (*self.train, *self.test)

    @property
    def training_images(self) -> tuple[Record, ...]:
        """What training is given: its cases, and the images without a label."""
        return (*self.train, *self.unlabelled)

    @property
    def all_images(self) -> tuple[Record, ...]:
        """The records of every part."""
        return (*self.records, *self.unlabelled)

    @property
    def patients_known(self) -> bool:
        """Whether every case says whose it is; if not, cases of one person may lie on both sides of the split."""
        return all(record.patient_known for record in self.records)

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the images' channels, in order; empty where a case is one image."""
        return max((record.channels for record in self.records), key=len, default=())

    @property
    def covariates(self) -> tuple[str, ...]:
        """The names of what a model is given beside the image, in order; empty where that is nothing."""
        return next((tuple(record.covariates) for record in self.records), ())

    @property
    def boxed(self) -> bool:
        """Whether the targets are boxes."""
        return kinds.of(self.task).boxed(self.records)

    @property
    def stated(self) -> bool:
        """Whether of every image it is only known whether it is abnormal."""
        return kinds.of(self.task).stated(self.records)

    @property
    def masked(self) -> bool:
        """Whether the targets are masks."""
        return kinds.of(self.task).masked(self.records)

    @property
    def overlapping(self) -> bool:
        """Whether every class has a mask of its own, so that classes may overlap."""
        return overlapping(self.records)

    @property
    def multi_label(self) -> bool:
        """Whether several classes, or none, can apply: to a case, or with masks of their own to a voxel."""
        return kinds.of(self.task).multi_label(self.records)


def read_records(file: Path, task: str = "diagnosis", *, labelled: bool = True) -> tuple[Record, ...]:
    """The cases of one index file.

    Args:
        labelled: False for the file of the unlabelled part.

    Raises:
        DataError: not JSON, not a list, or a record that breaks the schema; the first five faults are named.
    """
    of_task = kinds.of(task)
    records: list[Record] = []
    faults: list[str] = []
    for place, (item, text) in enumerate(iterate_items(file.parent, file.name)):
        try:
            if _SURROGATE.search(text):
                _check_unicode(item)
            records.append(kinds.parse(item, task, labelled=labelled))
        except ValueError as error:
            faults.append(f"record {place}: {error}")
            if len(faults) == MAX_FAULTS:  # a gigabyte of them would take hours, and all memory
                break
    if not records and not faults:
        raise DataError(f"{file.name} must be a JSON list of at least one record; found {kind([])}.")
    if not faults and (mixed := _mixed(of_task, records)):
        faults = [mixed]
    if faults:
        more = f" (and {len(faults) - 5}{' or' if len(faults) == MAX_FAULTS else ''} more)" if len(faults) > 5 else ""
        raise DataError(f"{file.name} does not fit the index schema: {'; '.join(faults[:5])}{more}.")
    return tuple(records)


@dataclass(frozen=True)
class RecordFile:
    """The records of an index file that was accepted. Each iteration reads the file again, a record at a time.

    Args:
        root: a trusted folder; links below it are not followed.
        labelled: False for the file of the unlabelled part; no records if there is no such file.
    """

    root: Path
    name: str
    task: str
    labelled: bool = True

    def __iter__(self) -> Iterator[Record]:
        if not self.labelled and not (self.root / self.name).is_file():
            return
        for item, _ in iterate_items(self.root, self.name):
            yield kinds.parse(item, self.task, labelled=self.labelled)


def iterate_items(root: Path, name: str) -> Iterator[tuple[Any, str]]:
    """Yield each item of an index file, unchecked, and its JSON text; one is in memory at a time.

    Args:
        root: a trusted folder; links below it are not followed.

    Raises:
        DataError: the file cannot be read, or holds no JSON list; items before the fault were yielded.
    """
    file = Path(name).name
    try:
        yield from untrusted.iterate_json_list(untrusted.read_blocks(root, name, MAX_BYTES))
    except OSError as error:
        raise DataError(f"{file} cannot be read as JSON: {error.strerror or error}.") from error
    except ValueError:
        content = _json(root, name)  # names the place of the fault in the file
        raise DataError(f"{file} must be a JSON list of at least one record; found {kind(content)}.") from None


def _check_unicode(content: object) -> None:
    """Raise ValueError for JSON content with a text that no UTF-8 file can hold, such as a file name in Latin-1."""
    text = json.dumps(content, ensure_ascii=False)
    if not is_text(text):
        raise ValueError(f"{to_one_line(text[:300])} holds a name that is not UTF-8; leave out what it names")


def _mixed(of_task: kinds.RecordKind, records: Sequence[Record]) -> str:
    """Why records cannot stand in one index, in words; empty where they can."""
    each = (of_task.mixed, mixed_channels, mixed_covariates, mixed_views)
    return next((said for look in each if (said := look(records))), "")


def read_values(file: Path, *, masks: bool = False, empty: bool = False) -> dict[str, int]:
    """`label_dict.json`: name to number, in the order of the numbers.

    Args:
        masks: the numbers are values in mask files: at least 1, different, gaps allowed. Else they are 0 to K-1.
        empty: an empty object will do.

    Raises:
        DataError: not such an object.
    """
    raw = _json(file.parent, file.name)
    try:
        _check_unicode(raw)
    except ValueError as error:
        raise DataError(f"{file.name}: {error}.") from error
    sample = "{'spleen': 1, 'liver': 6}" if masks else "{'normal': 0, 'pneumonia': 1}"
    if not isinstance(raw, dict) or not (raw or empty):
        raise DataError(f"{file.name} must be a JSON object such as {sample}; found {kind(raw)}.")
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in raw.values())
    if masks and not (whole and len(set(raw.values())) == len(raw) and min(raw.values()) >= 1):
        raise DataError(
            f"{file.name} must give each class its value in the mask files: whole numbers from 1, all different, "
            f"without the background; found {raw}."
        )
    if not masks and not (whole and sorted(raw.values()) == list(range(len(raw)))):
        raise DataError(f"{file.name} must number its {len(raw)} labels 0 to {len(raw) - 1}; found {raw}.")
    return dict(sorted(raw.items(), key=lambda pair: pair[1]))


def read_labels(file: Path, *, masks: bool = False, empty: bool = False) -> tuple[str, ...]:
    """The label names of `label_dict.json`, ordered by their numbers; see `read_values`."""
    return tuple(read_values(file, masks=masks, empty=empty))


def read_index(work: Path, task: str = "diagnosis") -> Index:
    """Both splits and the labels from a working directory.

    Raises:
        DataError: a file is missing or breaks the schema.
    """
    for name in (TRAIN, TEST, LABELS):
        if not (work / name).is_file():
            raise DataError(f"{name} is missing.")
    train, test = read_records(work / TRAIN, task), read_records(work / TEST, task)
    of_task, both = kinds.of(task), [*train, *test]
    if mixed := _mixed(of_task, both):
        raise DataError(f"{TRAIN} and {TEST} do not fit together: {mixed}.")
    unlabelled = read_unlabelled(work, task, both)
    values = read_values(work / LABELS, masks=of_task.masked(both), empty=of_task.empty_vocabulary)
    index = Index(train, test, tuple(values), task, values, unlabelled)
    if index.overlapping and list(values.values()) != list(range(1, len(values) + 1)):
        raise DataError(
            f"{LABELS} must number the classes 1 to {len(values)} where each has a mask of its own; {values}."
        )
    return index


def read_unlabelled(work: Path, task: str, labelled: Sequence[Record]) -> tuple[Record, ...]:
    """The unlabelled part of an index; empty if it has none.

    Args:
        labelled: the other records, which have the same channels, views and covariates.

    Raises:
        DataError: the file breaks the schema, or the task has no such part.
    """
    if not (work / UNLABELLED).is_file():
        return ()
    if not kinds.of(task).takes_unlabelled:
        raise DataError(f"{UNLABELLED}: a {task} index has no images without a target; remove the file.")
    records = read_records(work / UNLABELLED, task, labelled=False)
    common_rules = (mixed_channels, mixed_covariates, mixed_views)
    if mixed := next((text for find_mix in common_rules if (text := find_mix([*labelled, *records]))), ""):
        raise DataError(f"{UNLABELLED} does not fit to the other parts: {mixed}.")
    return records


def guess_task(work: Path) -> str:
    """The task whose index lies in a working directory, by the keys of its first record; diagnosis if none tells.

    Masks count as segmentation unless some are null.
    """
    items: list[Any] = []
    for name in (TRAIN, TEST):
        raw = _json((work / name).parent, Path(name).name)
        items += [item for item in raw if isinstance(item, dict)] if isinstance(raw, list) else []
    return kinds.told_by_items(items)


def write_unlabelled(work: Path, records: Sequence[Record], task: str) -> None:
    """Write the unlabelled part of an index, or remove that of an earlier index if there are no records."""
    if records:
        write_records(work / UNLABELLED, records, task, labelled=False)
    else:
        (work / UNLABELLED).unlink(missing_ok=True)


def write_records(file: Path, records: Iterable[Record], task: str | None = None, *, labelled: bool = True) -> None:
    """Write an index file that `read_records` reads back; the task is told by the records where not given."""
    if task is None:
        records = list(records)
        task = kinds.told_by(records)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as out:
        out.writelines(format_records(records, task, labelled=labelled))


def format_records(records: Iterable[Record], task: str, *, labelled: bool = True) -> Iterator[str]:
    """Yield the text of an index file, a record at a time: what `json.dumps(items, indent=1)` gives of all of them."""
    before = "[\n "
    for record in records:
        text = json.dumps(kinds.to_json(record, task, labelled=labelled), indent=1, ensure_ascii=False)
        yield before + text.replace("\n", "\n ")
        before = ",\n "
    yield "[]" if before[0] == "[" else "\n]"


def format_patient_count(count: int, *, known: bool) -> str:
    """`31 patients`; never a number of patients if nobody knows them."""
    return f"{count} patients" if known else "patients unknown"


def counts(records: Sequence[Record], classes: Sequence[str]) -> dict[str, int]:
    """Cases a class, in the order of `classes`: by label, by box."""
    found = dict.fromkeys(classes, 0)
    for record in records:
        for label in names_in(record):
            found[label] = found.get(label, 0) + 1
    return found


def names_in(record: Record) -> tuple[str, ...]:
    """The classes that a record names, without opening anything."""
    if record.boxes is not None:
        return tuple(dict.fromkeys(one.label for one in record.boxes))
    return record.labels


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The only way in which JSON in UTF-8 can hold a text that UTF-8 cannot."""


def _json(root: Path, name: str) -> Any:
    """Scripts write index files: a pipe is not waited for, and none is read without end."""
    try:
        return untrusted.parse_json(untrusted.read_bytes(root, name, MAX_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise DataError(f"{Path(name).name} cannot be read as JSON: {error.strerror or error}.") from error
    except ValueError as error:
        raise DataError(f"{Path(name).name} cannot be read as JSON: {error}.") from error
