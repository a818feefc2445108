"""Survival: the time until an event, with patients whose follow-up ended without one (censored)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.audit_kinds import of as audit_of
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.kinds.survival import EVENT, TIME, had_event, time_of
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.metrics import Scores, SurvivalCase, score_survival
from m3b.metrics.metric_tables import SURVIVAL
from m3b.models import Prediction
from m3b.models.answers import answer_format_of
from m3b.tasks.covariate_baseline import COVARIATES_KEY, make_covariate_rows, predict_log_hazards

from .base import Row, TaskFamily, make_base_row

POPULATION_KEY = "population"

_CLASSES_PATTERN = (
    r"\bclassif\w*|\binto (?:\w+ ){0,3}(?:classes|groups|categories)|"
    r"\bsurvivors?\b|\bwithin (?:\w+ )?(?:days|months|years)\b"
)


class Survival(TaskFamily):
    """The survival family; see `TaskFamily`. It uses the template of diagnosis, with a hazard for each interval."""

    name = "survival"
    records = records_of("survival")
    audit = audit_of("survival")
    answers = answer_format_of("survival")
    metrics = SURVIVAL
    template = "diagnosis"
    index_guide = (
        '{"image_path": "data/x/a.nii.gz", "time": 14.5, "event": true, "patient": "p1"} (event false: censored at that time); '
        'label_dict.json names the time with its unit: {"overall survival (months)": 0}.'
    )
    when_to_choose = (
        "how long until an event (death, relapse, progression) comes, where some were followed without one (survival, time to event, "
        "prognosis); measured by `c_index`. `classes` is empty. The plan says which columns hold the time and the event. Whether "
        "somebody survives a fixed time is a diagnosis."
    )
    default_plan = (
        "Read the time and the event from their columns of the table, with the values that mean that it came; take the patient from "
        "its column or folder; keep an own split; leave out what has no image, no time or does not open."
    )
    aliases = ("time to event", "time-to-event", "prognosis", "survival analysis", "cox")
    request_pattern = (
        r"\bsurvival\b|\bsurvives?\b|\btime[- ]to[- ](?:event|death|relapse|recurrence|progression)|\bprognos(?:is|tic)\b|"
        r"\bhazards?\b|\bcox\b|\buberleben\w*|\bsurvie\b|\bsupervivencia\b"
    )
    required_targets = ("times",)
    related_tasks = ("diagnosis", "regression")
    is_about_objects = False
    title_prefix = "Survival model of"
    probe_batch_size = 8
    can_compare_answers = True
    max_validation_cases = 300

    def is_named_in(self, text: str) -> bool:
        """Return whether a request names this task; survival of a fixed time is a diagnosis."""
        return bool(re.search(self.request_pattern, text)) and not re.search(_CLASSES_PATTERN, text)

    def label_width(self, classes: int) -> int | None:
        """Return 2: the time, and whether the event came."""
        return 2

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return one hazard for each interval."""
        edges = plan.get("edges")
        return (len(edges),) if isinstance(edges, list) and edges else ()

    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Return the true time and event, the predicted risk, and the survival curve."""
        if "risk" not in prediction.extra:
            raise ModelError("predict.py answers without a `risk`. Export from this plan.")
        truth = {**make_base_row(record), TIME: time_of(record), EVENT: had_event(record)}
        return {**truth, "risk": prediction.extra["risk"], "curve": prediction.extra["survival"]}

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return the Kaplan-Meier curve of the training cases, and the risks from the covariates."""
        from m3b.metrics.survival import kaplan_meier

        times, events = np.array([time_of(item) for item in training]), np.array([had_event(item) for item in training])
        if not len(times) or not events.any():
            return None
        covariate_hazards = predict_log_hazards(training, records, index, times, events)
        covariate_answers = (
            {COVARIATES_KEY: [{"risk": risk} for risk in covariate_hazards]} if covariate_hazards else {}
        )
        return {POPULATION_KEY: [list(item) for item in kaplan_meier(times, events)], **covariate_answers}

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute Harrell's C-index and the integrated Brier score."""
        cases = [
            SurvivalCase(
                row["image"], row["patient"], row[TIME], row[EVENT], row["risk"], [(t, p) for t, p in row["curve"]]
            )
            for row in rows
        ]
        population = [(t, p) for t, p in (baseline or {}).get(POPULATION_KEY, ())]
        covariate_risks = [row["risk"] for row in make_covariate_rows(rows, baseline)]
        return score_survival(
            cases,
            index.classes[0],
            primary=primary,
            population_curve=population,
            covariates_only_risks=covariate_risks,
            seed=seed,
        )

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """Return the largest difference between the two survival curves."""
        return max((abs(a[1] - b[1]) for a, b in zip(row["curve"], other_row["curve"], strict=False)), default=0.0)

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return rows with the survival curve of the training cases, and with the risks from the covariates alone."""
        if not baseline:
            return ()
        constant_rows = [[{**row, "risk": 0.0, "curve": baseline[POPULATION_KEY]} for row in rows]]
        covariate_rows = make_covariate_rows(rows, baseline)
        return [*constant_rows, covariate_rows] if covariate_rows else constant_rows


FAMILY = Survival()
