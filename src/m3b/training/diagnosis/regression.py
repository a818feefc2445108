"""Regression: the network learns the distance from the training median in robust deviations; answers have the original unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.diagnosis.classification import ClassTarget, Record

INTERVAL_LEVEL = 0.9
"""Share of cases whose true number is within the interval."""
MIN_CASES = 4
"""Minimum held-out cases for an interval: the maximum of four errors holds for four of five."""
STRATA_COUNT = 5
MAX_VARIANCE_SHARE = 0.9
"""Maximum share of the squared error that is attributed to variance between networks."""


def measure_numbers(values: Sequence[float]) -> dict[str, float]:
    """Return the statistics of the training cases' numbers for the plan."""
    numbers = np.array(values, dtype=np.float64)
    low, centre, high = (float(v) for v in np.percentile(numbers, (25, 50, 75)))
    scale = (high - low) / 1.349 or float(numbers.std()) or 1.0
    limits = {"low": float(numbers.min()), "high": float(numbers.max())}
    return {"centre": centre, "scale": round(scale, 6), **limits}


def fit_interval(errors: np.ndarray, level: float = INTERVAL_LEVEL) -> tuple[float, float] | None:
    """Return the half-width of an interval that holds the true number of a new case, and its coverage, from errors on held-out cases
    (split conformal prediction; Lei et al., 2018).

    The maximum of n errors covers n of n + 1 cases; if `level` is more than that, this is the coverage. None for too few cases.
    """
    errors = np.sort(np.abs(errors))
    if len(errors) < MIN_CASES:
        return None
    rank = min(int(np.ceil((len(errors) + 1) * level)), len(errors))
    return float(errors[rank - 1]), round(min(level, rank / (len(errors) + 1)), 3)


class NumberTarget(ClassTarget):
    """The network's single output is the number's distance from `number.centre` in units of `number.scale`; see `ClassTarget`."""

    watch = "skill"
    noun = "Estimator"

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        self.centre, self.scale = float(plan["number"]["centre"]), float(plan["number"]["scale"])

    def encode(self, records: Sequence[Record]) -> np.ndarray:
        values = np.array([[float(record["value"])] for record in records])
        return ((values - self.centre) / self.scale).astype(np.float32)

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """Return the fifth of all numbers that each belongs to."""
        edges = np.quantile(labels[:, 0], np.arange(1, STRATA_COUNT) / STRATA_COUNT)
        return np.eye(STRATA_COUNT, dtype=np.float32)[np.searchsorted(edges, labels[:, 0])]

    def scores(self, logits: np.ndarray) -> np.ndarray:
        return logits.astype(np.float64) * self.scale + self.centre

    def figures(self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None) -> dict[str, float]:
        """Return the figures; `skill` is the share of the median's mean error that the model saves."""
        truth, predicted = self.scores(labels)[:, 0], self.scores(logits)[:, 0]
        error, baseline_error = np.abs(predicted - truth), np.abs(truth - self.centre)
        return {
            "mae": float(error.mean()),
            "rmse": float(np.sqrt(np.square(error).mean())),
            "skill": float(1 - error.mean() / baseline_error.mean()) if baseline_error.any() else float("nan"),
        }

    def view_loss(self, logits: np.ndarray, labels: np.ndarray) -> float:
        return float(np.abs(logits - labels).mean())

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Fit how outputs become numbers, and the width of the interval.

        The squared error of an average of networks is smaller by the share of their variance that averaging removes.
        """
        errors = (self.scores(logits) - self.scores(labels))[:, 0]
        calibration: dict[str, Any] = {"temperature": 1 / self.scale, "bias": self.centre, "thresholds": []}
        half_width, level = fit_interval(errors) or (None, INTERVAL_LEVEL)
        figures = {"interval_reach": half_width, "interval_level": level, "cases": len(logits)}
        if half_width is not None and shared is not None:
            calibration["alone"] = [{"interval": {"reach": half_width, "level": level}}] * len(shared)
            variance_share = (
                (self.scale**2) * float(shared.var(axis=0, ddof=1).mean()) / float(np.square(errors).mean())
            )
            half_width *= float(np.sqrt(1 - (1 - 1 / len(shared)) * min(variance_share, MAX_VARIANCE_SHARE)))
        interval = {"interval": {"reach": half_width, "level": level}} if half_width is not None else {}
        return {**calibration, **interval, "figures": {**figures, "interval_reach": half_width}}

    def format_case(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        return {"value": float(record["value"]), "predicted": round(float(score[0]), 5)}

    def describe(self, metrics: Mapping[str, Any], held_out_text: str) -> str:
        figures, half_width = metrics["validation"], metrics["calibration"]["interval_reach"]
        interval_text = (
            f"; {metrics['calibration']['interval_level']:.0%} lie within {half_width:.4g} of it"
            if half_width is not None
            else ""
        )
        return (
            f"validation mean absolute error {figures['mae']}, RMSE {figures['rmse']} {self.names[0]} on {held_out_text}; "
            f"{figures['skill']:.0%} less than the median of the training cases{interval_text}"
        )

    def describe_for_readme(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        valid, interval = metrics["validation"], config.get("interval")
        held_out_text = (
            f"Intervals extend {interval['reach']:.4g} to either side and hold the true number of {interval['level']:.0%} of new "
            "cases like the training ones (split conformal, from held-out cases)."
            if interval
            else "There were too few held-out cases for an interval."
        )
        return (
            f"gives {self.names[0]} as a number. Not a medical device.\n\nOn {valid['cases']} held-out training cases: mean "
            f"absolute error {valid['mae']}, RMSE {valid['rmse']}; the median of the training cases errs by "
            f"{1 / max(1 - valid['skill'], 1e-9):.2f} times as much. {held_out_text}"
        )
