"""A frozen backbone with residual adapters at four depths; patches are compared with texts and with a memory of normal patches.

After MVFA (Huang et al., CVPR 2024): at each depth a pixel and an image adapter compute features that are compared with texts for
normal and abnormal (or two learnt vectors if the backbone has no text), and return a small part of themselves to the backbone's
stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.detection.fewshot.backbone import Backbone

ADAPTER_DEPTHS = 4
DEFAULT_FEATURE_WIDTH = 128
"""Width of the compared features if no text determines it."""
MAX_PATCHES_PER_SIDE = 20
"""Patches per side that are compared at most; finer maps, such as early convolutions, are averaged down to it."""
STREAM_SHARE, ADAPTER_SHARE = 0.8, 0.1
"""Shares of the backbone's stream and of each adapter in the published code."""


class Adapter(nn.Module):
    """Tokens (B, N, width) to features (B, N, mid), and to what is added to the stream (B, N, width)."""

    def __init__(self, width: int, mid: int, starts_at_zero: bool) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, mid, bias=False), nn.Linear(mid, width, bias=False)
        if starts_at_zero:  # start with the unchanged stream of the backbone
            nn.init.zeros_(self.outer.weight)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mid = functional.leaky_relu(self.inner(x))
        return mid, functional.leaky_relu(self.outer(mid))


@dataclass
class DepthFeatures:
    """Output of one depth: features of both heads (B, tokens, width), and the grid of the patches, which are the last tokens."""

    all_seg: torch.Tensor
    all_det: torch.Tensor
    grid: tuple[int, int]

    @property
    def seg(self) -> torch.Tensor:
        """Return the features (B, patches, width) of the pixel head."""
        return self.all_seg[:, -self.grid[0] * self.grid[1] :]

    @property
    def det(self) -> torch.Tensor:
        """Return the features (B, patches, width) of the image head."""
        return self.all_det[:, -self.grid[0] * self.grid[1] :]


