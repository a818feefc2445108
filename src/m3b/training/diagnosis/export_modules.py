"""The network as plain modules, apart from files and images: what ONNX graphs and other exports are made of.

Every deliverable that can be exported has this file, with the same three functions: `parts`, `examples`, `facts`;
`prepare` and `answer` besides where one image is one input of the network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import predict  # type: ignore[import-not-found]
import torch
from torch import nn

from m3b.training.diagnosis.answers import answer_of, meaning
from m3b.training.diagnosis.covariates import encode, split_case, width
from m3b.training.diagnosis.network import build_model
from m3b.training.diagnosis.tta import see
from m3b.training.diagnosis.views import example, prepared, room, shape_of
from m3b.training.preprocess import KEYS
from m3b.training.preprocess import prepare as prepare_image

HERE = Path(__file__).resolve().parent


class Ensemble(nn.Module):
    """`forward(image (B, C, H, W[, D])) -> (B, K)`: the calibrated probabilities, or the numbers, of the mean logits of the networks.

    Of a model that is given covariates these are a further input, (B, width); of one of studies `image` is (B, V, C, H, W[, D]),
    and the last input (B, V) is 1 for the views that are there.
    """

    def __init__(self, networks: Sequence[nn.Module], config: dict[str, Any]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.views, self.config, self.beside = list(config["views"]), config, _beside(config["plan"])
        self.register_buffer("temperature", torch.tensor(config["temperature"]), persistent=False)
        self.register_buffer("bias", torch.tensor(config["bias"]), persistent=False)

    def forward(self, image: torch.Tensor, *beside: torch.Tensor) -> torch.Tensor:
        more = dict(zip(self.beside, beside, strict=True))
        seen = [see(image, view, "views" in more) for view in self.views]
        logits = torch.stack(
            [network(view, **more)["logits"].float() for network in self.networks for view in seen]
        ).mean(0)
        return meaning(logits / self.temperature + self.bias, self.config)


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    return config


OUTPUTS = {
    "probabilities": "(batch, classes), in the order of `classes`, calibrated",
    "survival": "(batch, times): the chance that the event has not come until each time of `edges`",
    "value": "(batch, 1), in the unit of the quantity that `classes` names",
}
"""What the graph gives, by name."""


def _beside(plan: dict[str, Any]) -> list[str]:
    """What the network takes beside the image."""
    return [*(["covariates"] if plan.get("covariates") else []), *(["views"] if room(plan) > 1 else [])]


def _output(config: dict[str, Any]) -> str:
    if config["task"] == "survival":
        return "survival"
    return "probabilities" if config["probabilities"] else "value"


def parts(weights: bool = True) -> dict[str, dict[str, Any]]:
    """Graph name to {"module" in evaluation mode on the CPU, "inputs", "outputs": names}.

    `weights=False` leaves the weights random and reads no weight file.
    """
    config = read_config()
    plan = config["plan"]
    if weights:
        networks = [model.cpu() for model in predict.load()[1]]
    else:
        networks = [build_model(plan, with_loss=False) for _ in config["weights"]]
    module = Ensemble(networks, config)
    inputs = ["image", *_beside(plan)]
    return {"model": {"module": module.eval(), "inputs": inputs, "outputs": [_output(config)]}}


def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Inputs of each part: of images where there are some, else noise in batches of 1 and 3."""
    plan = read_config()["plan"]
    rules = plan.get("covariates") or []
    noise = torch.Generator().manual_seed(0)
    made: list[tuple[torch.Tensor, ...]] = []
    for case in paths:
        path, given = split_case(case, rules, whole=False)
        pixels, there = prepared(path, plan, prepare_image)
        views = [] if there is None else [torch.from_numpy(there)[None]]
        made.append((torch.from_numpy(pixels)[None], *_encoded([given], rules), *views))
    for count in () if made else (1, 3):
        given = torch.rand(count, width(rules), generator=noise)
        pixels = torch.randn(count, *shape_of(plan), generator=noise)
        made.append((pixels, *([given] if rules else []), *example(plan, count).values()))
    return {"model": made}


def _encoded(cases: list[dict[str, Any]], rules: list[dict[str, Any]]) -> list[torch.Tensor]:
    return [torch.from_numpy(encode(cases, rules))] if rules else []


def facts() -> dict[str, Any]:
    """Shapes, values and preprocessing, for whoever feeds the graphs."""
    config = read_config()
    plan = config["plan"]
    first = "views, " if room(plan) > 1 else ""
    return {
        "task": config["task"],
        "classes": config["classes"],
        "multi_label": bool(config["multi_label"]),
        "thresholds": config["thresholds"],
        "main": "model",
        "image": {
            "axes": f"batch, {first}channels, rows, columns" + (", slices" if plan["dims"] == 3 else ""),
            "channels": int(plan["channels"]),
            "channel_names": plan.get("channel_names"),
            "size": list(plan["size"]),
            "dtype": "float32",
        },
        **({"beside": _beside(plan)} if _beside(plan) else {}),
        **({"edges": config["edges"]} if config["task"] == "survival" else {}),
        **({"covariates": plan["covariates"]} if plan.get("covariates") else {}),
        "preprocessing": {key: plan[key] for key in KEYS if key in plan},
        "outputs": {_output(config): OUTPUTS[_output(config)]},
    }


def prepare(path: Any) -> torch.Tensor:
    """One image file as the network takes it, without the batch axis."""
    return torch.from_numpy(prepare_image(path, read_config()["plan"]))


def answer(row: torch.Tensor) -> dict[str, Any]:
    """What predict.py says of one row of the output."""
    return answer_of(read_config(), row.detach().cpu().numpy())
