"""The answers of a detection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.models import DetectedBox, ModelInfo
from m3b.models.answers import (
    AnswerFormat,
    RawAnswer,
    describe_label_errors,
    is_finite_number,
    parse_masks,
    resolve_output_file,
)

MAX_BOXES = 10_000


class DetectionAnswers(AnswerFormat):
    """Answers of a detection; see `AnswerFormat`."""

    has_masks_option = True
    has_boxes = True
    usage = (
        'Each prediction is `{"image": ..., "boxes": [{"label", "box", "score"}], "anomaly_score": p}`, with '
        '`"masks": {class: file}` where the model marks voxels, and `"anomaly_map": file` (0 to 1000 a pixel) where it '
        "rates each pixel. Boxes are in the coordinates of the image file."
    )
    baseline_description = "the better of finding nothing and of finding the same in every image"
    export_description = "Detection of anomalies in medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if "masks" in item:
            fields["masks"] = parse_masks(location, item, model_info, folder)
        boxes = item.get("boxes")
        if boxes is not None:
            if not isinstance(boxes, list) or len(boxes) > MAX_BOXES:
                raise ModelError(f"{location}: `boxes` must be a list of at most {MAX_BOXES}")
            fields["boxes"] = tuple(_parse_box(f"{location}, box {n}", box, model_info) for n, box in enumerate(boxes))
        if "anomaly_map" in item:
            fields["anomaly_map"] = resolve_output_file(location, item["anomaly_map"], folder)
        score = item.get("anomaly_score")
        if not fields and score is None:
            raise ModelError(f"{location}: neither `masks` nor `boxes` nor `anomaly_score`")
        if score is None:
            return fields
        if not is_finite_number(score) or not -1e-6 <= score <= 1 + 1e-6:
            raise ModelError(f"{location}: `anomaly_score` is {score!r}, not a number from 0 to 1")
        return fields | {"anomaly_score": float(score)}

    def describe_details(self, details: Mapping[str, Any]) -> list[str]:
        lesion_texts = [
            f"{name}: " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items())
            for name, counts in (details.get("lesions") or {}).items()
            if isinstance(counts, Mapping)
        ]
        return [*lesion_texts, *describe_label_errors(details)]

    def has_mask_output(self, model_info: ModelInfo) -> bool:
        return bool(model_info.labels)


def _parse_box(location: str, box: Any, model_info: ModelInfo) -> DetectedBox:
    if not isinstance(box, dict) or box.get("label") not in model_info.classes:
        raise ModelError(f"{location}: must have a `label` of {list(model_info.classes)}; found {box!r}")
    corners, score = box.get("box"), box.get("score")
    if not isinstance(corners, list) or len(corners) not in (4, 6) or not all(map(is_finite_number, corners)):
        raise ModelError(f"{location}: `box` must be 4 or 6 numbers, lower corner then upper; found {corners!r}")
    dims = len(corners) // 2
    if any(high < low for low, high in zip(corners[:dims], corners[dims:], strict=True)):
        raise ModelError(f"{location}: the upper corner of {corners} lies below the lower one")
    if not is_finite_number(score):
        raise ModelError(f"{location}: `score` is {score!r}, not a number")
    return DetectedBox(box["label"], tuple(map(float, corners)), float(score))