class FewshotModel(nn.Module):
    """`forward(pixel_values (B, 3, S, S), labels) -> {"logits", "loss"}`; labels (B, 1) of images or (B, 1, S, S) of pixels.

    Args:
        texts: (2, joint) unit vectors of normal and abnormal; None: two learnt vectors per depth.
    """

    def __init__(self, plan: Mapping[str, Any], backbone: Backbone, texts: torch.Tensor | None, mid: int = 0) -> None:
        super().__init__()
        self.paper = plan["fewshot"]["protocol"] == "paper"
        self.scale = 100.0 if self.paper else float(plan["fewshot"]["scale"])
        self.size, self.adapting = int(plan["backbone"]["size"]), True
        self.vision = backbone.vision
        depth = len(backbone.blocks)
        self.levels = sorted({max(0, round(depth * (k + 1) / ADAPTER_DEPTHS) - 1) for k in range(ADAPTER_DEPTHS)})
        self._depth_features: list[DepthFeatures] = []
        self._first_tokens: list[torch.Tensor] = []
        hooks = [backbone.blocks[k].register_forward_hook(self._listen) for k in self.levels]
        with torch.no_grad():
            self.vision(torch.zeros(1, 3, self.size, self.size))
        for hook in hooks:
            hook.remove()
        widths = [tokens.shape[-1] for tokens in self._first_tokens]
        mid = mid or (int(texts.shape[1]) if texts is not None else DEFAULT_FEATURE_WIDTH)
        self.seg, self.det = (nn.ModuleList(Adapter(w, mid, not self.paper) for w in widths) for _ in range(2))
        if texts is not None:
            self.register_buffer("texts", texts.expand(len(widths), 2, mid).clone())
        else:
            self.texts = nn.Parameter(functional.normalize(torch.randn(len(widths), 2, mid), dim=-1))
        for level, k in enumerate(self.levels):
            backbone.blocks[k].register_forward_hook(self._hook(level))

    def train(self, mode: bool = True) -> FewshotModel:
        """Set the mode; the backbone stays in evaluation mode: no dropout, no statistics."""
        super().train(mode)
        self.vision.eval()
        return self

    def _listen(self, _: nn.Module, __: Any, out: Any) -> None:
        self._first_tokens.append(_block_tokens(out)[0])

    def _hook(self, level: int) -> Any:
        def apply_adapters(_: nn.Module, __: Any, out: Any) -> Any:
            tokens, restore = _block_tokens(out)
            side = int((tokens.shape[1]) ** 0.5)  # class and register tokens precede a square of patches
            grid = (min(side, MAX_PATCHES_PER_SIDE), min(side, MAX_PATCHES_PER_SIDE))
            if not self.adapting:
                pooled = _pool_patches(tokens, side)
                self._depth_features.append(DepthFeatures(pooled, pooled, grid))
                return out
            (seg, from_seg), (det, from_det) = self.seg[level](tokens), self.det[level](tokens)
            self._depth_features.append(DepthFeatures(_pool_patches(seg, side), _pool_patches(det, side), grid))
            stream = (STREAM_SHARE if self.paper else 1.0) * tokens
            return restore(stream + ADAPTER_SHARE * from_seg + ADAPTER_SHARE * from_det)

        return apply_adapters

    def features(self, images: torch.Tensor) -> list[DepthFeatures]:
        """Return the features of each depth."""
        self._depth_features = []
        self.vision(images)
        features, self._depth_features = self._depth_features, []
        return features

    def similarities(self, level: int, features: torch.Tensor) -> torch.Tensor:
        """Return (B, patches, 2) similarity to normal and abnormal."""
        directions = functional.normalize(self.texts[level], dim=-1)
        return self.scale * functional.normalize(features, dim=-1) @ directions.T

    def scores(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[DepthFeatures]]:
        """Return (B,) image scores and (B, S, S) maps by text similarity, and the features."""
        features = self.features(images)
        image = torch.stack([image_logit(self.similarities(k, d.det), self.paper) for k, d in enumerate(features)])
        maps = [self._map(k, d.seg if self.pixels else d.det, d.grid) for k, d in enumerate(features)]
        return image.mean(dim=0), torch.stack([pair[:, 1] - pair[:, 0] for pair in maps]).mean(dim=0), features

    pixels = False
    """Whether the pixel heads are trained and give the maps."""

    def _map(self, level: int, features: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
        """Return (B, 2, S, S) similarities of the pixels."""
        logits = self.similarities(level, features).transpose(1, 2).unflatten(2, grid)
        return functional.interpolate(logits, size=(self.size, self.size), mode="bilinear", align_corners=True)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        features = self.features(pixel_values)
        has_masks = labels is not None and labels.ndim == 4
        use_seg = self.pixels or has_masks
        maps = [self._map(k, d.seg if use_seg else d.det, d.grid) for k, d in enumerate(features)]
        image_similarities = [self.similarities(k, d.det) for k, d in enumerate(features)]
        if use_seg:
            logits = torch.stack([pair[:, 1] - pair[:, 0] for pair in maps]).mean(dim=0)[:, None]
        else:
            logits = torch.stack([image_logit(s, self.paper) for s in image_similarities]).mean(dim=0)[:, None]
        if labels is None:
            return {"logits": logits}
        abnormal = labels.flatten(1).amax(dim=1)
        loss = torch.stack([image_loss(depth, abnormal, self.paper) for depth in image_similarities]).sum()
        if has_masks:
            loss = loss + torch.stack([pixel_loss(depth, labels[:, 0]) for depth in maps]).sum()
        return {"loss": loss, "logits": logits}

    def adapters(self, masked: bool = False) -> list[nn.Parameter]:
        """Return the trained parameters: never the backbone, and pixel heads only with masks."""
        excluded = ("vision.",) if masked else ("vision.", "seg.")
        return [parameter for name, parameter in self.named_parameters() if not name.startswith(excluded)]


def _block_tokens(out: Any) -> tuple[torch.Tensor, Any]:
    """Return a block's output as (B, N, width), and a function that restores its form for changed tokens."""
    output = out[0] if isinstance(out, tuple) else out
    if output.ndim == 4:
        shape = output.shape

        def to_map(x: torch.Tensor) -> torch.Tensor:
            return x.transpose(1, 2).reshape(shape)

        return output.flatten(2).transpose(1, 2), to_map
    return output, (lambda x: (x, *out[1:])) if isinstance(out, tuple) else (lambda x: x)


def _pool_patches(x: torch.Tensor, side: int) -> torch.Tensor:
    """Return (B, N, width) with at most MAX_PATCHES_PER_SIDE squared patches."""
    if side <= MAX_PATCHES_PER_SIDE:
        return x
    patches = x[:, -side * side :].transpose(1, 2).unflatten(2, (side, side))
    return functional.adaptive_avg_pool2d(patches, MAX_PATCHES_PER_SIDE).flatten(2).transpose(1, 2)


TOP_PATCH_SHARE = 0.1
"""Share of an image's patches that contribute most to its logit: findings are small."""


def image_logit(logits: torch.Tensor, paper: bool = False) -> torch.Tensor:
    """Return (B,) logits of images from (B, patches, 2); with `paper` the mean probability of abnormal."""
    if paper:
        return logits.softmax(dim=-1)[..., 1].mean(dim=1)
    margin = logits[..., 1] - logits[..., 0]
    top_count = max(1, round(TOP_PATCH_SHARE * margin.shape[1]))
    return 0.5 * (margin.topk(top_count, dim=1).values.mean(dim=1) + margin.mean(dim=1))


def image_loss(logits: torch.Tensor, abnormal: torch.Tensor, paper: bool = False) -> torch.Tensor:
    """Return the binary cross-entropy of (B, patches, 2) against (B,) 0 or 1.

    `paper` keeps two properties of the published code: the probability passes a sigmoid once more, and it is the mean over patches.
    """
    return functional.binary_cross_entropy_with_logits(image_logit(logits, paper), abnormal.float())


def pixel_loss(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return focal loss plus Dice of (B, 2, H, W) against (B, H, W) 0 or 1."""
    probabilities = logits.softmax(dim=1)
    return focal_loss(probabilities, mask) + dice_loss(probabilities[:, 1], mask)


def focal_loss(probabilities: torch.Tensor, mask: torch.Tensor, gamma: float = 2.0) -> torch.Tensor:
    """Return the mean of -(1 - p)^gamma log p of the true state's probability p (Lin et al., ICCV 2017)."""
    p = torch.where(mask > 0.5, probabilities[:, 1], probabilities[:, 0]).clamp(1e-5, 1.0)
    return (-((1 - p) ** gamma) * p.log()).mean()


def dice_loss(probability: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return 1 - (2 overlap + 1) / (sum + 1), averaged over images."""
    probability, truth = probability.flatten(1), mask.float().flatten(1)
    overlap = (probability * truth).sum(dim=1)
    return (1 - (2 * overlap + 1) / (probability.sum(dim=1) + truth.sum(dim=1) + 1)).mean()
