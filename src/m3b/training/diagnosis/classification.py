"""Classes as a target: labels, figures, calibration and descriptions; the base of the other targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.diagnosis.calibration import (
    LEFT_OUT,
    NO_GAIN,
    apply_calibration,
    calibrate,
    describe_decisions,
    describe_error,
    exclusive_cuts,
    fit_calibration,
    log_loss,
    probabilities,
)
from m3b.training.diagnosis.ensemble_calibration import EnsembleAverage
from m3b.training.diagnosis.prediction_sets import fit_prediction_sets, measure_coverage
from m3b.training.ranking_metrics import balanced_accuracy, macro_auroc

Record = Mapping[str, Any]
UNKNOWN_KEY = "unknown_labels"
"""Key of a record: labels that are unknown; they have no loss and count in no figure."""


def read_labels(record: Record, classes: Sequence[str]) -> list[str]:
    """Return the class names of a record; numbers are indices of label_dict.json. A number to predict is no class."""
    values = record.get("labels", record.get("grade", []))
    return [classes[v] if isinstance(v, int) else v for v in (values if isinstance(values, list) else [values])]


class ClassTarget:
    """One class a case, or several.

    Attributes:
        watch: the validation figure that selects the best weights; higher is better.
        noun: name of the kind of model in the README.
        label_width: numbers in the labels of a case; 0 for one a class.
    """

    watch = "auroc"
    noun = "Classifier"
    label_width = 0

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan, self.names, self.multi_label = plan, list(plan["classes"]), bool(plan["multi_label"])

    # --- from records to labels --------------------------------------------------------------------------------------

    def encode(self, records: Sequence[Record]) -> np.ndarray:
        """Return (N, K) float32 labels: multi-hot, NaN if unknown."""
        table = np.zeros((len(records), len(self.names)), np.float32)
        for row, record in enumerate(records):
            for label in read_labels(record, self.names):
                if label not in self.names:
                    raise SystemExit(
                        f"record {record['image_path']}: label {label!r} is not in label_dict.json {self.names}"
                    )
                table[row, self.names.index(label)] = 1.0
            for label in record.get(UNKNOWN_KEY, ()):
                table[row, self.names.index(label)] = np.nan
        return table

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """Return (N, S) 0 and 1: the strata that are distributed among folds."""
        return np.asarray(np.nan_to_num(labels))

    def binary_outcomes(self, labels: np.ndarray) -> np.ndarray:
        """Return (N, S) binary outcomes (above 0.5); with too few cases on either side the best figure is chance."""
        return labels

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Return (N, K) probabilities of the network's outputs."""
        return probabilities(logits, self.multi_label)

    # --- validation ----------------------------------------------------------------------------------------------------

    def figures(self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None) -> dict[str, float]:
        """Return the validation figures, including `watch`; ranks are compared only within each of `networks` (N,)."""
        scores = self.scores(logits)
        return {
            "auroc": macro_auroc(labels, scores, networks),
            "balanced_accuracy": balanced_accuracy(labels, scores, self.multi_label),
        }

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Return (N, K) bool: the decision for each case, before calibration."""
        scores = self.scores(logits)
        if self.multi_label:
            return np.asarray(scores >= 0.5)
        return np.asarray(np.eye(len(self.names), dtype=bool)[scores.argmax(axis=1)])

    def recall(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, str]:
        """Return class -> how many of its held-out cases are predicted as such (`18 of 21`); {} without classes."""
        if self.label_width or not self.names:
            return {}
        truth, predicted = labels > 0.5, self.decide(logits)
        return {
            name: f"{int((truth[:, k] & predicted[:, k]).sum())} of {int(truth[:, k].sum())}"
            for k, name in enumerate(self.names)
        }

    def view_loss(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """Return the loss that averaging over views has to lower."""
        return log_loss(
            apply_calibration(logits, fit_calibration(logits, labels, self.multi_label)), labels, self.multi_label
        )

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Fit the calibration for the deliverable's config, with `figures` of the fit.

        Args:
            shared: (networks, M, K) logits of cases that no network was trained on, if the average of the networks is delivered and
                each of `logits` (N, K) is of one of them; None if `logits` are those of the delivered model.
            networks: (N,) the network of each of `logits`, with `shared`.
        """
        cuts = () if self.multi_label else exclusive_cuts(labels > 0.5)
        average = (
            None
            if networks is None or shared is None
            else EnsembleAverage(shared, logits, networks, not self.multi_label)
        )
        calibration = calibrate(logits, labels, patients, self.multi_label, cuts, average)
        return add_prediction_sets(calibration, labels, patients, self.multi_label)

    def format_case(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        """Return a case of valid_predictions.json."""
        values = {name: round(float(p), 5) for name, p in zip(self.names, score, strict=True)}
        unknown = {UNKNOWN_KEY: record[UNKNOWN_KEY]} if record.get(UNKNOWN_KEY) else {}
        return {"labels": read_labels(record, self.names), **unknown, "probabilities": values}

    # --- words ---------------------------------------------------------------------------------------------------------

    def describe(self, metrics: Mapping[str, Any], held_out_text: str) -> str:
        """Return the last line of a training."""
        figures, error = metrics["validation"], metrics["calibration"]
        return (
            f"validation AUROC {figures['auroc']}, before calibration balanced accuracy {figures['balanced_accuracy']}, on "
            f"{held_out_text}; {describe_error(error)}\n{describe_recall(metrics)}"
            f"{describe_decisions(error)}"
        )

    def describe_for_readme(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the README text on answers and validation."""
        figures, error = metrics["validation"], metrics["calibration"]
        rare = "" if self.multi_label else describe_rare_class(config)
        return (
            f"gives class probabilities. {rare}Not a medical device.\n\nOn {figures['cases']} held-out training cases: AUROC "
            f"{figures['auroc']}, before calibration balanced accuracy {figures['balanced_accuracy']}. "
            f"{describe_calibration(error, config)}"
        )


def describe_recall(metrics: Mapping[str, Any]) -> str:
    """Return a line on the recall of each class, which shows classes that are never predicted."""
    recall = ", ".join(f"{name}: {count}" for name, count in metrics["recall"].items())
    return f"recall of each class before calibration: {recall}\n"


def describe_rare_class(config: Mapping[str, Any]) -> str:
    """Return a sentence on the threshold of a rare class; "" without one."""
    cuts = dict(zip(config["classes"], config["thresholds"], strict=True))
    if len(set(cuts.values())) < 2:
        return ""
    name = min(cuts, key=lambda name: cuts[name])
    return f"`prediction` is {name} from a probability of {cuts[name]:.3g} on, its share in training: the best balanced accuracy. "


def describe_calibration(error: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return a sentence on the calibration of class probabilities."""
    average = (
        f"The average of {error['networks']} networks is delivered. These figures are of its expected predictions, given that of the "
        f"one network that was trained without a case. On cases that none was trained on, logits of the average are {error['slopes']} "
        f"times as far from their mean as those of the networks. "
        if "slopes" in error
        else ""
    )
    as_delivered = (
        f" as the network gives them, {error['ece_after']} as delivered (temperature {config['temperature']}, bias "
        f"{config['bias']}; measured on cases that the fit had not seen)"
    )
    return (
        f"Expected calibration error of the probabilities (15 bins): {error['ece_before']}"
        f"{f'; {NO_GAIN}' if error.get('status') == LEFT_OUT else as_delivered}. {average}{describe_prediction_sets(config)}"
    )


def add_prediction_sets(fitted: dict[str, Any], labels: np.ndarray, patients: list[str], multi: bool) -> dict[str, Any]:
    """Replace the cross-fitted probabilities of a calibration by the prediction sets that are fitted on them."""
    probabilities_cross_fitted, cases = fitted.pop("fair"), fitted.pop("cases")
    labels = labels[cases]
    sets = fit_prediction_sets(probabilities_cross_fitted, labels, [patients[case] for case in cases], multi)
    return {
        **fitted,
        "sets": sets,
        "figures": {**fitted["figures"], **measure_coverage(probabilities_cross_fitted, labels, sets)},
    }


def describe_prediction_sets(config: Mapping[str, Any]) -> str:
    """Return a sentence on prediction sets."""
    sets = config.get("sets") or {}
    if "cuts" not in sets:
        return f"No prediction sets: {sets['unavailable']}." if "unavailable" in sets else ""
    return (
        f"`prediction_set` has the true class of {sets['level']:.0%} of new images like the training ones (conformal, from "
        f"{sets['patients']} held-out patients); `abstains` is true if it is not the decision alone."
    )
