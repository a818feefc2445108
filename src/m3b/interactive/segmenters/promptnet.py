"""m3b's own small promptable network, for machines and images that a large one does not suit.

It is a U-Net whose input has the image, the prompts and the previous mask as maps (as in RITM, DeepEdit and
nnInteractive).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.errors import UsageError
from m3b.interactive.segmenter import BoxPrompt, ByteImage, MaskProposal, Point

MODEL_TYPE = "m3b_promptnet"
PROMPT_CHANNELS = 4
"""Channels in addition to the image: the box, positive clicks, negative clicks, the previous mask."""
CLICK_RADIUS = 3.0
"""Radius of the disk that represents a click, in pixels of the network's input."""
MAX_SIZE, MAX_WIDTH = 2048, 512


def build_network(config: Mapping[str, Any]) -> Any:
    """Build the network of a config: `size` (side of its input), `widths` (channels a level).

    Raises:
        UsageError: a setting is missing or out of range.
    """
    from monai.networks.nets import UNet

    size, widths = config.get("size"), config.get("widths")
    levels = len(widths) if isinstance(widths, list) else 0
    if not isinstance(size, int) or not isinstance(widths, list) or not 2 <= levels <= 8:
        raise UsageError(
            "config.json of a promptnet needs `size` (a whole number) and `widths` (2 to 8 whole numbers)."
        )
    if not all(isinstance(width, int) and 0 < width <= MAX_WIDTH for width in widths):
        raise UsageError(f"`widths` are {widths}; whole numbers from 1 to {MAX_WIDTH} are needed.")
    step = 2 ** (levels - 1)
    if not 0 < size <= MAX_SIZE or size % step:
        raise UsageError(f"`size` is {size}; a multiple of {step} up to {MAX_SIZE} is needed for {levels} levels.")
    return UNet(
        spatial_dims=2, in_channels=3 + PROMPT_CHANNELS, out_channels=1, channels=widths, strides=[2] * (levels - 1), num_res_units=2,
        norm="BATCH",
    )  # fmt: skip


def fit_size(shape: Sequence[int], size: int) -> tuple[int, int]:
    """Return rows and columns of the image inside the network's square; the rest at the bottom or right is padding."""
    scale = size / max(shape)
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def make_image_input(image: ByteImage, size: int) -> Any:
    """Return (3, size, size) float: the image scaled to fit, -1 to 1, padding 0."""
    import torch
    from PIL import Image

    height, width = fit_size(image.shape[:2], size)
    resized = np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32)
    square = torch.zeros(3, size, size)
    square[:, :height, :width] = torch.from_numpy(resized).permute(2, 0, 1) / 127.5 - 1
    return square


def make_prompt_maps(boxes: Sequence[BoxPrompt], points: Sequence[Point], shape: Sequence[int], size: int) -> Any:
    """Return (3, size, size) float: the filled box, and disks at positive and negative clicks.

    Args:
        shape: rows and columns of the image of the prompts.
    """
    import torch

    scale = size / max(shape)
    maps = torch.zeros(3, size, size)
    for box in boxes[-1:]:
        x0, y0, x1, y1 = (round(side * scale) for side in box.corners)
        maps[0, max(y0, 0) : max(y1, y0 + 1), max(x0, 0) : max(x1, x0 + 1)] = 1
    axis = torch.arange(size) + 0.5
    for point in points:
        disk = (axis[None] - point.x * scale) ** 2 + (axis[:, None] - point.y * scale) ** 2 <= CLICK_RADIUS**2
        maps[1 if point.positive else 2][disk] = 1
    return maps


def estimate_iou(probability: Any) -> float:
    """Return the IoU that a probability map implies for its thresholded mask.

    This is: sum p in the mask / (mask + sum p outside).
    """
    mask = probability > 0.5
    union = float(mask.sum()) + float(probability[~mask].sum())
    return float(probability[mask].sum()) / union if mask.any() else 0.0


class PromptNetSegmenter:
    """The network of a folder that `m3b interactive train` wrote.

    Raises:
        UsageError: config and weights do not fit each other.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], device: str = "cpu") -> None:
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise UsageError("Segmenters need torch, MONAI and safetensors: pip install 'm3b[train]'.") from error
        self.name = f"promptnet:{folder.name}"
        self._device = device
        self.network = build_network(config)
        self.size = int(config["size"])
        file = folder / "model.safetensors"
        try:
            self.network.load_state_dict(load_file(file))
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise UsageError(
                f"{file} does not fit config.json: {str(error).splitlines()[0]} Train it again."
            ) from error
        self.network.to(device).eval()
        self._image: Any = None
        self._shape = (0, 0)

    def set_image(self, image: ByteImage) -> None:
        self._shape = (image.shape[0], image.shape[1])
        self._image = make_image_input(image, self.size)

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        import torch
        from torch.nn.functional import interpolate

        if self._image is None:
            raise UsageError("Set an image before prompting.")
        if not boxes and not points:
            raise UsageError("Give a box or a point.")
        previous_mask = (
            torch.zeros(1, self.size, self.size) if previous is None else self._scale_previous_mask(previous)
        )
        maps = make_prompt_maps(boxes, points, self._shape, self.size)
        with torch.inference_mode():
            probability = (
                self.network(torch.cat([self._image, maps, previous_mask])[None].to(self._device))
                .float()
                .sigmoid()
                .cpu()
            )
        height, width = fit_size(self._shape, self.size)
        cropped = probability[..., :height, :width]
        resized = interpolate(cropped, self._shape, mode="bilinear", align_corners=False)[0, 0]
        return MaskProposal((resized > 0.5).numpy(), estimate_iou(cropped), probability[0])

    def _scale_previous_mask(self, previous: MaskProposal) -> Any:
        """Return the previous mask in the network's square.

        For a proposal of another segmenter or model, its binary mask is used.
        """
        import torch
        from torch.nn.functional import interpolate

        if torch.is_tensor(previous.state) and tuple(previous.state.shape) == (1, self.size, self.size):
            return previous.state
        height, width = fit_size(self._shape, self.size)
        mask = torch.from_numpy(previous.mask.astype(np.float32))[None, None]
        square = torch.zeros(1, self.size, self.size)
        square[:, :height, :width] = interpolate(mask, (height, width), mode="area")[0]
        return square
