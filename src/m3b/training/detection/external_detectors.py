"""Detectors of libraries: network, matching of true boxes, loss and decoder of torchvision (2D) and MONAI (3D).

`network.detector` of plan.json names one (`detectors`). Images are normalised and sized by the plan: the preprocessing of the
libraries (scaling to 800 pixels, ImageNet's mean) is left out. Boxes are those of m3b: lower then upper corner in the order of the
array's axes, in pixels of the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.augment import vector_like
from m3b.training.pretrained.detector_files import STEM_CHANNELS
from m3b.training.recipe import RecipeInput, with_derived_channels
from m3b.training.torchvision_ops import import_detection

MIN_SCORE = 0.01
"""Minimum score of a decoded box."""
MAX_LEVEL_BOXES, MAX_IMAGE_BOXES = 300, 200
"""Boxes with the highest scores that are kept of each level of the pyramid, and of an image after suppression."""
RESNETS = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
}
VOLUME_RESNETS = {"resnet10": ("basic", (1, 1, 1, 1)), **RESNETS}

Boxes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Heads = dict[str, torch.Tensor]


class LibraryBoxModel(nn.Module):
    """`forward(pixel_values (B, C, *patch), boxes (B, M, 2 d + 2) or None) -> {"logits": (B, K + 2 d [+ 1], A), "loss"}`.

    A: anchors of all levels of the pyramid, one level after the other; channels are logits of the classes, then the library's
    encoding of boxes, then FCOS's centre-ness. The networks of several folds can be averaged (`ensemble`) before `decode`. A row of
    `boxes` is as in `BoxLoss`; boxes that are cut off by the patch (last column 0) are no targets.
    """

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        self.input, plan = RecipeInput(plan), with_derived_channels(plan)
        self.dims, self.classes = int(plan["dims"]), len(plan["classes"])
        self.box_weight = float((plan.get("loss") or {}).get("boxes", 1.0))
        self.parts: PictureDetector | VolumeDetector = PictureDetector(plan) if self.dims == 2 else VolumeDetector(plan)
        self.taken = self.parts.fetch(plan["network"]) if load and plan["network"].get("pretrained") else None

    def forward(self, pixel_values: torch.Tensor, boxes: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        pixels, size = self._padded(self.input(pixel_values)), pixel_values.shape[2:]
        heads, maps = self.parts.heads(pixels)
        logits = torch.cat(list(heads.values()), dim=2).transpose(1, 2).float()
        if boxes is None:
            return {"logits": logits}
        # plan.py measures memory and work on fake tensors: matching costs little, and needs values
        if _is_fake(logits):
            return {"logits": logits, "loss": logits.square().mean()}
        targets = self._targets(boxes.float(), size)
        try:
            terms = self.parts.losses({key: value.float() for key, value in heads.items()}, pixels, maps, targets)
        except ValueError as error:  # MONAI raises for NaN; m3b's training handles it itself
            if "NaN" not in str(error):
                raise
            return {"logits": logits, "loss": logits.sum() * float("nan")}
        class_loss, *box_losses = terms
        # the last term is zero: DDP needs a gradient of every parameter, also for a batch without boxes
        loss = class_loss + self.box_weight * torch.stack(box_losses).sum() + logits.sum() * 0.0
        return {"logits": logits, "loss": loss}

    @torch.no_grad()
    def decode(self, logits: torch.Tensor, size: Sequence[int]) -> list[Boxes]:
        """Return (boxes (N, 2 d) in pixels of the input of `size`, scores, labels) for each image, from the logits of `forward`."""
        padded = [side + (-side) % step for side, step in zip(size, self.parts.multiple, strict=True)]
        values = logits.float().transpose(1, 2)
        widths = [width for _, width in self.parts.channels]
        heads = dict(zip((name for name, _ in self.parts.channels), values.split(widths, dim=2), strict=True))
        detections = self.parts.boxes(heads, padded, list(size))
        return [(boxes[:, list(self.parts.order)], scores, labels) for boxes, scores, labels in detections]

    def _padded(self, pixels: torch.Tensor) -> torch.Tensor:
        extra = [(-side) % step for side, step in zip(pixels.shape[2:], self.parts.multiple, strict=True)]
        if not any(extra):
            return pixels
        return functional.pad(pixels, [side for width in reversed(extra) for side in (0, width)], mode="replicate")

    def _targets(self, boxes: torch.Tensor, size: Sequence[int]) -> list[Heads]:
        """Return the libraries' targets: {"boxes" (N, 2 d), "labels" (N,)} for each image."""
        d, targets = self.dims, []
        upper_limit = vector_like(boxes, [*size, *size])
        for rows in boxes:
            corners = torch.minimum(rows[:, : 2 * d].clamp_min(0), upper_limit)
            is_target = (rows[:, 2 * d] >= 0) & (rows[:, 2 * d + 1] > 0)
            is_target &= (corners[:, d:] - corners[:, :d] > 1e-2).all(1)
            corners = corners[is_target][:, list(self.parts.order)]
            targets.append({"boxes": corners, "labels": rows[is_target, 2 * d].long()})
        return targets


