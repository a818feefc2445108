"""Plans with several recipes, whose networks are averaged in each fold (`recipe_ensemble`).

`recipes.settings` of plan.json has, for each recipe, the top-level settings by which it differs from the rest of the plan; those of
the first are empty. All recipes see the same input and hold out the same cases, and they divide the time of the training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from m3b.training.folds import count_recipes

Plan = dict[str, Any]
RECIPE_KEYS = (
    "accumulate", "augment", "batch", "channels_last", "compile", "ema", "label_smoothing", "lr", "network", "optimizer", "precision",
    "weight_decay",
)  # fmt: skip
"""Settings in which recipes may differ: those of the network and of its training."""
FOLD_KEYS = ("cross_validation", "fold_groups", "folds", "parts", "refit", "validation_share", "why_folds")
"""Settings that say which cases are held out: a search sets them, and the last training has those of the plan."""
TIMED_KEYS = ("expected", "linear_probe", "max_steps", "minutes", "recipes", "why_fit", "why_folds")
"""Settings that depend on the time that plan.py measured, or are texts; those of the first recipe count."""


def find_recipe_obstacle(plan: Mapping[str, Any]) -> str:
    """Return why no other recipe can be averaged with that of a plan; "" if one can."""
    network = plan.get("network")
    if not isinstance(network, Mapping):
        return "no network that the template knows"
    obstacles = {
        "a refit": plan.get("refit"),
        "self-training": plan.get("self_training"),
        "two encoders": network.get("encoder") == "both",
        "pretrained weights": plan.get("scratch") or network.get("pretrained") or network.get("config"),
        "several GPUs": plan.get("processes") not in (None, 0, 1),
    }
    return next((name for name, applies in obstacles.items() if applies), "")


def describe_shared_settings(plan: Mapping[str, Any], ignored: Sequence[str] = ()) -> str:
    """Return the settings that recipes must have in common, as text: two plans can be averaged if theirs are equal.

    Args:
        ignored: settings that are left out.
    """
    shared = {key: value for key, value in plan.items() if key not in (*RECIPE_KEYS, *TIMED_KEYS, *ignored)}
    augment, network = plan.get("augment"), plan.get("network")
    shared["flip"] = augment.get("flip") if isinstance(augment, Mapping) else None  # views of predictions depend on it
    shared["encoder"] = network.get("encoder") if isinstance(network, Mapping) else None
    return json.dumps(shared, sort_keys=True)


def combine_plans(plans: Sequence[Mapping[str, Any]]) -> Plan:
    """Return the first plan with the recipes of all of them.

    Raises:
        ValueError: there are fewer than two, or they cannot be averaged; the message says why.
    """
    if len(plans) < 2:
        raise ValueError("an average of recipes needs two plans or more")
    if obstacle := next(filter(None, map(find_recipe_obstacle, plans)), ""):
        raise ValueError(f"a plan with {obstacle} cannot be averaged with others")
    first = {key: value for key, value in plans[0].items() if key != "recipes"}
    if any(describe_shared_settings(plan) != describe_shared_settings(first) for plan in plans):
        raise ValueError("the plans differ in their input or in the cases that they hold out")
    settings = [{key: plan.get(key) for key in RECIPE_KEYS if plan.get(key) != first.get(key)} for plan in plans]
    return {**first, **_divide_expected(first, len(plans)), "recipes": {"settings": settings}}


def _divide_expected(plan: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return `expected` with the steps and epochs of each of so many recipes; {} if the plan expects none."""
    expected = plan.get("expected")
    if not isinstance(expected, Mapping) or not all(isinstance(value, int | float) for value in expected.values()):
        return {}
    divided = {key: value / count for key, value in expected.items() if key in ("steps", "epochs")}
    return {"expected": {**expected, **{key: round(value, 2) for key, value in divided.items()}}}


def check_recipes(plan: Mapping[str, Any]) -> None:
    """Raise SystemExit if a plan with several recipes has something that cannot be averaged."""
    if count_recipes(plan) > 1 and (obstacle := find_recipe_obstacle(plan)):
        raise SystemExit(
            f"recipes in plan.json: a plan with {obstacle} cannot be averaged with others; leave one of both out"
        )
