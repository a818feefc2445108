"""The classifier: `small_cnn` (fast), a MONAI network or a pretrained one, of volumes also on slices; with its loss as one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from m3b.training.diagnosis.covariates import input_width
from m3b.training.diagnosis.views import view_count
from m3b.training.folds import list_recipe_plans
from m3b.training.planned_network import build_planned_network
from m3b.training.recipe import RECIPE_FILE, RecipeInput, get_recipe
from m3b.training.residual_block import CONV, NORM, ResidualBlock
from m3b.training.slice_encoder import (
    BOTH,
    EQUAL_WEIGHT,
    FEATURES,
    VOLUME,
    SliceNetwork,
    VolumeAndSlices,
    average_encoders,
    encoder_of,
    slice_plan,
)

FUSION_FEATURES, FUSION_WIDTH = 32, 32
ATTENTION_WIDTH = 32
"""Width of the attention over tiles; both of its gates are outputs of the network beside those of the classes."""
COVARIATE_LR_FACTOR = 10.0
"""Learning rate factor of the covariates' own layer: it has few inputs and starts at zero."""


class CovariateFusion(nn.Module):
    """Logits of the image, plus those of the covariates, plus those of both together.

    `forward(image (B, outputs + FUSION_FEATURES), covariates (B, width)) -> (B, outputs)`.
    """

    def __init__(self, outputs: int, width: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.direct = nn.Linear(width, outputs)
        self.both = nn.Sequential(
            nn.Linear(FUSION_FEATURES + width, FUSION_WIDTH), nn.ReLU(), nn.Linear(FUSION_WIDTH, outputs)
        )
        nn.init.zeros_(self.direct.weight)
        nn.init.zeros_(self.direct.bias)

    def forward(self, image: torch.Tensor, covariates: torch.Tensor) -> torch.Tensor:
        covariates = covariates.to(image.dtype)
        logits, features = image[:, : self.outputs], image[:, self.outputs :]
        together = torch.cat([features.relu(), covariates], dim=1)
        return torch.as_tensor(logits + self.direct(covariates) + self.both(together))


def pool_views(outputs: torch.Tensor, views: torch.Tensor) -> torch.Tensor:
    """Return the mean (B, K) of (B, V, K + 1) outputs over the views with (B, V) 1, weighted by the softmax of the last output
    (attention pooling; Ilse et al., 2018)."""
    weight = outputs[..., -1].masked_fill(views < 0.5, -1e4).softmax(dim=1)
    return (weight.unsqueeze(-1) * outputs[..., :-1]).sum(dim=1)


class GatedAttention(nn.Module):
    """`forward(outputs (B, T, K + 2 ATTENTION_WIDTH), tiles (B, T)) -> (B, K)`: the mean of a slide's tiles, weighted by attention.

    Source: Ilse, Tomczak and Welling, Attention-based deep multiple instance learning, ICML 2018. Logits are linear in the features of
    a tile, so that the weighted mean of logits is the logit of the weighted mean of features.
    """

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(ATTENTION_WIDTH, 1)

    def forward(self, outputs: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
        weights = self.weigh(outputs, tiles).unsqueeze(-1)
        return torch.as_tensor((weights * outputs[..., : -2 * ATTENTION_WIDTH]).sum(dim=1))

    def weigh(self, outputs: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
        """Return (B, T) weights; 0 where `tiles` is 0."""
        content, gate = outputs[..., -2 * ATTENTION_WIDTH :].chunk(2, dim=-1)
        scores = self.score(content.tanh() * gate.sigmoid()).squeeze(-1)
        return torch.as_tensor(scores.masked_fill(tiles < 0.5, -1e4).softmax(dim=1))


class SmallCNN(nn.Module):
    """Residual stages that halve the image to about 6 positions a side; mean and maximum are pooled.

    `stem`: stride of the first convolution along each axis, 1 or 2; default 2 for large images.
    """

    def __init__(
        self, dims: int, channels: int, classes: int, size: list[int], width: int, dropout: float,
        stem: list[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        is_large = min(size) > (80 if dims == 2 else 40)
        stride = tuple(stem or [2 if is_large else 1] * dims)
        kernel = tuple(5 if step > 1 else 3 for step in stride)
        size = [-(-side // step) for side, step in zip(size, stride, strict=True)]
        layers: list[nn.Module] = [
            CONV[dims](channels, width, kernel, stride, tuple(side // 2 for side in kernel), bias=False),
            NORM[dims](width),
            nn.ReLU(inplace=True),
        ]
        if is_large:
            layers.append(nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2))
            size = [side // 2 for side in size]
        stage_channels = width
        while min(size) > 8:
            next_channels = min(stage_channels * 2, 256)
            layers += [ResidualBlock(dims, stage_channels, next_channels, 2)]
            stage_channels, size = next_channels, [(side + 1) // 2 for side in size]
        layers.append(
            ResidualBlock(dims, stage_channels, stage_channels, 1)
        )  # at the lowest resolution, where it costs least
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * stage_channels, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.features(x).flatten(2)
        return self.head(torch.cat([maps.mean(2), maps.amax(2)], dim=1))


def count_outputs(plan: Mapping[str, Any]) -> int:
    """Return the number of outputs."""
    return len(plan.get("edges") or plan["classes"])


def count_network_outputs(plan: Mapping[str, Any]) -> int:
    """Return the number of outputs of `build_network`: with covariates also features for `CovariateFusion`, then the weight of a view,
    or the gates of the attention over tiles."""
    pooling = 2 * ATTENTION_WIDTH if plan.get("tiles") else int(view_count(plan) > 1)
    return count_outputs(plan) + (FUSION_FEATURES if plan.get("covariates") else 0) + pooling


def build_network(plan: Mapping[str, Any], load: bool = True) -> nn.Module:
    """Build the networks of `network.encoder`, see `slice_encoder`; of 2D images there is one.

    `plan["network"]["name"]` is small_cnn, densenet121/169/201, resnet10/18/34/50, efficientnet-b0..b7, timm:NAME, torchvision:NAME
    or pretrained.
    """
    outputs, encoder = count_network_outputs(plan), encoder_of(plan)
    if encoder == VOLUME:
        return build_encoder(plan, outputs, load)
    slices = SliceNetwork(build_encoder(slice_plan(plan), FEATURES, load), outputs)
    return VolumeAndSlices(build_encoder(plan, outputs, load), slices) if encoder == BOTH else slices


def build_encoder(plan: Mapping[str, Any], classes: int, load: bool = True) -> nn.Module:
    """Build the network that the plan names, with this number of outputs."""
    network, dims = plan["network"], int(plan["dims"])
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
    if ":" in name:
        from m3b.training.diagnosis.library_networks import build_library_network

        return build_library_network(plan, classes, check=load)
    from monai.networks import nets

    if name.startswith("densenet"):
        if min(plan["size"]) < 32:
            raise SystemExit(
                f"{name} halves its input five times, which {plan['size']} does not allow: take network.name=resnet18 or "
                "small_cnn, or a size of 32 or more along each side"
            )
        network_class = getattr(nets, "DenseNet" + (name.removeprefix("densenet") or "121"))
        return network_class(spatial_dims=dims, in_channels=channels, out_channels=classes, dropout_prob=dropout)
    if name.startswith("resnet"):
        is_small = min(plan["size"]) < 64
        stem = (
            {"conv1_t_size": 3, "no_max_pool": True} if is_small else {"conv1_t_stride": 2}
        )  # MONAI's own stride is 1
        network_class = getattr(nets, "resnet" + (name.removeprefix("resnet") or "18"))
        backbone = network_class(spatial_dims=dims, n_input_channels=channels, num_classes=classes, **stem)
        backbone.fc = nn.Sequential(nn.Dropout(dropout), backbone.fc)
        return backbone
    if name.startswith("efficientnet"):
        return nets.EfficientNetBN(name, spatial_dims=dims, in_channels=channels, num_classes=classes, pretrained=False)
    raise SystemExit(
        f"network {name!r} in plan.json: known are small_cnn, densenet*, resnet*, efficientnet-b*, timm:*, "
        "torchvision:*"
    )


def freeze_below_head(network: nn.Module) -> None:
    """Let a pretrained network learn by its last layer alone, if it has one of a usual name."""
    from m3b.training.diagnosis.pretrained_classifier import is_head

    names = [name for name, _ in network.named_parameters()]
    for name, parameter in network.named_parameters() if any(map(is_head, names)) else ():
        parameter.requires_grad_(is_head(name))


class Classifier(nn.Module):
    """`forward(pixel_values (B, C, H, W[, D]), labels (B, K) or None) -> {"logits": (B, K), "loss": scalar}`.

    With covariates in the plan, `covariates` (B, width) is required; with views, `pixel_values` is (B, V, C, H, W[, D]) and `views`
    (B, V) is 1 for existing views.
    """

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module | None = None) -> None:
        super().__init__()
        self.plan, self.recipe, self.input = plan, get_recipe(), RecipeInput(plan)
        self.backbone = build_planned_network(plan, load=loss is not None)
        if plan["network"].get("backbone_lr") == 0:
            freeze_below_head(self.backbone)
        self.loss = loss
        rules = plan.get("covariates") or []
        self.several = view_count(plan) > 1
        self.encoders = 1 + any(isinstance(module, VolumeAndSlices) for module in self.backbone.modules())
        self.slice_weight = float(plan["network"].get("slice_weight", EQUAL_WEIGHT))
        self.attention = GatedAttention() if plan.get("tiles") else None
        self.mix = CovariateFusion(count_outputs(plan), input_width(rules)) if rules else None

    def groups(self, plan: Mapping[str, Any]) -> list[tuple[list[nn.Parameter], float]] | None:
        """Return parameter groups: pretrained ones learn at `network.backbone_lr` of the rate, the new head at all of it, and the
        covariates' own layer at more."""
        if not plan["network"].get("pretrained") and self.mix is None:
            return None
        from m3b.training.diagnosis.pretrained_classifier import is_head

        backbone_factor = float(plan["network"].get("backbone_lr", 0.1)) if plan["network"].get("pretrained") else 1.0
        groups: dict[float, list[nn.Parameter]] = {backbone_factor: [], 1.0: [], COVARIATE_LR_FACTOR: []}
        for name, parameter in self.named_parameters():
            factor_of_part = 1.0 if is_head(name) or name.startswith("mix.") else backbone_factor
            groups[COVARIATE_LR_FACTOR if name.startswith("mix.direct.") else factor_of_part].append(parameter)
        return [(parameters, factor) for factor, parameters in groups.items() if parameters and factor]

    def weigh_tiles(self, pixel_values: torch.Tensor, views: torch.Tensor) -> torch.Tensor:
        """Return the attention (B, T) to the tiles of slides."""
        assert self.attention is not None
        return self.attention.weigh(self._compute_outputs(pixel_values), views)

    def _compute_outputs(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return (B, V, outputs) of the images of each case.

        Raises:
            SystemExit: the network of recipe.py gives another number of outputs.
        """
        outputs = self.backbone(self.input(pixel_values.flatten(0, 1)))
        if outputs.shape[-1] != (expected := count_network_outputs(self.plan)):
            raise SystemExit(
                f"{RECIPE_FILE}: build_network gives {outputs.shape[-1]} outputs an image; of cases of several images it has to give "
                f"{expected} (m3b.training.diagnosis.network.count_network_outputs): classes, then what their images are pooled by"
            )
        return torch.as_tensor(outputs.reshape(*pixel_values.shape[:2], expected))

    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None, covariates: torch.Tensor | None = None,
        views: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:  # fmt: skip
        if self.several:
            if views is None:
                raise ValueError("the plan has several views: `views` is required")
            outputs = self._compute_outputs(pixel_values)
            logits = pool_views(outputs, views) if self.attention is None else self.attention(outputs, views)
        else:
            logits = self.backbone(self.input(pixel_values))
        if self.mix is not None:
            if covariates is None:
                raise ValueError("the plan has covariates: `covariates` is required")
            logits = self.mix(logits, covariates.repeat(self.encoders, 1))
        if self.encoders > 1 and not self.training:
            logits = average_encoders(logits, self.slice_weight)
        if not self.training:
            logits = self.recipe.postprocess(self.plan, logits)
        if labels is None or self.loss is None:
            return {"logits": logits}
        truth = torch.cat([labels] * (len(logits) // len(labels)))  # in training, each encoder has rows of its own
        return {"loss": self.loss(logits, truth), "logits": logits}


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> Classifier:
    """Build the model of plan.json; a deliverable builds it without loss."""
    return Classifier(plan, get_recipe().build_loss(plan) if with_loss else None)


class RecipeAverage(nn.Module):
    """Mean logits of classifiers of several recipes, which see the same input; see `recipe_plans`.

    `forward` takes what each `Classifier` takes.
    """

    def __init__(self, networks: Sequence[Classifier]) -> None:
        super().__init__()
        self.recipes = nn.ModuleList(networks)

    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None, covariates: torch.Tensor | None = None,
        views: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:  # fmt: skip
        outputs = [network(pixel_values, None, covariates, views)["logits"].float() for network in self.recipes]
        return {"logits": torch.stack(outputs).mean(0)}


def build_delivered_model(plan: Mapping[str, Any]) -> nn.Module:
    """Build a network of a deliverable, without loss: of a plan with several recipes their average."""
    networks = [build_model(recipe_plan, with_loss=False) for recipe_plan in list_recipe_plans(plan)]
    return networks[0] if len(networks) == 1 else RecipeAverage(networks)


def list_single_networks(models: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the networks of each recipe in place of their averages; all averages have the same number of networks."""
    networks: list[nn.Module] = []
    for model in models:
        networks += model.recipes if isinstance(model, RecipeAverage) else [model]
    return networks
