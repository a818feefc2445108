"""Diagnosis: class probabilities against labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.audit_kinds import of as audit_of
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.metrics import Case, Scores, score_diagnosis
from m3b.metrics.vocabulary import DIAGNOSIS
from m3b.models import Prediction
from m3b.models.answers import of as answers_of

from .agreement import of_probabilities
from .base import Row, TaskFamily, named
from .covariates import KEY, blind_rows, classified


class Diagnosis(TaskFamily):
    """See `TaskFamily`. What a constant prediction gets needs no training cases here; what covariates give does."""

    name = "diagnosis"
    records = records_of("diagnosis")
    audit = audit_of("diagnosis")
    answers = answers_of("diagnosis")
    metrics = DIAGNOSIS
    guide = (
        '{"image_path": "data/x/a.png", "labels": ["pneumonia"], "patient": "p1"}; label_dict.json numbers the '
        "labels from 0, the finding to detect last."
    )
    usual_plan = (
        "Read the labels from the class folders, the table or the archive that the preview shows; take the patient from its "
        "column or folder; keep an own split; leave out what has no image, no label or does not open."
    )
    aliases = ("classification", "classify")
    ordered = r"(?:(?:classif|diagnos|klassifizier|distinguish)\w*|tells?\b(?! (?:me|us)\b)[^.;]*\bfrom)\b"
    built = "Classifier of"
    classes_joined = " or "
    probe_batch = 8  # more than one label has to be among them
    compares_answers = True
    valid_cases = 300

    def label_width(self, classes: int) -> int | None:
        """A number a class."""
        return classes

    def outputs(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """One logit a class."""
        return (classes,)

    def measure(self, record: Record, answer: Prediction, index: Index, base: Path) -> Row:
        """Labels, probabilities, and what the model decides with the thresholds that it was delivered with."""
        if set(answer.probabilities) != set(index.classes):
            raise ModelError(
                f"predict.py answers for {sorted(answer.probabilities)}; the index has {sorted(index.classes)}. "
                "Export from this plan."
            )
        truth = {**named(record), "labels": list(record.labels)}
        return {**truth, "probabilities": dict(answer.probabilities), "decided": list(answer.prediction)}

    def trivial(self, training: Sequence[Record], records: Sequence[Record], index: Index, base: Path) -> Any:
        """What the covariates alone give, where there are any: the score knows what constants get."""
        covariate_answers = classified(training, records, index)
        return {KEY: covariate_answers} if covariate_answers else None

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, trivial: Any = None, seed: int = 0) -> Scores:
        """AUROC and the others of `metrics.diagnosis`."""
        cases, covariate_cases = (_cases(row_list, index) for row_list in (rows, blind_rows(rows, trivial)))
        return score_diagnosis(
            cases, index.classes, index.multi_label, primary=primary, seed=seed, blind=covariate_cases
        )

    def distance(self, row: Row, other: Row) -> float:
        """The largest difference of a class's probability."""
        return of_probabilities(row["probabilities"], other["probabilities"])

    def blind(self, rows: Sequence[Row], index: Index, trivial: Any = None) -> Sequence[Sequence[Row]]:
        """Each class as the answer to every image, with the frequencies of the classes as probabilities; and what the covariates
        alone give."""
        class_frequencies = {
            name: sum(name in row["labels"] for row in rows) / max(len(rows), 1) for name in index.classes
        }
        constant_rows = [
            [{**row, "probabilities": class_frequencies, "decided": decision} for row in rows]
            for decision in _constant_decisions(index)
        ]
        covariate_rows = blind_rows(rows, trivial)
        return [*constant_rows, covariate_rows] if covariate_rows else constant_rows


def _cases(rows: Sequence[Row], index: Index) -> list[Case]:
    return [
        Case(row["image"], row["patient"], tuple(row["labels"]), row["probabilities"], _decided(row, index))
        for row in rows
    ]


def _constant_decisions(index: Index) -> list[list[str]]:
    """Decisions that are the same for every image."""
    single_labels = [[name] for name in index.classes]
    return [*single_labels, [], list(index.classes)] if index.multi_label else single_labels


def _decided(row: Row, index: Index) -> tuple[str, ...] | None:
    """The model's own decision; None where there is none, of rows that an earlier version stored for instance."""
    decision = row.get("decided")
    return tuple(decision) if decision or (decision is not None and index.multi_label) else None


FAMILY = Diagnosis()
