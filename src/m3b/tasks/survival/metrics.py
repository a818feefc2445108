"""The metrics of a survival model, and the scoring of its cases.

They say whether a higher risk means an earlier event, and how far survival curves are off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.bootstrap import MeasureSettings, group_patients, measure_with_intervals, point_estimates
from m3b.metrics.cases import Floats, divide
from m3b.metrics.edges import largest_loss, sum_by_patient
from m3b.metrics.metric_tables import MetricTable, canonical_metric, lower_is_better
from m3b.metrics.scores import Scores

SURVIVAL_METRICS = MetricTable(
    {
        "c_index": ("C-index", "concordance", "concordance index", "Harrell's C", "Harrell C-index", "CI"),
        "uno_c": ("Uno's C", "Uno C-index", "IPCW C-index", "c_index_ipcw", "concordance_index_ipcw"),
        "ibs": ("integrated Brier score", "integrated Brier"),
    },
    "c_index",
    lower_is_better=frozenset({"ibs"}),
    noted_metrics=("ibs",),
    titles={"c_index": "C-index", "uno_c": "Uno's C", "ibs": "Integrated Brier score"},
)
N_GRID_TIMES = 50
"""Number of times at which curves are compared, between 0 and the end."""
MIN_FOLLOWED_SHARE = 0.1
"""Curves are compared up to the time until which at least this share of the test cases was followed."""
MAX_CURVE_POINTS = 60
Curve = Sequence[tuple[float, float]]
"""Survival at times: (time, probability that the event has not come until then), times rising; 1 before the first."""


@dataclass(frozen=True)
class SurvivalCase:
    """One test case: its follow-up time, whether the event came, and the prediction.

    Args:
        risk: the higher, the sooner the event is expected.
        curve: empty if the prediction is only a ranking.
    """

    image: str
    patient: str
    time: float
    event: bool
    risk: float
    curve: Curve = field(default=())


def score_survival(
    cases: Sequence[SurvivalCase],
    quantity: str,
    *,
    primary: str = "c_index",
    population_curve: Curve = (),
    censoring_curve: Curve | None = None,
    covariates_only_risks: Sequence[float] = (),
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Compare risks and survival curves with the observed events.

    Args:
        cases: one for each test case.
        quantity: the time to what, with its unit.
        primary: the metric that counts, any spelling in `metric_names("survival")`.
        population_curve: the curve of the training cases (`kaplan_meier`): the image-blind baseline.
        censoring_curve: of the training cases (`estimate_censoring`), for the weights of Uno's C; None: of the test cases.
        covariates_only_risks: the risk of each case from the covariates alone: another baseline.
        seed: of the bootstrap.
        draws: bootstrap samples of patients; 0 for no intervals.

    Raises:
        ValueError: no cases, no event among them, a number that is not finite, or an unknown metric.
    """
    name = canonical_metric(primary, "survival")
    patients = group_patients(cases)
    time = np.array([case.time for case in cases], dtype=np.float64)
    event = np.array([case.event for case in cases], dtype=np.bool_)
    risk = np.array([case.risk for case in cases], dtype=np.float64)
    if not np.isfinite(time).all() or not np.isfinite(risk).all():
        raise ValueError("a time or a risk is not finite")
    if not event.any():
        raise ValueError("no case has an event, so risks cannot be compared; at least one event is needed")
    pairs = comparable_pairs(time, event)
    followed = estimate_censoring(time, event) if censoring_curve is None else censoring_curve
    weighted_pairs = _weight_pairs(pairs, time, followed)
    population_estimator = _SurvivalEstimator(
        pairs,
        weighted_pairs,
        np.zeros(len(cases)),
        _integrated_brier_scores(time, event, [population_curve] * len(cases)),
    )
    baseline_estimators: list[Callable[[Floats], dict[str, Floats]]] = [population_estimator]
    if len(covariates_only_risks):
        covariate_risks = np.array(covariates_only_risks, dtype=np.float64)
        baseline_estimators.append(_SurvivalEstimator(pairs, weighted_pairs, covariate_risks, None))
    baseline_figures = [point_estimates(candidate, len(cases)) for candidate in baseline_estimators]
    baseline = {
        metric: np.asarray(
            (min if lower_is_better(metric) else max)(
                float(candidate[metric]) for candidate in baseline_figures if metric in candidate
            )
        )
        for metric in baseline_figures[0]
    }
    n_event_patients = patients.patients_with(event)
    no_labels = np.zeros((len(cases), 0), dtype=np.bool_)
    # If the risk of a case is wrongly the highest or the lowest, all its pairs with later or with earlier cases are
    # lost.
    stakes = {
        metric: np.maximum(table.sum(axis=0), table.sum(axis=1)) / (table.sum() or 1)
        for metric, table in (("c_index", pairs), ("uno_c", weighted_pairs))
    }
    losses = {metric: largest_loss(sum_by_patient(patients.patient, stake)) for metric, stake in stakes.items()}
    settings = MeasureSettings(
        draws, seed, baseline, no_labels, dict.fromkeys(stakes, n_event_patients), baseline_estimators, losses
    )
    model_estimator = _SurvivalEstimator(
        pairs, weighted_pairs, risk, _integrated_brier_scores(time, event, [case.curve for case in cases])
    )
    metrics, _ = measure_with_intervals(patients, (), model_estimator, settings)
    covariates_figures = {"c_index": float(baseline_figures[-1]["c_index"])} if len(covariates_only_risks) else {}
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=(quantity,),
        n_cases=len(cases),
        n_patients=patients.n_patients,
        task="survival",
        details={
            "quantity": quantity,
            "events": int(event.sum()),
            "censored": int((~event).sum()),
            "comparable_pairs": int(pairs.sum()),
            "by_risk": _risk_group_curves(time, event, risk),
            **({"covariates_alone": covariates_figures} if covariates_figures else {}),
        },
    )


