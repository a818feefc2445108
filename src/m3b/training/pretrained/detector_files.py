"""Sizes of torchvision detectors from the tensors of their files, for any ResNet and head."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.training.pretrained.weight_files import StartError, read_tensor_shapes

BODY_PREFIX = "backbone.body."
STEM_CHANNELS = 64
"""Channels after the first convolution of torchvision's ResNets."""
DETECTORS = ("fcos", "retinanet")
"""Builders of complete detectors."""


def read_detector_arch(files: Sequence[Path]) -> dict[str, Any]:
    """Return {"block", "depths", "width" of the pyramid, "normed": a RetinaNet's heads have normalisation, "above": channels below
    P6}.

    Raises:
        StartError: parts of the detector are missing.
    """
    shapes = read_tensor_shapes(files)
    arch = read_resnet_arch(shapes, BODY_PREFIX, files[0])
    pyramid = next(
        (shape for name, shape in sorted(shapes.items()) if name.startswith("backbone.fpn.layer_blocks.")), None
    )
    if pyramid is None:
        raise StartError(
            f"{files[0]}: backbone.fpn.* is missing, so it is no complete detector of torchvision; fetch it again"
        )
    has_norm = any(re.search(r"^head\.classification_head\.conv\.\d+\.1\.weight$", name) for name in shapes)
    extra_block = shapes.get("backbone.fpn.extra_blocks.p6.weight", [0, 0])
    return {**arch, "width": pyramid[0], "normed": has_norm, "above": int(extra_block[1])}


def read_resnet_arch(shapes: Mapping[str, Sequence[int]], prefix: str, file: Path) -> dict[str, Any]:
    """Return {"block", "depths"} of a ResNet whose tensors begin with `prefix`. Raises StartError if it is incomplete or another."""
    depths = [0, 0, 0, 0]
    for name in shapes:
        if match := re.match(rf"{re.escape(prefix)}layer([1-4])\.(\d+)\.conv2\.weight$", name):
            stage = int(match[1]) - 1
            depths[stage] = max(depths[stage], int(match[2]) + 1)
    stem = shapes.get(f"{prefix}conv1.weight")
    if not all(depths) or stem is None:
        missing = "its first convolution" if stem is None else f"layer{depths.index(0) + 1}"
        raise StartError(f"{file}: {missing} is missing: the file is incomplete, or no ResNet; fetch it again")
    if stem[0] != STEM_CHANNELS:
        raise StartError(
            f"{file}: its first layer has {stem[0]} channels, torchvision's ResNets have {STEM_CHANNELS}; leave out "
            "network.detector, so that the project's own detector starts from it"
        )
    has_bottleneck = f"{prefix}layer1.0.conv3.weight" in shapes
    return {"block": "bottleneck" if has_bottleneck else "basic", "depths": depths}
