"""A frozen backbone and adapters at four depths; patches are compared with texts and with a memory of normal patches.

After MVFA (Huang et al., CVPR 2024): at each depth a pixel and an image adapter compute features that are compared with texts for
normal and abnormal (or two learnt vectors if the backbone has no text). With the published protocol the adapters also change the
backbone's stream, so that each step needs the backbone. Otherwise they read the features of the unchanged backbone, which are computed
once for each image (`case_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from m3b.training.detection.fewshot.backbone import Backbone
from m3b.training.ignored_voxels import IGNORE

ADAPTER_DEPTHS = 4
DEFAULT_FEATURE_WIDTH = 128
"""Width of the compared features if no text determines it."""
MAX_PATCHES_PER_SIDE = 20
"""Patches per side that are compared at most; finer maps, such as early convolutions, are averaged down to it."""
STREAM_SHARE, ADAPTER_SHARE = 0.8, 0.1
"""Shares of the backbone's stream and of each adapter in the published code."""
MAX_FLOAT16 = 65504.0
NetworkInput: TypeAlias = torch.Tensor | list[torch.Tensor]
"""Pictures (B, 3, S, S), or their frozen features: (B, patches, width) for each depth."""


def max_patches(plan: Mapping[str, Any]) -> int:
    """Return the patches per side that are compared at most."""
    return int(plan["backbone"].get("patches") or MAX_PATCHES_PER_SIDE)


def adapter_blocks(backbone: Backbone) -> list[nn.Module]:
    """Return the blocks of the backbone at the depths of the adapters."""
    depth = len(backbone.blocks)
    levels = sorted({max(0, round(depth * (k + 1) / ADAPTER_DEPTHS) - 1) for k in range(ADAPTER_DEPTHS)})
    return [backbone.blocks[level] for level in levels]


def run_blocks(
    vision: nn.Module,
    blocks: Sequence[nn.Module],
    pictures: torch.Tensor,
    on_tokens: Callable[[int, torch.Tensor], torch.Tensor | None],
) -> None:
    """Run the backbone; `on_tokens` receives (depth, tokens (B, N, width)) of each block, and may return changed tokens."""

    def apply_hook(depth: int, _: nn.Module, __: Any, out: Any) -> Any:
        tokens, restore = _block_tokens(out)
        changed = on_tokens(depth, tokens)
        return out if changed is None else restore(changed)

    hooks = [block.register_forward_hook(partial(apply_hook, depth)) for depth, block in enumerate(blocks)]
    try:
        vision(pictures)
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def frozen_features(
    vision: nn.Module, blocks: Sequence[nn.Module], pictures: torch.Tensor, max_side: int = MAX_PATCHES_PER_SIDE
) -> list[torch.Tensor]:
    """Return (B, patches, width) float16 of each depth of the unchanged backbone, at most `max_side` squared patches."""
    depths: list[torch.Tensor] = []

    def keep(_: int, tokens: torch.Tensor) -> None:
        side = _patches_per_side(tokens)
        patches = _pool_patches(tokens, side, max_side)[:, -(min(side, max_side) ** 2) :]
        depths.append(patches.clamp(-MAX_FLOAT16, MAX_FLOAT16).half())

    run_blocks(vision, blocks, pictures, keep)
    return depths


def depth_shapes(backbone: Backbone, size: int, max_side: int) -> list[tuple[int, int]]:
    """Return (patches, width) of the frozen features at each depth; the backbone runs once for it."""
    if not backbone.shapes:
        picture = torch.zeros(1, 3, size, size)
        depths = frozen_features(backbone.vision, adapter_blocks(backbone), picture, max_side)
        backbone.shapes = [(depth.shape[1], depth.shape[2]) for depth in depths]
    return backbone.shapes


