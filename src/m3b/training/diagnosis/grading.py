"""Grades in an order: how far a decision is from the truth counts, and the decision is chosen for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from m3b.training.diagnosis.answers import RULES, grade_of
from m3b.training.diagnosis.calibration import adjust, calibrate, decisions_told
from m3b.training.diagnosis.ensemble_calibration import Average
from m3b.training.diagnosis.targets import Classes, Record, calibration_told, named_labels, recall_told, with_sets


def quadratic_kappa(truth: np.ndarray, decision: np.ndarray, count: int) -> float:
    """Cohen's kappa with squared weights, of (N,) grade numbers; 0 for a constant answer, NaN where all is one grade."""
    seen = np.bincount(truth * count + decision, minlength=count * count).reshape(count, count).astype(float)
    away = np.subtract.outer(np.arange(count), np.arange(count)) ** 2.0
    chance = np.outer(seen.sum(axis=1), seen.sum(axis=0)) / max(seen.sum(), 1.0)
    return float(1 - (away * seen).sum() / total) if (total := float((away * chance).sum())) else float("nan")


class Grades(Classes):
    """See `Classes`; one grade a case, from low to high."""

    watch = "qwk"
    noun = "Grader"

    def figures(
        self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None, *, rule: str = "median"
    ) -> dict[str, float]:
        truth, decision = labels.argmax(axis=1), grade_of(self.scores(logits), rule)
        away = np.abs(truth - decision)
        return {
            "qwk": quadratic_kappa(truth, decision, len(self.names)),
            "grade_mae": float(away.mean()),
            "accuracy": float((away == 0).mean()),
        }

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        return np.eye(len(self.names), dtype=bool)[grade_of(self.scores(logits), "median")]

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """As for classes; and the rule by which probabilities become a grade, the best of three on these cases."""
        average = None if networks is None else Average(shared, logits, networks, exclusive=True)
        fitted = with_sets(calibrate(logits, labels, patients, False, average=average), labels, patients, False)
        scaled = adjust(logits if average is None else average.expected, fitted)
        found = {rule: self.figures(scaled, labels, rule=rule) for rule in RULES}
        best = max(RULES, key=lambda rule: (np.nan_to_num(round(found[rule]["qwk"], 3), nan=-1.0), rule == "median"))
        told = {f"qwk_by_{rule}": round(one["qwk"], 4) for rule, one in found.items()}
        return {**fitted, "decide": best, "figures": {**fitted["figures"], **told}}

    def row(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        told = {name: round(float(p), 5) for name, p in zip(self.names, score, strict=True)}
        return {"grade": named_labels(record, self.names)[0], "probabilities": told}

    def told(self, metrics: Mapping[str, Any], held: str) -> str:
        figures, error = metrics["validation"], metrics["calibration"]
        return (
            f"validation quadratic kappa {figures['qwk']}, mean error {figures['grade_mae']} grades, accuracy "
            f"{figures['accuracy']} on {held}; calibration error {error['ece_before']}, calibrated {error['ece_after']}\n"
            f"{recall_told(metrics)}{decisions_told(error)}"
        )

    def about(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        valid = metrics["validation"]
        return (
            f"gives the grade ({', '.join(self.names)}, from low to high) and the probability of each; the grade is the "
            f"{config['decide']} of the probabilities. Not a medical device.\n\nOn {valid['cases']} held-out training cases: "
            f"quadratic weighted kappa {valid['qwk']}, mean error {valid['grade_mae']} grades, accuracy {valid['accuracy']}. "
            f"{calibration_told(metrics['calibration'], config)}"
        )
