"""One case of an index: its image, what is known of it, and whose it is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Mask = str | tuple[str, ...] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BoxLabel:
    """A marked box: lower corner, then upper, in the file's own coordinates.

    Args:
        box: `(x0, y0, x1, y1)` in pixels (x along columns, a box over pixels 2 to 4 is 2 to 5), or
            `(x0, y0, z0, x1, y1, z1)` in voxels along the file's axes.
    """

    label: str
    box: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The two parts of a report; either may be empty, not both."""

    findings: str
    impression: str

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.findings.strip(), self.impression.strip()) if part)


@dataclass(frozen=True, slots=True)
class Record:
    """One case.

    Args:
        image: one path (a file, a slice folder, a DICOM series, or `archive.npz#key[17]`), or several: the slices of
            a volume in order, and for reports the views of one study. Relative to the working directory.
        labels: the names that apply. Diagnosis: exactly one unless the task is multi-label, then any number.
            Reports: findings, if known. Otherwise empty.
        patient: a pseudonym that all cases of one person share.
        mask: a path (or slices) whose values are label ids, or one binary mask a class; None if there is none.
        boxes: what is marked; empty for a healthy image; None where the index has no boxes.
        report: the text, for reports.
    """

    image: str | tuple[str, ...]
    labels: tuple[str, ...] = ()
    patient: str = ""
    mask: Mask | None = field(default=None, hash=False)
    boxes: tuple[BoxLabel, ...] | None = None
    report: Report | None = None

    @property
    def images(self) -> tuple[str, ...]:
        """The image's paths as they stand in the index."""
        return (self.image,) if isinstance(self.image, str) else self.image

    @property
    def masks(self) -> tuple[str, ...]:
        """The mask's paths as they stand in the index."""
        if self.mask is None:
            return ()
        if isinstance(self.mask, str):
            return (self.mask,)
        return tuple(self.mask.values()) if isinstance(self.mask, Mapping) else self.mask

    @property
    def files(self) -> tuple[str, ...]:
        """The image's files, without the part that picks an item of an archive."""
        return tuple(path.split("#", 1)[0] for path in self.images)

    @property
    def targets(self) -> tuple[str, ...]:
        """The mask's files, without the part that picks an item of an archive."""
        return tuple(path.split("#", 1)[0] for path in self.masks)

    @property
    def key(self) -> str:
        """What tells this case's image from every other's."""
        return "|".join(self.images)

    def to_json(self, task: str | None = None) -> dict[str, Any]:
        """The record as it stands in an index file of this task, by default the task that its content tells."""
        return {
            "image_path": self.image if isinstance(self.image, str) else list(self.image),
            **self._target(task or task_of(self)),
            "patient": self.patient,
        }

    def _target(self, task: str) -> dict[str, Any]:
        if task == "report" and self.report is not None:
            report = {"findings": self.report.findings, "impression": self.report.impression}
            return {"report": report, **({"labels": list(self.labels)} if self.labels else {})}
        if self.boxes is not None:
            return {"boxes": [{"label": one.label, "box": list(one.box)} for one in self.boxes]}
        if task in ("segmentation", "detection"):
            mask = self.mask
            return {"mask_path": mask if mask is None or isinstance(mask, str) else _plain(mask)}
        return {"labels": list(self.labels)}


def task_of(record: Record) -> str:
    """The task that a record's content tells; a mask without more counts as segmentation."""
    if record.report is not None:
        return "report"
    if record.boxes is not None:
        return "detection"
    return "diagnosis" if record.mask is None else "segmentation"


def _plain(mask: tuple[str, ...] | Mapping[str, str]) -> Any:
    return dict(mask) if isinstance(mask, Mapping) else list(mask)


def parse(item: Any, task: str) -> Record:
    """A record from its JSON.

    Raises:
        ValueError: what is wrong with it, in a few words.
    """
    if not isinstance(item, dict):
        raise ValueError(f"must be an object, is {kind(item)}")
    missing = [key for key in ("image_path", *_needed(item, task), "patient") if key not in item]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}")
    patient = item["patient"]
    image = _paths(item["image_path"], "image_path")
    record: dict[str, Any] = {}
    if task in ("diagnosis", "report"):
        record["labels"] = _labels(item.get("labels", []))
    if task == "report":
        record["report"] = _report(item["report"])
    if task in ("segmentation", "detection"):
        record |= {"boxes": _boxes(item["boxes"])} if "boxes" in item and task == "detection" else _mask(item, task)
    if isinstance(patient, bool) or not isinstance(patient, str | int) or not str(patient):
        raise ValueError(f"patient must be a non-empty text, is {json.dumps(patient)[:40]}")
    return Record(image=image, patient=str(patient), **record)


def _needed(item: dict[str, Any], task: str) -> tuple[str, ...]:
    if task == "detection":
        if "mask_path" in item and "boxes" in item:
            raise ValueError("has both mask_path and boxes; an index uses one of them, the same throughout")
        return () if "boxes" in item or "mask_path" in item else ("mask_path or boxes",)
    return {"diagnosis": ("labels",), "segmentation": ("mask_path",), "report": ("report",)}[task]


def _paths(value: Any, name: str) -> str | tuple[str, ...]:
    paths = value if isinstance(value, list) else [value]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise ValueError(f"{name} must be a path or a list of paths")
    return value if isinstance(value, str) else tuple(value)


def _labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
        raise ValueError(f"labels must be a list of label names, is {json.dumps(value)[:60]}")
    if len(set(value)) != len(value):
        raise ValueError(f"labels names {value} twice")
    return tuple(value)


def _mask(item: dict[str, Any], task: str) -> dict[str, Any]:
    value = item["mask_path"]
    if value is None:
        if task == "segmentation":
            raise ValueError("mask_path is null; leave out images without a mask")
        return {}
    if not isinstance(value, dict):
        return {"mask": _paths(value, "mask_path")}
    if not value or not all(name and isinstance(path, str) and path for name, path in value.items()):
        raise ValueError(
            "mask_path, as an object, must name one path a class, such as {'liver': 'data/x/liver.nii.gz'}"
        )
    return {"mask": value}


def _boxes(value: Any) -> tuple[BoxLabel, ...]:
    if not isinstance(value, list):
        raise ValueError(f"boxes must be a list, [] for a healthy image; is {kind(value)}")
    return tuple(_box(one, place) for place, one in enumerate(value))


def _box(value: Any, place: int) -> BoxLabel:
    example = '{"label": "nodule", "box": [x0, y0, x1, y1]}'
    if not isinstance(value, dict) or not isinstance(value.get("label"), str) or not value["label"]:
        raise ValueError(f"boxes[{place}] must look like {example}, is {json.dumps(value)[:60]}")
    box = value.get("box")
    numbers = box if isinstance(box, list) else []
    if len(numbers) not in (4, 6) or not all(_number(one) for one in numbers):
        raise ValueError(f"boxes[{place}]: box must be 4 numbers (picture) or 6 (volume), is {json.dumps(box)[:60]}")
    return BoxLabel(value["label"], tuple(float(one) for one in numbers))


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _report(value: Any) -> Report:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("findings", "impression")):
        raise ValueError('report must be {"findings": "...", "impression": "..."}, either may be ""')
    return Report(value["findings"], value["impression"])


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "an empty list" if not value else "a list", str: "a text", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")
