"""Index files: which image belongs to which split, with which labels and of which patient."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import DataError

TRAIN, TEST, LABELS = "Datapath/train.json", "Datapath/test.json", "Datapath/label_dict.json"
"""Where the three files lie in the working directory."""


@dataclass(frozen=True, slots=True)
class Record:
    """One case.

    Args:
        image: one path (a file, a slice folder, a DICOM series, or `archive.npz#key[17]`), or the slices of a
            volume in order; relative to the working directory.
        labels: the names that apply; exactly one unless the task is multi-label, then any number.
        patient: a pseudonym that all cases of one person share.
    """

    image: str | tuple[str, ...]
    labels: tuple[str, ...]
    patient: str

    @property
    def files(self) -> tuple[str, ...]:
        """The paths behind the case, without the part that picks an item of an archive."""
        paths = (self.image,) if isinstance(self.image, str) else self.image
        return tuple(path.split("#", 1)[0] for path in paths)

    @property
    def key(self) -> str:
        """What tells this case's image from every other's."""
        return self.image if isinstance(self.image, str) else "|".join(self.image)

    def to_json(self) -> dict[str, Any]:
        image = self.image if isinstance(self.image, str) else list(self.image)
        return {"image_path": image, "labels": list(self.labels), "patient": self.patient}


@dataclass(frozen=True)
class Index:
    """Both splits and the label vocabulary, in the order of the model's outputs."""

    train: tuple[Record, ...]
    test: tuple[Record, ...]
    classes: tuple[str, ...]

    @property
    def multi_label(self) -> bool:
        """Whether any case carries several labels or none."""
        return any(len(record.labels) != 1 for record in (*self.train, *self.test))

    @property
    def records(self) -> tuple[Record, ...]:
        return (*self.train, *self.test)


def json_schema() -> dict[str, Any]:
    """JSON Schema of `train.json` and `test.json` for diagnosis."""
    path = {"type": "string", "minLength": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Index of a diagnosis data set: train.json or test.json",
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["image_path", "labels", "patient"],
            "additionalProperties": True,
            "properties": {
                "image_path": {"anyOf": [path, {"type": "array", "items": path, "minItems": 1}]},
                "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                "patient": {"type": "string", "minLength": 1},
            },
        },
    }


def example() -> list[dict[str, Any]]:
    """Four cases, one for each way in which an image can be named."""
    return [
        {"image_path": "data/chest/images/p001_a.png", "labels": ["pneumonia"], "patient": "p001"},
        {"image_path": "data/chest/ct/p002/scan1", "labels": ["normal"], "patient": "p002"},
        {"image_path": ["data/chest/s/1.png", "data/chest/s/2.png"], "labels": ["normal"], "patient": "p003"},
        {"image_path": "data/chest/archive.npz#train_images[17]", "labels": ["pneumonia"], "patient": "p004"},
    ]


def read_records(file: Path) -> tuple[Record, ...]:
    """The cases of one index file.

    Raises:
        DataError: not JSON, not a list, or a record that breaks the schema; the first five faults are named.
    """
    raw = _json(file)
    if not isinstance(raw, list) or not raw:
        raise DataError(f"{file.name} must be a JSON list of at least one record; found {_kind(raw)}.")
    records: list[Record] = []
    faults: list[str] = []
    for place, item in enumerate(raw):
        fault = _fault(item)
        if fault:
            faults.append(f"record {place}: {fault}")
            continue
        image = item["image_path"]
        patient = str(item["patient"])
        records.append(Record(image if isinstance(image, str) else tuple(image), tuple(item["labels"]), patient))
    if faults:
        more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise DataError(f"{file.name} does not fit the index schema: {'; '.join(faults[:5])}{more}.")
    return tuple(records)


def _fault(item: Any) -> str:
    if not isinstance(item, dict):
        return f"must be an object, is {_kind(item)}"
    missing = [key for key in ("image_path", "labels", "patient") if key not in item]
    if missing:
        return f"lacks {', '.join(missing)}"
    image, labels, patient = item["image_path"], item["labels"], item["patient"]
    paths = image if isinstance(image, list) else [image]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        return "image_path must be a path or a list of paths"
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        return f"labels must be a list of label names, is {json.dumps(labels)[:60]}"
    if len(set(labels)) != len(labels):
        return f"labels names {labels} twice"
    if isinstance(patient, bool) or not isinstance(patient, str | int) or not str(patient):
        return f"patient must be a non-empty text, is {json.dumps(patient)[:40]}"
    return ""


def read_labels(file: Path) -> tuple[str, ...]:
    """The label names of `label_dict.json`, ordered by their numbers 0..K-1.

    Raises:
        DataError: not an object of name to number, or numbers with gaps.
    """
    raw = _json(file)
    if not isinstance(raw, dict) or not raw:
        raise DataError(f"{file.name} must be a JSON object such as {{'normal': 0, 'pneumonia': 1}}; {_kind(raw)}.")
    if sorted(raw.values(), key=str) != sorted(range(len(raw)), key=str) or any(
        isinstance(v, bool) for v in raw.values()
    ):
        raise DataError(f"{file.name} must number its {len(raw)} labels 0 to {len(raw) - 1}; found {raw}.")
    return tuple(sorted(raw, key=lambda name: raw[name]))


def read_index(work: Path) -> Index:
    """Both splits and the labels from a working directory.

    Raises:
        DataError: a file is missing or breaks the schema.
    """
    for name in (TRAIN, TEST, LABELS):
        if not (work / name).is_file():
            raise DataError(f"{name} is missing.")
    return Index(read_records(work / TRAIN), read_records(work / TEST), read_labels(work / LABELS))


def write_records(file: Path, records: Iterable[Record]) -> None:
    """Write an index file that `read_records` reads back."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps([record.to_json() for record in records], indent=1, ensure_ascii=False), encoding="utf-8"
    )


def counts(records: Sequence[Record], classes: Sequence[str]) -> dict[str, int]:
    """Cases a class, in the order of `classes`."""
    found = dict.fromkeys(classes, 0)
    for record in records:
        for label in record.labels:
            found[label] = found.get(label, 0) + 1
    return found


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file.name} cannot be read as JSON: {error}.") from error


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an empty list" if not value else "a list", str: "a text", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")
