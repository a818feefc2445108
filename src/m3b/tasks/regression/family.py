"""The family of regression: a number in a unit for each image, such as an age, a fraction or a length."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from m3b.data.altering import WAYS
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.kinds.regression import value_of
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.metrics import Scores
from m3b.models import Prediction
from m3b.tasks.base import Row, TaskFamily, make_base_row
from m3b.tasks.covariate_baseline import COVARIATES_KEY, RIDGE_PENALTY, build_design_matrices, make_covariate_rows
from m3b.tasks.regression.answers import RegressionAnswers
from m3b.tasks.regression.metrics import REGRESSION_METRICS, RegressionCase, score_regression
from m3b.tasks.regression.report_section import RegressionReportSection

_VERB_PATTERN = (
    r"\b(?:predict|estimat|regress|measur|quantif|determin|comput|calculat|assess|read off|schatz|bestimm|estim)\w*"
)
_UNIT_PATTERN = (
    r"\b(?:in|as)\s+(?:an?\s+)?(?:months?|years?|weeks?|days?|mm|cm|ml|kg|g|millimet\w+|centimet\w+|millilit\w+|percent\w*|"
    r"hounsfield|monate\w*|jahre\w*)\b|\b(?:in|as)\s+(?:an?\s+)?%"
)
_QUANTITY_PATTERN = (
    r"\b(?:bone age|skeletal age|(?:brain|gestational|patient'?s?'?|biological|chronological) age|age of the (?:patient|child|fetus)|"
    r"ejection fraction|head circumference|knochenalter|ejektionsfraktion|body mass index|bmi|bone mineral density)\b"
)
_CLASSES_PATTERN = (
    r"\bclassif\w*|\binto (?:\w+ ){0,3}(?:classes|groups|categories)|\btell\w*\b[^.;]*\b(?:from|apart)\b|"
    r"\bdistinguish|\bsegment|\bdetect"
)


class Regression(TaskFamily):
    """The regression family; see `TaskFamily`.

    It uses the template of diagnosis, with one output and a regression loss.
    """

    name = "regression"
    records = records_of("regression")
    answers = RegressionAnswers()
    metrics = REGRESSION_METRICS
    report_section = RegressionReportSection()
    template = "diagnosis"
    index_guide = (
        '{"image_path": "data/x/a.png", "value": 131.5, "patient": "p1"}; label_dict.json names the quantity with its unit: '
        '{"bone age (months)": 0}.'
    )
    when_to_choose = (
        "a number in a unit for each image (bone age, ejection fraction, head circumference); measured by `mae`. `classes` is "
        "empty. The plan says which column, in which unit, and which numbers stand for unknown."
    )
    default_plan = (
        "Read the number from the column of the table that names it, in its own unit; take the patient from its column or "
        "folder; keep an own split; leave out what has no image, no number or does not open."
    )
    aliases = ("continuous", "value", "number", "estimation")
    request_pattern = rf"\bregress(?:ion|or)\b|{_VERB_PATTERN}[^.;]*(?:{_UNIT_PATTERN}|{_QUANTITY_PATTERN})|\bhow old\b"
    related_tasks = ("diagnosis",)
    model_title = "Estimator"
    max_validation_cases = 300

    def is_named_in(self, text: str) -> bool:
        """Return whether a request names this task; numbers that are binned into classes are a diagnosis."""
        return bool(re.search(self.request_pattern, text)) and not re.search(_CLASSES_PATTERN, text)

    def predicts_classes(self) -> bool:
        """Return False: label_dict.json names the quantity."""
        return False

    def label_width(self, classes: int) -> int | None:
        """Return 1, for the number."""
        return 1

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return one output, for the number."""
        return (1,)

    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Return the true number, the predicted number, and its interval if there is one."""
        if "value" not in prediction.extra:
            raise ModelError("predict.py answers without a `value`. Export from this plan.")
        interval = prediction.extra.get("interval")
        row = {**make_base_row(record), "true": value_of(record), "predicted": prediction.extra["value"]}
        return {**row, "interval": interval, "level": prediction.extra.get("interval_level")} if interval else row

    def average_rows(self, rows: Sequence[Sequence[Row]], index: Index) -> list[Row] | None:
        """Return the cases with the mean number of all models, and intervals between their mean bounds."""
        averages = []
        for versions in zip(*rows, strict=True):
            average = {**versions[0], "predicted": fmean(version["predicted"] for version in versions)}
            if all("interval" in version for version in versions):
                bounds = zip(*(version["interval"] for version in versions), strict=True)
                average["interval"] = [fmean(bound) for bound in bounds]
            averages.append(average)
        return averages

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return the median and mean of the training cases, and the predictions from the covariates."""
        values = [value_of(record) for record in training]
        covariate_values = predict_from_covariates(training, records, index)
        covariate_answers = (
            {COVARIATES_KEY: [{"predicted": value} for value in covariate_values]} if covariate_values else {}
        )
        return {"median": median(values), "mean": fmean(values), **covariate_answers} if values else None

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute the mean absolute error and the other metrics of `m3b.tasks.regression.metrics`."""
        cases = [
            RegressionCase(row["image"], row["patient"], row["true"], row["predicted"], tuple(span) if span else None)
            for row in rows
            for span in [row.get("interval")]
        ]
        level = next((row["level"] for row in rows if row.get("level")), None)
        covariate_values = [row["predicted"] for row in make_covariate_rows(rows, baseline)]
        return score_regression(
            cases,
            index.classes[0],
            primary=primary,
            constant_values=_constant_answers_of(baseline),
            covariates_only=covariate_values,
            level=level,
            seed=seed,
        )

    def list_alterations(self) -> tuple[str, ...]:
        """Return all alterations: the number does not depend on the framing."""
        return WAYS

    def mean_answer_change(self, pairs: Sequence[tuple[Row, Row]], rows: Sequence[Row]) -> float:
        """Return the mean difference of predictions, in mean deviations of the true numbers from their median."""
        predictions = [(row["predicted"], copy["predicted"]) for row, copy in pairs]
        return number_distance(predictions, [row["true"] for row in rows])

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return rows with the median, the mean, and the predictions from the covariates alone."""
        constant_rows = [[{**row, "predicted": value} for row in rows] for value in _constant_answers_of(baseline)]
        covariate_rows = make_covariate_rows(rows, baseline)
        return [*constant_rows, covariate_rows] if covariate_rows else constant_rows