def comparable_pairs(time: Floats, event: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (N, N) whether the event of case i is known to have come before that of case j.

    Case j was followed longer, or for the same time without an event (Harrell et al., JAMA 1982).
    """
    earlier = time[:, None] < time[None, :]
    is_tied = (time[:, None] == time[None, :]) & ~event[None, :]
    return np.asarray(event[:, None] & (earlier | is_tied))


def _weight_pairs(pairs: NDArray[np.bool_], time: Floats, censoring_curve: Curve) -> Floats:
    """Return (N, N) weights of comparable pairs for Uno's C: 1 / G(t)² if the event at t came early enough, else 0.

    G(t) is the probability of being followed for longer than t. Events count up to the time until which `MIN_FOLLOWED_SHARE` of the
    cases was followed (Uno et al., Statistics in Medicine 2011).
    """
    followed = np.maximum(evaluate_curve(censoring_curve, time), 1 / len(time))
    is_early = time < np.quantile(time, 1 - MIN_FOLLOWED_SHARE)
    return np.asarray(pairs * (is_early / np.square(followed))[:, None], dtype=np.float64)


class _SurvivalEstimator:
    """Weights (draws, cases) -> metric -> (draws,)."""

    def __init__(self, pairs: NDArray[np.bool_], weighted_pairs: Floats, risk: Floats, errors: Floats | None) -> None:
        concordance = np.where(risk[:, None] > risk[None, :], 1.0, np.where(risk[:, None] == risk[None, :], 0.5, 0.0))
        self.errors = errors
        self.tables = {"c_index": pairs.astype(np.float64), "uno_c": weighted_pairs}
        self.concordant = {metric: table * concordance for metric, table in self.tables.items() if table.any()}

    def __call__(self, weights: Floats) -> dict[str, Floats]:
        values = {}
        for metric, concordant in self.concordant.items():
            ahead, total = (
                np.einsum("dn,dn->d", weights @ table, weights) for table in (concordant, self.tables[metric])
            )
            values[metric] = divide(ahead, total)
        if self.errors is not None:
            values["ibs"] = divide(weights @ self.errors, weights.sum(axis=1))
        return values


def kaplan_meier(time: Floats, event: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Return the share of cases without the event, at each event time (Kaplan and Meier, 1958)."""
    curve, survival = [], 1.0
    for event_time in np.unique(time[event]):
        survival *= 1 - float((event & (time == event_time)).sum()) / float((time >= event_time).sum())
        curve.append((float(event_time), survival))
    return curve


def estimate_censoring(time: Floats, event: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Return the share of cases whose follow-up has not ended without an event, at each time of censoring.

    Kaplan and Meier, 1958, of censoring. An event precedes a censoring at the same time.
    """
    curve, followed = [], 1.0
    for end in np.unique(time[~event]):
        n_censored = float((~event & (time == end)).sum())
        followed *= 1 - n_censored / (float((time > end).sum()) + n_censored)
        curve.append((float(end), followed))
    return curve


def evaluate_curve(curve: Curve, times: Floats, *, just_before: bool = False) -> Floats:
    """Return the values of a step curve, 1 before the first step. `just_before`: the value just before each time."""
    if not curve:
        return np.ones(len(times))
    stops = np.array([stop for stop, _ in curve], dtype=np.float64)
    values = np.concatenate([[1.0], [value for _, value in curve]])
    return np.asarray(values[np.searchsorted(stops, times, side="left" if just_before else "right")], dtype=np.float64)


def _integrated_brier_scores(time: Floats, event: NDArray[np.bool_], curves: Sequence[Curve]) -> Floats | None:
    """Return (N,) the integrated Brier score of each case, weighted for censoring.

    Graf et al., Statistics in Medicine 1999. None if a case has no curve, or if nobody was followed for long enough.
    """
    if not all(len(curve) for curve in curves):
        return None
    last_time = float(np.quantile(time, 1 - MIN_FOLLOWED_SHARE))
    if last_time <= 0:
        return None
    grid = np.linspace(0, last_time, N_GRID_TIMES + 1)[1:]
    censoring_curve = kaplan_meier(time, ~event)
    censoring_at_case, censoring_at_grid = (
        evaluate_curve(censoring_curve, time, just_before=True),
        evaluate_curve(censoring_curve, grid),
    )
    predicted = np.stack([_interpolate_curve(curve, grid) for curve in curves])
    had_event = (time[:, None] <= grid[None, :]) & event[:, None]
    is_at_risk = time[:, None] > grid[None, :]
    min_probability = 1 / len(time)
    weighted_errors = np.where(
        had_event, np.square(predicted) / np.maximum(censoring_at_case, min_probability)[:, None], 0.0
    )
    weighted_errors += np.where(
        is_at_risk, np.square(1 - predicted) / np.maximum(censoring_at_grid, min_probability)[None, :], 0.0
    )
    scores: Floats = weighted_errors.mean(axis=1)
    return scores


def _interpolate_curve(curve: Curve, times: Floats) -> Floats:
    """Interpolate a model's curve between its times: a straight line from 1 at time 0; its last value afterwards."""
    stops, values = np.array([(0.0, 1.0), *curve], dtype=np.float64).T
    return np.asarray(np.interp(times, stops, values), dtype=np.float64)


def _risk_group_curves(time: Floats, event: NDArray[np.bool_], risk: Floats) -> list[dict[str, Any]]:
    """Return the survival curves of the halves with lower and higher risk, for a plot."""
    high = risk > np.median(risk)
    risk_groups: Mapping[str, NDArray[np.bool_]] = {"lower risk": ~high, "higher risk": high}
    groups = []
    for name, in_group in risk_groups.items():
        if in_group.any():
            curve = kaplan_meier(time[in_group], event[in_group])
            plotted = [list(point) for point in curve[:: max(1, len(curve) // MAX_CURVE_POINTS)]]
            groups.append(
                {"group": name, "n": int(in_group.sum()), "events": int(event[in_group].sum()), "curve": plotted}
            )
    return groups
