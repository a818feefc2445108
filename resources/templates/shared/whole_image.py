"""The intensity rule of models that see an image whole: classifiers and writers of reports."""

from __future__ import annotations

from typing import Any

from .scales import by_itself


def in_units(facts: dict[str, Any]) -> bool:
    """Whether values are Hounsfield units: how bright something is may then be the sign that is looked for."""
    return bool(facts["modality"] == "ct" or (facts["dims"] == 3 and facts["low"] < -500))


def choose_intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: a window in Hounsfield units. 8-bit pictures: 0..1, since brightness can tell. MR, mixtures: each by itself."""
    if len(facts["scales"]) > 1:
        return by_itself(facts)
    if in_units(facts):
        low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
        low, high = (low, high) if high - low > 100 else (-1000.0, 1000.0)
        return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}
    if facts["eight_bit"]:
        return {"mode": "unit", "mean": round(facts["mean"] / 255, 4), "std": max(round(facts["std"] / 255, 4), 0.02)}
    return by_itself(facts)
