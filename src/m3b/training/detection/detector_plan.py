"""What plan.py decides of detectors of libraries: which may be taken, their sizes for the machine, anchors for the boxes.

Nothing here imports PyTorch.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.training.detection.detectors import DIMS, OWN, PACKAGES, detector_of
from m3b.training.pretrained.detector_files import DETECTORS
from m3b.training.pretrained.plan_start import wanted_start
from m3b.training.pretrained.starts import StartError, find_start

KEPT = ("detector", "backbone", "width", "anchors", "first")
"""What of `network` is the detector's own, whatever weights it starts from."""
LEVELS = 5
"""Maps of the pyramid of torchvision's detectors, of strides 8 to 128."""


def asked_detector(settings: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
    """The settings, with `network.detector=` where `network.pretrained=` names a whole detector.

    Raises:
        SystemExit: no such detector, not for these images, a package is missing, or the weights are of another one.
    """
    named = [text.partition("=")[2].strip("\"'") for text in settings if text.startswith("network.detector=")]
    weights = _of_weights(wanted_start(settings), int(facts["dims"]))
    wanted = named[-1] if named else weights or OWN
    said = f"--set network.detector={wanted}"
    if wanted not in DIMS:
        raise SystemExit(f"{said}: known are {', '.join(DIMS)}")
    if wanted != OWN and facts["target"] != "boxes":
        raise SystemExit(f"{said}: a detector of boxes, and these cases have {facts['target']}; boxes around lesions are in "
                         "predict.py's answers anyway")  # fmt: skip
    if int(facts["dims"]) not in DIMS[wanted]:
        fits = [name for name, dims in DIMS.items() if int(facts["dims"]) in dims]
        raise SystemExit(f"{said}: these images are {facts['dims']}D; {', '.join(fits)} take such")
    if weights and weights != wanted:
        raise SystemExit(f"{said}: the weights of network.pretrained are of {weights}; set network.detector={weights}")
    if wanted == "retinanet3d" and wanted_start(settings):
        raise SystemExit(
            f"{said}: it starts from random weights alone; leave network.pretrained out, or network.detector"
        )
    if missing := [name for name in PACKAGES.get(wanted, ()) if importlib.util.find_spec(name) is None]:
        raise SystemExit(f"{said} needs {' and '.join(missing)}: pip install 'm3b[detectors]'")
    return [*settings, *([f"network.detector={weights}"] if weights and not named else [])]


def _of_weights(wanted: str, dims: int) -> str:
    """The detector that a start is, empty for others and for what cannot be used (use_start says why)."""
    if not wanted:
        return ""
    try:
        builder = str(find_start(wanted, "detection", dims).entry["builder"])
    except (StartError, OSError):
        return ""
    return builder if builder in DETECTORS else ""


def use_detector(facts: Mapping[str, Any], plan: dict[str, Any], gpu: bool) -> None:
    """Puts the network of the detector that `network.detector` names into the plan.

    Raises:
        SystemExit: the plan starts from weights, or weighs classes, which the losses of the libraries do not.
    """
    name = detector_of(plan["network"])
    if plan["network"].get("pretrained"):
        raise SystemExit(
            f"--set network.detector={name}: its network follows from it, so make the plan afresh (no --keep)"
        )
    plan["compile"] = False  # matching boxes to anchors looks at values, and would be compiled piece by piece
    weights = [float(weight) for weight in (plan.get("loss") or {}).get("class_weights") or ()]
    if any(weight != 1.0 for weight in weights):
        raise SystemExit(
            f"loss.class_weights: the loss of {name} has none; leave them at 1, or take network.detector={OWN}"
        )
    if name == "retinanet3d":
        first = (plan["network"].get("strides") or [[2, 2, 2]])[0]
        network = {"backbone": "resnet50" if gpu else "resnet10", "width": 128 if gpu else 32, "first": list(first)}
    else:
        network = {"backbone": "resnet50" if gpu else "resnet18", "width": 256 if gpu else 64}
    plan["network"] = {"name": name, "detector": name, **network}
    fit_anchors(facts, plan)


def fit_anchors(facts: Mapping[str, Any], plan: dict[str, Any]) -> None:
    """Anchors for the boxes as they are on the plan's grid. FCOS has none."""
    sides = _on_grid(facts, plan)
    name = detector_of(plan["network"])
    if name == "retinanet":
        small = float(np.percentile(np.sqrt(sides.prod(axis=1)), 20)) if len(sides) else 32.0
        first = int(np.clip(2.0 ** np.round(np.log2(max(small, 1.0))), 8, 32))
        plan["network"]["anchors"] = [first * 2**level for level in range(LEVELS)]
    if name == "retinanet3d":
        usual = (
            np.percentile(sides, (10, 30, 50), axis=0) if len(sides) else np.array([[4.0] * 3, [8.0] * 3, [12.0] * 3])
        )
        plan["network"]["anchors"] = np.maximum(np.round(usual), 2).astype(int).tolist()


def _on_grid(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> np.ndarray:
    """(N, dims) sides of the sampled boxes in pixels of the plan's grid."""
    sides = np.asarray(facts["sides"], float)
    if not len(sides):
        return sides
    scale = np.array(facts["spacing"] or [1.0] * sides.shape[1]) / np.array(plan["spacing"] or [1.0] * sides.shape[1])
    if plan["longest"]:
        scale = scale * min(1.0, plan["longest"] / float(np.median(np.asarray(facts["shapes"]).max(axis=1))))
    return sides * scale


def kept_network(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What of the network stays where the plan starts from weights."""
    return {key: plan["network"][key] for key in KEPT if key in plan["network"]}