class Adapter(nn.Module):
    """Tokens (B, N, width) to features (B, N, mid)."""

    def __init__(self, width: int, mid: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, mid, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.leaky_relu(self.inner(x))


class StreamAdapter(Adapter):
    """The published adapter: its `outer` layer computes what is added to the stream (B, N, width)."""

    def __init__(self, width: int, mid: int) -> None:
        super().__init__(width, mid)
        self.outer = nn.Linear(mid, width, bias=False)

    def to_stream(self, features: torch.Tensor) -> torch.Tensor:
        return functional.leaky_relu(self.outer(features))


@dataclass
class DepthFeatures:
    """Output of one depth: features of both heads and of the backbone (B, tokens, width), and the grid of the patches.

    The patches are the last tokens.
    """

    all_seg: torch.Tensor
    all_det: torch.Tensor
    frozen: torch.Tensor
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
    """`forward(pixel_values, labels) -> {"logits", "loss"}`; labels (B, 1) of images or (B, 1, S, S) of pixels.

    `pixel_values` are pictures (B, 3, S, S), or their frozen features unless the protocol is the published one.

    Args:
        texts: (2, joint) unit vectors of normal and abnormal; None: two learnt vectors per depth.
    """

    def __init__(self, plan: Mapping[str, Any], backbone: Backbone, texts: torch.Tensor | None, mid: int = 0) -> None:
        super().__init__()
        self.paper = plan["fewshot"]["protocol"] == "paper"
        self.scale = 100.0 if self.paper else float(plan["fewshot"]["scale"])
        self.size, self.adapting = int(plan["backbone"]["size"]), True
        self.max_side = max_patches(plan)
        self.vision, self.blocks = backbone.vision, tuple(adapter_blocks(backbone))
        shapes = depth_shapes(backbone, self.size, self.max_side)
        self.map_side = max(int(patches**0.5) for patches, _ in shapes)
        mid = mid or (int(texts.shape[1]) if texts is not None else DEFAULT_FEATURE_WIDTH)
        adapter = StreamAdapter if self.paper else Adapter
        widths = [width for _, width in shapes]
        self.seg, self.det = (nn.ModuleList(adapter(width, mid) for width in widths) for _ in range(2))
        if texts is not None:
            self.register_buffer("texts", texts.expand(len(widths), 2, mid).clone())
        else:
            self.texts = nn.Parameter(functional.normalize(torch.randn(len(widths), 2, mid), dim=-1))

    def train(self, mode: bool = True) -> FewshotModel:
        """Set the mode; the backbone stays in evaluation mode: no dropout, no statistics."""
        super().train(mode)
        self.vision.eval()
        return self

    def features(self, inputs: NetworkInput, use_seg: bool = False) -> list[DepthFeatures]:
        """Return the features of each depth; those of the pixel head are those of the image head without `use_seg`."""
        if self.paper and self.adapting:
            return self._stream_features(inputs)
        depths: Iterable[torch.Tensor] = inputs
        if isinstance(inputs, torch.Tensor):
            depths = [depth.float() for depth in frozen_features(self.vision, self.blocks, inputs, self.max_side)]
        features = []
        for level, tokens in enumerate(depths):
            grid = (_patches_per_side(tokens),) * 2
            det = self.det[level](tokens) if self.adapting else tokens
            seg = self.seg[level](tokens) if self.adapting and use_seg else det
            features.append(DepthFeatures(seg, det, tokens, grid))
        return features

    def _stream_features(self, pictures: NetworkInput) -> list[DepthFeatures]:
        """Return the features of the published protocol, whose adapters change the stream of the backbone."""
        features: list[DepthFeatures] = []

        def adapt(level: int, tokens: torch.Tensor) -> torch.Tensor:
            side = _patches_per_side(tokens)
            grid = (min(side, self.max_side),) * 2
            adapters: list[Any] = [self.seg[level], self.det[level]]
            outputs = [adapter(tokens) for adapter in adapters]
            seg, det = (_pool_patches(output, side, self.max_side) for output in outputs)
            features.append(DepthFeatures(seg, det, det, grid))
            added = sum(adapter.to_stream(output) for adapter, output in zip(adapters, outputs, strict=True))
            return STREAM_SHARE * tokens + ADAPTER_SHARE * added

        if not isinstance(pictures, torch.Tensor):
            raise TypeError("the published protocol takes pictures, not frozen features")
        run_blocks(self.vision, self.blocks, pictures, adapt)
        return features

    def similarities(self, level: int, features: torch.Tensor) -> torch.Tensor:
        """Return (B, patches, 2) similarity to normal and abnormal."""
        directions = functional.normalize(self.texts[level], dim=-1)
        return self.scale * functional.normalize(features, dim=-1) @ directions.T

    def scores(self, inputs: NetworkInput) -> tuple[torch.Tensor, torch.Tensor, list[DepthFeatures]]:
        """Return (B,) image scores and (B, M, M) maps of the finest grid by text similarity, and the features."""
        features = self.features(inputs, self.pixels)
        image = torch.stack([image_logit(self.similarities(k, d.det), self.paper) for k, d in enumerate(features)])
        maps = [self._map(k, d, self.pixels, self.map_side) for k, d in enumerate(features)]
        return image.mean(dim=0), torch.stack([pair[:, 1] - pair[:, 0] for pair in maps]).mean(dim=0), features

    pixels = False
    """Whether the pixel heads are trained and give the maps."""

    def _map(self, level: int, depth: DepthFeatures, use_seg: bool, side: int) -> torch.Tensor:
        """Return (B, 2, side, side) similarities."""
        logits = self.similarities(level, depth.seg if use_seg else depth.det).transpose(1, 2).unflatten(2, depth.grid)
        return resize_maps(logits, (side, side), self.paper)

    def forward(self, pixel_values: NetworkInput, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        has_masks = labels is not None and labels.ndim == 4
        features = self.features(pixel_values, self.pixels or has_masks)
        image_similarities = [self.similarities(k, d.det) for k, d in enumerate(features)]
        maps = []
        if self.pixels or has_masks:
            maps = [self._map(k, d, True, self.size) for k, d in enumerate(features)]
            logits = torch.stack([pair[:, 1] - pair[:, 0] for pair in maps]).mean(dim=0)[:, None]
        else:
            logits = torch.stack([image_logit(s, self.paper) for s in image_similarities]).mean(dim=0)[:, None]
        if labels is None:
            return {"logits": logits}
        abnormal = (labels == 1).flatten(1).any(dim=1)
        loss = torch.stack([image_loss(depth, abnormal, self.paper) for depth in image_similarities]).sum()
        if has_masks:
            loss = loss + torch.stack([pixel_loss(depth, labels[:, 0]) for depth in maps]).sum()
        return {"loss": loss, "logits": logits}

    def adapters(self, masked: bool = False) -> list[nn.Parameter]:
        """Return the trained parameters: never the backbone, and pixel heads only with masks."""
        excluded = ("vision.",) if masked else ("vision.", "seg.")
        return [parameter for name, parameter in self.named_parameters() if not name.startswith(excluded)]


def resize_maps(maps: torch.Tensor, size: Sequence[int], align_corners: bool = False) -> torch.Tensor:
    """Return (B, C, *size) by linear interpolation; the published protocol aligns the corners."""
    return functional.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=align_corners)


def _block_tokens(out: Any) -> tuple[torch.Tensor, Any]:
    """Return a block's output as (B, N, width), and a function that restores its form for changed tokens."""
    output = out[0] if isinstance(out, tuple) else out
    if output.ndim == 4:
        shape = output.shape

        def to_map(x: torch.Tensor) -> torch.Tensor:
            return x.transpose(1, 2).reshape(shape)

        return output.flatten(2).transpose(1, 2), to_map
    return output, (lambda x: (x, *out[1:])) if isinstance(out, tuple) else (lambda x: x)


def _patches_per_side(tokens: torch.Tensor) -> int:
    """Return the side of the square of patches that follows class and register tokens."""
    return int(tokens.shape[1] ** 0.5)


def _pool_patches(x: torch.Tensor, side: int, max_side: int) -> torch.Tensor:
    """Return (B, N, width) with at most `max_side` squared patches."""
    if side <= max_side:
        return x
    patches = x[:, -side * side :].transpose(1, 2).unflatten(2, (side, side))
    return functional.adaptive_avg_pool2d(patches, max_side).flatten(2).transpose(1, 2)


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
    """Return focal loss plus Dice of (B, 2, H, W) against (B, H, W) 0, 1 or IGNORE, whose pixels have no loss."""
    probabilities, labelled = logits.softmax(dim=1), mask != IGNORE
    return focal_loss(probabilities, mask) + dice_loss(probabilities[:, 1] * labelled, mask * labelled)


def focal_loss(probabilities: torch.Tensor, mask: torch.Tensor, gamma: float = 2.0) -> torch.Tensor:
    """Return the mean over labelled pixels of -(1 - p)^gamma log p of the true state's probability p (Lin et al., ICCV 2017)."""
    labelled = mask != IGNORE
    p = torch.where(mask > 0.5, probabilities[:, 1], probabilities[:, 0]).clamp(1e-5, 1.0)
    return (-((1 - p) ** gamma) * p.log() * labelled).sum() / labelled.sum().clamp_min(1)


def dice_loss(probability: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return 1 - (2 overlap + 1) / (sum + 1), averaged over images."""
    probability, truth = probability.flatten(1), mask.float().flatten(1)
    overlap = (probability * truth).sum(dim=1)
    return (1 - (2 * overlap + 1) / (probability.sum(dim=1) + truth.sum(dim=1) + 1)).mean()
