"""How often the doubts of a model are right: test images that it flags, and prediction sets that hold the true class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from m3b.data.records import Record
from m3b.metrics import Scores
from m3b.models import Prediction

from .base import Row

OOD_KEY, PREDICTION_SET_KEY = "out_of_distribution", "prediction_set"
"""Keys of a row."""


def add_uncertainty(row: Row, record: Record, answer: Prediction) -> Row:
    """A measured case with what the model doubted of it, where it says so."""
    uncertainty: Row = {}
    if answer.out_of_distribution is not None:
        uncertainty[OOD_KEY] = answer.out_of_distribution
    if answer.prediction_set is not None:
        uncertainty[PREDICTION_SET_KEY] = {"classes": list(answer.prediction_set), "level": answer.set_level,
        "abstains": bool(answer.abstains),
                     "labels": list(record.labels)}  # fmt: skip
    return {**row, **uncertainty}


def add_uncertainty_scores(scores: Scores, rows: Sequence[Row]) -> Scores:
    """Scores whose `details` say how many test images were flagged, and how often sets hold the true labels."""
    uncertainty: dict[str, Any] = {}
    if flags := [bool(row[OOD_KEY]) for row in rows if OOD_KEY in row]:
        uncertainty[OOD_KEY] = {"flagged": sum(flags), "n": len(flags)}
    if sets := [row[PREDICTION_SET_KEY] for row in rows if PREDICTION_SET_KEY in row]:
        uncertainty["prediction_sets"] = _measure_prediction_sets(sets)
    return replace(scores, details={**scores.details, **uncertainty}) if uncertainty else scores


def _measure_prediction_sets(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one label a case the share of cases whose set holds it; of several the share of all labels."""
    is_covered = [(name in prediction_set["classes"]) for prediction_set in sets for name in prediction_set["labels"]]
    return {
        "promised": sets[0]["level"],
        "held": round(sum(is_covered) / len(is_covered), 6) if is_covered else None,
        "mean_size": round(sum(len(prediction_set["classes"]) for prediction_set in sets) / len(sets), 3),
        "abstained": sum(prediction_set["abstains"] for prediction_set in sets),
        "n": len(sets),
    }
