"""Choices on few examples without giving any of them up: each part of them is judged by a detector that was taught by the others.

What chooses the weight of the memory, tells the scale of scores and says how good an engine is are the looks at cases that
were left out; the detector that is kept has learnt from all of them. The ordinary networks that were taught with parts stay: they are
asked with the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.detection.boxes import apply_logistic, fit_logistic, logit
from m3b.training.detection.fewshot.build import build
from m3b.training.detection.fewshot.combination import joint_chances, mean_logit, raw, settle, total
from m3b.training.detection.fewshot.data import Cases
from m3b.training.detection.fewshot.fitting import Fitted, answers, fit
from m3b.training.detection.fewshot.image_classifier import FittedImage, fit_image
from m3b.training.detection.fewshot.scoring import SURE, calibrate, combined, look
from m3b.training.detection.fewshot.selection import Held
from m3b.training.detection.index import patient_of
from m3b.training.ranking_metrics import auroc

FOLDS = 3
Either = Fitted | FittedImage


@dataclass
class Both:
    """A few-shot detector and the ordinary networks of the same cases, asked together; other names as in both."""

    few: Fitted
    copies: list[nn.Module]
    config: dict[str, Any]
    valid: float
    epochs: int
    seconds: float
    held: Held

    def answers(self, images: torch.Tensor) -> np.ndarray:
        """(N,) anomaly scores from 0 to 1."""
        away, _ = combined(answers(self.few, images)[2], self.few.config)
        return joint_chances(away, mean_logit(self.copies, images), self.config)


def joined(few: Fitted, ordinary: FittedImage) -> Both | None:
    """Both together, brought to one scale on the cases that each was judged on; None where there were none of both states."""
    mine, other = few.held, ordinary.held
    if mine is None or other is None or mine.people != other.people or len(set(mine.truth.tolist())) < 2:
        return None
    config = settle(mine.value, other.value, mine.truth)
    held = Held(mine.people, mine.truth, total(mine.value, other.value, config))
    copies = [*ordinary.copies, ordinary.model]
    seconds = few.seconds + ordinary.seconds
    return Both(few, copies, config, auroc(held.truth, held.value), few.epochs, seconds, held)


def folds(cases: Cases, seed: int, most: int = FOLDS) -> list[np.ndarray]:
    """Rows of each part, patients apart and both states in each; none where two such parts cannot be made."""
    rng, part_of = np.random.default_rng(seed), dict[str, int]()
    names, abnormal = [patient_of(record) for record in cases.records], cases.abnormal.numpy()
    people = [
        list(dict.fromkeys(n for n, ill in zip(names, abnormal, strict=True) if ill == state))
        for state in (False, True)
    ]
    count = min(most, *(len(some) for some in people))
    for some in people:
        rng.shuffle(some)
        for place, name in enumerate(one for one in some if one not in part_of):
            part_of[name] = place % max(count, 1)
    parts = [np.array([row for row, name in enumerate(names) if part_of[name] == part]) for part in range(count)]
    whole = all(len(set(abnormal[rows])) == 2 and len(set(np.delete(abnormal, rows))) == 2 for rows in parts)
    return parts if count > 1 and whole else []


def taught(plan: Mapping[str, Any], cases: Cases, seconds: float, seed: int) -> Either:
    """A detector, or the ordinary network, of all cases; `valid` is AUROC of scores by others that had not learnt from the case.

    Without two parts to cross nothing is chosen: as `fit` without validation cases.
    """
    parts = folds(cases, seed)
    each, started = seconds / (len(parts) + 1), time.monotonic()
    left: list[Either] = []
    for rows in parts:
        torch.manual_seed(seed)
        rest = np.setdiff1d(np.arange(len(cases)), rows).tolist()
        left.append(_one(plan, cases.part(rest), each, settled=False))
    torch.manual_seed(seed)
    whole = _one(plan, cases, each, settled=not parts)
    if parts:
        held = [cases.part(rows.tolist()) for rows in parts]
        (_settle if isinstance(whole, Fitted) else _settle_image)(whole, left, held)
    whole.seconds = time.monotonic() - started
    return whole


def _one(plan: Mapping[str, Any], cases: Cases, seconds: float, *, settled: bool) -> Either:
    model: Any = build(plan)
    if plan["engine"] == "fewshot":
        return fit(model, cases, None, plan, seconds, settled)
    return fit_image(model, cases, None, plan, seconds)


def _settle(whole: Any, left: list[Any], held: list[Cases]) -> None:
    """Scale, weight of the memory and chances by what was seen of cases that were left out."""
    seen = [look(one.model, some.pictures, one.banks) for one, some in zip(left, held, strict=True)]
    looks, truth = {name: np.concatenate([one[name] for one in seen]) for name in seen[0]}, _truth(held)
    whole.config = calibrate(whole.model, looks, truth, bool(whole.banks))
    whole.held = Held(_people(held), truth, combined(looks, whole.config)[0])
    whole.valid = auroc(truth, whole.held.value)


def _settle_image(whole: Any, left: list[Any], held: list[Cases]) -> None:
    chances = np.concatenate([raw(one.model, some.pictures) for one, some in zip(left, held, strict=True)])
    truth = _truth(held)
    if min(truth.sum(), (~truth).sum()) >= SURE:
        whole.calibration = list(fit_logistic(chances, truth))
    whole.valid = auroc(truth, apply_logistic(chances, whole.calibration))
    whole.held, whole.copies = Held(_people(held), truth, logit(chances)), [one.model for one in left]


def _truth(held: list[Cases]) -> np.ndarray:
    return np.concatenate([one.abnormal.numpy() for one in held])


def _people(held: list[Cases]) -> list[str]:
    return [name for one in held for name in one.people()]
