"""A number a case: taught as its distance from the training median in robust deviations, told in its own unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.diagnosis.targets import Classes, Record

LEVEL = 0.9
"""Share of cases whose true number an interval shall hold."""
FEWEST = 4
"""Held-out cases from which on there is an interval: the largest of four errors holds for four of five."""
STRATA = 5
MOST_BETWEEN = 0.9
"""Largest share of the squared error that is taken for variance between networks."""


def facts_of(values: Sequence[float]) -> dict[str, float]:
    """What the plan keeps of the training cases' numbers."""
    found = np.array(values, dtype=np.float64)
    low, centre, high = (float(v) for v in np.percentile(found, (25, 50, 75)))
    scale = (high - low) / 1.349 or float(found.std()) or 1.0
    ends = {"low": float(found.min()), "high": float(found.max())}
    return {"centre": centre, "scale": round(scale, 6), **ends}


def reach(errors: np.ndarray, level: float = LEVEL) -> tuple[float, float] | None:
    """Half the width of an interval that holds the true number of a new case, and how surely, from the errors on cases that
    training has not seen (split conformal prediction; Lei et al., 2018).

    Of n cases the largest error says it for n of n + 1: where `level` is more than that, it is what is told. None of too few."""
    errors = np.sort(np.abs(errors))
    if len(errors) < FEWEST:
        return None
    place = min(int(np.ceil((len(errors) + 1) * level)), len(errors))
    return float(errors[place - 1]), round(min(level, place / (len(errors) + 1)), 3)


class Numbers(Classes):
    """See `Classes`; the network's one output is the number's distance from `number.centre` in `number.scale`s."""

    watch = "skill"
    noun = "Estimator"

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        self.centre, self.scale = float(plan["number"]["centre"]), float(plan["number"]["scale"])

    def encode(self, records: Sequence[Record]) -> np.ndarray:
        values = np.array([[float(record["value"])] for record in records])
        return ((values - self.centre) / self.scale).astype(np.float32)

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """The fifth of all numbers that each lies in."""
        edges = np.quantile(labels[:, 0], np.arange(1, STRATA) / STRATA)
        return np.eye(STRATA, dtype=np.float32)[np.searchsorted(edges, labels[:, 0])]

    def scores(self, logits: np.ndarray) -> np.ndarray:
        return logits.astype(np.float64) * self.scale + self.centre

    def figures(self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None) -> dict[str, float]:
        """`skill`: the share of the median's mean error that the model saves."""
        true, found = self.scores(labels)[:, 0], self.scores(logits)[:, 0]
        error, blind = np.abs(found - true), np.abs(true - self.centre)
        return {
            "mae": float(error.mean()),
            "rmse": float(np.sqrt(np.square(error).mean())),
            "skill": float(1 - error.mean() / blind.mean()) if blind.any() else float("nan"),
        }

    def view_loss(self, logits: np.ndarray, labels: np.ndarray) -> float:
        return float(np.abs(logits - labels).mean())

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """How outputs become numbers, and how wide an interval around them is.

        The squared error of an average of networks is smaller by what averaging takes from the variance between them.
        """
        errors = (self.scores(logits) - self.scores(labels))[:, 0]
        told: dict[str, Any] = {"temperature": 1 / self.scale, "bias": self.centre, "thresholds": []}
        wide, level = reach(errors) or (None, LEVEL)
        figures = {"interval_reach": wide, "interval_level": level, "cases": len(logits)}
        if wide is not None and shared is not None:
            told["alone"] = [{"interval": {"reach": wide, "level": level}}] * len(shared)
            between = (self.scale**2) * float(shared.var(axis=0, ddof=1).mean()) / float(np.square(errors).mean())
            wide *= float(np.sqrt(1 - (1 - 1 / len(shared)) * min(between, MOST_BETWEEN)))
        interval = {"interval": {"reach": wide, "level": level}} if wide is not None else {}
        return {**told, **interval, "figures": {**figures, "interval_reach": wide}}

    def row(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        return {"value": float(record["value"]), "predicted": round(float(score[0]), 5)}

    def told(self, metrics: Mapping[str, Any], held: str) -> str:
        figures, wide = metrics["validation"], metrics["calibration"]["interval_reach"]
        within = (
            f"; {metrics['calibration']['interval_level']:.0%} lie within {wide:.4g} of it" if wide is not None else ""
        )
        return (
            f"validation mean absolute error {figures['mae']}, RMSE {figures['rmse']} {self.names[0]} on {held}; "
            f"{figures['skill']:.0%} less than the median of the training cases{within}"
        )

    def about(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        valid, interval = metrics["validation"], config.get("interval")
        held = (
            f"Intervals are {interval['reach']:.4g} wide to either side, and hold the true number of {interval['level']:.0%} "
            "of new cases like the training ones (split conformal, by held-out cases)."
            if interval
            else "There were too few held-out cases for an interval."
        )
        return (
            f"gives {self.names[0]} as a number. Not a medical device.\n\nOn {valid['cases']} held-out training cases: mean "
            f"absolute error {valid['mae']}, RMSE {valid['rmse']}; the median of the training cases errs by "
            f"{1 / max(1 - valid['skill'], 1e-9):.2f} times as much. {held}"
        )
