"""The family of grading: one of several ordered grades, measured by its distance from the true grade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.records import Record
from m3b.metrics import ClassificationCase, Scores
from m3b.request_words import GRADING_SCALES
from m3b.tasks.base import Row
from m3b.tasks.classification import ClassificationFamily, Floats
from m3b.tasks.covariate_baseline import COVARIATES_KEY, make_covariate_rows, predict_classes
from m3b.tasks.grading.answers import GradingAnswers
from m3b.tasks.grading.metrics import GRADING_METRICS, score_grading
from m3b.training.diagnosis.grade_rules import GRADE_RULES, decide_grades

_RANGE_PATTERN = (
    r"(?:\b\d\s*(?:to|-|–|through|bis|a)\s*\d\b|\b[a-d]\s*(?:to|-|–|through|bis)\s*[b-f]\b|\bi\s*(?:to|-|–)\s*i?v\b)"
)
_GRADE_WORD_PATTERN = r"\b(?:grad(?:e|es|ing|ed)|stag(?:e|es|ing)|scor(?:e|es|ing))\b"
_SCALE_PATTERN = rf"\b(?:{'|'.join(GRADING_SCALES)})\b"
"""Scales with ordered grades, whether or not the request says how many grades there are."""
_GRADE_PATTERN = rf"(?:{_GRADE_WORD_PATTERN}|{_SCALE_PATTERN}|\b(?:densit(?:y|ies)|ordinal)\b)"


class Grading(ClassificationFamily):
    """The grading family; see `TaskFamily`. It uses the template of diagnosis, with a loss for ordered classes."""

    name = "grading"
    records = records_of("grading")
    answers = GradingAnswers()
    metrics = GRADING_METRICS
    template = "diagnosis"
    index_guide = (
        '{"image_path": "data/x/a.png", "grade": "2", "patient": "p1"}; label_dict.json numbers the grades from 0, the lowest '
        "first."
    )
    when_to_choose = (
        "one of three or more grades in a fixed order (KL grade 0-4, density a-d), where the request asks for a grade on a "
        "scale; measured by `qwk`. Classes without an order are a diagnosis."
    )
    default_plan = (
        "Read the grades from the class folders, the table or the archive that the preview shows, lowest first; take the "
        "patient from its column or folder; keep an own split; leave out what has no image, no grade or does not open."
    )
    aliases = ("ordinal", "ordinal regression", "ordinal classification")
    request_pattern = (
        rf"\bordinal\b|quadratic(?:ally)? (?:weighted "
        f")?kappa|{_GRADE_PATTERN}[^.;]*{_RANGE_PATTERN}|{_RANGE_PATTERN}[^.;]*{_GRADE_PATTERN}"
        rf"|{_GRADE_WORD_PATTERN}[^.;]*{_SCALE_PATTERN}|{_SCALE_PATTERN}[^.;]*{_GRADE_WORD_PATTERN}"
    )
    related_tasks = ("diagnosis",)
    model_title = "Grader"

    def format_title(self, classes: Sequence[str]) -> str:
        """Return the title with the ends of the scale, such as `Grader from 0 to 4`."""
        return f"{self.model_title} from {classes[0]} to {classes[-1]}" if len(classes) > 1 else self.model_title

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return the median and the commonest grade of the training cases, and the predictions from the covariates."""
        grades = [index.classes.index(label) for record in training for label in record.labels]
        if not grades:
            return None
        median, commonest = sorted(grades)[(len(grades) - 1) // 2], Counter(grades).most_common(1)[0][0]
        covariate_answers = predict_classes(training, records, index, decide_median=True)
        constants = {"median": index.classes[median], "commonest": index.classes[commonest]}
        return {**constants, **({COVARIATES_KEY: covariate_answers} if covariate_answers else {})}

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute quadratic weighted kappa and the other metrics of `m3b.tasks.grading.metrics`."""
        constant_grades = _constant_answers_of(baseline)
        cases, covariate_cases = (_make_cases(row_list) for row_list in (rows, make_covariate_rows(rows, baseline)))
        return score_grading(
            cases,
            index.classes,
            primary=primary,
            constant_grades=list(dict.fromkeys(constant_grades.values())),
            covariates_only=covariate_cases,
            seed=seed,
            details={"image_blind": constant_grades} if constant_grades else {},
        )

    def _decide_average(self, average: Floats, rows: Sequence[Row], index: Index) -> NDArray[np.bool_]:
        """Return (N, K) decisions by the rule from probabilities to a grade that the first model has."""
        table = np.array([[row["probabilities"][name] for name in index.classes] for row in rows])
        decided = np.array([index.classes.index(row["decided"][0]) for row in rows])
        rule = max(GRADE_RULES, key=lambda rule: int((decide_grades(table, rule) == decided).sum()))
        return np.asarray(np.eye(len(index.classes), dtype=np.bool_)[decide_grades(average, rule)])

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return rows with the median grade, the commonest grade, and the grades from the covariates alone."""
        one_hot = {
            name: {other_name: float(other_name == name) for other_name in index.classes} for name in index.classes
        }
        grades = dict.fromkeys(_constant_answers_of(baseline).values())
        covariate_rows = make_covariate_rows(rows, baseline)
        constant_rows = [
            [{**row, "probabilities": one_hot[grade], "decided": [grade]} for row in rows] for grade in grades
        ]
        return [*constant_rows, covariate_rows] if covariate_rows else constant_rows


def _constant_answers_of(baseline: Any) -> dict[str, str]:
    """Return the grades of a baseline that are the same for every image."""
    return {name: grade for name, grade in (baseline or {}).items() if name != COVARIATES_KEY}


def _make_cases(rows: Sequence[Row]) -> list[ClassificationCase]:
    return [
        ClassificationCase(
            row["image"], row["patient"], tuple(row["labels"]), row["probabilities"], tuple(row["decided"])
        )
        for row in rows
    ]


FAMILY = Grading()
