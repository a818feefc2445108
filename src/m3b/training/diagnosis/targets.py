"""What is predicted of an image: classes, grades in an order, or a number. `kind_of(plan)` gives it to all other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from m3b.training.diagnosis.calibration import (
    adjust,
    calibrate,
    decisions_told,
    exclusive_cuts,
    fit,
    log_loss,
    probabilities,
)
from m3b.training.diagnosis.ensemble_calibration import Average
from m3b.training.diagnosis.prediction_sets import measured, sets_of
from m3b.training.ranking_metrics import balanced_accuracy, macro_auroc

Record = Mapping[str, Any]
HOMES = {
    "diagnosis": (f"{__package__}.targets", "Classes"),
    "grading": (f"{__package__}.grading", "Grades"),
    "regression": (f"{__package__}.regression", "Numbers"),
    "survival": (f"{__package__}.survival", "Followed"),
}
"""Task of the plan -> module and class."""
UNKNOWN = "unknown_labels"
"""Key of a record: labels of which nobody knows whether they apply; they have no loss and count in no figure."""
TELLING = {"grade": "grading", "value": "regression", "event": "survival"}
"""Key of a record -> task; records of other keys have `labels`."""


def task_of(records: Sequence[Record]) -> str:
    """The task that the keys of an index tell."""
    return next((task for key, task in TELLING.items() if key in records[0]), "diagnosis")


def kind_of(plan: Mapping[str, Any]) -> Classes:
    """What the plan wants predicted."""
    module, name = HOMES[str(plan["task"])]
    kind: Classes = getattr(import_module(module), name)(plan)
    return kind


def named_labels(record: Record, classes: Sequence[str]) -> list[str]:
    """The classes of a record by name; numbers are those of label_dict.json. A number to predict is no class."""
    told = record.get("labels", record.get("grade", []))
    return [classes[v] if isinstance(v, int) else v for v in (told if isinstance(told, list) else [told])]


class Classes:
    """One class a case, or several.

    Attributes:
        watch: the validation figure that decides which weights are kept; higher is better.
        noun: what an export calls the model.
        width: numbers in the labels of a case; 0 for one a class.
    """

    watch = "auroc"
    noun = "Classifier"
    width = 0

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan, self.names, self.multi = plan, list(plan["classes"]), bool(plan["multi_label"])

    # --- from records to labels --------------------------------------------------------------------------------------

    def encode(self, records: Sequence[Record]) -> np.ndarray:
        """(N, K) float32: what a network is taught; multi-hot here, NaN for labels that are not known."""
        table = np.zeros((len(records), len(self.names)), np.float32)
        for row, record in enumerate(records):
            for label in named_labels(record, self.names):
                if label not in self.names:
                    raise SystemExit(
                        f"record {record['image_path']}: label {label!r} is not in label_dict.json {self.names}"
                    )
                table[row, self.names.index(label)] = 1.0
            for label in record.get(UNKNOWN, ()):
                table[row, self.names.index(label)] = np.nan
        return table

    def strata(self, labels: np.ndarray) -> np.ndarray:
        """(N, S) 0 and 1: what each fold shall have its share of."""
        return np.nan_to_num(labels)

    def sides(self, labels: np.ndarray) -> np.ndarray:
        """(N, S): what is above 0.5 is on one side; with too few cases on either the best figure is chance."""
        return labels

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """(N, K) what the network's outputs mean."""
        return probabilities(logits, self.multi)

    # --- validation ----------------------------------------------------------------------------------------------------

    def figures(self, logits: np.ndarray, labels: np.ndarray, networks: np.ndarray | None = None) -> dict[str, float]:
        """The validation figures, `watch` among them; ranks only among the cases of each of `networks` (N,)."""
        scores = self.scores(logits)
        return {
            "auroc": macro_auroc(labels, scores, networks),
            "balanced_accuracy": balanced_accuracy(labels, scores, self.multi),
        }

    def predicted(self, logits: np.ndarray) -> np.ndarray:
        """(N, K) bool: what is decided of each case, before any calibration."""
        scores = self.scores(logits)
        if self.multi:
            return np.asarray(scores >= 0.5)
        return np.eye(len(self.names), dtype=bool)[scores.argmax(axis=1)]

    def recall(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, str]:
        """Class -> how many of its held-out cases are predicted so (`18 of 21`); of numbers there are no classes."""
        if self.width or not self.names:
            return {}
        truth, predicted = labels > 0.5, self.predicted(logits)
        return {
            name: f"{int((truth[:, k] & predicted[:, k]).sum())} of {int(truth[:, k].sum())}"
            for k, name in enumerate(self.names)
        }

    def view_loss(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """What averaging over views has to lower."""
        return log_loss(adjust(logits, fit(logits, labels, self.multi)), labels, self.multi)

    def calibrate(
        self, logits: np.ndarray, labels: np.ndarray, patients: list[str],
        shared: np.ndarray | None = None, networks: np.ndarray | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """What the deliverable's config takes over, and `figures` of the fit.

        Args:
            shared: (networks, M, K) logits of cases that no network was trained on, if their average is delivered and each of `logits`
                (N, K) is of one of them; None if `logits` are those of the delivered model.
            networks: (N,) the network that each of `logits` is of, with `shared`.
        """
        cuts = () if self.multi else exclusive_cuts(labels > 0.5)
        average = None if networks is None else Average(shared, logits, networks, not self.multi)
        found = calibrate(logits, labels, patients, self.multi, cuts, average)
        return with_sets(found, labels, patients, self.multi)

    def row(self, record: Record, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
        """A case of valid_predictions.json."""
        told = {name: round(float(p), 5) for name, p in zip(self.names, score, strict=True)}
        unknown = {UNKNOWN: record[UNKNOWN]} if record.get(UNKNOWN) else {}
        return {"labels": named_labels(record, self.names), **unknown, "probabilities": told}

    # --- words ---------------------------------------------------------------------------------------------------------

    def told(self, metrics: Mapping[str, Any], held: str) -> str:
        """The last line of a training."""
        figures, error = metrics["validation"], metrics["calibration"]
        return (
            f"validation AUROC {figures['auroc']}, balanced accuracy {figures['balanced_accuracy']} on {held}; "
            f"calibration error {error['ece_before']}, calibrated {error['ece_after']}\n{recall_told(metrics)}"
            f"{decisions_told(error)}"
        )

    def about(self, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """What the README of the deliverable says of its answers and of validation."""
        valid, error = metrics["validation"], metrics["calibration"]
        rare = "" if self.multi else rare_told(config)
        return (
            f"gives class probabilities. {rare}Not a medical device.\n\nOn {valid['cases']} held-out training cases: AUROC "
            f"{valid['auroc']}, balanced accuracy {valid['balanced_accuracy']}. {calibration_told(error, config)}"
        )


def recall_told(metrics: Mapping[str, Any]) -> str:
    """A line on the recall of each class: whether one is never predicted."""
    return "recall of each class: " + ", ".join(f"{name} {count}" for name, count in metrics["recall"].items()) + "\n"


def rare_told(config: Mapping[str, Any]) -> str:
    """A sentence on how a rare class is decided for, or none."""
    cuts = dict(zip(config["classes"], config["thresholds"], strict=True))
    if len(set(cuts.values())) < 2:
        return ""
    name = min(cuts, key=lambda one: cuts[one])
    return f"`prediction` is {name} from a probability of {cuts[name]:.3g} on, its share in training: the best balanced accuracy. "


def calibration_told(error: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """A sentence on the calibration of class probabilities."""
    average = (
        f"The average of {error['networks']} networks is delivered. These figures are of its expected answers, given that of the one "
        f"network that was trained without a case; by cases that none was trained on, logits of the average are {error['slopes']} "
        f"times as far from their mean as those of the networks. "
        if "slopes" in error
        else ""
    )
    return (
        f"Expected calibration error of the probabilities (15 bins): {error['ece_before']} as the network gives them, "
        f"{error['ece_after']} as delivered (temperature {config['temperature']}, bias {config['bias']}; measured on cases "
        f"that the fit had not seen). {average}{sets_told(config)}"
    )


def with_sets(fitted: dict[str, Any], labels: np.ndarray, patients: list[str], multi: bool) -> dict[str, Any]:
    """A calibration with the cuts of prediction sets in place of the probabilities that they are made of."""
    fair, cases = fitted.pop("fair"), fitted.pop("cases")
    labels = labels[cases]
    sets = sets_of(fair, labels, [patients[case] for case in cases], multi)
    return {**fitted, "sets": sets, "figures": {**fitted["figures"], **measured(fair, labels, sets)}}


def sets_told(config: Mapping[str, Any]) -> str:
    """A sentence on prediction sets."""
    sets = config.get("sets") or {}
    if "cuts" not in sets:
        return f"No prediction sets: {sets['unavailable']}." if "unavailable" in sets else ""
    return (
        f"`prediction_set` holds the true class of {sets['level']:.0%} of new images like the training ones (conformal, by "
        f"{sets['patients']} held-out patients); `abstains` says where it is not the decision alone."
    )
