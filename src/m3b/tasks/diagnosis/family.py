"""The family of diagnosis: class probabilities, compared with labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.kinds.diagnosis import UNKNOWN_LABELS
from m3b.data.records import Record
from m3b.metrics import ClassificationCase, Scores
from m3b.tasks.base import Row
from m3b.tasks.classification import ClassificationFamily
from m3b.tasks.covariate_baseline import COVARIATES_KEY, make_covariate_rows, predict_classes
from m3b.tasks.diagnosis.answers import DiagnosisAnswers
from m3b.tasks.diagnosis.metrics import DIAGNOSIS_METRICS, score_diagnosis


class Diagnosis(ClassificationFamily):
    """The diagnosis family; see `TaskFamily`.

    The baseline of constants needs no training cases; that of covariates does.
    """

    name = "diagnosis"
    records = records_of("diagnosis")
    answers = DiagnosisAnswers()
    metrics = DIAGNOSIS_METRICS
    index_guide = (
        '{"image_path": "data/x/a.png", "labels": ["pneumonia"], "patient": "p1"}; label_dict.json numbers the '
        "labels from 0, the finding to detect last."
    )
    default_plan = (
        "Read the labels from the class folders, the table or the archive that the preview shows; take the patient from its "
        "column or folder; keep an own split; leave out what has no image, no label or does not open."
    )
    aliases = ("classification", "classify")
    order_pattern = r"(?:(?:classif|diagnos|klassifizier|distinguish)\w*|tells?\b(?! (?:me|us)\b)[^.;]*\bfrom)\b"
    model_title = "Classifier"

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return the predictions from the covariates, if there are any; the metrics compute constant answers."""
        covariate_answers = predict_classes(training, records, index)
        return {COVARIATES_KEY: covariate_answers} if covariate_answers else None

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute AUROC and the other metrics of `m3b.tasks.diagnosis.metrics`."""
        cases, covariate_cases = (
            _make_cases(row_list, index) for row_list in (rows, make_covariate_rows(rows, baseline))
        )
        return score_diagnosis(
            cases, index.classes, index.multi_label, primary=primary, seed=seed, baseline_cases=covariate_cases
        )

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return rows for each constant decision, and rows for the covariates alone.

        The probabilities of a constant decision are the class frequencies.
        """
        class_frequencies = {
            name: sum(name in row["labels"] for row in rows)
            / max(sum(name not in row.get(UNKNOWN_LABELS, ()) for row in rows), 1)
            for name in index.classes
        }
        constant_rows = [
            [{**row, "probabilities": class_frequencies, "decided": decision} for row in rows]
            for decision in _constant_decisions(index)
        ]
        covariate_rows = make_covariate_rows(rows, baseline)
        return [*constant_rows, covariate_rows] if covariate_rows else constant_rows


def _make_cases(rows: Sequence[Row], index: Index) -> list[ClassificationCase]:
    return [
        ClassificationCase(
            row["image"],
            row["patient"],
            tuple(row["labels"]),
            row["probabilities"],
            _get_decision(row, index),
            tuple(row.get(UNKNOWN_LABELS, ())),
        )
        for row in rows
    ]


def _constant_decisions(index: Index) -> list[list[str]]:
    """Return the decisions that can be made for every image alike."""
    single_labels = [[name] for name in index.classes]
    return [*single_labels, [], list(index.classes)] if index.multi_label else single_labels


def _get_decision(row: Row, index: Index) -> tuple[str, ...] | None:
    """Return the model's own decision; None if the row has none, for example because an older version stored it."""
    decision = row.get("decided")
    return tuple(decision) if decision or (decision is not None and index.multi_label) else None


FAMILY = Diagnosis()
