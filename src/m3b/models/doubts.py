"""What a model may say of any image beside its answer: that it is unlike the training images, and what cannot be ruled out."""

from __future__ import annotations

from typing import Any

from m3b.errors import ModelError

from .kinds import RawAnswer
from .number_answers import is_finite_number
from .predictions import ModelInfo

MAX_REASON_CHARS = 500
"""Characters of a reason."""
RELIABILITY_KEYS = ("out_of_distribution", "why", "prediction_set", "set_level", "abstains")


def parse_reliability(location: str, item: RawAnswer, model_info: ModelInfo) -> dict[str, Any]:
    """The fields of a `Prediction`; those that are not given are left out.

    Raises:
        ModelError: one that cannot be right; the message names it.
    """
    fields: dict[str, Any] = {}
    is_ood = item.get("out_of_distribution")
    if is_ood is not None:
        if not isinstance(is_ood, bool):
            raise ModelError(f"{location}: `out_of_distribution` must be true or false, it is {is_ood!r}")
        fields |= {
            "out_of_distribution": is_ood,
            "why": str(item.get("why") or "")[:MAX_REASON_CHARS] if is_ood else "",
        }
    if item.get("prediction_set") is not None:
        fields |= _parse_prediction_set(location, item, model_info)
    return fields


def _parse_prediction_set(location: str, item: RawAnswer, model_info: ModelInfo) -> dict[str, Any]:
    set_classes, level = item["prediction_set"], item.get("set_level")
    if (
        not isinstance(set_classes, list)
        or any(name not in model_info.classes for name in set_classes)
        or len(set(set_classes)) != len(set_classes)
    ):
        raise ModelError(f"{location}: `prediction_set` is {set_classes!r}; the classes are {list(model_info.classes)}")
    if not is_finite_number(level) or not 0 < level < 1:
        raise ModelError(f"{location}: `set_level` must be a share between 0 and 1, it is {level!r}")
    return {"prediction_set": tuple(set_classes), "set_level": float(level), "abstains": bool(item.get("abstains"))}
