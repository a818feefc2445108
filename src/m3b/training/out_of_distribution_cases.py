"""Cases for out-of-distribution detection, read at export: training cases for the fit, held-out ones for the limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, grey_values
from m3b.training.channels import read_case
from m3b.training.out_of_distribution import (
    MIN_HELD_OUT_CASES,
    MIN_TRAINING_CASES,
    SLIDE_SIDE,
    appearance_distance,
    feature_distance,
    fit_appearance,
    fit_features,
    fit_limit,
    measure_appearance,
)

MAX_CASES = {2: (400, 200), 3: (60, 40)}
"""Maximum training and held-out cases by dimensions, evenly spaced."""

Features = Callable[[Any, Any], list[np.ndarray]]
"""(image, name) to the (D,) last features of each network."""


def fit_detector(
    plan: Mapping[str, Any], features: Features | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return `familiar` of config.json and its arrays by name; `unavailable` with the reason if there are too few cases.

    Args:
        features: of one image; a network is fitted on cases that it was trained on, and measured on others.
    """
    trained, held_out, folds = split_cases()
    limits = MAX_CASES[int(plan["dims"])]
    training = _measure_cases(_subsample(trained, limits[0]), plan, features)
    limit_cases = _measure_cases(_subsample(held_out, limits[1]), plan, features)
    if len(training) < MIN_TRAINING_CASES or len(limit_cases) < MIN_HELD_OUT_CASES:
        needed = f"{MIN_TRAINING_CASES} and {MIN_HELD_OUT_CASES} are needed"
        reason = f"{len(training)} training and {len(limit_cases)} held-out cases; {needed}"
        return {"unavailable": reason}, {}
    look = fit_appearance(np.array([case.appearance for case in training]))
    distances = [{"look": appearance_distance(case.appearance, look)} for case in limit_cases]
    arrays: dict[str, np.ndarray] = {}
    if features:
        fits = [
            fit_features(
                np.stack(
                    [case.features[k] for case in training if folds.get(case.key) != k] or [training[0].features[k]]
                )
            )
            for k in range(len(training[0].features))
        ]
        arrays = {f"{k}.{name}": value for k, fit in enumerate(fits) for name, value in fit.items()}
        for distance, case in zip(distances, limit_cases, strict=True):
            networks = (
                [folds[case.key]] if len(fits) > 1 and folds.get(case.key, -1) in range(len(fits)) else range(len(fits))
            )
            distance["features"] = float(np.mean([feature_distance(case.features[k], fits[k]) for k in networks]))
    return {"look": look, **fit_limit(distances)}, arrays


@dataclass(frozen=True)
class CaseFeatures:
    """A case with its name, appearance, and the features of each network."""

    key: str
    appearance: np.ndarray
    features: list[np.ndarray]


def split_cases() -> tuple[list[Any], list[Any], dict[str, int]]:
    """Return images of training cases and of held-out ones, and the fold that each was held out of. Cases of several folds are
    divided: every second one is used for the fit, the others for the limit."""
    images = [record["image_path"] for record in json.loads(Path("Datapath/train.json").read_text())]
    rows = json.loads(Path("Logout/valid_predictions.json").read_text())
    folds = {json.dumps(row["image"]): int(row.get("fold", 0)) for row in rows}
    trained, held_out = (
        [case for case in images if (json.dumps(case) in folds) is is_held_out] for is_held_out in (False, True)
    )
    if len(set(folds.values())) > 1:
        return trained + held_out[::2], held_out[1::2], folds
    return (trained, held_out, folds) if len(trained) >= MIN_TRAINING_CASES else (images[::2], images[1::2], folds)


def _subsample(images: Sequence[Any], limits: int) -> list[Any]:
    return list(images[:: max(1, -(-len(images) // limits))])


def _measure_cases(images: Sequence[Any], plan: Mapping[str, Any], features: Features | None) -> list[CaseFeatures]:
    """Measure the images that can be read."""
    cases = []
    for path in images:
        try:
            image = read_case(first_view(path, plan), plan)
            rows = features(image, str(path)) if features else []
        except (OSError, ValueError, DataError):
            continue  # reported when the cache was built
        cases.append(CaseFeatures(json.dumps(path), measure_appearance(grey_values(image, plan.get("bits"))), rows))
    return cases


def first_view(path: Any, plan: Mapping[str, Any]) -> Any:
    """Return the first view of a study, and the overview of a slide; anything else unchanged."""
    if plan.get("tiles"):
        return f"{path}#overview={SLIDE_SIDE}"
    return path[0] if isinstance(path, list) and path and plan.get("views") else path
