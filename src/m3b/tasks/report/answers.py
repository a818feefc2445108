"""The answers of a report writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.models import ModelInfo
from m3b.models.answers import AnswerFormat, RawAnswer

MAX_TEXT_CHARS = 50_000


class ReportAnswers(AnswerFormat):
    """Answers of a report generator; see `AnswerFormat`."""

    requires_classes = False
    usage = 'Each prediction is `{"image": ..., "findings": "...", "impression": "..."}`.'
    baseline_description = "the best report that is the same for every image"
    export_description = "Report generation from medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        texts = {key: item.get(key, "") for key in ("findings", "impression")}
        for key, text in texts.items():
            if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
                raise ModelError(f"{location}: `{key}` must be a text of at most {MAX_TEXT_CHARS} characters")
        if "findings" not in item and "impression" not in item:
            raise ModelError(f"{location}: neither `findings` nor `impression`")
        return texts

    def fits_dicom(self) -> bool:
        return False

    def describe_details(self, details: Mapping[str, Any]) -> list[str]:
        return [f"{details['distinct']} different texts"] if isinstance(details.get("distinct"), int) else []
