"""The network as a plain module, apart from files and images: what ONNX graphs and other exports are made of.

Every deliverable that can be exported has this file, with the same functions: `parts`, `examples`, `facts`, `use`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import predict  # type: ignore[import-not-found]
import torch
from torch import nn

from m3b.training.channels import read_case
from m3b.training.detection.center_detector import distances
from m3b.training.detection.network import build_model
from m3b.training.preprocess import surrounded
from m3b.training.volume_cache import prepare_image

HERE = Path(__file__).resolve().parent


class Network(nn.Module):
    """`forward(image (B, C, *patch))`: chances (B, K, *patch) of the voxels, or for boxes (B, K + 2 d K, *cells).

    Of boxes the first K channels are the chances that a box of the class has its centre in the cell; then, class by
    class, the distances in pixels from the cell's middle to the box's lower sides and to its upper sides.
    """

    def __init__(self, model: nn.Module, classes: int, boxes: bool) -> None:
        super().__init__()
        self.model, self.classes, self.boxes = model, classes, boxes

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        logits = self.model(pixel_values=image)["logits"].float()
        if not self.boxes:
            return logits.sigmoid()
        d = image.ndim - 2
        groups = logits[:, self.classes :].split(2 * d, dim=1)
        sides = [distances(group, self.model.cell) for group in groups]  # type: ignore[arg-type]
        return torch.cat([logits[:, : self.classes].sigmoid(), *sides], dim=1)


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    return config


def parts(weights: bool = True) -> dict[str, dict[str, Any]]:
    """Graph name to {"module" in evaluation mode on the CPU, "inputs", "outputs": names}.

    `weights=False` leaves the weights random and reads no weight file.
    """
    config = read_config()
    if weights:
        model = predict.load()[1].cpu()
    else:
        model = predict.together([build_model(config["plan"], with_loss=False) for _ in config["weights"]], config)
    network = Network(model, len(config["classes"]), config["target"] == "boxes").eval()
    return {"model": {"module": network, "inputs": ["image"], "outputs": ["chances"]}}


def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Inputs of each part: the middle of images where there are some, else noise in batches of 1 and 2."""
    plan = read_config()["plan"]
    patch, noise = [int(n) for n in plan["patch"]], torch.Generator().manual_seed(0)
    made = [(_middle(prepare_image(read_case(path, plan), plan, str(path)), patch),) for path in paths]
    return {"model": made or [(torch.randn(n, int(plan["channels"]), *patch, generator=noise),) for n in (1, 2)]}


def _middle(array: np.ndarray, patch: Sequence[int]) -> torch.Tensor:
    """(1, C, *patch) out of the middle of (C, *shape), with the corner's value where there is no image."""
    widths = [(max(0, want - have) // 2,) * 2 for have, want in zip(array.shape[1:], patch, strict=True)]
    wide = surrounded(array, [(a, b + 1) for a, b in widths], array.reshape(len(array), -1)[:, 0])
    spots = [slice((n - want) // 2, (n - want) // 2 + want) for n, want in zip(wide.shape[1:], patch, strict=True)]
    return torch.from_numpy(np.ascontiguousarray(wide[(slice(None), *spots)]))[None]


def facts() -> dict[str, Any]:
    """Shapes, values and preprocessing, for whoever feeds the graphs."""
    config = read_config()
    plan = config["plan"]
    boxes = config["target"] == "boxes"
    said = (
        "(batch, K + 2 d K, cells): K chances of a box's centre; then for each class distances in pixels from the cell's "
        "middle to the lower sides and to the upper sides"
        if boxes
        else "(batch, classes, patch): chance of each voxel; classes may overlap"
    )
    return {
        "task": "detection",
        "target": config["target"],
        "classes": config["classes"],
        "multi_label": True,
        "main": "model",
        "image": {
            "axes": "batch, channels, rows, columns" + (", slices" if plan["dims"] == 3 else ""),
            "channels": int(plan["channels"]),
            "channel_names": plan.get("channel_names"),
            "size": list(plan["patch"]),
            "dtype": "float32",
        },
        "preprocessing": {
            key: plan[key]
            for key in ("dims", "channels", "channel_names", "spacing", "size", "intensity")
            if key in plan
        },
        "decision": {key: config[key] for key in ("thresholds", "least_sizes", "calibration") if key in config},
        "outputs": {"chances": said},
        "not_exported": (
            f"Not in the graph: {_mirrored(plan)}overlapping windows over the image, peaks of the heat map and suppression of "
            "double boxes, calibration."
            if boxes
            else f"Not in the graph: {_mirrored(plan)}overlapping windows over the image, weighted by a Gaussian; thresholds and "
            "least sizes (`decision`)."
        ),
    }


def _mirrored(plan: dict[str, Any]) -> str:
    axes = plan.get("mirror") or []
    return f"mirroring ({', '.join(axes)}), " if axes else ""


def use(network: Network) -> None:
    """Makes predict.py work with this network."""
    config, device = read_config(), next(network.parameters()).device
    predict.load = lambda: (config, network.model, device)  # type: ignore[assignment]
