"""Choices on few examples without giving any of them up: each part of them is judged by a detector that was taught by the others.

What chooses the weight of the memory, tells the scale of scores and says how good an engine is are the looks at cases that
were left out; the detector that is kept has learnt from all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from Datapath.index import patient_of
from Utils.boxes import apply_logistic, fit_logistic
from Utils.ranks import auroc

from .build import build
from .data import Cases
from .fit import Fitted, fit
from .ordinary import FittedImage, fit_image, raw
from .scoring import SURE, calibrate, combined, look

FOLDS = 3
Either = Fitted | FittedImage


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
    import torch

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
        truth = np.concatenate([one.abnormal.numpy() for one in held])
        (_settle if isinstance(whole, Fitted) else _settle_image)(whole, left, held, truth)
    whole.seconds = time.monotonic() - started
    return whole


def _one(plan: Mapping[str, Any], cases: Cases, seconds: float, *, settled: bool) -> Either:
    model: Any = build(plan)
    if plan["engine"] == "fewshot":
        return fit(model, cases, None, plan, seconds, settled)
    return fit_image(model, cases, None, plan, seconds)


def _settle(whole: Any, left: list[Any], held: list[Cases], truth: np.ndarray) -> None:
    """Scale, weight of the memory and chances by what was seen of cases that were left out."""
    seen = [look(one.model, some.pictures, one.banks) for one, some in zip(left, held, strict=True)]
    looks = {name: np.concatenate([one[name] for one in seen]) for name in seen[0]}
    whole.config = calibrate(whole.model, looks, truth, bool(whole.banks))
    whole.valid = auroc(truth, combined(looks, whole.config)[0])


def _settle_image(whole: Any, left: list[Any], held: list[Cases], truth: np.ndarray) -> None:
    chances = np.concatenate([raw(one.model, some.pictures) for one, some in zip(left, held, strict=True)])
    if min(truth.sum(), (~truth).sum()) >= SURE:
        whole.calibration = list(fit_logistic(chances, truth))
    whole.valid = auroc(truth, apply_logistic(chances, whole.calibration))
