"""The average of several recipes (`recipe_plans`) after their training: their mean logits are the answer of a fold.

Views, calibration, thresholds, prediction sets and intervals are fitted on these means, as for a single network of each fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from m3b.training.diagnosis.targets import get_target
from m3b.training.folds import DELIVERED_FILE, LOGOUT, WEIGHTS_FILE, count_folds, count_recipes, list_recipe_names

Plan = dict[str, Any]


def average_recipes(plan: Plan, results: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the results with the mean logits of all recipes, and validation figures of each and of the average; {} for one recipe.

    Args:
        results: of the folds, with `logits` and `seen` (encoders, N, K); `recipes` has those of further recipes on the same cases.
    """
    if count_recipes(plan) == 1:
        return list(results), {}
    by_recipe = [[result, *result["recipes"]] for result in results]
    averages = [
        {
            **result,
            "logits": np.mean([item["logits"] for item in items], axis=0),
            "seen": np.mean([item["seen"] for item in items], axis=0),
            "case": sum(item["case"] for item in items),
        }
        for result, items in zip(results, by_recipe, strict=True)
    ]
    target = get_target(plan)
    labels = np.concatenate([result["labels"] for result in results])
    networks = np.repeat(np.arange(len(results)), [len(result["labels"]) for result in results])

    def measure(parts: Sequence[Mapping[str, Any]]) -> float | None:
        logits = np.concatenate([part["logits"][0] for part in parts])
        value = float(target.figures(logits, labels, networks)[target.watch])
        return round(value, 4) if np.isfinite(value) else None

    figures = [measure([items[number] for items in by_recipe]) for number in range(count_recipes(plan))]
    average = measure(averages)
    texts = ["undefined" if figure is None else f"{figure:.3f}" for figure in (*figures, average)]
    description = (
        f"mean of {count_recipes(plan)} recipes, which divided the time of the training; validation {target.watch} "
        f"{', '.join(texts[:-1])}, of their mean {texts[-1]}"
    )
    return averages, {"watch": target.watch, "alone": figures, "average": average, "description": description}


def write_average_weights(plan: Mapping[str, Any]) -> None:
    """Write the weights of all recipes of each fold as one file, `DELIVERED_FILE`, for `RecipeAverage`; nothing for one recipe."""
    if count_recipes(plan) == 1:
        return
    for fold in range(count_folds(plan)):
        numbers = range(2, count_recipes(plan) + 1)
        names = [f"fold{fold}", *(list_recipe_names(plan, number)[fold] for number in numbers)]
        tensors = {
            f"recipes.{position}.{key}": value
            for position, name in enumerate(names)
            for key, value in load_file(str(LOGOUT / name / WEIGHTS_FILE)).items()
        }
        save_file(tensors, str(LOGOUT / f"fold{fold}" / DELIVERED_FILE))