class PictureDetector(nn.Module):
    """FCOS or RetinaNet of torchvision on a ResNet of torchvision with its feature pyramid (strides 8 to 128)."""

    order = (1, 0, 3, 2)
    """torchvision's boxes are (x, y, x, y), x along columns."""
    multiple = (32, 32)

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        network, classes = plan["network"], len(plan["classes"])
        self.name = str(network["detector"])
        self.net = _build_fcos(plan, classes) if self.name == "fcos" else _build_retinanet(plan, classes)
        self.channels = [("cls_logits", classes), ("bbox_regression", 4)]
        self.channels += [("bbox_ctrness", 1)] if self.name == "fcos" else []

    def fetch(self, network: Mapping[str, Any]) -> Any:
        """Load the weights of network.pretrained: a whole detector without its class layer, or a ResNet. Raises StartError."""
        from pathlib import Path

        from m3b.training.pretrained.tensors import load_tensors
        from m3b.training.pretrained.weight_files import StartError, find_weight_files

        folder, config = Path(str(network["pretrained"])), network["config"]
        if config["builder"] == "resnet":
            if int(config["arch"].get("width", STEM_CHANNELS)) != STEM_CHANNELS:
                raise StartError(
                    f"{folder} holds a ResNet of {config['arch']['width']} channels after its first layer, and those of torchvision "
                    f"have {STEM_CHANNELS}; remove network.detector, so that m3b's own detector starts from it"
                )
            return load_tensors(self.net.backbone.body, find_weight_files(folder), config, str(folder))
        if config["builder"] != self.name:
            raise StartError(
                f"{folder} holds a {config['builder']} network; network.detector={self.name} starts from a ResNet of "
                f"torchvision or from a whole {self.name}"
            )
        head = self.net.head.classification_head
        class_layer, head.cls_logits = head.cls_logits, nn.Identity()  # its classes differ
        try:
            return load_tensors(self.net, find_weight_files(folder), config, str(folder))
        finally:
            head.cls_logits = class_layer

    def heads(self, pixels: torch.Tensor) -> tuple[Heads, list[torch.Tensor]]:
        """Return {name: (B, A, width)}, and the maps of the pyramid."""
        maps = list(self.net.backbone(pixels).values())
        return self.net.head(maps), maps

    def losses(
        self, heads: Heads, pixels: torch.Tensor, maps: list[torch.Tensor], targets: list[Heads]
    ) -> list[torch.Tensor]:
        """Return the loss of the classes, then those of boxes."""
        anchors = self._anchors(list(pixels.shape[2:]), maps, len(pixels))
        counts = ([level_map.shape[2] * level_map.shape[3] for level_map in maps],) if self.name == "fcos" else ()
        losses = self.net.compute_loss(targets, heads, anchors, *counts)
        return [losses["classification"], *(value for name, value in losses.items() if name != "classification")]

    def boxes(self, heads: Heads, padded: Sequence[int], size: list[int]) -> list[Boxes]:
        """Return (boxes, scores, labels) for each image, in torchvision's own order."""
        first_head = next(iter(heads.values()))
        maps = [first_head.new_zeros(1, 1, *(-(-side // 2**level) for side in padded)) for level in range(3, 8)]
        anchors = self._anchors(list(padded), maps, len(first_head))
        anchors_per_location = self.net.anchor_generator.num_anchors_per_location()[0]
        counts = [anchors_per_location * item[0, 0].numel() for item in maps]
        split = {name: list(value.split(counts, dim=1)) for name, value in heads.items()}
        split_anchors = [list(item.split(counts)) for item in anchors]
        detections = self.net.postprocess_detections(split, split_anchors, [(size[0], size[1])] * len(first_head))
        return [(item["boxes"], item["scores"], item["labels"]) for item in detections]

    def _anchors(self, size: list[int], maps: list[torch.Tensor], images: int) -> list[torch.Tensor]:
        from torchvision.models.detection.image_list import ImageList

        pixels = maps[0].new_zeros(1, 1, 1, 1, dtype=torch.float32).expand(images, 1, *size)
        anchors: list[torch.Tensor] = self.net.anchor_generator(
            ImageList(pixels, [(size[0], size[1])] * images), [level_map.float() for level_map in maps]
        )
        return anchors


def _architecture_sizes(network: Mapping[str, Any], backbones: Mapping[str, Any]) -> dict[str, Any]:
    """Return sizes of the detector: those of its pretrained weights, else those of `network.backbone`."""
    arch = dict((network.get("config") or {}).get("arch") or {})
    width = int(network["width"])
    if "block" not in arch:
        if network["backbone"] not in backbones:
            raise SystemExit(f"network.backbone={network['backbone']} is unknown; known are {', '.join(backbones)}")
        block, depths = backbones[network["backbone"]]
        arch = {"block": block, "depths": depths}
    elif "above" in arch:  # a whole detector
        width = int(arch["width"])
    min_width = 64 if backbones is RESNETS else 16  # the heads normalise 32 (MONAI: 8) groups of more than one channel
    if width < min_width or width % (min_width // 2):
        raise SystemExit(
            f"network.width={width}: channels of the pyramid, a multiple of {min_width // 2} from {min_width} on"
        )
    return {"normed": False, "above": width, **arch, "width": width}


def _picture_pyramid(plan: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    """Return torchvision's ResNet with its pyramid; statistics of pretrained weights are frozen."""
    import_detection()
    from torchvision.models import resnet
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7
    from torchvision.ops.misc import FrozenBatchNorm2d

    is_pretrained = bool((plan["network"].get("config") or {}).get("builder"))
    block = resnet.Bottleneck if sizes["block"] == "bottleneck" else resnet.BasicBlock
    body = resnet.ResNet(block, list(sizes["depths"]), norm_layer=FrozenBatchNorm2d if is_pretrained else None)
    if int(plan["channels"]) != 3:
        body.conv1 = nn.Conv2d(int(plan["channels"]), STEM_CHANNELS, 7, 2, 3, bias=False)
        nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")
    widths = [stage * block.expansion for stage in (128, 256, 512)]
    extra_levels = LastLevelP6P7(int(sizes["above"]), int(sizes["width"]))
    return BackboneWithFPN(body, {f"layer{k + 2}": str(k) for k in range(3)}, widths, int(sizes["width"]), extra_levels)


def _build_fcos(plan: Mapping[str, Any], classes: int) -> Any:
    body = _picture_pyramid(plan, _architecture_sizes(plan["network"], RESNETS))
    net = import_detection().FCOS(
        body, classes, score_thresh=MIN_SCORE, topk_candidates=MAX_LEVEL_BOXES, detections_per_img=MAX_IMAGE_BOXES
    )
    # distances pass a ReLU: if both of an axis start below zero, they never get a gradient
    nn.init.constant_(net.head.regression_head.bbox_reg.bias, 1.0)
    return net


def _build_retinanet(plan: Mapping[str, Any], classes: int) -> Any:
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.retinanet import RetinaNetHead

    sizes = _architecture_sizes(plan["network"], RESNETS)
    body = _picture_pyramid(plan, sizes)
    anchors = tuple(
        tuple(int(side * 2 ** (octave_step / 3)) for octave_step in range(3)) for side in plan["network"]["anchors"]
    )
    generator = AnchorGenerator(anchors, ((0.5, 1.0, 2.0),) * len(anchors))
    norm = partial(nn.GroupNorm, 32) if sizes["normed"] else None
    head = RetinaNetHead(body.out_channels, generator.num_anchors_per_location()[0], classes, norm_layer=norm)
    if sizes["normed"]:  # as torchvision trains the version with normalised heads
        head.regression_head._loss_type = "giou"
    return import_detection().RetinaNet(
        body, classes, anchor_generator=generator, head=head, score_thresh=MIN_SCORE, topk_candidates=MAX_LEVEL_BOXES,
        detections_per_img=MAX_IMAGE_BOXES
    )  # fmt: skip


class VolumeDetector(nn.Module):
    """RetinaNet of MONAI with its ATSS matcher and hard negatives, as in its lung nodule tutorial (strides 4 to 16)."""

    order = (0, 1, 2, 3, 4, 5)

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        import_detection()  # MONAI's detector uses parts of torchvision
        from monai.apps.detection.networks.retinanet_detector import RetinaNetDetector
        from monai.apps.detection.networks.retinanet_network import RetinaNet
        from monai.apps.detection.utils.anchor_utils import AnchorGeneratorWithAnchorShape

        network, classes = plan["network"], len(plan["classes"])
        sizes = _architecture_sizes(network, VOLUME_RESNETS)
        shapes = [[float(side) for side in shape] for shape in network["anchors"]]
        generator = AnchorGeneratorWithAnchorShape((1, 2, 4), shapes)
        first = [int(step) for step in network["first"]]
        self.multiple = tuple(8 * step for step in first)
        body = _volume_pyramid(int(plan["channels"]), sizes, first)
        net = RetinaNet(3, classes, len(shapes), body, self.multiple)
        self.detector = RetinaNetDetector(net, generator)
        self.detector.set_atss_matcher(num_candidates=4, center_in_gt=False)
        self.detector.set_hard_negative_sampler(64, positive_fraction=0.3, min_neg=16, pool_size=20)
        self.detector.set_target_keys(box_key="boxes", label_key="labels")
        self.detector.set_box_selector_parameters(
            MIN_SCORE, MAX_LEVEL_BOXES, nms_thresh=0.22, detections_per_img=MAX_IMAGE_BOXES
        )
        self.channels = [(self.detector.cls_key, classes), (self.detector.box_reg_key, 6)]

    def fetch(self, network: Mapping[str, Any]) -> Any:
        """Raise StartError: no layout of MONAI's detectors is known."""
        from m3b.training.pretrained.weight_files import StartError

        raise StartError("network.detector=retinanet3d has no pretrained weights; remove network.pretrained")

    def heads(self, pixels: torch.Tensor) -> tuple[Heads, list[torch.Tensor]]:
        """Return {name: (B, A, width)}, and the maps of the pyramid."""
        outputs = self.detector.network(pixels)
        heads = {name: self.detector._reshape_maps(outputs[name]) for name, _ in self.channels}
        return heads, outputs[self.detector.cls_key]

    def losses(
        self, heads: Heads, pixels: torch.Tensor, maps: list[torch.Tensor], targets: list[Heads]
    ) -> list[torch.Tensor]:
        """Return the loss of the classes, then that of boxes."""
        counts = [level_map.shape[2:].numel() for level_map in maps]
        losses = self.detector.compute_loss(heads, targets, self.detector.anchor_generator(pixels, maps), counts)
        return [losses[name].to(pixels.device) for name, _ in self.channels]

    def boxes(self, heads: Heads, padded: Sequence[int], size: list[int]) -> list[Boxes]:
        """Return (boxes, scores, labels) for each image."""
        first_head = next(iter(heads.values()))
        grids = [
            [-(-side // (step // 4 * 2**level)) for side, step in zip(padded, self.multiple, strict=True)]
            for level in range(3)
        ]
        maps = [first_head.new_zeros(1, 1, *grid) for grid in grids]
        anchors = self.detector.anchor_generator(
            first_head.new_zeros(1, 1, 1, 1, 1).expand(len(first_head), 1, *padded), maps
        )
        counts = [item[0, 0].numel() for item in maps]
        detections = self.detector.postprocess_detections(heads, anchors, [size] * len(first_head), counts)
        return [(item["boxes"], item["labels_scores"], item["labels"]) for item in detections]


def _volume_pyramid(channels: int, sizes: Mapping[str, Any], first: list[int]) -> Any:
    from monai.networks.blocks.backbone_fpn_utils import BackboneWithFPN
    from monai.networks.nets.resnet import ResNet

    stem, expansion = max(16, int(sizes["width"]) // 2), 4 if sizes["block"] == "bottleneck" else 1
    planes = [stem * 2**stage for stage in range(4)]
    body = ResNet(
        sizes["block"],
        list(sizes["depths"]),
        planes,
        3,
        channels,
        conv1_t_size=7,
        conv1_t_stride=tuple(first),
        feed_forward=False,
    )
    widths = [planes[stage] * expansion for stage in (0, 1)]
    return BackboneWithFPN(body, {"layer1": "0", "layer2": "1"}, widths, int(sizes["width"]), 3)


def _is_fake(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)
