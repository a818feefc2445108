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
    fields: dict[str, Any] = {}
    is_ood = item.get("out_of_distribution")
    if is_ood is not None:
        if not isinstance(is_ood, bool):
            raise ModelError(f"{where}: `out_of_distribution` must be true or false, it is {is_ood!r}")
        fields |= {"out_of_distribution": is_ood, "why": str(item.get("why") or "")[:MAX_WHY] if is_ood else ""}
    if item.get("prediction_set") is not None:
        fields |= _set(where, item, promise)
    return fields


def _set(where: str, item: Item, promise: Promise) -> dict[str, Any]:
    set_classes, level = item["prediction_set"], item.get("set_level")
    if (
        not isinstance(set_classes, list)
        or any(name not in promise.classes for name in set_classes)
        or len(set(set_classes)) != len(set_classes)
    ):
        raise ModelError(f"{where}: `prediction_set` is {set_classes!r}; the classes are {list(promise.classes)}")
    if not finite(level) or not 0 < level < 1:
        raise ModelError(f"{where}: `set_level` must be a share between 0 and 1, it is {level!r}")
    return {"prediction_set": tuple(set_classes), "set_level": float(level), "abstains": bool(item.get("abstains"))}