def _constant_answers_of(baseline: Any) -> list[float]:
    """Return the numbers of a baseline that are the same for every image."""
    return [value for name, value in (baseline or {}).items() if name != COVARIATES_KEY]


def predict_from_covariates(training: Sequence[Record], records: Sequence[Record], index: Index) -> list[float] | None:
    """Predict the number of each record from its covariates; None without covariates."""
    if not index.covariates or not training or not records:
        return None
    training_matrix, record_matrix = build_design_matrices(training, records)
    true = np.array([value_of(record) for record in training])
    center = float(np.median(true))
    ridge = RIDGE_PENALTY * np.eye(training_matrix.shape[1])
    ridge[0, 0] = 0.0
    weights = np.linalg.solve(
        training_matrix.T @ training_matrix + ridge + 1e-9 * np.eye(len(ridge)), training_matrix.T @ (true - center)
    )
    return [float(prediction) for prediction in np.clip(record_matrix @ weights + center, true.min(), true.max())]


def number_distance(pairs: Sequence[tuple[float, float]], true: Sequence[float]) -> float:
    """Return the mean difference of number pairs, in units of the mean absolute deviation of `true` from its median.

    Each difference counts as 1 at most.
    """
    center = median(true) if true else 0.0
    scale = fmean(abs(value - center) for value in true) if true else 0.0
    return fmean(min(abs(a - b) / scale, 1.0) for a, b in pairs) if pairs and scale > 0 else 0.0


FAMILY = Regression()
