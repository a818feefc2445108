"""The network as plain modules, apart from files and images: what ONNX graphs and other exports are made of.

Every deliverable that can be exported has this file, with the same three functions: `parts`, `examples`, `facts`;
`prepare` and `answer` besides where one image is one input of the network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import predict
import torch
from Model.network import build_model
from torch import nn
from Utils.answers import answer_of, meaning
from Utils.covariates import encode, split_case, width
from Utils.preprocess import KEYS
from Utils.preprocess import prepare as prepare_image
from Utils.tta import see

HERE = Path(__file__).resolve().parent


class Ensemble(nn.Module):
    """`forward(image (B, C, H, W[, D])) -> (B, K)`: calibrated probabilities, or numbers, averaged over the networks.

    Of a model that is given covariates these are a second input, (B, width).
    """

    def __init__(self, networks: Sequence[nn.Module], config: dict[str, Any]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.views, self.config = list(config["views"]), config
        self.register_buffer("temperature", torch.tensor(config["temperature"]), persistent=False)
        self.register_buffer("bias", torch.tensor(config["bias"]), persistent=False)

    def forward(self, image: torch.Tensor, covariates: torch.Tensor | None = None) -> torch.Tensor:
        found = []
        for network in self.networks:
            seen = [network(see(image, view), covariates=covariates)["logits"].float() for view in self.views]
            logits = torch.stack(seen).mean(0)
            logits = logits / self.temperature + self.bias
            found.append(meaning(logits, self.config))
        return torch.stack(found).mean(0)


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    return config


OUTPUTS = {
    "probabilities": "(batch, classes), in the order of `classes`, calibrated",
    "survival": "(batch, times): the chance that the event has not come until each time of `edges`",
    "value": "(batch, 1), in the unit of the quantity that `classes` names",
}
"""What the graph gives, by name."""


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
    inputs = ["image", "covariates"] if plan.get("covariates") else ["image"]
    return {"model": {"module": module.eval(), "inputs": inputs, "outputs": [_output(config)]}}


def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Inputs of each part: of images where there are some, else noise in batches of 1 and 3."""
    plan = read_config()["plan"]
    rules = plan.get("covariates") or []
    shape = (int(plan["channels"]), *map(int, plan["size"]))
    noise = torch.Generator().manual_seed(0)
    made: list[tuple[torch.Tensor, ...]] = []
    for case in paths:
        path, given = split_case(case, rules, whole=False)
        made.append((prepare(path)[None], *_encoded([given], rules)))
    for count in () if made else (1, 3):
        given = torch.rand(count, width(rules), generator=noise)
        made.append((torch.randn(count, *shape, generator=noise), *([given] if rules else [])))
    return {"model": made}


def _encoded(cases: list[dict[str, Any]], rules: list[dict[str, Any]]) -> list[torch.Tensor]:
    return [torch.from_numpy(encode(cases, rules))] if rules else []


def facts() -> dict[str, Any]:
    """Shapes, values and preprocessing, for whoever feeds the graphs."""
    config = read_config()
    plan = config["plan"]
    return {
        "task": config["task"],
        "classes": config["classes"],
        "multi_label": bool(config["multi_label"]),
        "thresholds": config["thresholds"],
        "main": "model",
        "image": {
            "axes": "batch, channels, rows, columns" + (", slices" if plan["dims"] == 3 else ""),
            "channels": int(plan["channels"]),
            "channel_names": plan.get("channel_names"),
            "size": list(plan["size"]),
            "dtype": "float32",
        },
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
