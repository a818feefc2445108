"""What a model may say of any image beside its answer: that it is unlike the training images, and what cannot be ruled out."""

from __future__ import annotations

from typing import Any

from m3b.errors import ModelError

from .kinds import Item
from .number_answers import finite
from .predictions import Promise

MAX_WHY = 500
"""Characters of a reason."""
KEYS = ("out_of_distribution", "why", "prediction_set", "set_level", "abstains")


def doubts_of(where: str, item: Item, promise: Promise) -> dict[str, Any]:
    """The fields of a `Prediction`; those that are not given are left out.

    Raises:
        ModelError: one that cannot be right; the message names it.
    """
    found: dict[str, Any] = {}
    unlike = item.get("out_of_distribution")
    if unlike is not None:
        if not isinstance(unlike, bool):
            raise ModelError(f"{where}: `out_of_distribution` must be true or false, it is {unlike!r}")
        found |= {"out_of_distribution": unlike, "why": str(item.get("why") or "")[:MAX_WHY] if unlike else ""}
    if item.get("prediction_set") is not None:
        found |= _set(where, item, promise)
    return found


def _set(where: str, item: Item, promise: Promise) -> dict[str, Any]:
    some, level = item["prediction_set"], item.get("set_level")
    if not isinstance(some, list) or any(name not in promise.classes for name in some) or len(set(some)) != len(some):
        raise ModelError(f"{where}: `prediction_set` is {some!r}; the classes are {list(promise.classes)}")
    if not finite(level) or not 0 < level < 1:
        raise ModelError(f"{where}: `set_level` must be a share between 0 and 1, it is {level!r}")
    return {"prediction_set": tuple(some), "set_level": float(level), "abstains": bool(item.get("abstains"))}
