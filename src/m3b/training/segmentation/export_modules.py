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
from m3b.training.ensemble import build_ensemble
from m3b.training.preprocess import pad_array
from m3b.training.segmentation import ordered_structures
from m3b.training.segmentation.network import build_model
from m3b.training.segmentation.scoring import predict_case
from m3b.training.segmentation.sliding_window import choose_window, total_strides
from m3b.training.stored_networks import load_networks
from m3b.training.volume_cache import prepare_image

FOLDER = Path(__file__).resolve().parent


class Network(nn.Module):
    """`forward(image (B, C, *window)) -> (B, outputs, *window)`: logits of background and classes, in float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.model.half = False

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(pixel_values=image)["logits"]
        return logits


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((FOLDER / "config.json").read_text())
    if config["engine"] != "trainer":
        raise SystemExit(
            f"a model of the engine {config['engine']!r} cannot be exported: its windows and mirroring are Python code; "
            "train with `--set engine=trainer`, or use predict.py"
        )
    return config


def parts(weights: bool = True) -> dict[str, dict[str, Any]]:
    """Return {graph name: {"module" in evaluation mode on the CPU, "inputs", "outputs": names, "dynamic": axes}}.

    `weights=False` leaves the weights random and reads no weight file.
    """
    config = read_config()
    models = load_networks(FOLDER, config, lambda: build_model(config["plan"], with_loss=False), weights)
    axes = {0: "batch"}
    if config["plan"]["network"]["name"] != "swinunetr":  # its windows are cut in Python, for one size
        axes |= dict(enumerate(["rows", "columns", "slices"][: int(config["plan"]["dims"])], start=2))
    graph = {
        "module": Network(build_ensemble(models, predict.averaging_of(config["plan"]))).eval(),
        "inputs": ["image"],
        "outputs": ["logits"],
    }
    return {"model": {**graph, "dynamic": {"image": axes, "logits": axes}}}


def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Return inputs of each graph: the central window of the images, or noise in batches of 1 and 2 without images."""
    plan = read_config()["plan"]
    patch, noise = [int(n) for n in plan["patch"]], torch.Generator().manual_seed(0)
    windows = [(_central_window(prepare_image(read_case(path, plan), plan, str(path)), plan),) for path in paths]
    return {"model": windows or [(torch.randn(n, int(plan["channels"]), *patch, generator=noise),) for n in (1, 2)]}


def _central_window(array: np.ndarray, plan: dict[str, Any]) -> torch.Tensor:
    """Return the central window (1, C, *window) of (C, *shape), padded as in predictions."""
    window = choose_window(array.shape[1:], plan)
    widths = [(max(0, side - length) // 2,) * 2 for length, side in zip(array.shape[1:], window, strict=True)]
    padded = pad_array(array, [(a, b + 1) for a, b in widths], plan["pad_value"])
    positions = [
        slice((n - side) // 2, (n - side) // 2 + side) for n, side in zip(padded.shape[1:], window, strict=True)
    ]
    return torch.from_numpy(np.ascontiguousarray(padded[(slice(None), *positions)]))[None]


def facts() -> dict[str, Any]:
    """Return shapes, values and preprocessing, for users of the graphs."""
    config = read_config()
    plan = config["plan"]
    overlap = bool(plan["overlap"])
    channels = list(config["classes"]) if overlap else ["background", *config["classes"]]
    decision = "a class is present if its logit is above 0" if overlap else "the class has the largest logit"
    if plan.get("chains"):
        channels, decision = ordered_structures.channel_names(plan), ordered_structures.explain_channels(plan)
    return {
        "task": "segmentation",
        "classes": config["classes"],
        "labels": config["labels"],
        "channels": channels,
        "multi_label": overlap,
        "main": "model",
        "image": {
            "axes": "batch, channels, rows, columns" + (", slices" if plan["dims"] == 3 else ""),
            "channels": int(plan["channels"]),
            "channel_names": plan.get("channel_names"),
            "size": list(plan["patch"]),
            "multiple_of": list(total_strides(plan)),
            "dtype": "float32",
        },
        "preprocessing": {
            key: plan[key]
            for key in ("dims", "channels", "channel_names", "spacing", "size", "intensity")
            if key in plan
        },
        "outputs": {"logits": f"(batch, {len(channels)}, window), channels as in `channels`; {decision}"},
        "not_exported": (
            "Not in the graph: overlapping windows weighted by a Gaussian, mirroring "
            f"({', '.join(plan.get('mirror') or []) or 'none'}), averaging over shifts of the image "
            f"({'yes' if plan.get('shifted') is True else 'none'}), resampling of the logits to the image's grid, and "
            f"post-processing of the masks ({plan.get('refine') or 'none'})."
        ),
    }


def use(network: Network) -> None:
    """Make predict.py use this network, in the precision that it chooses."""
    config, device = read_config(), next(network.parameters()).device
    plan = config["plan"]
    precision = plan.get("precision")
    half = precision in ("bf16", "fp16") if device.type == "cuda" else precision == "bf16" and predict._has_bf16()
    network.model.half = half

    def run(image: Any, name: str, batch: int) -> np.ndarray:
        array = torch.from_numpy(prepare_image(image, plan, name))
        logits = predict_case(network.model, array, {**plan, "batch": batch}, device).numpy()
        return np.asarray(predict.decide_on_grid(logits, image.array.shape[1:], bool(plan["overlap"])))

    predict.load = lambda: (config, run)
