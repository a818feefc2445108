"""Which intensity rule the images get, and which changes of brightness a model should bear."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.intensity_rule import choose_rule
from m3b.training.laterality import harmless, turns
from m3b.training.named_channels import dropout_of


def choose_intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: the window of what is marked, in Hounsfield units. 8-bit pictures: 0..1. MR, mixtures, dark and bright: each by itself."""
    return choose_rule(facts, facts["modality"] == "ct", _window)


def _window(facts: dict[str, Any]) -> dict[str, Any]:
    inside = facts["inside"]
    low, high = (float(v) for v in np.percentile(inside, (0.5, 99.5))) if len(inside) else (-1000.0, 1000.0)
    low, high = (low, high) if high - low > 50 else (low - 150.0, high + 150.0)
    values = (np.clip(inside, low, high) - low) / (high - low) if len(inside) else np.array([0.3, 0.7])
    mean, std = float(values.mean()), max(float(values.std()), 0.05)
    return {"mode": "window", "low": round(low), "high": round(high), "mean": round(mean, 3), "std": round(std, 3)}


def choose_changes(facts: dict[str, Any], spacing: list[float]) -> dict[str, Any]:
    """What is mirrored is another structure where a class tells a side; among several organs it is out of place. A single
    class without a side may be mirrored; skin, retina and microscopy along both axes."""
    flips = ["h", "w"] if turns(facts["dims"], facts["channels"]) else ["w"] if len(facts["classes"]) == 1 else []
    flat = facts["dims"] == 3 and max(spacing) / min(spacing) > 3
    return {
        "often": 0.6,
        "flip": harmless(flips, facts["classes"]),
        "rotate": 15,
        "tilt": 0 if flat or facts["dims"] == 2 else 10,
        "zoom": 0.15,
        "shift": 0.05,
        "contrast": 0.2,
        "brightness": 0.15,
        "gamma": 0.25,
        "noise": 0.1,
        "blur": 0.7,
        **dropout_of(facts),
    }
