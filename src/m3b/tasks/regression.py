"""Regression: a number in a unit for each image, such as an age, a fraction or a length."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from m3b.data.audit_kinds import of as audit_of
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.kinds.regression import value_of
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.metrics import NumberCase, Scores, score_regression
from m3b.metrics.vocabulary import REGRESSION
from m3b.models import Prediction
from m3b.models.answers import of as answers_of

from .agreement import of_numbers
from .base import Row, TaskFamily, named
from .covariates import KEY, blind_rows, estimated

_VERB = r"\b(?:predict|estimat|regress|measur|quantif|determin|comput|calculat|assess|read off|schatz|bestimm|estim)\w*"
_UNIT = (
    r"\b(?:in|as)\s+(?:an?\s+)?(?:months?|years?|weeks?|days?|mm|cm|ml|kg|g|millimet\w+|centimet\w+|millilit\w+|percent\w*|"
    r"hounsfield|monate\w*|jahre\w*)\b|\b(?:in|as)\s+(?:an?\s+)?%"
)
_QUANTITY_PATTERN = (
    r"\b(?:bone age|skeletal age|(?:brain|gestational|patient'?s?'?|biological|chronological) age|age of the (?:patient|child|fetus)|"
    r"ejection fraction|head circumference|knochenalter|ejektionsfraktion|body mass index|bmi|bone mineral density)\b"
)
_CLASSES = (
    r"\bclassif\w*|\binto (?:\w+ ){0,3}(?:classes|groups|categories)|\btell\w*\b[^.;]*\b(?:from|apart)\b|"
    r"\bdistinguish|\bsegment|\bdetect"
)


class Regression(TaskFamily):
    """See `TaskFamily`. The template is that of diagnosis, with one output and a loss on the number."""

    name = "regression"
    records = records_of("regression")
    audit = audit_of("regression")
    answers = answers_of("regression")
    metrics = REGRESSION
    template = "diagnosis"
    guide = (
        '{"image_path": "data/x/a.png", "value": 131.5, "patient": "p1"}; label_dict.json names the quantity with its unit: '
        '{"bone age (months)": 0}.'
    )
    about = (
        "a number in a unit for each image (bone age, ejection fraction, head circumference); measured by `mae`. `classes` is "
        "empty. The plan says which column, in which unit, and which numbers stand for unknown."
    )
    usual_plan = (
        "Read the number from the column of the table that names it, in its own unit; take the patient from its column or "
        "folder; keep an own split; leave out what has no image, no number or does not open."
    )
    aliases = ("continuous", "value", "number", "estimation")
    asked = rf"\bregress(?:ion|or)\b|{_VERB}[^.;]*(?:{_UNIT}|{_QUANTITY_PATTERN})|\bhow old\b"
    kin = ("diagnosis",)
    marks_objects = False
    built = "Estimator of"
    probe_batch = 8
    compares_answers = True
    valid_cases = 300

    def names_in(self, text: str) -> bool:
        """Numbers that are cut into classes are a diagnosis."""
        return bool(re.search(self.asked, text)) and not re.search(_CLASSES, text)

    def label_width(self, classes: int) -> int | None:
        """The number."""
        return 1

    def outputs(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """The number alone."""
        return (1,)

    def measure(self, record: Record, answer: Prediction, index: Index, base: Path) -> Row:
        """The true number, the predicted one, and its interval."""
        if "value" not in answer.extra:
            raise ModelError("predict.py answers without a `value`. Export from this plan.")
        interval = answer.extra.get("interval")
        row = {**named(record), "true": value_of(record), "predicted": answer.extra["value"]}
        return {**row, "interval": interval, "level": answer.extra.get("interval_level")} if interval else row

    def trivial(self, training: Sequence[Record], records: Sequence[Record], index: Index, base: Path) -> Any:
        """The median and the mean of the training cases; what the covariates alone give."""
        values = [value_of(record) for record in training]
        covariate_values = estimated(training, records, index, value_of)
        covariate_answers = {KEY: [{"predicted": value} for value in covariate_values]} if covariate_values else {}
        return {"median": median(values), "mean": fmean(values), **covariate_answers} if values else None

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, trivial: Any = None, seed: int = 0) -> Scores:
        """Mean absolute error and the others of `metrics.regression`."""
        cases = [
            NumberCase(row["image"], row["patient"], row["true"], row["predicted"], tuple(span) if span else None)
            for row in rows
            for span in [row.get("interval")]
        ]
        level = next((row["level"] for row in rows if row.get("level")), None)
        covariate_values = [row["predicted"] for row in blind_rows(rows, trivial)]
        return score_regression(
            cases,
            index.classes[0],
            primary=primary,
            blind=_same(trivial),
            beside=covariate_values,
            level=level,
            seed=seed,
        )

    def change(self, pairs: Sequence[tuple[Row, Row]], rows: Sequence[Row]) -> float:
        """The mean difference of the predicted numbers, in mean distances of the true ones from their median."""
        predictions = [(row["predicted"], copy["predicted"]) for row, copy in pairs]
        return of_numbers(predictions, [row["true"] for row in rows])

    def blind(self, rows: Sequence[Row], index: Index, trivial: Any = None) -> Sequence[Sequence[Row]]:
        """The median and the mean of the training cases as the answer to every image."""
        constant_rows, covariate_rows = (
            [[{**row, "predicted": value} for row in rows] for value in _same(trivial)],
            blind_rows(rows, trivial),
        )
        return [*constant_rows, covariate_rows] if covariate_rows else constant_rows


def _same(trivial: Any) -> list[float]:
    """The answers that are the same for every image."""
    return [value for name, value in (trivial or {}).items() if name != KEY]


FAMILY = Regression()
