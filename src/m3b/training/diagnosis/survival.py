"""Survival: how long until an event comes, of cases some of which were followed to none (censored).

Time is cut into intervals, and the network gives the hazard of each: the chance that the event comes in it where it has not come
before (Gensheimer and Narasimhan, PeerJ 2019). Survival curves follow, and censored cases teach how far they were followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.diagnosis.ensemble_calibration import Average
from m3b.training.diagnosis.followup import curves, risk_of, targets
from m3b.training.diagnosis.targets import Classes, Record


def c_index(labels: np.ndarray, risk: np.ndarray, networks: np.ndarray | None = None) -> float:
    """Harrell's: of the pairs of which it is known who had the event first, the share in which that one had the higher risk.

    Args:
        networks: (N,) which network gave each risk; only risks of one network are compared with each other.
    """
    time, event = labels[:, 0], labels[:, 1] > 0.5
    pairs = event[:, None] & ((time[:, None] < time) | ((time[:, None] == time) & ~event))
    if networks is not None:
        pairs &= networks[:, None] == networks
    ahead = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    return float((pairs * ahead).sum() / pairs.sum()) if pairs.any() else float("nan")


class Followed(Classes):
    """See `Classes`; the network's outputs are the logits of the hazards, and its labels time and event."""

    watch = "c_index"
    noun = "Survival model"
    width = 2

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        self.edges = [float(edge) for edge in plan["edges"]]

    def encode(self, records: Sequence[Record]) -> np.ndarray:
        return np.array([[float(record["time"]), float(record["event"])] for record in records], np.float32)

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """Whether the event came."""
        return labels[:, 1:]

    def sides(self, labels: np.ndarray) -> np.ndarray:
        return labels[:, 1:]

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """(N, K): the chance that the event has not come until the end of each interval."""
        return curves(1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -60, 60))))

    def figures(self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None) -> dict[str, float]:
        risk = risk_of(self.scores(logits), self.edges)
        return {"c_index": c_index(labels, risk, networks), "nll": self.view_loss(logits, labels)}

    def view_loss(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """Negative log likelihood a case."""
        through, inside = targets(labels, self.edges)
        x = logits.astype(np.float64)
        return float((through * np.logaddexp(0, x) + inside * np.logaddexp(0, -x)).sum(axis=1).mean())

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """A temperature and a shift of all hazards, where they lower the loss of held-out cases by more than chance would."""
        grid = [(scale, shift) for scale in (0.5, 0.7, 1.0, 1.4, 2.0) for shift in (-0.6, -0.3, 0.0, 0.3, 0.6)]
        average = None if networks is None else Average(shared, logits, networks, exclusive=False)
        logits = logits if average is None else average.expected
        before = self.view_loss(logits, labels)
        scale, shift = min(grid, key=lambda one: self.view_loss(logits / one[0] + one[1], labels))
        after = self.view_loss(logits / scale + shift, labels)
        if before - after < 1 / max(len(labels), 1):  # two numbers were fitted: by as much it falls by itself
            scale, shift, after = 1.0, 0.0, before
        told: dict[str, Any] = {"temperature": scale, "bias": shift, "thresholds": [], "edges": self.edges}
        if average is not None:
            told["alone"] = average.alone(told)
        return {**told, "figures": {"nll_before": round(before, 4), "nll_after": round(after, 4), "cases": len(labels)}}

    def row(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        risk = float(risk_of(score[None], self.edges)[0])
        return {"time": float(record["time"]), "event": bool(record["event"]), "risk": round(risk, 5)}

    def told(self, metrics: Mapping[str, Any], held: str) -> str:
        figures, error = metrics["validation"], metrics["calibration"]
        return (
            f"validation C-index {figures['c_index']} on {held} (0.5 is chance); negative log likelihood {error['nll_before']} "
            f"a case, calibrated {error['nll_after']}"
        )

    def about(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        valid = metrics["validation"]
        return (
            f"gives, for {self.names[0]}, the chance that the event has not come until each of {len(self.edges)} times up to "
            f"{self.edges[-1]:g}, and a risk that ranks patients. Not a medical device.\n\n"
            f"On {valid['cases']} held-out training cases: "
            f"C-index {valid['c_index']}."
        )
