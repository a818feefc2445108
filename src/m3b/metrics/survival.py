"""Score a survival model: whether who is said to be at risk has the event sooner, and how far its survival curves are off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arithmetic import divide
from .cases import Floats
from .edges import largest_loss, sum_by_patient
from .measuring import Settings, group, measure, plain_figures
from .scores import Scores
from .table import lower_is_better
from .vocabulary import canonical_metric

GRID = 50
"""Times at which curves are compared, between 0 and the end."""
LEAST_FOLLOWED = 0.1
"""Curves are compared up to the time until which this share of the test cases was followed, at least."""
SHOWN = 60
Curve = Sequence[tuple[float, float]]
"""Survival at times: (time, probability that the event has not come until then), times rising; 1 before the first."""


@dataclass(frozen=True)
class SurvivalCase:
    """One test case: how long it was followed, whether the event came, and what the model says.

    Args:
        risk: the higher the sooner the event is expected.
        curve: empty where the answer ranks only.
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
    population: Curve = (),
    beside: Sequence[float] = (),
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Measure risks and survival curves against what happened.

    Args:
        cases: one for each test case.
        quantity: the time to what, with its unit.
        primary: the metric that counts, any spelling in `metric_names("survival")`.
        population: the curve of the training cases (`kaplan_meier`), which an answer gives that sees no image.
        beside: the risk of each case by an answer that sees no image but what is known beside it.
        seed: of the bootstrap.
        draws: bootstrap samples of patients; 0 for no intervals.

    Raises:
        ValueError: no cases, no event among them, a number that is not finite, or an unknown metric.
    """
    name = canonical_metric(primary, "survival")
    patients = group(cases)
    time = np.array([case.time for case in cases], dtype=np.float64)
    event = np.array([case.event for case in cases], dtype=np.bool_)
    risk = np.array([case.risk for case in cases], dtype=np.float64)
    if not np.isfinite(time).all() or not np.isfinite(risk).all():
        raise ValueError("a time or a risk is not finite")
    if not event.any():
        raise ValueError("the event came in none of the cases, so that nothing tells who had it sooner")
    pairs = comparable(time, event)
    blind = _Estimator(pairs, np.zeros(len(cases)), _errors(time, event, [population] * len(cases)))
    rivals: list[Callable[[Floats], dict[str, Floats]]] = [blind]
    if len(beside):
        rivals.append(_Estimator(pairs, np.array(beside, dtype=np.float64), None))
    floors = [plain_figures(one, len(cases)) for one in rivals]
    floor = {
        metric: np.asarray(
            (min if lower_is_better(metric) else max)(float(one[metric]) for one in floors if metric in one)
        )
        for metric in floors[0]
    }
    had = patients.patients_with(event)
    nobody = np.zeros((len(cases), 0), dtype=np.bool_)
    # A wrong risk, the highest or the lowest, loses all pairs of a case with those before, or with those after it.
    stakes = np.maximum(pairs.sum(axis=0), pairs.sum(axis=1)) / max(int(pairs.sum()), 1)
    losses = {"c_index": largest_loss(sum_by_patient(patients.patient, stakes))}
    settings = Settings(draws, seed, floor, nobody, {"c_index": had}, rivals, losses)
    ours = _Estimator(pairs, risk, _errors(time, event, [case.curve for case in cases]))
    metrics, _ = measure(patients, (), ours, settings)
    alone = {"c_index": float(floors[-1]["c_index"])} if len(beside) else {}
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
            "by_risk": _by_risk(time, event, risk),
            **({"covariates_alone": alone} if alone else {}),
        },
    )


def comparable(time: Floats, event: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(N, N): whether the event of the one is known to have come before that of the other, who was followed longer or, with the
    same time, had none (Harrell et al., JAMA 1982)."""
    earlier = time[:, None] < time[None, :]
    same = (time[:, None] == time[None, :]) & ~event[None, :]
    return np.asarray(event[:, None] & (earlier | same))


class _Estimator:
    """Weights (draws, cases) -> metric -> (draws,)."""

    def __init__(self, pairs: NDArray[np.bool_], risk: Floats, errors: Floats | None) -> None:
        ahead = np.where(risk[:, None] > risk[None, :], 1.0, np.where(risk[:, None] == risk[None, :], 0.5, 0.0))
        self.pairs, self.right, self.errors = pairs.astype(np.float64), np.where(pairs, ahead, 0.0), errors

    def __call__(self, weights: Floats) -> dict[str, Floats]:
        right = np.einsum("dn,dn->d", weights @ self.right, weights)
        total = np.einsum("dn,dn->d", weights @ self.pairs, weights)
        found = {"c_index": divide(right, total)}
        if self.errors is not None:
            found["ibs"] = divide(weights @ self.errors, weights.sum(axis=1))
        return found


def kaplan_meier(time: Floats, event: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """The share of cases in whom the event has not come, at each time at which one came (Kaplan and Meier, 1958)."""
    curve, left = [], 1.0
    for at in np.unique(time[event]):
        left *= 1 - float((event & (time == at)).sum()) / float((time >= at).sum())
        curve.append((float(at), left))
    return curve


def at_times(curve: Curve, times: Floats, *, before: bool = False) -> Floats:
    """A curve's values: steps, 1 before the first. `before`: just before each time."""
    if not curve:
        return np.ones(len(times))
    stops = np.array([stop for stop, _ in curve], dtype=np.float64)
    values = np.concatenate([[1.0], [value for _, value in curve]])
    return np.asarray(values[np.searchsorted(stops, times, side="left" if before else "right")], dtype=np.float64)


def _errors(time: Floats, event: NDArray[np.bool_], curves: Sequence[Curve]) -> Floats | None:
    """(N,) the integrated Brier score of each case, weighted for censoring (Graf et al., Statistics in Medicine 1999); None where
    a case has no curve, or nobody was followed for long enough."""
    if not all(len(curve) for curve in curves):
        return None
    end = float(np.quantile(time, 1 - LEAST_FOLLOWED))
    if end <= 0:
        return None
    grid = np.linspace(0, end, GRID + 1)[1:]
    followed = kaplan_meier(time, ~event)
    own, now = at_times(followed, time, before=True), at_times(followed, grid)
    said = np.stack([_smooth(curve, grid) for curve in curves])
    gone = (time[:, None] <= grid[None, :]) & event[:, None]
    here = time[:, None] > grid[None, :]
    least = 1 / len(time)
    weighted = np.where(gone, np.square(said) / np.maximum(own, least)[:, None], 0.0)
    weighted += np.where(here, np.square(1 - said) / np.maximum(now, least)[None, :], 0.0)
    found: Floats = weighted.mean(axis=1)
    return found


def _smooth(curve: Curve, times: Floats) -> Floats:
    """A model's curve between the times that it gives: a straight line from 1 at 0; its last value afterwards."""
    stops, values = np.array([(0.0, 1.0), *curve], dtype=np.float64).T
    return np.asarray(np.interp(times, stops, values), dtype=np.float64)


def _by_risk(time: Floats, event: NDArray[np.bool_], risk: Floats) -> list[dict[str, Any]]:
    """The curves of the lower and the higher half by risk, for a picture."""
    high = risk > np.median(risk)
    halves: Mapping[str, NDArray[np.bool_]] = {"lower risk": ~high, "higher risk": high}
    found = []
    for name, half in halves.items():
        if half.any():
            curve = kaplan_meier(time[half], event[half])
            shown = [list(one) for one in curve[:: max(1, len(curve) // SHOWN)]]
            found.append({"group": name, "n": int(half.sum()), "events": int(event[half].sum()), "curve": shown})
    return found
