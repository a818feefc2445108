"""What the answers of a task's models are like, and their registry: the part of a task family that delivered models need.

`m3b.tasks.TaskFamily` has its part as `answers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .predictions import ModelInfo

RawAnswer = Mapping[str, Any]
"""One object of the JSON list that predict.py writes."""


class AnswerFormat(ABC):
    """The answers of one task. Stateless; a kind overrides what is different.

    Attributes:
        has_masks_option: whether predict.py takes `--masks DIR`, the folder in which it writes mask files.
        requires_output_folder: whether an answer is worth nothing without the files that predict.py writes.
        requires_classes: whether a model has to name its classes.
        separate_images: whether several paths are images of their own, as the views of a study are.
        usage: the model card's sentence on what a prediction looks like, Markdown.
        baseline_description: what the best answer is that never looks at an image, as the model card says it.
        export_description: what the model does, as the metadata of an exported bundle say it.
        is_patch_based: whether the network sees parts of an image.
        supports_dicom: whether answers can be masks, classes or numbers in DICOM objects.
    """

    has_masks_option: bool = False
    requires_output_folder: bool = False
    requires_classes: bool = True
    separate_images: bool = False
    usage: str = "Each prediction is a JSON object with the key `image`."
    baseline_description: str = "the best answer that is the same for every image"
    export_description: str = "Medical images"
    is_patch_based: bool = False
    supports_dicom: bool = True

    @abstractmethod
    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        """The fields of a `Prediction` from what predict.py wrote; what none of them fits goes into `extra`.

        Args:
            location: which answer it is, for messages.
            folder: where predict.py wrote; files that it names have to lie there.

        Raises:
            ModelError: something is missing or cannot be right.
        """

    def has_mask_output(self, model_info: ModelInfo) -> bool:
        """Whether a model's answers are mask files, numbered as `promise.labels` says."""
        return False
