"""Planning of detectors of libraries: which are possible, sizes for the machine, anchors for the boxes.

Nothing here imports PyTorch.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.detection.detectors import DIMS, OWN_DETECTOR, PACKAGES, detector_of
from m3b.training.pretrained.detector_files import DETECTORS
from m3b.training.pretrained.plan_start import requested_start
from m3b.training.pretrained.starts import find_start
from m3b.training.pretrained.weight_files import StartError

DETECTOR_KEYS = ("detector", "backbone", "width", "anchors", "first")
"""Keys of `network` that describe the detector, whatever weights it starts from."""
PYRAMID_LEVELS = 5
"""Levels of the pyramid of torchvision's detectors, with strides 8 to 128."""


def resolve_detector(settings: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
    """Return the settings, with `network.detector=` added if `network.pretrained=` names a complete detector.

    Raises:
        SystemExit: unknown detector, unsuitable for these images, a missing package, or weights of another detector.
    """
    detectors = [text.partition("=")[2].strip("\"'") for text in settings if text.startswith("network.detector=")]
    weights_detector = _detector_of_weights(requested_start(settings), int(facts["dims"]))
    detector = detectors[-1] if detectors else weights_detector or OWN_DETECTOR
    option = f"--set network.detector={detector}"
    if detector not in DIMS:
        raise SystemExit(f"{option}: unknown detector; known are {', '.join(DIMS)}")
    if detector != OWN_DETECTOR and facts["target"] != "boxes":
        raise SystemExit(f"{option}: a detector of boxes, and these cases have {facts['target']}; boxes around lesions are in "
                         "predict.py's answers anyway")  # fmt: skip
    if int(facts["dims"]) not in DIMS[detector]:
        suitable = [name for name, dims in DIMS.items() if int(facts["dims"]) in dims]
        raise SystemExit(f"{option}: these images are {facts['dims']}D; use {', '.join(suitable)}")
    if weights_detector and weights_detector != detector:
        raise SystemExit(
            f"{option}: the weights of network.pretrained belong to {weights_detector}; set network.detector={weights_detector}"
        )
    if detector == "retinanet3d" and requested_start(settings):
        raise SystemExit(f"{option}: it has no pretrained weights; remove network.pretrained or network.detector")
    if missing := [name for name in PACKAGES.get(detector, ()) if importlib.util.find_spec(name) is None]:
        raise SystemExit(f"{option} needs {' and '.join(missing)}: pip install 'm3b[detectors]'")
    return [*settings, *([f"network.detector={weights_detector}"] if weights_detector and not detectors else [])]


def _detector_of_weights(start: str, dims: int) -> str:
    """Return the detector that a start is; empty for other or unusable starts (start_from reports them)."""
    if not start:
        return ""
    try:
        builder = str(find_start(start, "detection", dims).entry["builder"])
    except (StartError, OSError):
        return ""
    return builder if builder in DETECTORS else ""


def use_detector(facts: Mapping[str, Any], plan: dict[str, Any], gpu: bool) -> None:
    """Write the network of the detector that `network.detector` names into the plan.

    Raises:
        SystemExit: the plan starts from weights, or has class weights, which the losses of the libraries do not support.
    """
    name = detector_of(plan["network"])
    if plan["network"].get("pretrained"):
        raise SystemExit(f"--set network.detector={name}: it determines the network; make a new plan (without --keep)")
    plan["compile"] = False  # matching boxes to anchors depends on values and breaks the graph
    weights = [float(weight) for weight in (plan.get("loss") or {}).get("class_weights") or ()]
    if any(weight != 1.0 for weight in weights):
        raise SystemExit(
            f"loss.class_weights: the loss of {name} does not support them; set them to 1, or network.detector={OWN_DETECTOR}"
        )
    if name == "retinanet3d":
        first = (plan["network"].get("strides") or [[2, 2, 2]])[0]
        network = {"backbone": "resnet50" if gpu else "resnet10", "width": 128 if gpu else 32, "first": list(first)}
    else:
        network = {"backbone": "resnet50" if gpu else "resnet18", "width": 256 if gpu else 64}
    plan["network"] = {"name": name, "detector": name, **network}
    fit_anchors(facts, plan)


def fit_anchors(facts: Mapping[str, Any], plan: dict[str, Any]) -> None:
    """Set anchors for the boxes on the plan's grid. FCOS has none."""
    sides = _grid_sides(facts, plan)
    name = detector_of(plan["network"])
    if name == "retinanet":
        small_side = float(np.percentile(np.sqrt(sides.prod(axis=1)), 20)) if len(sides) else 32.0
        first = int(np.clip(2.0 ** np.round(np.log2(max(small_side, 1.0))), 8, 32))
        plan["network"]["anchors"] = [first * 2**level for level in range(PYRAMID_LEVELS)]
    if name == "retinanet3d":
        percentiles = (
            np.percentile(sides, (10, 30, 50), axis=0) if len(sides) else np.array([[4] * 3, [8] * 3, [12] * 3])
        )
        plan["network"]["anchors"] = np.maximum(np.round(percentiles), 2).astype(int).tolist()


def _grid_sides(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> np.ndarray:
    """Return (N, dims) sides of the sampled boxes in pixels of the plan's grid."""
    sides = np.asarray(facts["sides"], float)
    if not len(sides):
        return sides
    scale = np.array(facts["spacing"] or [1.0] * sides.shape[1]) / np.array(plan["spacing"] or [1.0] * sides.shape[1])
    if plan["longest"]:
        scale = scale * min(1.0, plan["longest"] / float(np.median(np.asarray(facts["shapes"]).max(axis=1))))
    return np.asarray(sides * scale)


def detector_settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the network that stay if the plan starts from weights."""
    return {key: plan["network"][key] for key in DETECTOR_KEYS if key in plan["network"]}
