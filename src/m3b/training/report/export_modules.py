"""The network as plain modules without files and images, for ONNX graphs and other exports.

Every deliverable that can be exported has this file with the functions `parts`, `examples`, `facts`, `use`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import predict  # type: ignore[import-not-found]
import torch
from torch import nn

from m3b.training.preprocess import PREPROCESSING_KEYS
from m3b.training.report.network import Reporter, build_model, resolve_folders
from m3b.training.report.tokenizer import ReportTokenizer

MODEL_FOLDER = Path(__file__).resolve().parent


class Encoder(nn.Module):
    """Images (B, V, C, *size) and existing views (B, V) to the memory of the writer.

    Returns the memory (B, N, width), its mask (B, N) as 0 or 1, and the probabilities of the findings (B, F).
    """

    def __init__(self, model: Reporter) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        encoder = self.model.encoder
        view_mask = (views > 0.5).float()
        tokens = encoder.features(encoder.input(image.flatten(0, 1))).flatten(2).transpose(1, 2)
        tokens = encoder.norm(encoder.project(tokens)).unflatten(0, view_mask.shape[:2]) * view_mask[..., None, None]
        positioned = (tokens + encoder.places + encoder.views[: view_mask.shape[1], None]).flatten(1, 2)
        keep = view_mask[..., None].expand(-1, -1, encoder.positions).flatten(1)
        chances = self.model.head(positioned, keep > 0.5).sigmoid()
        return self.model.build_memory(positioned, chances), torch.cat([keep, torch.ones_like(chances)], dim=1), chances


class DecoderStep(nn.Module):
    """Tokens so far (B, T), the memory and its mask to the logits (B, vocabulary) of the next token."""

    def __init__(self, text: nn.Module) -> None:
        super().__init__()
        self.text = text

    def forward(self, tokens: torch.Tensor, memory: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        state = self.text.begin(memory, keep > 0.5)
        logits: torch.Tensor = self.text.advance(tokens, state)[0][:, -1]
        return logits


class FindingModel(nn.Module):
    """Images (B, V, C, *size) with all views to the probabilities of the findings (B, F); contains the whole model."""

    def __init__(self, model: Reporter) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        chances: torch.Tensor = self.model(pixel_values=image)["logits"].sigmoid()
        return chances


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((MODEL_FOLDER / "config.json").read_text(encoding="utf-8"))
    return config


def _has_exported_writer(plan: dict[str, Any]) -> bool:
    return not plan["network"].get("text_model")


def parts(weights: bool = True) -> dict[str, dict[str, Any]]:
    """Return graph name -> {"module" in evaluation mode on the CPU, "inputs", "outputs": names, "dynamic": axes, "about"}.

    A part with "graph": False is no ONNX graph. Random weights without `weights`.
    """
    plan = resolve_folders(read_config()["plan"], MODEL_FOLDER)
    model = predict.load()[1].cpu() if weights else build_model(plan, with_loss=False)
    whole = {"module": FindingModel(model).eval(), "inputs": ["image"], "outputs": ["findings"], "graph": False}
    encoder = {
        "module": Encoder(model).eval(),
        "inputs": ["image", "views"],
        "outputs": ["memory", "keep", "findings"],
        "dynamic": {name: {0: "batch"} for name in ("image", "views", "memory", "keep", "findings")},
        "about": "a study as the memory of the writer, and the probabilities of its findings",
    }
    parts_by_name = {"encoder": encoder, "report": whole}
    if _has_exported_writer(plan):
        parts_by_name["decoder_step"] = {
            "module": DecoderStep(model.text).eval(),
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
    return parts_by_name


@torch.no_grad()
def examples(paths: Sequence[Any] = ()) -> dict[str, list[tuple[torch.Tensor, ...]]]:
    """Return inputs of each part: of the given images, else noise in batches of 1 and 3."""
    plan, noise = read_config()["plan"], torch.Generator().manual_seed(0)
    shape = (int(plan["views"]), int(plan["channels"]), *map(int, plan["size"]))
    studies = [tuple(torch.from_numpy(part)[None] for part in predict.read_study(path, plan)[:2]) for path in paths]
    if not studies:
        studies = [(torch.randn(n, *shape, generator=noise), torch.ones(n, shape[0])) for n in (1, 3)]
    inputs: dict[str, list[tuple[torch.Tensor, ...]]] = {
        "encoder": list(studies),
        "report": [(s[0],) for s in studies],
    }
    modules = parts()
    if "decoder_step" in modules:
        inputs["decoder_step"] = []
        for length, study in enumerate(studies, start=2):
            memory, keep, _ = modules["encoder"]["module"](*study)
            tokens = torch.randint(5, int(plan["vocabulary"]), (len(memory), length), generator=noise)
            inputs["decoder_step"].append((tokens, memory, keep))
    return inputs


def facts() -> dict[str, Any]:
    """Return shapes, values and preprocessing for users of the graphs."""
    plan = read_config()["plan"]
    not_exported = "Not in the graphs: beam search with its rules (`decode`), and the tokenizer (tokenizer.json)."
    if not _has_exported_writer(plan):
        not_exported = "The text model is pretrained and not exported; only the encoder is. " + not_exported
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
        "preprocessing": {key: plan[key] for key in PREPROCESSING_KEYS if key in plan},
        "decode": {"max_tokens": plan["max_tokens"], **plan["decode"]},
        "outputs": {"findings": "(batch, findings): probabilities, in the order of `classes`"},
        "not_exported": not_exported,
    }


def use(network: FindingModel) -> None:
    """Let predict.py use this network."""
    plan, device = resolve_folders(read_config()["plan"], MODEL_FOLDER), next(network.parameters()).device
    words = ReportTokenizer.load(MODEL_FOLDER / "tokenizer.json")
    predict.load = lambda: (plan, network.model, words, device)
