"""Which intensity rule the images get, and which changes a model should bear."""

from __future__ import annotations

from typing import Any

import numpy as np

from .scales import by_itself
from .sides import harmless, turns


def choose_intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: a window in Hounsfield units. 8-bit pictures: 0..1, since brightness can tell. MR, mixtures: each by itself."""
    if len(facts["scales"]) > 1:
        return by_itself(facts)
    if facts["modality"] == "ct":
        low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
        low, high = (low, high) if high - low > 100 else (-1000.0, 1000.0)
        return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}
    if facts["eight_bit"]:
        return {"mode": "unit", "mean": round(facts["mean"] / 255, 4), "std": max(round(facts["std"] / 255, 4), 0.02)}
    return by_itself(facts)


def choose_changes(facts: dict[str, Any], small: bool) -> dict[str, Any]:
    """No flips by default: left and right matter in the body. Skin, retina and microscopy get both, but where a
    class tells a side."""
    more = 1.5 if small else 1.0
    tiny = max(np.median(facts["shapes"], axis=0)) <= 64
    light = 0.0 if facts["modality"] == "ct" else more  # Hounsfield units: how bright it is may be the sign
    return {
        "flip": harmless(["h", "w"] if turns(facts["dims"], facts["channels"]) else [], facts["classes"]),
        "rotate": round(10 * more),
        "zoom": round(0.1 * more, 3),
        "shift": round(0.05 * more, 3),
        "contrast": round(0.15 * light, 3),
        "brightness": round(0.1 * light, 3),
        "gamma": 0.0 if tiny or not light else 0.2,
        "noise": 0.05,
        "erase": 0.0 if tiny else 0.25,
    }
