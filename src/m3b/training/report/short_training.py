"""Changes for trainings of few steps: a higher learning rate, and weaker augmentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from m3b.training.report.plan_cost import epoch_steps

SHORT_TRAINING_LR, MAX_SHORT_STEPS = 0.006, 5000
"""Learning rate of networks from scratch with fewer steps than this. 1,500 steps on 160 drawn brain scans gave an F1 of the stated
findings of 0.39 at 0.001, 0.57 at 0.002, 0.65 at 0.004 and 0.73 at 0.008."""
PLAIN_EPOCHS, FULL_EPOCHS = 60, 200
"""Epochs up to which images are not augmented, and from which augmentation is full. The image encoder of 158 drawn brain scans reached
an F1 of 0.46 to 0.50 in the 38 epochs of 86 s with full augmentation, 0.74 with half of it, 0.78 with a fifth, and 0.81 without any,
in 61
epochs: augmented images need many epochs, and a third of the time."""


def adapt_to_few_steps(plan: dict[str, Any], steps: Mapping[str, int], cases: int, overrides: set[str]) -> list[str]:
    """Adapt learning rate and augmentation of networks from scratch to the number of steps; return the changes."""
    network = plan["network"]
    if network.get("text_model") or network.get("image_model") or (network.get("config") or {}).get("builder"):
        return []
    changes = []
    if "lr" not in overrides and sum(steps.values()) < MAX_SHORT_STEPS:
        plan["lr"] = SHORT_TRAINING_LR
        changes.append(f"lr {SHORT_TRAINING_LR}, since the steps are few")
    epochs = (steps.get("encoder", 0) + steps["report"]) / epoch_steps(plan, cases)
    strength = min(1.0, max(0.0, (epochs - PLAIN_EPOCHS) / (FULL_EPOCHS - PLAIN_EPOCHS)))
    if strength < 1 and not any(name.partition(".")[0] == "augment" for name in overrides):
        plan["augment"] = {
            name: value if isinstance(value, list) else round(value * strength, 3)
            for name, value in plan["augment"].items()
        }
        alteration = f"augmented at {strength:.0%} of the usual strength" if strength else "not augmented"
        changes.append(f"images are {alteration}, since there are fewer than {FULL_EPOCHS} epochs")
    return changes
