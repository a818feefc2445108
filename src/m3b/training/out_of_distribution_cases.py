"""What `familiar` learns from: training cases, and held-out ones for the limit; read when a deliverable is written."""

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
    FEWEST_HELD,
    FEWEST_TRAINED,
    feature_distance,
    fit_features,
    fit_look,
    limited,
    look_distance,
    look_of,
)

MOST = {2: (400, 200), 3: (60, 40)}
"""Training and held-out cases that are read, by dimensions; spread over all."""

Features = Callable[[Any, Any], list[np.ndarray]]
"""Of an image as it is read and its name, the (D,) last features of each network."""


def learn(plan: Mapping[str, Any], features: Features | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`familiar` of config.json, and arrays by name that belong to it; too few cases say so.

    Args:
        features: of one image. A network learns from cases that it was trained with, and is asked of others.
    """
    trained, held, folds = split_cases()
    most = MOST[int(plan["dims"])]
    learnt = _described(_spread(trained, most[0]), plan, features)
    asked = _described(_spread(held, most[1]), plan, features)
    if len(learnt) < FEWEST_TRAINED or len(asked) < FEWEST_HELD:
        told = f"{len(learnt)} training and {len(asked)} held-out cases; {FEWEST_TRAINED} and {FEWEST_HELD} are needed"
        return {"unavailable": told}, {}
    look = fit_look(np.array([one.look for one in learnt]))
    distances = [{"look": look_distance(one.look, look)} for one in asked]
    arrays: dict[str, np.ndarray] = {}
    if features:
        fits = [
            fit_features(
                np.stack([one.features[k] for one in learnt if folds.get(one.key) != k] or [learnt[0].features[k]])
            )
            for k in range(len(learnt[0].features))
        ]
        arrays = {f"{k}.{name}": value for k, fit in enumerate(fits) for name, value in fit.items()}
        for found, one in zip(distances, asked, strict=True):
            own = [folds[one.key]] if len(fits) > 1 and folds.get(one.key, -1) in range(len(fits)) else range(len(fits))
            found["features"] = float(np.mean([feature_distance(one.features[k], fits[k]) for k in own]))
    return {"look": look, **limited(distances)}, arrays


@dataclass(frozen=True)
class Described:
    """A case as it is learnt: its name, its look, the features of each network."""

    key: str
    look: np.ndarray
    features: list[np.ndarray]


def split_cases() -> tuple[list[Any], list[Any], dict[str, int]]:
    """Images of training cases and of held-out ones, and the fold that each was held out of. What folds hold out, every case or
    some, is shared out: every second is taken for the one and the rest for the other."""
    images = [record["image_path"] for record in json.loads(Path("Datapath/train.json").read_text())]
    rows = json.loads(Path("Logout/valid_predictions.json").read_text())
    folds = {json.dumps(row["image"]): int(row.get("fold", 0)) for row in rows}
    trained, held = ([one for one in images if (json.dumps(one) in folds) is asked] for asked in (False, True))
    if len(set(folds.values())) > 1:
        return trained + held[::2], held[1::2], folds
    return (trained, held, folds) if len(trained) >= FEWEST_TRAINED else (images[::2], images[1::2], folds)


def _spread(images: Sequence[Any], most: int) -> list[Any]:
    return list(images[:: max(1, -(-len(images) // most))])


def _described(images: Sequence[Any], plan: Mapping[str, Any], features: Features | None) -> list[Described]:
    """Those of the images that can be read."""
    found = []
    for path in images:
        try:
            image = read_case(first_view(path, plan), plan)
            rows = features(image, str(path)) if features else []
        except (OSError, ValueError, DataError):
            continue  # the cache told of it
        found.append(Described(json.dumps(path), look_of(grey_values(image, plan.get("bits"))), rows))
    return found


def first_view(path: Any, plan: Mapping[str, Any]) -> Any:
    """The first of the views of a study; anything else as it is."""
    return path[0] if isinstance(path, list) and path and plan.get("views") else path
