"""Which changes of an image a model should bear."""

from __future__ import annotations

from typing import Any

import numpy as np

from .sides import harmless, turns
from .whole_image import in_units


def choose_changes(facts: dict[str, Any], small: bool) -> dict[str, Any]:
    """No flips by default: left and right matter in the body. Skin, retina and microscopy get both, but where a
    class tells a side."""
    more = 1.5 if small else 1.0
    tiny = max(np.median(facts["shapes"], axis=0)) <= 64
    light = 0.0 if in_units(facts) else more
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
