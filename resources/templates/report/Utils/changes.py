"""Which changes of an image a writer of reports should bear."""

from __future__ import annotations

from typing import Any

import numpy as np

from .whole_image import in_units


def choose_changes(facts: dict[str, Any], small: bool) -> dict[str, Any]:
    """Never a flip: reports say left and right."""
    more = 1.5 if small else 1.0
    tiny = max(np.median(facts["shapes"], axis=0)) <= 64
    light = 0.0 if in_units(facts) else more
    return {
        "flip": [],
        "rotate": round(6 * more),
        "zoom": round(0.06 * more, 3),
        "shift": round(0.04 * more, 3),
        "contrast": round(0.15 * light, 3),
        "brightness": round(0.1 * light, 3),
        "gamma": 0.0 if tiny or not light else 0.15,
        "noise": 0.05,
        "erase": 0.0,  # a hidden finding would still be in the report
    }
