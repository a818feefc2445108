"""Ordinal grades: errors count by their distance, and the decision rule is chosen for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from m3b.training.diagnosis.calibration import apply_calibration, calibrate, describe_decisions, describe_error
from m3b.training.diagnosis.classification import (
    ClassTarget,
    Record,
    add_prediction_sets,
    describe_calibration,
    describe_recall,
    read_labels,
)
from m3b.training.diagnosis.ensemble_calibration import EnsembleAverage
from m3b.training.diagnosis.grade_rules import GRADE_RULES, decide_grades


def quadratic_kappa(truth: np.ndarray, decision: np.ndarray, count: int) -> float:
    """Return Cohen's kappa with squared weights of (N,) grade numbers; 0 for a constant answer, NaN if all are one grade."""
    observed = np.bincount(truth * count + decision, minlength=count * count).reshape(count, count).astype(float)
    distance = np.subtract.outer(np.arange(count), np.arange(count)) ** 2.0
    expected = np.outer(observed.sum(axis=1), observed.sum(axis=0)) / max(observed.sum(), 1.0)
    return (
        float(1 - (distance * observed).sum() / total)
        if (total := float((distance * expected).sum()))
        else float("nan")
    )


class GradeTarget(ClassTarget):
    """One grade a case, from low to high; see `ClassTarget`."""

    watch = "qwk"
    noun = "Grader"

    def figures(
        self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None, *, rule: str = "median"
    ) -> dict[str, float]:
        return self._score_grades(labels, decide_grades(self.scores(logits), rule))

    def _score_grades(self, labels: np.ndarray, decision: np.ndarray) -> dict[str, float]:
        """Return the figures of (N,) decided grade numbers."""
        truth = labels.argmax(axis=1)
        distance = np.abs(truth - decision)
        return {
            "qwk": quadratic_kappa(truth, decision, len(self.names)),
            "grade_mae": float(distance.mean()),
            "accuracy": float((distance == 0).mean()),
        }

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return np.asarray(np.eye(len(self.names), dtype=bool)[decide_grades(self.scores(logits), "median")])

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Calibrate as for classes, and choose the rule from probabilities to a grade, the best of three on these cases."""
        average = (
            None if networks is None or shared is None else EnsembleAverage(shared, logits, networks, exclusive=True)
        )
        fitted = calibrate(logits, labels, patients, False, average=average)
        scaled = apply_calibration(logits if average is None else average.expected, fitted)
        figures_by_rule = {rule: self.figures(scaled, labels, rule=rule) for rule in GRADE_RULES}
        best = max(
            GRADE_RULES,
            key=lambda rule: (np.nan_to_num(round(figures_by_rule[rule]["qwk"], 3), nan=-1.0), rule == "median"),
        )
        kappas = {f"qwk_by_{rule}": round(figures["qwk"], 4) for rule, figures in figures_by_rule.items()}
        delivered = self._score_grades(labels[fitted["cases"]], decide_grades(fitted["fair"], best))
        decisions = {name: round(value, 4) for name, value in delivered.items()}
        fitted = add_prediction_sets(fitted, labels, patients, False)
        return {**fitted, "decide": best, "figures": {**fitted["figures"], **kappas, **decisions}}

    def format_case(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        probabilities = {name: round(float(p), 5) for name, p in zip(self.names, score, strict=True)}
        return {"grade": read_labels(record, self.names)[0], "probabilities": probabilities}

    def describe(self, metrics: Mapping[str, Any], held_out_text: str) -> str:
        figures, error = metrics["validation"], metrics["calibration"]
        return (
            f"validation quadratic kappa {figures['qwk']}, mean error {figures['grade_mae']} grades on {held_out_text}, before "
            f"calibration; {describe_error(error)}\n{describe_recall(metrics)}{describe_grades(error)}"
        )

    def describe_for_readme(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        valid = metrics["validation"]
        return (
            f"gives the grade ({', '.join(self.names)}, from low to high) and the probability of each; the grade is the "
            f"{config['decide']} of the probabilities. Not a medical device.\n\nOn {valid['cases']} held-out training cases, before "
            f"calibration: quadratic weighted kappa {valid['qwk']}, mean error {valid['grade_mae']} grades; "
            f"{describe_grades(metrics['calibration'])}. {describe_calibration(metrics['calibration'], config)}"
        )


def describe_grades(figures: Mapping[str, Any]) -> str:
    """Return a line on the grades that the delivered model decides for, and whether they beat a constant."""
    details = (
        f"quadratic kappa {figures['qwk']}, mean error {figures['grade_mae']} grades, " if "qwk" in figures else ""
    )
    return describe_decisions(figures, details)
