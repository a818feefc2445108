"""The kinds of index records, one a task: what stands in an index file, and how it is read and written.

This is the lowest part of a task family; `m3b.tasks.TaskFamily` has it as `records`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.kinds.covariates import covariates as covariates_of
from m3b.data.kinds.detection import DetectionRecords
from m3b.data.kinds.diagnosis import DiagnosisRecords
from m3b.data.kinds.grading import GradingRecords
from m3b.data.kinds.parts import attributes as attributes_of
from m3b.data.kinds.parts import image as image_of
from m3b.data.kinds.regression import RegressionRecords
from m3b.data.kinds.report import ReportRecords
from m3b.data.kinds.segmentation import SegmentationRecords
from m3b.data.kinds.survival import SurvivalRecords
from m3b.data.records import NO_VALUES, Record, kind
from m3b.errors import DataError
from m3b.plugins import TaskRegistry

__all__ = ["DEFAULT", "Item", "RecordKind", "add", "names", "of", "parse", "to_json", "told_by", "told_by_items"]

DEFAULT = DiagnosisRecords.name
"""The task of records and models that say none: early versions knew no other."""

_KINDS: TaskRegistry[RecordKind] = TaskRegistry("task")


SEVERAL, VIEWS = "several", "views"
"""Key of a record whose paths are no slices, and what it says they are."""


def separate(record: Record, task: str) -> bool:
    """Whether the paths of a record are images of their own, as the views of a study are, and not the slices of a volume."""
    return (of(task).separate_images or record.views) and not record.channels


def add(new: RecordKind) -> None:
    """Register a kind under its name.

    Raises:
        ValueError: another kind has this name.
    """
    _KINDS.add(new.name, new)


for _kind in (
    DiagnosisRecords(),
    SegmentationRecords(),
    DetectionRecords(),
    ReportRecords(),
    GradingRecords(),
    RegressionRecords(),
    SurvivalRecords(),
):
    add(_kind)


def names() -> tuple[str, ...]:
    """All tasks, m3b's own first."""
    return _KINDS.names()


def of(task: str) -> RecordKind:
    """The kind of records that a task has.

    Raises:
        DataError: there is no such task.
    """
    found = _KINDS.get(task)
    if found is None:
        raise DataError(f"There is no task {task!r}; there are {', '.join(names())}.")
    return found


def told_by(records: Sequence[Record]) -> str:
    """The task that the content of records tells; a mask without more counts as segmentation."""
    return next((name for name in reversed(names()) if of(name).in_records(records)), DEFAULT)


def told_by_items(items: Sequence[Item]) -> str:
    """The task that the keys of an index file tell; masks count as segmentation unless some are null."""
    return next((name for name in reversed(names()) if of(name).in_items(items)), DEFAULT)


def parse(item: Any, task: str, *, labelled: bool = True) -> Record:
    """A record from its JSON.

    Args:
        labelled: False for a record of the unlabelled part, which has no target.

    Raises:
        ValueError: what is wrong with it, in a few words.
        DataError: there is no such task.
    """
    mine = of(task)
    if not isinstance(item, dict):
        raise ValueError(f"must be an object, is {kind(item)}")
    needed = mine.missing(item) if labelled else ()
    lacking = [key for key in ("image_path", *needed, "patient") if key not in item]
    if lacking:
        raise ValueError(f"lacks {', '.join(lacking)}")
    patient = item["patient"]
    image = image_of(item["image_path"])
    fields = mine.parse(item) if labelled else {}
    if isinstance(patient, bool) or not isinstance(patient, str | int) or not str(patient):
        raise ValueError(f"patient must be a non-empty text, is {json.dumps(patient)[:40]}")
    if item.get("covariates") and not mine.takes_covariates:
        raise ValueError(f"has covariates, which a {task} model does not take")
    several = item.get(SEVERAL)
    if several is not None and (several != VIEWS or not mine.takes_views or not isinstance(image, tuple)):
        raise ValueError(f"{SEVERAL} must be {VIEWS!r}, for a list of images of a {task} model that takes views")
    return Record(
        image=image,
        patient=sys.intern(str(patient)),
        attributes=attributes_of(item["attributes"]) if "attributes" in item else NO_VALUES,
        covariates=covariates_of(item["covariates"]) if "covariates" in item else NO_VALUES,
        views=several is not None,
        **fields,
    )


def to_json(record: Record, task: str | None = None, *, labelled: bool = True) -> dict[str, Any]:
    """The record as it stands in an index file of this task, by default the task that its content tells."""
    return {
        "image_path": record.reference,
        **({SEVERAL: VIEWS} if record.views else {}),
        **(of(task or told_by([record])).target(record) if labelled else {}),
        "patient": record.patient,
        **({"covariates": dict(record.covariates)} if record.covariates else {}),
        **({"attributes": dict(record.attributes)} if record.attributes else {}),
    }
