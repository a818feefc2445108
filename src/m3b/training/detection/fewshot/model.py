"""A frozen backbone with residual adapters at four depths, compared patch by patch with texts and with a memory of normal.

After MVFA (Huang et al., CVPR 2024): at each depth a pixel and an image adapter make a feature that is compared with what
stands for normal and abnormal (texts, or two learnt vectors where the backbone knows no text), and give back a little of
themselves to the stream of the backbone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.detection.fewshot.backbone import Backbone
from m3b.training.detection.fewshot.losses import image_logit, image_loss, pixel_loss

DEPTHS = 4
OWN_WIDTH = 128
"""Of the compared features where no text says how wide they are."""
FINEST = 20
"""Patches a side that are compared; finer maps, as convolutions have at first, are averaged down to it."""
KEPT, GIVEN = 0.8, 0.1
"""Shares of the stream and of each adapter in the published code."""


class Adapter(nn.Module):
    """Tokens (B, N, width) to features (B, N, mid), and what goes back into the stream (B, N, width)."""

    def __init__(self, width: int, mid: int, quiet: bool) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, mid, bias=False), nn.Linear(mid, width, bias=False)
        if quiet:  # the backbone's own stream to begin with
            nn.init.zeros_(self.outer.weight)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mid = functional.leaky_relu(self.inner(x))
        return mid, functional.leaky_relu(self.outer(mid))


@dataclass
class Level:
    """What one depth gives: features of both heads (B, tokens, width), and the grid of the patches, which stand last."""

    all_seg: torch.Tensor
    all_det: torch.Tensor
    grid: tuple[int, int]

    @property
    def seg(self) -> torch.Tensor:
        """(B, patches, width) of the pixel head."""
        return self.all_seg[:, -self.grid[0] * self.grid[1] :]

    @property
    def det(self) -> torch.Tensor:
        """(B, patches, width) of the image head."""
        return self.all_det[:, -self.grid[0] * self.grid[1] :]


class FewshotModel(nn.Module):
    """`forward(pixel_values (B, 3, S, S), labels) -> {"logits", "loss"}`; labels (B, 1) of images or (B, 1, S, S) of pixels.

    Args:
        texts: (2, joint) unit vectors of normal and abnormal; None learns two vectors a depth.
    """

    def __init__(self, plan: Mapping[str, Any], backbone: Backbone, texts: torch.Tensor | None, mid: int = 0) -> None:
        super().__init__()
        self.paper = plan["fewshot"]["protocol"] == "paper"
        self.scale = 100.0 if self.paper else float(plan["fewshot"]["scale"])
        self.size, self.adapting = int(plan["backbone"]["size"]), True
        self.vision = backbone.vision
        depth = len(backbone.blocks)
        self.levels = sorted({max(0, round(depth * (k + 1) / DEPTHS) - 1) for k in range(DEPTHS)})
        self._found: list[Level] = []
        self._tokens: list[torch.Tensor] = []
        listening = [backbone.blocks[k].register_forward_hook(self._listen) for k in self.levels]
        with torch.no_grad():
            self.vision(torch.zeros(1, 3, self.size, self.size))
        for one in listening:
            one.remove()
        widths = [found.shape[-1] for found in self._tokens]
        mid = mid or (int(texts.shape[1]) if texts is not None else OWN_WIDTH)
        self.seg, self.det = (nn.ModuleList(Adapter(w, mid, not self.paper) for w in widths) for _ in range(2))
        if texts is not None:
            self.register_buffer("texts", texts.expand(len(widths), 2, mid).clone())
        else:
            self.texts = nn.Parameter(functional.normalize(torch.randn(len(widths), 2, mid), dim=-1))
        for level, k in enumerate(self.levels):
            backbone.blocks[k].register_forward_hook(self._hook(level))

    def train(self, mode: bool = True) -> FewshotModel:
        """The backbone stays as it is: no dropout, no statistics."""
        super().train(mode)
        self.vision.eval()
        return self

    def _listen(self, _: nn.Module, __: Any, out: Any) -> None:
        self._tokens.append(_tokens(out)[0])

    def _hook(self, level: int) -> Any:
        def changed(_: nn.Module, __: Any, out: Any) -> Any:
            tokens, back = _tokens(out)
            side = int((tokens.shape[1]) ** 0.5)  # class and register tokens stand before a square of patches
            if not self.adapting:
                shown = min(side, FINEST)
                self._found.append(Level(_coarser(tokens, side), _coarser(tokens, side), (shown, shown)))
                return out
            (seg, from_seg), (det, from_det) = self.seg[level](tokens), self.det[level](tokens)
            shown = min(side, FINEST)
            self._found.append(Level(_coarser(seg, side), _coarser(det, side), (shown, shown)))
            return back((KEPT if self.paper else 1.0) * tokens + GIVEN * from_seg + GIVEN * from_det)

        return changed

    def features(self, images: torch.Tensor) -> list[Level]:
        """One entry a depth."""
        self._found = []
        self.vision(images)
        found, self._found = self._found, []
        return found

    def compared(self, level: int, features: torch.Tensor) -> torch.Tensor:
        """(B, patches, 2) likeness to normal and abnormal."""
        towards = functional.normalize(self.texts[level], dim=-1)
        return self.scale * functional.normalize(features, dim=-1) @ towards.T

    def scores(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[Level]]:
        """(B,) image scores and (B, S, S) maps by language alone, and the features."""
        found = self.features(images)
        image = torch.stack([image_logit(self.compared(k, one.det), self.paper) for k, one in enumerate(found)])
        maps = [self._map(k, one.seg if self.pixels else one.det, one.grid) for k, one in enumerate(found)]
        return image.mean(dim=0), torch.stack([one[:, 1] - one[:, 0] for one in maps]).mean(dim=0), found

    pixels = False
    """Whether the pixel heads are trained; then maps are theirs."""

    def _map(self, level: int, features: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
        """(B, 2, S, S)."""
        logits = self.compared(level, features).transpose(1, 2).unflatten(2, grid)
        return functional.interpolate(logits, size=(self.size, self.size), mode="bilinear", align_corners=True)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        found = self.features(pixel_values)
        dense = labels is not None and labels.ndim == 4
        maps = [self._map(k, one.seg if self.pixels or dense else one.det, one.grid) for k, one in enumerate(found)]
        looks = [self.compared(k, one.det) for k, one in enumerate(found)]
        if self.pixels or dense:
            logits = torch.stack([one[:, 1] - one[:, 0] for one in maps]).mean(dim=0)[:, None]
        else:
            logits = torch.stack([image_logit(one, self.paper) for one in looks]).mean(dim=0)[:, None]
        if labels is None:
            return {"logits": logits}
        abnormal = labels.flatten(1).amax(dim=1)
        loss = torch.stack([image_loss(one, abnormal, self.paper) for one in looks]).sum()
        if dense:
            loss = loss + torch.stack([pixel_loss(one, labels[:, 0]) for one in maps]).sum()
        return {"loss": loss, "logits": logits}

    def adapters(self, masked: bool = False) -> list[nn.Parameter]:
        """What is trained: never the backbone, and the pixel heads where there are masks alone."""
        left = ("vision.",) if masked else ("vision.", "seg.")
        return [one for name, one in self.named_parameters() if not name.startswith(left)]


def _tokens(out: Any) -> tuple[torch.Tensor, Any]:
    """A block's answer as (B, N, width), and how to give back a changed one in its form."""
    first = out[0] if isinstance(out, tuple) else out
    if first.ndim == 4:
        shape = first.shape

        def mapped(x: torch.Tensor) -> torch.Tensor:
            return x.transpose(1, 2).reshape(shape)

        return first.flatten(2).transpose(1, 2), mapped
    return first, (lambda x: (x, *out[1:])) if isinstance(out, tuple) else (lambda x: x)


def _coarser(x: torch.Tensor, side: int) -> torch.Tensor:
    """(B, N, width) with at most FINEST x FINEST patches."""
    if side <= FINEST:
        return x
    patches = x[:, -side * side :].transpose(1, 2).unflatten(2, (side, side))
    return functional.adaptive_avg_pool2d(patches, FINEST).flatten(2).transpose(1, 2)
