"""The answers of a segmentation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3b.models import ModelInfo
from m3b.models.answers import AnswerFormat, RawAnswer, describe_label_errors, parse_masks, resolve_output_file


class SegmentationAnswers(AnswerFormat):
    """Answers of a segmentation; see `AnswerFormat`."""

    has_masks_option = True
    usage = (
        'Each prediction is `{"image": ..., "mask": file, "volumes_ml": {class: v}}` (`"masks": {class: file}` where '
        "classes overlap); mask files lie in `masks/` beside predictions.json, in the image's own geometry."
    )
    baseline_description = (
        "the better of marking nothing and of marking the mean shape of the training cases, where it was made"
    )
    export_description = "Segmentation of medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        volumes = item.get("volumes_ml")
        fields: dict[str, Any] = {"volumes_ml": dict(volumes) if isinstance(volumes, dict) else {}}
        if "masks" in item:
            return fields | {"masks": parse_masks(location, item, model_info, folder)}
        return fields | {"mask": resolve_output_file(location, item.get("mask"), folder)}

    def describe_details(self, details: Mapping[str, Any]) -> list[str]:
        baseline = details.get("baseline")
        baseline_text = [f"image-blind baseline of masks: {baseline}"] if isinstance(baseline, str) else []
        return [*describe_label_errors(details), *baseline_text]

    def requires_output_folder(self) -> bool:
        return True

    def has_mask_output(self, model_info: ModelInfo) -> bool:
        return True
