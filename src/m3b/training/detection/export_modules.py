"""The network as a module without files and images, for ONNX graphs and other exports.

Every deliverable that can be exported has this file with the same functions: `parts`, `examples`, `facts`, `use`.
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
from m3b.training.detection.center_detector import decode_distances
from m3b.training.detection.network import build_model
from m3b.training.preprocess import pad_array
from m3b.training.stored_networks import load_networks
from m3b.training.volume_cache import prepare_image

FOLDER = Path(__file__).resolve().parent


class Network(nn.Module):
    """`forward(image (B, C, *patch))`: probabilities (B, K, *patch) of the voxels, or for boxes (B, K + 2 d K, *cells).

    For boxes the first K channels are the probabilities that a box of the class has its centre in the cell; then, class by class,
    the distances in pixels from the centre of the cell to the lower and to the upper sides of the box.
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
        sides = [decode_distances(group, self.model.cell) for group in groups]
        return torch.cat([logits[:, : self.classes].sigmoid(), *sides], dim=1)


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((FOLDER / "config.json").read_text())
    return config


def parts(weights: bool = True) -> dict[str, dict[str, Any]]:
    """Return {graph name: {"module" in evaluation mode on the CPU, "inputs", "outputs": names}}.

    `weights=False` leaves the weights random and reads no weight file.
    """
    config = read_config()
    if weights:
        model = predict.load()[1].cpu()
    else:
        models = load_networks(FOLDER, config, lambda: build_model(config["plan"], with_loss=False), weights=False)
        model = predict.average_networks(models, config)
    network = Network(model, len(config["classes"]), config["target"] == "boxes").eval()
    return {"model": {"module": network, "inputs": ["image"], "outputs": ["chances"]}}


def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Return inputs of each graph: the centre of the images, or noise in batches of 1 and 2 without images."""
    plan = read_config()["plan"]
    patch, noise = [int(n) for n in plan["patch"]], torch.Generator().manual_seed(0)
    patches = [(_central_patch(prepare_image(read_case(path, plan), plan, str(path)), patch),) for path in paths]
    return {"model": patches or [(torch.randn(n, int(plan["channels"]), *patch, generator=noise),) for n in (1, 2)]}


def _central_patch(array: np.ndarray, patch: Sequence[int]) -> torch.Tensor:
    """Return the central patch (1, C, *patch) of (C, *shape), padded with the corner values."""
    widths = [(max(0, side - length) // 2,) * 2 for length, side in zip(array.shape[1:], patch, strict=True)]
    padded = pad_array(array, [(a, b + 1) for a, b in widths], array.reshape(len(array), -1)[:, 0])
    positions = [
        slice((n - side) // 2, (n - side) // 2 + side) for n, side in zip(padded.shape[1:], patch, strict=True)
    ]
    return torch.from_numpy(np.ascontiguousarray(padded[(slice(None), *positions)]))[None]


def facts() -> dict[str, Any]:
    """Return shapes, values and preprocessing, for users of the graphs."""
    config = read_config()
    plan = config["plan"]
    has_boxes = config["target"] == "boxes"
    output_text = (
        "(batch, K + 2 d K, cells): K probabilities of a box's centre; then for each class distances in pixels from the "
        "centre of the cell to the lower sides and to the upper sides"
        if has_boxes
        else "(batch, classes, patch): probability of each voxel; classes may overlap"
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
        "outputs": {"chances": output_text},
        "not_exported": (
            f"Not in the graph: {_mirroring_text(plan)}overlapping windows over the image, peaks of the heat map and suppression of "
            "overlapping boxes, calibration."
            if has_boxes
            else f"Not in the graph: {_mirroring_text(plan)}overlapping windows, weighted by a Gaussian; thresholds and "
            "minimum sizes (`decision`)."
        ),
    }


def _mirroring_text(plan: dict[str, Any]) -> str:
    axes = plan.get("mirror") or []
    return f"mirroring ({', '.join(axes)}), " if axes else ""


def use(network: Network) -> None:
    """Make predict.py use this network."""
    config, device = read_config(), next(network.parameters()).device
    predict.load = lambda: (config, network.model, device)
