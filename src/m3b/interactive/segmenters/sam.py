"""SAM, MedSAM, SAM 2, MedSAM 2 and the tracker of SAM 3 as segmenters, by transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.errors import UsageError
from m3b.interactive.segmenter import BoxPrompt, ByteImage, MaskProposal, Point
from m3b.isolation import untrusted

MODEL_CLASSES = {
    "sam": "SamModel", "sam2": "Sam2Model", "sam2_video": "Sam2Model",
    "sam3_tracker": "Sam3TrackerModel", "sam3_tracker_video": "Sam3TrackerModel",
}  # fmt: skip
IMAGENET_MEAN_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation with which SAM and its successors were trained, used if the folder has none."""
ALLOWED_MISSING = ("shared_image_embedding", "mask_embed")
"""Weights that transformers ties or derives itself."""


class SamSegmenter:
    """A promptable model of the SAM family.

    Args:
        folder: `config.json`, `*.safetensors`, and `preprocessor_config.json` for mean and standard deviation.
        kind: the config's model_type.

    Raises:
        UsageError: transformers is missing, or the weights do not fit the config.
    """

    def __init__(self, folder: Path, kind: str, device: str = "cpu") -> None:
        self.name = f"{kind}:{folder.name}"
        self._stretches_images = kind != "sam"  # SAM pads the shorter side, its successors stretch it
        self._device = device
        self._model = _load_model(folder, kind).to(device).eval()
        self._mean, self._std = _read_normalisation(folder)
        self._embedding: Any = None
        self._shape = (0, 0)

    @property
    def size(self) -> int:
        """Side of the square that the network sees."""
        return int(self._model.config.prompt_encoder_config.image_size)

    def set_image(self, image: ByteImage) -> None:
        import torch

        self._shape = (image.shape[0], image.shape[1])
        with torch.inference_mode():
            self._embedding = self._model.get_image_embeddings(self._preprocess(image))

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        import torch

        if self._embedding is None:
            raise UsageError("Set an image before prompting.")
        if not boxes and not points:
            raise UsageError("Give a box or a point.")
        prompts = self._scale_prompts(boxes, points)
        if previous is not None and previous.state is not None:
            prompts["input_masks"] = previous.state
        is_ambiguous = len(points) <= 1 and not boxes and previous is None
        with torch.inference_mode():
            output = self._model(image_embeddings=self._embedding, multimask_output=is_ambiguous, **prompts)
        scores = output.iou_scores[0, 0].float()
        best_index = int(scores.argmax())
        logits = output.pred_masks[0, 0, best_index].float()
        return MaskProposal(self._upsample_mask(logits), float(scores[best_index].clamp(0, 1)), logits[None, None])

    def _preprocess(self, image: ByteImage) -> Any:
        import torch
        from PIL import Image

        height, width = self._fit_size(image.shape[:2])
        resized = np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
        tensor = torch.from_numpy(resized).permute(2, 0, 1).float() / 255
        tensor = (tensor - torch.tensor(self._mean)[:, None, None]) / torch.tensor(self._std)[:, None, None]
        square = torch.zeros(3, self.size, self.size)
        square[:, :height, :width] = tensor
        return square[None].to(self._device)

    def _fit_size(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return rows and columns of the image inside the square."""
        if self._stretches_images:
            return self.size, self.size
        scale = self.size / max(shape)
        return max(1, int(shape[0] * scale + 0.5)), max(1, int(shape[1] * scale + 0.5))

    def _scale_prompts(self, boxes: Sequence[BoxPrompt], points: Sequence[Point]) -> dict[str, Any]:
        import torch

        height, width = self._fit_size(self._shape)
        x_scale, y_scale = width / self._shape[1], height / self._shape[0]
        prompts: dict[str, Any] = {}
        if boxes:
            corners = [[b.x0 * x_scale, b.y0 * y_scale, b.x1 * x_scale, b.y1 * y_scale] for b in boxes[-1:]]
            prompts["input_boxes"] = torch.tensor([corners], dtype=torch.float32, device=self._device)
        if points:
            coordinates = [[[p.x * x_scale, p.y * y_scale] for p in points]]
            prompts["input_points"] = torch.tensor([coordinates], dtype=torch.float32, device=self._device)
            labels = [[[int(p.positive) for p in points]]]
            prompts["input_labels"] = torch.tensor(labels, dtype=torch.int64, device=self._device)
        return prompts

    def _upsample_mask(self, logits: Any) -> np.ndarray:
        """Convert low-resolution logits to a mask in the pixels of the image; padding is cropped before resizing."""
        from torch.nn.functional import interpolate

        square = interpolate(logits[None, None], (self.size, self.size), mode="bilinear", align_corners=False)
        height, width = self._fit_size(self._shape)
        full_size = interpolate(square[..., :height, :width], self._shape, mode="bilinear", align_corners=False)
        mask: np.ndarray = (full_size[0, 0] > 0).cpu().numpy()
        return mask


def _load_model(folder: Path, kind: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UsageError("Segmenters need transformers and torch: pip install 'm3b[train]'.") from error
    model_class = getattr(transformers, MODEL_CLASSES[kind])
    try:
        model, loading_info = model_class.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder} cannot be loaded as {MODEL_CLASSES[kind]}: {error}") from error
    missing = [name for name in loading_info["missing_keys"] if not any(part in name for part in ALLOWED_MISSING)]
    unfit_keys = [*missing, *(str(item[0]) for item in loading_info.get("mismatched_keys", ()))]
    if unfit_keys:
        raise UsageError(
            f"{folder}: {len(unfit_keys)} weights of {MODEL_CLASSES[kind]} are missing or of another shape, e.g. "
            f"{sorted(unfit_keys)[0]}: the "
            "weights are of another model or size than config.json says. Fetch the whole folder again."
        )
    return model


def _read_normalisation(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            file = (folder / name).resolve()  # a Hugging Face snapshot links to its blobs
            settings = untrusted.read_json(file.parent, file.name)
        except (OSError, ValueError):
            continue
        settings = settings.get("image_processor", settings) if isinstance(settings, dict) else {}
        if settings.get("image_mean") and settings.get("image_std"):
            return tuple(settings["image_mean"]), tuple(settings["image_std"])
    return IMAGENET_MEAN_STD
