"""The family of survival: the time until an event, with patients whose follow-up ended without one (censored)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.data.altering import WAYS
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.kinds.survival import EVENT, TIME, had_event, time_of
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.metrics import Scores
from m3b.metrics.cases import Floats
from m3b.models import Prediction
from m3b.tasks.base import Row, TaskFamily, make_base_row
from m3b.tasks.covariate_baseline import COVARIATES_KEY, RIDGE_PENALTY, build_design_matrices, make_covariate_rows
from m3b.tasks.survival.answers import SurvivalAnswers
from m3b.tasks.survival.metrics import SURVIVAL_METRICS, SurvivalCase, estimate_censoring, kaplan_meier, score_survival
from m3b.tasks.survival.report_section import SurvivalReportSection
from m3b.training.diagnosis.followup import survival_risk

POPULATION_KEY, CENSORING_KEY = "population", "censoring"
MIN_AVERAGED_HAZARD = 1e-6
"""Minimum hazard in an average: the logarithm of 0 would decide it alone."""

_CLASSES_PATTERN = (
    r"\bclassif\w*|\binto (?:\w+ ){0,3}(?:classes|groups|categories)|"
    r"\bsurvivors?\b|\bwithin (?:\w+ )?(?:days|months|years)\b"
)


class Survival(TaskFamily):
    """The survival family; see `TaskFamily`. It uses the template of diagnosis, with a hazard for each interval."""

    name = "survival"
    records = records_of("survival")
    answers = SurvivalAnswers()
    metrics = SURVIVAL_METRICS
    template = "diagnosis"
    report_section = SurvivalReportSection()
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
    model_title = "Survival model"
    max_validation_cases = 300

    def is_named_in(self, text: str) -> bool:
        """Return whether a request names this task; survival of a fixed time is a diagnosis."""
        return bool(re.search(self.request_pattern, text)) and not re.search(_CLASSES_PATTERN, text)

    def predicts_classes(self) -> bool:
        """Return False: label_dict.json names the quantity."""
        return False

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
        times, events = np.array([time_of(item) for item in training]), np.array([had_event(item) for item in training])
        if not len(times) or not events.any():
            return None
        covariate_hazards = predict_log_hazards(training, records, index, times, events)
        covariate_answers = (
            {COVARIATES_KEY: [{"risk": risk} for risk in covariate_hazards]} if covariate_hazards else {}
        )
        return {
            POPULATION_KEY: [list(item) for item in kaplan_meier(times, events)],
            CENSORING_KEY: [list(item) for item in estimate_censoring(times, events)],
            **covariate_answers,
        }

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute Harrell's C-index, Uno's C and the integrated Brier score."""
        cases = [
            SurvivalCase(
                row["image"], row["patient"], row[TIME], row[EVENT], row["risk"], [(t, p) for t, p in row["curve"]]
            )
            for row in rows
        ]
        population = [(t, p) for t, p in (baseline or {}).get(POPULATION_KEY, ())]
        censoring = (baseline or {}).get(CENSORING_KEY)
        covariate_risks = [row["risk"] for row in make_covariate_rows(rows, baseline)]
        return score_survival(
            cases,
            index.classes[0],
            primary=primary,
            population_curve=population,
            censoring_curve=None if censoring is None else [(t, p) for t, p in censoring],
            covariates_only_risks=covariate_risks,
            seed=seed,
        )

    def average_rows(self, rows: Sequence[Sequence[Row]], index: Index) -> list[Row] | None:
        """Return the cases with the curves of the mean logits of all models' hazards, and their risks.

        None if the curves have other times.
        """
        edges = [edge for edge, _ in rows[0][0]["curve"]]
        if any([edge for edge, _ in row["curve"]] != edges for part in rows for row in part):
            return None
        curves = np.array([[[probability for _, probability in row["curve"]] for row in part] for part in rows])
        earlier = np.concatenate([np.ones_like(curves[..., :1]), curves[..., :-1]], axis=2)
        hazards = (1 - curves / np.maximum(earlier, MIN_AVERAGED_HAZARD)).clip(
            MIN_AVERAGED_HAZARD, 1 - MIN_AVERAGED_HAZARD
        )
        average = (1 / (1 + np.exp(np.log(hazards / (1 - hazards)).mean(axis=0)))).cumprod(axis=1)
        return [
            {
                **row,
                "risk": float(risk),
                "curve": [[edge, float(value)] for edge, value in zip(edges, curve, strict=True)],
            }
            for row, risk, curve in zip(rows[0], survival_risk(average, edges), average, strict=True)
        ]

    def list_alterations(self) -> tuple[str, ...]:
        """Return all alterations: the time does not depend on the framing."""
        return WAYS

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


def predict_log_hazards(
    training: Sequence[Record], records: Sequence[Record], index: Index, time: Floats, event: NDArray[np.bool_]
) -> list[float] | None:
    """Predict the log hazard of each record from its covariates (Cox model with a ridge); None without covariates."""
    if not index.covariates or not training or not records:
        return None
    training_matrix, record_matrix = (part[:, 1:] for part in build_design_matrices(training, records))
    order = np.argsort(-time, kind="stable")
    sorted_time, sorted_event, values = time[order], event[order], training_matrix[order] - training_matrix.mean(axis=0)
    # tied times belong to one risk set (Breslow)
    risk_set_end = np.searchsorted(-sorted_time, -sorted_time, side="right") - 1
    weights = np.zeros(training_matrix.shape[1])
    for _ in range(50):
        risk = np.exp(np.clip(values @ weights, -30, 30))
        total, first = np.cumsum(risk)[risk_set_end], np.cumsum(risk[:, None] * values, axis=0)[risk_set_end]
        second = np.cumsum(risk[:, None, None] * values[:, :, None] * values[:, None, :], axis=0)[risk_set_end]
        mean = first / total[:, None]
        covariance = second / total[:, None, None] - mean[:, :, None] * mean[:, None, :]
        gradient = (values - mean)[sorted_event].sum(axis=0) - RIDGE_PENALTY * weights
        step = np.linalg.solve(covariance[sorted_event].sum(axis=0) + RIDGE_PENALTY * np.eye(len(weights)), gradient)
        weights = weights + step * min(1.0, 3.0 / max(float(np.abs(step).max()), 1e-12))
        if float(np.abs(step).max()) < 1e-8:
            break
    return [float(log_hazard) for log_hazard in record_matrix @ weights]


FAMILY = Survival()
