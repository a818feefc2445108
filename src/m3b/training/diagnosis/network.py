"""The classifier: `small_cnn` (here, starts fast), a MONAI network or a pretrained one. Gives logits, and the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.diagnosis.covariates import width
from m3b.training.diagnosis.fusion import FEATURES, QUICKER, Mix, pooled
from m3b.training.diagnosis.views import room
from m3b.training.recipe import add_channels, get_recipe, with_derived_channels
from m3b.training.residual_block import CONV, NORM, Block


class SmallCNN(nn.Module):
    """Residual stages that halve the image until about 6 positions a side are left; mean and maximum are pooled.

    `stem`: stride of the first convolution along each axis, 1 or 2; by itself 2 for large images.
    """

    def __init__(
        self, dims: int, channels: int, classes: int, size: list[int], width: int, dropout: float,
        stem: list[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        large = min(size) > (80 if dims == 2 else 40)
        stride = tuple(stem or [2 if large else 1] * dims)
        wide = tuple(5 if step > 1 else 3 for step in stride)
        size = [-(-side // step) for side, step in zip(size, stride, strict=True)]
        layers: list[nn.Module] = [
            CONV[dims](channels, width, wide, stride, tuple(side // 2 for side in wide), bias=False),
            NORM[dims](width),
            nn.ReLU(inplace=True),
        ]
        if large:
            layers.append(nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2))
            size = [side // 2 for side in size]
        inside = width
        while min(size) > 8:
            outside = min(inside * 2, 256)
            layers += [Block(dims, inside, outside, 2)]
            inside, size = outside, [(side + 1) // 2 for side in size]
        layers.append(Block(dims, inside, inside, 1))  # at the lowest resolution, where it costs least
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * inside, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.features(x).flatten(2)
        return self.head(torch.cat([maps.mean(2), maps.amax(2)], dim=1))


def outputs_of(plan: Mapping[str, Any]) -> int:
    """How many numbers the network gives."""
    return len(plan.get("edges") or plan["classes"])


def build_network(plan: Mapping[str, Any], load: bool = True) -> nn.Module:
    """`plan["network"]["name"]`: small_cnn, densenet121/169/201, resnet10/18/34/50, efficientnet-b0..b7, pretrained.

    Gives the outputs; where there are covariates, features for `Mix` besides, and where there are views, the weight of one.
    """
    network, dims = plan["network"], int(plan["dims"])
    classes = outputs_of(plan) + (FEATURES if plan.get("covariates") else 0) + (room(plan) > 1)
    if (network.get("config") or {}).get("builder"):
        from m3b.training.pretrained.backbones import Pooled, build_backbone

        body = build_backbone(network, dims, int(plan["channels"]), load)
        return Pooled(body, classes, float(network.get("dropout") or 0.0))
    if network.get("pretrained") or network.get("config"):
        from m3b.training.diagnosis.pretrained_classifier import build_pretrained

        return build_pretrained(plan, load, classes)
    name, channels = str(network["name"]), int(plan["channels"])
    dropout = float(network.get("dropout") or 0.0)
    if name == "small_cnn":
        return SmallCNN(dims, channels, classes, list(plan["size"]), int(network.get("width") or 16), dropout,
                        network.get("stem"))  # fmt: skip
    from monai.networks import nets

    if name.startswith("densenet"):
        if min(plan["size"]) < 32:
            raise SystemExit(
                f"{name} halves its input five times, which {plan['size']} does not allow: take network.name=resnet18 or "
                "small_cnn, or a size of 32 or more along each side"
            )
        kind = getattr(nets, "DenseNet" + (name.removeprefix("densenet") or "121"))
        return kind(spatial_dims=dims, in_channels=channels, out_channels=classes, dropout_prob=dropout)
    if name.startswith("resnet"):
        tiny = min(plan["size"]) < 64
        stem = {"conv1_t_size": 3, "no_max_pool": True} if tiny else {"conv1_t_stride": 2}  # MONAI's own stride is 1
        kind = getattr(nets, "resnet" + (name.removeprefix("resnet") or "18"))
        backbone = kind(spatial_dims=dims, n_input_channels=channels, num_classes=classes, **stem)
        backbone.fc = nn.Sequential(nn.Dropout(dropout), backbone.fc)
        return backbone
    if name.startswith("efficientnet"):
        return nets.EfficientNetBN(name, spatial_dims=dims, in_channels=channels, num_classes=classes, pretrained=False)
    raise SystemExit(f"network {name!r} in plan.json: known are small_cnn, densenet*, resnet*, efficientnet-b*")


class Classifier(nn.Module):
    """`forward(pixel_values (B, C, H, W[, D]), labels (B, K) or None) -> {"logits": (B, K), "loss": scalar}`.

    Where the plan has covariates, `covariates` (B, width) is needed too (`covariates`); where it has views, `pixel_values` is
    (B, V, C, H, W[, D]) and `views` (B, V) 1 for those that are there (`views`).
    """

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module | None = None) -> None:
        super().__init__()
        self.recipe = get_recipe()
        self.backbone = self.recipe.build_network(with_derived_channels(plan), load=loss is not None)
        self.loss = loss
        rules = plan.get("covariates") or []
        self.several = room(plan) > 1
        self.mix = Mix(outputs_of(plan), width(rules)) if rules else None

    def groups(self, plan: Mapping[str, Any]) -> list[tuple[list[nn.Parameter], float]] | None:
        """What was pretrained learns at `network.backbone_lr` of the rate, the new head at all of it, and what the covariates
        say alone at more."""
        if not plan["network"].get("pretrained") and self.mix is None:
            return None
        from m3b.training.diagnosis.pretrained_classifier import is_head

        slow = float(plan["network"].get("backbone_lr") or 0.1) if plan["network"].get("pretrained") else 1.0
        parts: dict[float, list[nn.Parameter]] = {slow: [], 1.0: [], QUICKER: []}
        for name, parameter in self.named_parameters():
            head = 1.0 if is_head(name) or name.startswith("mix.") else slow
            parts[QUICKER if name.startswith("mix.direct.") else head].append(parameter)
        return [(some, factor) for factor, some in parts.items() if some]

    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None, covariates: torch.Tensor | None = None,
        views: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:  # fmt: skip
        if self.several:
            if views is None:
                raise ValueError("the plan has views, and the network was not told which are there")
            found = self.backbone(add_channels(self.recipe, pixel_values.flatten(0, 1)))
            logits = pooled(found.reshape(*pixel_values.shape[:2], found.shape[-1]), views)
        else:
            logits = self.backbone(add_channels(self.recipe, pixel_values))
        if self.mix is not None:
            if covariates is None:
                raise ValueError("the plan has covariates, and none were given to the network")
            logits = self.mix(logits, covariates)
        if labels is None or self.loss is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, labels), "logits": logits}


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> Classifier:
    """The network of plan.json; the deliverable builds it without its loss."""
    return Classifier(plan, get_recipe().build_loss(plan) if with_loss else None)
