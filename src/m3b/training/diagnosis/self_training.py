"""Self-training of a classifier: a second network for each fold, which also learns from confident pseudo-labels of unlabelled images.

As Noisy Student (Xie et al., CVPR 2020): a network that was trained on the labelled cases labels the others, and a network with
augmentation and dropout is trained on both. Pseudo-labels are hard, as in FixMatch (Sohn et al., NeurIPS 2020), with its threshold of
0.95, on probabilities that are calibrated on the fold's validation cases; of each class the most confident part counts too, as in
class-balanced self-training (Zou et al., ECCV 2018), since a calibrated network of few cases is hardly ever so certain. Labelled cases
and pseudo-labels have the same weight in all, as in FixMatch.

Each fold has pseudo-labels of its own network, of patients that it does not hold out. The second networks are delivered instead of the
first ones if their validation loss is lower by more than two standard errors over patients.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset

from m3b.training.diagnosis.calibration import apply_calibration, fit_calibration, probabilities
from m3b.training.diagnosis.candidate_gain import measure_gain
from m3b.training.diagnosis.dataset import CaseDataset, read_unlabelled_cases
from m3b.training.diagnosis.targets import get_target
from m3b.training.diagnosis.views import view_count
from m3b.training.folds import DELIVERED_FILE, LOGOUT, SITES, WEIGHTS_FILE, list_network_names, name_student
from m3b.training.machine import machine_of
from m3b.training.patients import list_patients
from m3b.training.pretrained.frozen_features import has_frozen_backbone
from m3b.training.slice_encoder import BOTH, encoder_of

Plan = dict[str, Any]
UNLABELLED_FILE = Path("Datapath/unlabelled.json")
MIN_CONFIDENCE = 0.95
"""Calibrated probability from which on a pseudo-label counts in any case: FixMatch."""
CONFIDENT_SHARE = 0.2
"""Share of the images predicted as a class that counts in any case: first round of class-balanced self-training."""
GAIN_ERRORS, MIN_PATIENTS = 2.0, 10
"""Minimum reduction of the loss in its standard errors, and validation patients without whom no second network is delivered."""


# --- in the plan -------------------------------------------------------------------------------------------------------


def count_unlabelled() -> int:
    """Return the number of unlabelled images that training is given."""
    return len(json.loads(UNLABELLED_FILE.read_text())) if UNLABELLED_FILE.is_file() else 0


def settle_self_training(plan: Plan, unlabelled: int, is_requested: bool) -> list[str]:
    """Return a line on the self-training of a plan, which is switched off if it does not fit a plan that nobody requested it for.

    Raises:
        SystemExit: it is requested and the plan or the data do not allow it; says why.
    """
    obstacle = _find_obstacle(plan, unlabelled)
    if plan["self_training"] and obstacle and is_requested:
        raise SystemExit(f"--set self_training=true: {obstacle}")
    plan["self_training"] = bool(plan["self_training"]) and not obstacle
    if plan["self_training"]:
        return [
            "self-training: in the second half of the time, networks are trained on confident pseudo-labels of "
            f"{unlabelled} unlabelled images too; train.py delivers them if that lowers the validation loss"
        ]
    return [f"{unlabelled} unlabelled images are not used (--set self_training=true uses them)"] if unlabelled else []


def _find_obstacle(plan: Mapping[str, Any], unlabelled: int) -> str:
    if plan["task"] != "diagnosis":
        return f"it is for classes, this is a {plan['task']}"
    if not unlabelled:
        return "the index has no unlabelled images (`unlabelled` of the labels in the manifest)"
    obstacles = {
        "cases of several images are not served": view_count(plan) > 1,
        "it is for one encoder, these are two (network.encoder)": int(plan["dims"]) == 3 and encoder_of(plan) == BOTH,
        "features of a frozen network are not trained": has_frozen_backbone(plan),
        "folds that are sites would learn from the site that they hold out": plan.get("fold_groups") == SITES,
        "it is for one process (--gpus 1, processes=1)": max(machine_of(plan).gpus, int(plan.get("processes") or 1))
        > 1,
    }
    return next((text for text, applies in obstacles.items() if applies), "")


# --- pseudo-labels -------------------------------------------------------------------------------------------------------


def calibrate_probabilities(
    plan: Plan, logits: np.ndarray, valid_logits: np.ndarray, valid_labels: np.ndarray
) -> np.ndarray:
    """Return (N, K) probabilities of the logits, calibrated on validation cases."""
    is_multi = bool(plan["multi_label"])
    return probabilities(apply_calibration(logits, fit_calibration(valid_logits, valid_labels, is_multi)), is_multi)


def choose_pseudo_labels(scores: np.ndarray, multi_label: bool) -> np.ndarray:
    """Return (N, K) float32 pseudo-labels of (N, K) calibrated probabilities; NaN if not confident.

    Of classes that exclude each other, a row is one-hot or NaN; of several labels, each is 1, 0 or NaN.
    """
    labels = np.full(scores.shape, np.nan, np.float32)
    if multi_label:
        for column in range(scores.shape[1]):
            for value, confidence in ((1.0, scores[:, column]), (0.0, 1 - scores[:, column])):
                labels[_select_confident(confidence, confidence > 0.5), column] = value
        return labels
    predicted = scores.argmax(axis=1)
    for column in range(scores.shape[1]):
        rows = _select_confident(scores[:, column], predicted == column)
        labels[rows] = np.eye(scores.shape[1], dtype=np.float32)[column]
    return labels


def _select_confident(confidence: np.ndarray, is_predicted: np.ndarray) -> np.ndarray:
    """Return which (N,) predictions of a class count."""
    ranked = np.argsort(np.where(is_predicted, confidence, -1.0), kind="stable")[::-1]
    is_selected = is_predicted & (confidence >= MIN_CONFIDENCE)
    is_selected[ranked[: int(CONFIDENT_SHARE * is_predicted.sum())]] = True
    return np.asarray(is_selected)


class UnlabelledCases:
    """The unlabelled images as a data set, and what each fold's network says of them."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.cases = plan, read_unlabelled_cases(plan, UNLABELLED_FILE)
        self.scores: list[np.ndarray] = []

    def add_scores(self, logits: np.ndarray, valid_logits: np.ndarray, valid_labels: np.ndarray) -> None:
        """Add the calibrated probabilities of the next fold's network."""
        self.scores.append(calibrate_probabilities(self.plan, logits, valid_logits, valid_labels))

    def build_training_set(self, labelled: CaseDataset, valid: CaseDataset, fold: int | None) -> tuple[Any, int]:
        """Return the labelled cases, repeated to the same number, with the images that have a pseudo-label, and the number of these.

        Args:
            valid: the fold's validation cases, of whose patients no image is used.
            fold: None for the refit, whose pseudo-labels are those of the mean of all folds.
        """
        scores = np.mean(self.scores, axis=0) if fold is None else self.scores[fold]
        labels = choose_pseudo_labels(scores, bool(self.plan["multi_label"]))
        held_out = set(list_patients(valid.records)) if len(valid) else set()
        is_free = np.array([patient not in held_out for patient in list_patients(self.cases.records)], bool)
        items = np.flatnonzero(is_free & ~np.isnan(labels).all(axis=1))
        table = np.full((len(self.cases.labels), labels.shape[1]), np.nan, np.float32)
        table[self.cases.rows] = labels
        pseudo = self.cases.select(items, table)
        if not len(pseudo):
            return labelled, 0
        return ConcatDataset([labelled] * max(1, round(len(pseudo) / len(labelled))) + [pseudo]), len(pseudo)


