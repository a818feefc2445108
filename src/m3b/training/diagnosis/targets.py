"""Targets of an image: classes, ordinal grades, a number, or a time to an event. `get_target(plan)` gives the plan's target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from m3b.training.diagnosis.classification import ClassTarget, Record
from m3b.training.diagnosis.grading import GradeTarget
from m3b.training.diagnosis.regression import NumberTarget
from m3b.training.diagnosis.survival import SurvivalTarget

TARGETS: dict[str, type[ClassTarget]] = {
    "diagnosis": ClassTarget,
    "grading": GradeTarget,
    "regression": NumberTarget,
    "survival": SurvivalTarget,
}
"""Task of the plan -> its target."""
TASK_KEYS = {"grade": "grading", "value": "regression", "event": "survival"}
"""Key of a record -> task; records of other keys have `labels`."""


def infer_task(records: Sequence[Record]) -> str:
    """Return the task from the keys of an index."""
    return next((task for key, task in TASK_KEYS.items() if key in records[0]), "diagnosis")


def get_target(plan: Mapping[str, Any]) -> ClassTarget:
    """Return the target of the plan's task."""
    return TARGETS[str(plan["task"])](plan)
