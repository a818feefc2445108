"""The network as plain modules without files and images, for ONNX graphs and other exports.

Every deliverable that can be exported has this file with the functions `parts`, `examples`, `facts`; `prepare` and `answer` too if one
image is one input of the network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import predict  # type: ignore[import-not-found]
import torch
from torch import nn

from m3b.training.diagnosis.answers import format_answer, interpret_logits
from m3b.training.diagnosis.covariates import encode, input_width, split_case
from m3b.training.diagnosis.linear_probe import LinearProbe, has_linear_probe
from m3b.training.diagnosis.network import build_delivered_model
from m3b.training.diagnosis.tta import apply_view
from m3b.training.diagnosis.views import input_shape, make_view_mask, prepare_case, view_count
from m3b.training.preprocess import PREPROCESSING_KEYS
from m3b.training.preprocess import prepare_image as prepare_image
from m3b.training.stored_networks import load_networks

MODEL_FOLDER = Path(__file__).resolve().parent


class Ensemble(nn.Module):
    """`forward(image (B, C, H, W[, D])) -> (B, K)`: the calibrated probabilities, or the numbers, of the mean logits of the networks.

    Covariates are a further input, (B, width). For studies, `image` is (B, V, C, H, W[, D]), and the last input (B, V) is 1 for
    existing views.
    """

    def __init__(self, networks: Sequence[nn.Module], probe: nn.Module | None, config: dict[str, Any]) -> None:
        super().__init__()
        self.networks, self.probe = nn.ModuleList(networks), probe
        self.views, self.config, self.extra_inputs = list(config["views"]), config, _list_extra_inputs(config["plan"])
        self.register_buffer("temperature", torch.tensor(config["temperature"]), persistent=False)
        self.register_buffer("bias", torch.tensor(config["bias"]), persistent=False)

    def forward(self, image: torch.Tensor, *extra_inputs: torch.Tensor) -> torch.Tensor:
        extra = dict(zip(self.extra_inputs, extra_inputs, strict=True))
        views = [apply_view(image, view, "views" in extra) for view in self.views]
        logits = torch.stack(
            [network(view, **extra)["logits"].float() for view in views for network in self.networks]
        ).mean(0)
        if self.probe is not None:
            logits = self.probe(logits, image, extra.get("views"))
        return interpret_logits(logits / self.temperature + self.bias, self.config)


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((MODEL_FOLDER / "config.json").read_text())
    return config


OUTPUT_DESCRIPTIONS = {
    "probabilities": "(batch, classes), in the order of `classes`, calibrated",
    "survival": "(batch, times): probability of no event until each time of `edges`",
    "value": "(batch, 1), in the unit of the quantity that `classes` names",
}
"""Description of each output of the graph."""


def _list_extra_inputs(plan: dict[str, Any]) -> list[str]:
    """Return the names of the inputs in addition to the image."""
    return [*(["covariates"] if plan.get("covariates") else []), *(["views"] if view_count(plan) > 1 else [])]


def _name_output(config: dict[str, Any]) -> str:
    if config["task"] == "survival":
        return "survival"
    return "probabilities" if config["probabilities"] else "value"


def parts(weights: bool = True) -> dict[str, dict[str, Any]]:
    """Return graph name -> {"module" in evaluation mode on the CPU, "inputs", "outputs": names}; random weights without `weights`."""
    config = read_config()
    plan = config["plan"]
    probe = None
    if weights:
        networks = [model.cpu() for model in predict.load()[1]]
        probe = loaded.cpu() if (loaded := predict.load_probe()) is not None else None
    else:
        networks = load_networks(MODEL_FOLDER, config, lambda: build_delivered_model(plan), weights=False)
        probe = LinearProbe(plan) if has_linear_probe(plan) else None
    module = Ensemble(networks, probe, config)
    inputs = ["image", *_list_extra_inputs(plan)]
    return {"model": {"module": module.eval(), "inputs": inputs, "outputs": [_name_output(config)]}}


def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Return inputs of each part: of the given images, else noise in batches of 1 and 3."""
    plan = read_config()["plan"]
    rules = plan.get("covariates") or []
    noise = torch.Generator().manual_seed(0)
    inputs: list[tuple[torch.Tensor, ...]] = []
    for case in paths:
        path, covariates = split_case(case, rules, complete=False)
        pixels, view_mask = prepare_case(path, plan, prepare_image)
        views = [] if view_mask is None else [torch.from_numpy(view_mask)[None]]
        inputs.append((torch.from_numpy(pixels)[None], *_encoded([covariates], rules), *views))
    for count in () if inputs else (1, 3):
        covariates = torch.rand(count, input_width(rules), generator=noise)
        pixels = torch.randn(count, *input_shape(plan), generator=noise)
        inputs.append((pixels, *([covariates] if rules else []), *make_view_mask(plan, count).values()))
    return {"model": inputs}


def _encoded(cases: list[dict[str, Any]], rules: list[dict[str, Any]]) -> list[torch.Tensor]:
    return [torch.from_numpy(encode(cases, rules))] if rules else []


def facts() -> dict[str, Any]:
    """Return shapes, values and preprocessing for users of the graphs."""
    config = read_config()
    plan = config["plan"]
    view_axis = "views, " if view_count(plan) > 1 else ""
    return {
        "task": config["task"],
        "classes": config["classes"],
        "multi_label": bool(config["multi_label"]),
        "thresholds": config["thresholds"],
        "main": "model",
        "image": {
            "axes": f"batch, {view_axis}channels, rows, columns" + (", slices" if plan["dims"] == 3 else ""),
            "channels": int(plan["channels"]),
            "channel_names": plan.get("channel_names"),
            "size": list(plan["size"]),
            "dtype": "float32",
        },
        **({"beside": _list_extra_inputs(plan)} if _list_extra_inputs(plan) else {}),
        **({"edges": config["edges"]} if config["task"] == "survival" else {}),
        **({"covariates": plan["covariates"]} if plan.get("covariates") else {}),
        "preprocessing": {key: plan[key] for key in PREPROCESSING_KEYS if key in plan},
        "outputs": {_name_output(config): OUTPUT_DESCRIPTIONS[_name_output(config)]},
    }


def prepare(path: Any) -> torch.Tensor:
    """Return one image file as network input, without the batch axis."""
    return torch.from_numpy(prepare_image(path, read_config()["plan"]))


def answer(row: torch.Tensor) -> dict[str, Any]:
    """Return the answer of predict.py for one row of the output."""
    return format_answer(read_config(), row.detach().cpu().numpy())
