"""Which intensity rule the images get, and which changes of an image a model should bear."""

from __future__ import annotations

from typing import Any

from m3b.training.intensity_rule import choose_rule
from m3b.training.laterality import harmless, turns
from m3b.training.named_channels import dropout_of


def choose_intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: a window in Hounsfield units around the lesions. 8-bit pictures: 0..1. MR, mixtures, dark and bright: each by itself."""
    return choose_rule(facts, facts["modality"] == "ct", _window)


def _window(facts: dict[str, Any]) -> dict[str, Any]:
    low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
    if facts["target"] == "masks":  # soft tissue around the lesions, not the whole range from air to bone
        low = max(low, facts["inside_low"] - 120.0)
        high = min(max(high, facts["inside_high"]), facts["inside_high"] + 120.0)
    low, high = (low, high) if high - low > 50 else (-1000.0, 1000.0)
    return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}


def choose_changes(facts: dict[str, Any]) -> dict[str, Any]:
    """No flips by default: left and right matter in the body. Skin, retina and microscopy get both, but where a class tells
    a side."""
    flat = facts["dims"] == 2
    return {
        "flip": harmless(["h", "w"] if turns(facts["dims"], facts["channels"]) else [], facts["classes"]),
        "rotate": 10 if flat else 8,
        "zoom": 0.15,
        "shift": 0.05 if facts["target"] == "boxes" else 0.0,
        "contrast": 0.2,
        "brightness": 0.15,
        "gamma": 0.2,
        "noise": 0.05,
        "often": 0.5,
        **dropout_of(facts),
    }
