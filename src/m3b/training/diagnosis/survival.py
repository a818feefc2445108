"""Survival: time to an event, with cases that were followed without one (censored).

Time is divided into intervals, and the network gives the hazard of each: the probability of the event in it, given none before
(Gensheimer and Narasimhan, PeerJ 2019). Survival curves follow from the hazards; censored cases are used as far as they were followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.diagnosis.calibration import LEFT_OUT, NO_GAIN
from m3b.training.diagnosis.classification import ClassTarget, Record
from m3b.training.diagnosis.ensemble_calibration import EnsembleAverage
from m3b.training.diagnosis.followup import encode_intervals, survival_curves, survival_risk


def c_index(labels: np.ndarray, risk: np.ndarray, networks: np.ndarray | None = None) -> float:
    """Return Harrell's C-index: of the pairs whose first event is known, the share in which that case had the higher risk.

    Args:
        networks: (N,) the network of each risk; only risks of one network are compared with each other.
    """
    time, event = labels[:, 0], labels[:, 1] > 0.5
    pairs = event[:, None] & ((time[:, None] < time) | ((time[:, None] == time) & ~event))
    if networks is not None:
        pairs &= networks[:, None] == networks
    concordance = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    return float((pairs * concordance).sum() / pairs.sum()) if pairs.any() else float("nan")


class SurvivalTarget(ClassTarget):
    """The network's outputs are the logits of the hazards, its labels time and event; see `ClassTarget`."""

    watch = "c_index"
    noun = "Survival model"
    label_width = 2

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        self.edges = [float(edge) for edge in plan["edges"]]

    def encode(self, records: Sequence[Record]) -> np.ndarray:
        return np.array([[float(record["time"]), float(record["event"])] for record in records], np.float32)

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """Return whether the event occurred."""
        return labels[:, 1:]

    def binary_outcomes(self, labels: np.ndarray) -> np.ndarray:
        return labels[:, 1:]

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Return (N, K): the probability of no event until the end of each interval."""
        return survival_curves(1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -60, 60))))

    def figures(self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None) -> dict[str, float]:
        risk = survival_risk(self.scores(logits), self.edges)
        return {"c_index": c_index(labels, risk, networks), "nll": self.view_loss(logits, labels)}

    def view_loss(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """Return the negative log likelihood a case."""
        is_survived, has_event = encode_intervals(labels, self.edges)
        hazard_logits = logits.astype(np.float64)
        return float(
            (is_survived * np.logaddexp(0, hazard_logits) + has_event * np.logaddexp(0, -hazard_logits))
            .sum(axis=1)
            .mean()
        )

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Fit a temperature and a shift of all hazards, if they lower the held-out loss by more than chance would."""
        grid = [(scale, shift) for scale in (0.5, 0.7, 1.0, 1.4, 2.0) for shift in (-0.6, -0.3, 0.0, 0.3, 0.6)]
        average = (
            None if networks is None or shared is None else EnsembleAverage(shared, logits, networks, exclusive=False)
        )
        logits = logits if average is None else average.expected
        before = self.view_loss(logits, labels)
        scale, shift = min(grid, key=lambda candidate: self.view_loss(logits / candidate[0] + candidate[1], labels))
        after = self.view_loss(logits / scale + shift, labels)
        is_left_out = before - after < 1 / max(len(labels), 1)
        if is_left_out:  # fitting two numbers lowers it by so much by chance
            scale, shift, after = 1.0, 0.0, before
        calibration: dict[str, Any] = {"temperature": scale, "bias": shift, "thresholds": [], "edges": self.edges}
        if average is not None:
            calibration["alone"] = average.calibrate_networks(calibration)
        return {
            **calibration,
            "figures": {
                "nll_before": round(before, 4),
                "nll_after": round(after, 4),
                "cases": len(labels),
                **({"status": LEFT_OUT} if is_left_out else {}),
            },
        }

    def format_case(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        risk = float(survival_risk(score[None], self.edges)[0])
        return {"time": float(record["time"]), "event": bool(record["event"]), "risk": round(risk, 5)}

    def describe(self, metrics: Mapping[str, Any], held_out_text: str) -> str:
        figures, error = metrics["validation"], metrics["calibration"]
        return (
            f"validation C-index {figures['c_index']} on {held_out_text} (0.5 is chance); negative log likelihood "
            f"{error['nll_before']} a case"
            + (f": {NO_GAIN}" if error.get("status") == LEFT_OUT else f", calibrated {error['nll_after']}")
        )

    def describe_for_readme(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        valid = metrics["validation"]
        return (
            f"gives, for {self.names[0]}, the probability of no event until each of {len(self.edges)} times up to "
            f"{self.edges[-1]:g}, and a risk that ranks patients. Not a medical device.\n\n"
            f"On {valid['cases']} held-out training cases: "
            f"C-index {valid['c_index']}."
        )
