"""Detectors of torchvision as files: their sizes, as the tensors have them, whichever ResNet and head they were built with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.training.pretrained.starts import StartError, shapes_in

BODY = "backbone.body."
STEM = 64
"""Channels after the first convolution of every ResNet of torchvision."""
DETECTORS = ("fcos", "retinanet")
"""Builders of whole detectors."""


def detector_arch(files: Sequence[Path]) -> dict[str, Any]:
    """{"block", "depths", "width" of the pyramid, "normed": whether the heads of a RetinaNet have normalisation, "giou"}.

    Raises:
        StartError: parts of the detector are missing.
    """
    shapes = shapes_in(files)
    arch = resnet_arch(shapes, BODY, files[0])
    pyramid = next(
        (shape for name, shape in sorted(shapes.items()) if name.startswith("backbone.fpn.layer_blocks.")), None
    )
    if pyramid is None:
        raise StartError(
            f"{files[0]}: no backbone.fpn.* is there, so it is no whole detector of torchvision; fetch it again"
        )
    normed = any(re.search(r"^head\.classification_head\.conv\.\d+\.1\.weight$", name) for name in shapes)
    above = shapes.get("backbone.fpn.extra_blocks.p6.weight", [0, 0])
    return {**arch, "width": pyramid[0], "normed": normed, "above": int(above[1])}


def resnet_arch(shapes: Mapping[str, Sequence[int]], prefix: str, file: Path) -> dict[str, Any]:
    """{"block", "depths"} of a ResNet whose tensors begin with `prefix`. Raises StartError where it is not whole, or another."""
    depths = [0, 0, 0, 0]
    for name in shapes:
        if found := re.match(rf"{re.escape(prefix)}layer([1-4])\.(\d+)\.conv2\.weight$", name):
            stage = int(found[1]) - 1
            depths[stage] = max(depths[stage], int(found[2]) + 1)
    stem = shapes.get(f"{prefix}conv1.weight")
    if not all(depths) or stem is None:
        lacking = "its first convolution" if stem is None else f"layer{depths.index(0) + 1}"
        raise StartError(f"{file}: {lacking} is missing: the file is not whole, or no ResNet; fetch it again")
    if stem[0] != STEM:
        raise StartError(
            f"{file}: its first layer has {stem[0]} channels, and the ResNets of torchvision have {STEM}; leave "
            "network.detector out, so that the project's own detector starts from it"
        )
    deep = f"{prefix}layer1.0.conv3.weight" in shapes
    return {"block": "bottleneck" if deep else "basic", "depths": depths}
