"""Detectors of libraries, as they are: network, matching of the true boxes, loss and decoder of torchvision (2D) and MONAI (3D).

`network.detector` of plan.json names one (`detectors`). Images come as the plan's intensity and sizes make them: what the
libraries do to images before their networks (scaling to 800 pixels, ImageNet's mean) is left out. Boxes are those of the template:
lower then upper corner in the order of the array's axes, in pixels of the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.augment import row_like
from m3b.training.pretrained.detector_files import STEM
from m3b.training.recipe import add_channels, get_recipe, with_derived_channels
from m3b.training.torchvision_ops import detection

LEAST = 0.01
"""Boxes with a lower score are not decoded."""
CANDIDATES, MOST = 300, 200
"""Of each map of the pyramid, and of an image after suppression: the surest boxes go on."""
RESNETS = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
}
VOLUME_RESNETS = {"resnet10": ("basic", (1, 1, 1, 1)), **RESNETS}

Boxes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Heads = dict[str, torch.Tensor]


class LibraryBoxes(nn.Module):
    """`forward(pixel_values (B, C, *patch), boxes (B, M, 2 d + 2) or None) -> {"logits": (B, K + 2 d [+ 1], A), "loss"}`.

    A are the anchors of all maps of the pyramid, one map after the other; channels are logits of the classes, then what the
    library's decoder makes a box of, then FCOS's centre-ness. So the networks of several folds can be averaged (`ensemble`)
    before `decode`. A row of `boxes` is as in `Loss.box_loss`; boxes that the patch cuts in two (last column 0) are not asked for.
    """

    def __init__(self, plan: Mapping[str, Any], load: bool = True) -> None:
        super().__init__()
        self.recipe, plan = get_recipe(), with_derived_channels(plan)
        self.dims, self.classes = int(plan["dims"]), len(plan["classes"])
        self.box_weight = float((plan.get("loss") or {}).get("boxes", 1.0))
        self.parts: PictureDetector | VolumeDetector = PictureDetector(plan) if self.dims == 2 else VolumeDetector(plan)
        self.taken = self.parts.fetch(plan["network"]) if load and plan["network"].get("pretrained") else None

    def forward(self, pixel_values: torch.Tensor, boxes: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        pixels, size = self._padded(add_channels(self.recipe, pixel_values)), pixel_values.shape[2:]
        heads, maps = self.parts.heads(pixels)
        flat = torch.cat(list(heads.values()), dim=2).transpose(1, 2).float()
        if boxes is None:
            return {"logits": flat}
        if _without_content(
            flat
        ):  # plan.py counts memory and work: matching takes little of either, and looks at values
            return {"logits": flat, "loss": flat.square().mean()}
        targets = self._targets(boxes.float(), size)
        try:
            terms = self.parts.losses({key: value.float() for key, value in heads.items()}, pixels, maps, targets)
        except ValueError as error:  # MONAI stops there; the training has an answer of its own
            if "NaN" not in str(error):
                raise
            return {"logits": flat, "loss": flat.sum() * float("nan")}
        chances, *rest = terms
        # the last term is zero: a batch without boxes gives every parameter a gradient too, which several processes wait for
        loss = chances + self.box_weight * torch.stack(rest).sum() + flat.sum() * 0.0
        return {"logits": flat, "loss": loss}

    @torch.no_grad()
    def decode(self, logits: torch.Tensor, size: Sequence[int]) -> list[Boxes]:
        """One (boxes (N, 2 d) in pixels of the input of `size`, scores, labels) an image, from the logits of `forward`."""
        padded = [side + (-side) % step for side, step in zip(size, self.parts.multiple, strict=True)]
        values = logits.float().transpose(1, 2)
        widths = [width for _, width in self.parts.channels]
        heads = dict(zip((name for name, _ in self.parts.channels), values.split(widths, dim=2), strict=True))
        found = self.parts.boxes(heads, padded, list(size))
        return [(boxes[:, list(self.parts.order)], scores, labels) for boxes, scores, labels in found]

    def _padded(self, pixels: torch.Tensor) -> torch.Tensor:
        extra = [(-side) % step for side, step in zip(pixels.shape[2:], self.parts.multiple, strict=True)]
        if not any(extra):
            return pixels
        return functional.pad(pixels, [part for one in reversed(extra) for part in (0, one)], mode="replicate")

    def _targets(self, boxes: torch.Tensor, size: Sequence[int]) -> list[Heads]:
        """What the libraries take: {"boxes" (N, 2 d), "labels" (N,)} an image."""
        d, found = self.dims, []
        edge = row_like(boxes, [*size, *size])
        for rows in boxes:
            corners = torch.minimum(rows[:, : 2 * d].clamp_min(0), edge)
            whole = (rows[:, 2 * d] >= 0) & (rows[:, 2 * d + 1] > 0)
            whole &= (corners[:, d:] - corners[:, :d] > 1e-2).all(1)
            found.append({"boxes": corners[whole][:, list(self.parts.order)], "labels": rows[whole, 2 * d].long()})
        return found


class PictureDetector(nn.Module):
    """FCOS or RetinaNet of torchvision on a ResNet of torchvision with its feature pyramid (strides 8 to 128)."""

    order = (1, 0, 3, 2)
    """torchvision's boxes are (x, y, x, y), x along columns."""
    multiple = (32, 32)

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        network, classes = plan["network"], len(plan["classes"])
        self.name = str(network["detector"])
        self.net = _fcos(plan, classes) if self.name == "fcos" else _retinanet(plan, classes)
        self.channels = [("cls_logits", classes), ("bbox_regression", 4)] + [("bbox_ctrness", 1)] * (
            self.name == "fcos"
        )

    def fetch(self, network: Mapping[str, Any]) -> Any:
        """The weights of network.pretrained: a whole detector but for its layer of classes, or a ResNet alone. Raises StartError."""
        from pathlib import Path

        from m3b.training.pretrained.starts import StartError, weights_in
        from m3b.training.pretrained.tensors import fill

        place, config = Path(str(network["pretrained"])), network["config"]
        if config["builder"] == "resnet":
            if int(config["arch"].get("width", STEM)) != STEM:
                raise StartError(
                    f"{place} holds a ResNet of {config['arch']['width']} channels after its first layer, and those of torchvision "
                    f"have {STEM}; leave network.detector out, so that the project's own detector starts from it"
                )
            return fill(self.net.backbone.body, weights_in(place), config, str(place))
        if config["builder"] != self.name:
            raise StartError(
                f"{place} holds a {config['builder']} network; network.detector={self.name} starts from a ResNet of "
                f"torchvision or from a whole {self.name}"
            )
        head = self.net.head.classification_head
        own, head.cls_logits = head.cls_logits, nn.Identity()  # its classes are others
        try:
            return fill(self.net, weights_in(place), config, str(place))
        finally:
            head.cls_logits = own

    def heads(self, pixels: torch.Tensor) -> tuple[Heads, list[torch.Tensor]]:
        """{name: (B, A, width)}, and the maps of the pyramid."""
        maps = list(self.net.backbone(pixels).values())
        return self.net.head(maps), maps

    def losses(
        self, heads: Heads, pixels: torch.Tensor, maps: list[torch.Tensor], targets: list[Heads]
    ) -> list[torch.Tensor]:
        """The loss of the classes, then those of boxes."""
        anchors = self._anchors(list(pixels.shape[2:]), maps, len(pixels))
        counts = ([one.shape[2] * one.shape[3] for one in maps],) if self.name == "fcos" else ()
        found = self.net.compute_loss(targets, heads, anchors, *counts)
        return [found["classification"], *(value for name, value in found.items() if name != "classification")]

    def boxes(self, heads: Heads, padded: Sequence[int], size: list[int]) -> list[Boxes]:
        """(boxes, scores, labels) an image, in torchvision's own order."""
        some = next(iter(heads.values()))
        maps = [some.new_zeros(1, 1, *(-(-side // 2**level) for side in padded)) for level in range(3, 8)]
        anchors = self._anchors(list(padded), maps, len(some))
        each = self.net.anchor_generator.num_anchors_per_location()[0]
        counts = [each * one[0, 0].numel() for one in maps]
        split = {name: list(value.split(counts, dim=1)) for name, value in heads.items()}
        kept = [list(one.split(counts)) for one in anchors]
        found = self.net.postprocess_detections(split, kept, [(size[0], size[1])] * len(some))
        return [(one["boxes"], one["scores"], one["labels"]) for one in found]

    def _anchors(self, size: list[int], maps: list[torch.Tensor], images: int) -> list[torch.Tensor]:
        from torchvision.models.detection.image_list import ImageList

        pixels = maps[0].new_zeros(1, 1, 1, 1, dtype=torch.float32).expand(images, 1, *size)
        found: list[torch.Tensor] = self.net.anchor_generator(
            ImageList(pixels, [(size[0], size[1])] * images), [one.float() for one in maps]
        )
        return found


def _sizes(network: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the detector: of weights that it starts from those, else those of `network.backbone`."""
    arch = dict((network.get("config") or {}).get("arch") or {})
    width = int(network["width"])
    if "block" not in arch:
        if network["backbone"] not in known:
            raise SystemExit(f"network.backbone={network['backbone']}: known are {', '.join(known)}")
        block, depths = known[network["backbone"]]
        arch = {"block": block, "depths": depths}
    elif "above" in arch:  # a whole detector
        width = int(arch["width"])
    least = (
        64 if known is RESNETS else 16
    )  # the heads normalise 32 groups of channels, MONAI's 8: more than one in each
    if width < least or width % (least // 2):
        raise SystemExit(f"network.width={width}: channels of the pyramid, a multiple of {least // 2} from {least} on")
    return {"normed": False, "above": width, **arch, "width": width}


def _pyramid(plan: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    """torchvision's ResNet with its pyramid; statistics of weights that were trained before stay as they are."""
    detection()
    from torchvision.models import resnet
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7
    from torchvision.ops.misc import FrozenBatchNorm2d

    started = bool((plan["network"].get("config") or {}).get("builder"))
    block = resnet.Bottleneck if sizes["block"] == "bottleneck" else resnet.BasicBlock
    body = resnet.ResNet(block, list(sizes["depths"]), norm_layer=FrozenBatchNorm2d if started else None)
    if int(plan["channels"]) != 3:
        body.conv1 = nn.Conv2d(int(plan["channels"]), STEM, 7, 2, 3, bias=False)
        nn.init.kaiming_normal_(body.conv1.weight, mode="fan_out", nonlinearity="relu")
    widths = [stage * block.expansion for stage in (128, 256, 512)]
    above = LastLevelP6P7(int(sizes["above"]), int(sizes["width"]))
    return BackboneWithFPN(body, {f"layer{k + 2}": str(k) for k in range(3)}, widths, int(sizes["width"]), above)


def _fcos(plan: Mapping[str, Any], classes: int) -> Any:
    body = _pyramid(plan, _sizes(plan["network"], RESNETS))
    net = detection().FCOS(body, classes, score_thresh=LEAST, topk_candidates=CANDIDATES, detections_per_img=MOST)
    # sides go through a ReLU: where those of both ends of an axis begin below zero, no gradient ever reaches them
    nn.init.constant_(net.head.regression_head.bbox_reg.bias, 1.0)
    return net


def _retinanet(plan: Mapping[str, Any], classes: int) -> Any:
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.retinanet import RetinaNetHead

    sizes = _sizes(plan["network"], RESNETS)
    body = _pyramid(plan, sizes)
    anchors = tuple(tuple(int(side * 2 ** (third / 3)) for third in range(3)) for side in plan["network"]["anchors"])
    generator = AnchorGenerator(anchors, ((0.5, 1.0, 2.0),) * len(anchors))
    norm = partial(nn.GroupNorm, 32) if sizes["normed"] else None
    head = RetinaNetHead(body.out_channels, generator.num_anchors_per_location()[0], classes, norm_layer=norm)
    if sizes["normed"]:  # as torchvision trains the one with normalised heads
        head.regression_head._loss_type = "giou"
    return detection().RetinaNet(
        body, classes, anchor_generator=generator, head=head, score_thresh=LEAST, topk_candidates=CANDIDATES,
        detections_per_img=MOST,
    )  # fmt: skip


class VolumeDetector(nn.Module):
    """RetinaNet of MONAI with its ATSS matcher and hard negatives, as its lung nodule tutorial sets them (strides 4 to 16)."""

    order = (0, 1, 2, 3, 4, 5)

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        detection()  # MONAI's is built of parts of torchvision
        from monai.apps.detection.networks.retinanet_detector import RetinaNetDetector
        from monai.apps.detection.networks.retinanet_network import RetinaNet
        from monai.apps.detection.utils.anchor_utils import AnchorGeneratorWithAnchorShape

        network, classes = plan["network"], len(plan["classes"])
        sizes = _sizes(network, VOLUME_RESNETS)
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
        self.detector.set_box_selector_parameters(LEAST, CANDIDATES, nms_thresh=0.22, detections_per_img=MOST)
        self.channels = [(self.detector.cls_key, classes), (self.detector.box_reg_key, 6)]

    def fetch(self, network: Mapping[str, Any]) -> Any:
        """No layout of MONAI's detectors is known to the registry. Raises StartError."""
        from m3b.training.pretrained.starts import StartError

        raise StartError("network.detector=retinanet3d starts from random weights alone; leave network.pretrained out")

    def heads(self, pixels: torch.Tensor) -> tuple[Heads, list[torch.Tensor]]:
        """{name: (B, A, width)}, and the maps of the pyramid."""
        found = self.detector.network(pixels)
        return {name: self.detector._reshape_maps(found[name]) for name, _ in self.channels}, found[
            self.detector.cls_key
        ]

    def losses(
        self, heads: Heads, pixels: torch.Tensor, maps: list[torch.Tensor], targets: list[Heads]
    ) -> list[torch.Tensor]:
        """The loss of the classes, then that of boxes."""
        counts = [one.shape[2:].numel() for one in maps]
        found = self.detector.compute_loss(heads, targets, self.detector.anchor_generator(pixels, maps), counts)
        return [found[name].to(pixels.device) for name, _ in self.channels]

    def boxes(self, heads: Heads, padded: Sequence[int], size: list[int]) -> list[Boxes]:
        """(boxes, scores, labels) an image."""
        some = next(iter(heads.values()))
        grids = [
            [-(-side // (step // 4 * 2**level)) for side, step in zip(padded, self.multiple, strict=True)]
            for level in range(3)
        ]
        maps = [some.new_zeros(1, 1, *grid) for grid in grids]
        anchors = self.detector.anchor_generator(some.new_zeros(1, 1, 1, 1, 1).expand(len(some), 1, *padded), maps)
        counts = [one[0, 0].numel() for one in maps]
        found = self.detector.postprocess_detections(heads, anchors, [size] * len(some), counts)
        return [(one["boxes"], one["labels_scores"], one["labels"]) for one in found]


def _volume_pyramid(channels: int, sizes: Mapping[str, Any], first: list[int]) -> Any:
    from monai.networks.blocks.backbone_fpn_utils import BackboneWithFPN
    from monai.networks.nets.resnet import ResNet

    stem, wide_block = max(16, int(sizes["width"]) // 2), 4 if sizes["block"] == "bottleneck" else 1
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
    widths = [planes[stage] * wide_block for stage in (0, 1)]
    return BackboneWithFPN(body, {"layer1": "0", "layer2": "1"}, widths, int(sizes["width"]), 3)


def _without_content(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)
