"""How often the doubts of a model are right: test images that it flags, and prediction sets that hold the true class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from m3b.data.records import Record
from m3b.metrics import Scores
from m3b.models import Prediction

from .base import Row

UNLIKE, SET = "out_of_distribution", "prediction_set"
"""Keys of a row."""


def with_doubts(row: Row, record: Record, answer: Prediction) -> Row:
    """A measured case with what the model doubted of it, where it says so."""
    uncertainty: Row = {}
    if answer.out_of_distribution is not None:
        uncertainty[UNLIKE] = answer.out_of_distribution
    if answer.prediction_set is not None:
        uncertainty[SET] = {"classes": list(answer.prediction_set), "level": answer.set_level, "abstains": bool(answer.abstains),
                     "labels": list(record.labels)}  # fmt: skip
    return {**row, **uncertainty}


def with_doubts_measured(scores: Scores, rows: Sequence[Row]) -> Scores:
    """Scores whose `details` say how many test images were flagged, and how often sets hold the true labels."""
    uncertainty: dict[str, Any] = {}
    if flags := [bool(row[UNLIKE]) for row in rows if UNLIKE in row]:
        uncertainty[UNLIKE] = {"flagged": sum(flags), "n": len(flags)}
    if sets := [row[SET] for row in rows if SET in row]:
        uncertainty["prediction_sets"] = _covered(sets)
    return replace(scores, details={**scores.details, **uncertainty}) if uncertainty else scores


def _covered(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one label a case the share of cases whose set holds it; of several the share of all labels."""
    is_covered = [(name in prediction_set["classes"]) for prediction_set in sets for name in prediction_set["labels"]]
    return {
        "promised": sets[0]["level"],
        "held": round(sum(is_covered) / len(is_covered), 6) if is_covered else None,
        "mean_size": round(sum(len(prediction_set["classes"]) for prediction_set in sets) / len(sets), 3),
        "abstained": sum(prediction_set["abstains"] for prediction_set in sets),
        "n": len(sets),
    }