# --- after the training --------------------------------------------------------------------------------------------------


def choose_networks(plan: Plan, results: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Plan]:
    """Return the results of the delivered networks, and what was chosen with its figures; {} without self-training.

    If the second networks are delivered, their weights are in `DELIVERED_FILE` of the first ones.

    Args:
        results: of the folds, with `logits` (1, N, K), `labels` and `cases`, and `student` with those of the second network.
    """
    if not plan.get("self_training"):
        return results, {}
    students = [result["student"] for result in results]
    before, after = (np.concatenate([fold["logits"][0] for fold in part]) for part in (results, students))
    labels = np.concatenate([result["labels"] for result in results])
    patients = list_patients([record for result in results for record in result["cases"].records])
    target = get_target(plan)
    gain, error = measure_gain(target, before, after, labels, patients)
    is_better = gain > GAIN_ERRORS * error and len(set(patients)) >= MIN_PATIENTS
    losses = [round(target.view_loss(logits, labels), 4) for logits in (before, after)]
    choice: Plan = {
        "used": is_better,
        "images": round(float(np.mean([student["pseudo_labels"] for student in students]))),
        "loss_network": losses[0],
        "loss_self_trained": losses[1],
        "gain_error": round(error, 4),
    }
    state = "delivered" if is_better else "not delivered, no certain gain"
    choice["description"] = (
        f"self-training on pseudo-labels of {choice['images']} unlabelled images: {state}; validation loss {losses[1]}, {losses[0]} "
        "without it"
    )
    print(f"{choice['description']}; standard error of the gain {choice['gain_error']}", flush=True)
    if not is_better:
        return results, choice
    for name in list_network_names(plan):
        shutil.copyfile(LOGOUT / name_student(name) / WEIGHTS_FILE, LOGOUT / name / DELIVERED_FILE)
    return students, choice
