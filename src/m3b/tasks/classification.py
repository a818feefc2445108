"""What diagnosis and grading share: a probability for each class, and the decided classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.data.altering import WAYS
from m3b.data.index import Index
from m3b.data.kinds.diagnosis import UNKNOWN_LABELS
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.models import ModelInfo, Prediction
from m3b.models.answers import AnswerFormat, RawAnswer, is_finite_number
from m3b.tasks.base import Row, TaskFamily, join_names, make_base_row
from m3b.tasks.report_section import ClassReportSection
from m3b.training.diagnosis.calibration import best_thresholds, exclusive_cuts

Floats = NDArray[np.float64]
MIN_AVERAGED_PROBABILITY = 1e-6
"""Minimum probability of a class in an average: the logarithm of 0 would decide it alone."""
_PROBABILITY_SUM_TOLERANCE = 0.02


class ClassificationAnswers(AnswerFormat):
    """Answers with a probability for each class; see `AnswerFormat`."""

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        probabilities, classes = item.get("probabilities"), model_info.classes
        if not isinstance(probabilities, dict):
            raise ModelError(
                f"{location}: `probabilities` must be an object of class to number, it is {probabilities!r}"
            )
        if set(probabilities) != set(classes):
            raise ModelError(
                f"{location}: probabilities for {sorted(probabilities)}, but the classes are {sorted(classes)}"
            )
        for name, value in probabilities.items():
            if not is_finite_number(value) or not -1e-6 <= value <= 1 + 1e-6:
                raise ModelError(f"{location}: the probability of {name!r} is {value!r}, not a number from 0 to 1")
        total = math.fsum(probabilities.values())
        if not model_info.multi_label and abs(total - 1) > _PROBABILITY_SUM_TOLERANCE:
            raise ModelError(f"{location}: the probabilities sum to {total:.4g}, not 1")
        ordered_probabilities = {name: float(probabilities[name]) for name in classes}
        return {
            "probabilities": ordered_probabilities,
            "prediction": _parse_decision(location, item, ordered_probabilities, model_info.multi_label),
        }


def _parse_decision(
    location: str, item: RawAnswer, probabilities: Mapping[str, float], multi_label: bool
) -> tuple[str, ...]:
    decision = item.get("prediction")
    if decision is None:
        if multi_label:
            return tuple(name for name, value in probabilities.items() if value >= 0.5)
        return (max(probabilities, key=lambda name: probabilities[name]),)
    decided_classes = [decision] if isinstance(decision, str) else decision
    if not isinstance(decided_classes, list) or any(name not in probabilities for name in decided_classes):
        raise ModelError(f"{location}: `prediction` is {decision!r}; the classes are {list(probabilities)}")
    if not multi_label and len(decided_classes) != 1:
        raise ModelError(f"{location}: `prediction` names {len(decided_classes)} classes where exactly one is possible")
    return tuple(decided_classes)


class ClassificationFamily(TaskFamily):
    """A family whose models have one output a class; see `TaskFamily`."""

    max_validation_cases = 300
    report_section = ClassReportSection()

    def label_width(self, classes: int) -> int | None:
        """Return one number for each class."""
        return classes

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return one logit for each class."""
        return (classes,)

    def join_classes(self, names: Sequence[str]) -> str:
        """Return `a, b or c`."""
        return join_names(names, "or")

    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Return the true labels, the probabilities, and the model's decision with its delivered thresholds."""
        if set(prediction.probabilities) != set(index.classes):
            raise ModelError(
                f"predict.py answers for {sorted(prediction.probabilities)}; the index has {sorted(index.classes)}. "
                "Export from this plan."
            )
        truth = {**make_base_row(record), "labels": list(record.labels)}
        if UNKNOWN_LABELS in record.extra:
            truth[UNKNOWN_LABELS] = list(record.extra[UNKNOWN_LABELS])
        return {**truth, "probabilities": dict(prediction.probabilities), "decided": list(prediction.prediction)}

    def average_rows(self, rows: Sequence[Sequence[Row]], index: Index) -> list[Row] | None:
        """Return the cases with the mean logits of all models, as networks of the template are averaged, and their decisions."""
        tables = np.array([[[row["probabilities"][name] for name in index.classes] for row in part] for part in rows])
        tables = tables.clip(MIN_AVERAGED_PROBABILITY, 1 - MIN_AVERAGED_PROBABILITY)
        if index.multi_label:
            average = 1 / (1 + np.exp(-np.log(tables / (1 - tables)).mean(axis=0)))
        else:
            powers = np.exp(np.log(tables).mean(axis=0))
            average = powers / powers.sum(axis=1, keepdims=True)
        decisions = self._decide_average(average, rows[0], index)
        return [
            {
                **row,
                "probabilities": dict(zip(index.classes, map(float, values), strict=True)),
                "decided": [name for name, is_decided in zip(index.classes, decision, strict=True) if is_decided],
            }
            for row, values, decision in zip(rows[0], average, decisions, strict=True)
        ]

    def _decide_average(self, average: Floats, rows: Sequence[Row], index: Index) -> NDArray[np.bool_]:
        """Return (N, K) decisions by thresholds that are fitted on these cases, as those of a model are."""
        truth = np.array([[float(name in row["labels"]) for name in index.classes] for row in rows])
        if not index.multi_label:
            decided = (average / exclusive_cuts(truth > 0.5)).argmax(axis=1)
            return np.asarray(np.eye(len(index.classes), dtype=np.bool_)[decided])
        is_unknown = np.array([[name in row.get(UNKNOWN_LABELS, ()) for name in index.classes] for row in rows])
        return np.asarray(average >= best_thresholds(average, np.where(is_unknown, np.nan, truth)))

    def list_alterations(self) -> tuple[str, ...]:
        """Return all alterations: a class does not depend on the framing."""
        return WAYS

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """Return the largest difference in the probability of a class."""
        first, second = row["probabilities"], other_row["probabilities"]
        return max((abs(value - second[name]) for name, value in first.items()), default=0.0)
