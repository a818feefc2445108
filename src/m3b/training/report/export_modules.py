"""The network as plain modules, apart from files and images: what ONNX graphs and other exports are made of.

Every deliverable that can be exported has this file, with the same functions: `parts`, `examples`, `facts`, `use`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import predict  # type: ignore[import-not-found]
import torch
from torch import nn

from m3b.training.preprocess import KEYS
from m3b.training.recipe import add_channels
from m3b.training.report.network import Reporter, build_model, inside

HERE = Path(__file__).resolve().parent


class Encoder(nn.Module):
    """Images (B, V, C, *size) and which views there are (B, V) to all that words are written from.

    Gives the memory (B, N, width), which of it exists (B, N) as 0 or 1, and the chances of the findings (B, F).
    """

    def __init__(self, model: Reporter) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        encoder = self.model.encoder
        there = (views > 0.5).float()
        found = encoder.features(add_channels(encoder.recipe, image.flatten(0, 1))).flatten(2).transpose(1, 2)
        found = encoder.norm(encoder.project(found)).unflatten(0, there.shape[:2]) * there[..., None, None]
        placed = (found + encoder.places + encoder.views[: there.shape[1], None]).flatten(1, 2)
        keep = there[..., None].expand(-1, -1, encoder.positions).flatten(1)
        chances = self.model.head(placed, keep > 0.5).sigmoid()
        return self.model.remember(placed, chances), torch.cat([keep, torch.ones_like(chances)], dim=1), chances


class Step(nn.Module):
    """Tokens so far (B, T), the memory and what of it exists, to the logits (B, vocabulary) of the next token."""

    def __init__(self, text: nn.Module) -> None:
        super().__init__()
        self.text = text

    def forward(self, tokens: torch.Tensor, memory: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        state = self.text.begin(memory, keep > 0.5)  # type: ignore[operator]
        logits: torch.Tensor = self.text.advance(tokens, state)[0][:, -1]  # type: ignore[operator]
        return logits


class Findings(nn.Module):
    """Images (B, V, C, *size), all views there, to the chances of the findings (B, F); holds the whole model."""

    def __init__(self, model: Reporter) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        chances: torch.Tensor = self.model(pixel_values=image)["logits"].sigmoid()
        return chances


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
    return config


def _own_text(plan: dict[str, Any]) -> bool:
    return not plan["network"].get("text_model")


def parts(weights: bool = True) -> dict[str, dict[str, Any]]:
    """Graph name to {"module" in evaluation mode on the CPU, "inputs", "outputs": names, "dynamic": axes, "about"}.

    A part with "graph": False is no ONNX graph. `weights=False` leaves the weights random and reads no weight file.
    """
    plan = inside(read_config()["plan"], HERE)
    model = predict.load()[1].cpu() if weights else build_model(plan, with_loss=False)
    whole = {"module": Findings(model).eval(), "inputs": ["image"], "outputs": ["findings"], "graph": False}
    encoder = {
        "module": Encoder(model).eval(),
        "inputs": ["image", "views"],
        "outputs": ["memory", "keep", "findings"],
        "dynamic": {name: {0: "batch"} for name in ("image", "views", "memory", "keep", "findings")},
        "about": "a study as the memory that words are written from, and the chances of its findings",
    }
    found = {"encoder": encoder, "report": whole}
    if _own_text(plan):
        found["decoder_step"] = {
            "module": Step(model.text).eval(),
            "inputs": ["tokens", "memory", "keep"],
            "outputs": ["next"],
            "dynamic": {
                "tokens": {0: "batch", 1: "written"},
                "memory": {0: "batch"},
                "keep": {0: "batch"},
                "next": {0: "batch"},
            },
            "about": "the logits of the next token after the tokens so far",
        }
    return found


@torch.no_grad()
def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Inputs of each part: of images where there are some, else noise in batches of 1 and 3."""
    plan, noise = read_config()["plan"], torch.Generator().manual_seed(0)
    shape = (int(plan["views"]), int(plan["channels"]), *map(int, plan["size"]))
    studies = [tuple(torch.from_numpy(one)[None] for one in predict.read_study(path, plan)) for path in paths]
    if not studies:
        studies = [(torch.randn(n, *shape, generator=noise), torch.ones(n, shape[0])) for n in (1, 3)]
    found: dict[str, list[tuple[torch.Tensor, ...]]] = {"encoder": list(studies), "report": [(s[0],) for s in studies]}
    modules = parts()
    if "decoder_step" in modules:
        found["decoder_step"] = []
        for length, study in enumerate(studies, start=2):
            memory, keep, _ = modules["encoder"]["module"](*study)
            tokens = torch.randint(5, int(plan["vocabulary"]), (len(memory), length), generator=noise)
            found["decoder_step"].append((tokens, memory, keep))
    return found


def facts() -> dict[str, Any]:
    """Shapes, values and preprocessing, for whoever feeds the graphs."""
    plan = read_config()["plan"]
    left = "Not in the graphs: beam search with its rules (`decode`), and the tokenizer (tokenizer.json)."
    if not _own_text(plan):
        left = "The text model was taken from elsewhere and is not exported: the encoder alone is. " + left
    return {
        "task": "report",
        "classes": [*plan["classes"], *(item if isinstance(item, str) else str(item) for item in plan["findings"])],
        "sections": plan["sections"],
        "main": "report",
        "image": {
            "axes": "batch, views, channels, rows, columns" + (", slices" if plan["dims"] == 3 else ""),
            "views": int(plan["views"]),
            "channels": int(plan["channels"]),
            "channel_names": plan.get("channel_names"),
            "size": list(plan["size"]),
            "dtype": "float32",
        },
        "preprocessing": {key: plan[key] for key in KEYS if key in plan},
        "decode": {"max_tokens": plan["max_tokens"], **plan["decode"]},
        "outputs": {"findings": "(batch, findings): chances, in the order of `classes`"},
        "not_exported": left,
    }


def use(network: Findings) -> None:
    """Makes predict.py work with this network."""
    plan, device = inside(read_config()["plan"], HERE), next(network.parameters()).device
    words = predict.Words.load(HERE / "tokenizer.json")
    predict.load = lambda: (plan, network.model, words, device)  # type: ignore[assignment]
