"""The report network: every token is written from a memory of image tokens and predicted findings.

    images -> encoder -> image tokens -> finding head -> probabilities
                              |                               |
                              +---------- memory -------------+ -> text decoder -> findings, impression

Reports are similar, so a decoder alone learns the language and ignores the image. Against that, the encoder is first trained on the
findings (`EncoderTraining`) and the writer on reports given their findings (`WriterTraining`); each finding is a token of the memory,
in training often the true one of the report, so that the decoder learns to follow the memory; input tokens are dropped, so that it
cannot rely on its own text; and image tokens or finding tokens are hidden at random, so that it uses both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.recipe import get_recipe
from m3b.training.report.decoder import TextDecoder
from m3b.training.report.encoder import FindingHead, ImageEncoder

Output = dict[str, torch.Tensor]


class Writer(nn.Module):
    """The text decoder, and an embedding of each finding between absent and present."""

    def __init__(self, plan: Mapping[str, Any], weights: bool) -> None:
        super().__init__()
        network, self.count = plan["network"], len(plan["classes"]) + len(plan["findings"])
        self.unknown, self.pad, self.word_dropout = int(plan["unknown"]), int(plan["pad"]), float(plan["word_dropout"])
        vocabulary, max_length = int(plan["vocabulary"]), sum(int(v) for v in plan["max_tokens"].values()) + 4
        if network.get("text_model"):
            self.text: Any = build_pretrained_writer(plan, vocabulary, max_length, weights)
        else:
            width, layers, heads = (int(network[key]) for key in ("width", "layers", "heads"))
            self.text = TextDecoder(vocabulary, width, layers, heads, float(network["dropout"]), max_length)
        self.width = int(self.text.width)
        self.present = nn.Parameter(torch.randn(self.count, self.width) * 0.5)
        self.absent = nn.Parameter(torch.randn(self.count, self.width) * 0.5)

    def embed_findings(self, finding_probabilities: torch.Tensor) -> torch.Tensor:
        """Return (B, findings, width) embeddings of (B, findings) probabilities."""
        return finding_probabilities[..., None] * self.present + (1 - finding_probabilities[..., None]) * self.absent

    def soften_findings(self, findings: torch.Tensor) -> torch.Tensor:
        """Return true findings as uncertain as predicted ones while training: each up to 0.35 away from its value."""
        return (findings - torch.rand_like(findings) * 0.35).abs() if self.training else findings

    def predict_tokens(self, tokens: torch.Tensor, memory: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """Return (B, T, vocabulary) logits after each token; while training some input tokens become unknown."""
        if self.training and self.word_dropout:
            is_dropped = torch.rand(tokens.shape, device=tokens.device) < self.word_dropout
            is_dropped[:, 0] = False  # except for the mark of the section
            tokens = torch.where(is_dropped & (tokens != self.pad), torch.full_like(tokens, self.unknown), tokens)
        logits: torch.Tensor = self.text.advance(tokens, self.text.begin(memory, keep))[0]
        return logits

    def trim(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Remove columns that are padding in every row; on GPUs, which this would synchronise, `collate` has done it."""
        if tokens.device.type != "cpu":
            return tokens, targets
        max_length = int((tokens != self.pad).any(dim=0).nonzero().max()) + 1
        return tokens[:, :max_length], targets[:, :max_length]


def build_pretrained_writer(plan: Mapping[str, Any], vocabulary: int, max_length: int, weights: bool) -> nn.Module:
    """Build the pretrained writer of the plan, with adapters if it has `network.lora`."""
    folder, rank = str(plan["network"]["text_model"]), int(plan["network"].get("lora") or 0)
    if rank:
        from m3b.training.report.lora import AdaptedText

        return AdaptedText(folder, vocabulary, max_length, rank, plan["marks"])
    from m3b.training.report.pretrained_writer import PretrainedText

    return PretrainedText(folder, vocabulary, max_length, weights)


class Reporter(nn.Module):
    """`forward(pixel_values (B, C, H, W[, D]) or (B, V, C, ...), ...) -> {"logits": (B, findings), "loss"?}`."""

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module | None, weights: bool) -> None:
        super().__init__()
        network = plan["network"]
        self.dims, self.loss = int(plan["dims"]), loss
        self.rule = {key: float(network[key]) for key in ("hide_image", "hide_findings", "truth", "image_gradient")}
        self.encoder, self.writer = ImageEncoder(plan, weights), Writer(plan, weights)
        self.count, width, writer_width = self.writer.count, self.encoder.width, self.writer.width
        if network.get("text_model"):
            self.text.make_room(self.encoder.positions * int(plan["views"]) + self.count)
        self.head = FindingHead(width, self.count, float(network["dropout"]))
        self.bridge = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, writer_width))
        self.matched = (
            nn.ModuleList((nn.Linear(width, 64), nn.Linear(writer_width, 64))) if plan.get("contrastive") else None
        )

    @property
    def text(self) -> Any:
        """Return the text decoder."""
        return self.writer.text

    def encode_images(self, pixel_values: torch.Tensor, views: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """Return image tokens (B, N, width), their mask (B, N) bool, and the findings' logits (B, findings)."""
        if pixel_values.ndim == self.dims + 2:
            pixel_values = pixel_values[:, None]
        is_present = pixel_values.new_ones(pixel_values.shape[:2]) if views is None else views
        is_present = is_present > 0.5
        tokens = self.encoder(pixel_values, is_present)
        keep = is_present.repeat_interleave(self.encoder.positions, dim=1)
        return tokens, keep, self.head(tokens, keep)

    def build_memory(self, tokens: torch.Tensor, finding_probabilities: torch.Tensor) -> torch.Tensor:
        """Return the memory (B, N + findings, width of the writer)."""
        return torch.cat([self.bridge(tokens), self.writer.embed_findings(finding_probabilities)], dim=1)

    def forward(
        self,
        pixel_values: torch.Tensor,
        views: torch.Tensor | None = None,
        tokens: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
        findings: torch.Tensor | None = None,
    ) -> Output:
        """`tokens`, `targets` (B, T) int64, -100 for ignored targets; `findings` (B, findings) 0 or 1."""
        image, keep, logits = self.encode_images(pixel_values, views)
        output = {"logits": logits}
        if findings is None or self.loss is None:
            return output
        parts = {"findings": (logits, findings)}
        if tokens is not None and targets is not None:
            tokens, targets = self.writer.trim(tokens, targets)
            memory, keep = self._build_training_memory(image, keep, logits, findings)
            parts["text"] = (self.writer.predict_tokens(tokens, memory, keep), targets)
            if self.matched is not None:
                parts["match"] = self._embed_for_matching(image, tokens)
        return {**output, **self.loss(parts)}

    def _build_training_memory(
        self, image: torch.Tensor, keep: torch.Tensor, logits: torch.Tensor, findings: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        finding_probabilities, rows = logits.detach().sigmoid(), image.shape[0]
        share = self.rule["image_gradient"]
        image = share * image + (1 - share) * image.detach()
        finding_mask = keep.new_ones(rows, self.count)
        if self.training:
            truth = (torch.rand(rows, 1, device=image.device) < self.rule["truth"]).float()
            finding_probabilities = truth * self.writer.soften_findings(findings) + (1 - truth) * finding_probabilities
            random_values = torch.rand(rows, 1, device=image.device)
            has_findings = self.count > 0
            keep = keep & ~((random_values < self.rule["hide_image"]) & has_findings)
            finding_mask = finding_mask & (random_values < 1 - self.rule["hide_findings"])
        return self.build_memory(image, finding_probabilities), torch.cat([keep, finding_mask], dim=1)

    def _embed_for_matching(self, image: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B, 64) embeddings of the images and of the reports, for the contrastive loss."""
        assert self.matched is not None
        vectors = self.text.embed(tokens)
        is_present = (tokens != self.writer.pad).float()[..., None]
        mean = (vectors * is_present).sum(dim=1) / is_present.sum(dim=1).clamp_min(1)
        return self.matched[0](image.mean(dim=1)), self.matched[1](mean)

    @torch.no_grad()
    def write(
        self,
        pixel_values: torch.Tensor,
        views: torch.Tensor | None,
        plan: Mapping[str, Any],
        words: Any,
        beams: int = 0,
    ) -> list[dict[str, str]]:
        """Return {"findings", "impression"} of each study by beam search; `beams` overrides the plan's if not 0."""
        from m3b.training.report.beam_search import make_rules, search_beams

        image, keep, logits = self.encode_images(pixel_values, views)
        memory = self.build_memory(image, logits.sigmoid())
        keep = torch.cat([keep, keep.new_ones(len(image), self.count)], dim=1)
        decode = plan["decode"]
        sequences = search_beams(
            self.text,
            memory,
            keep,
            make_rules(plan, words),
            beams or int(decode["beams"]),
            float(decode["length_penalty"]),
        )
        return [get_recipe().postprocess(plan, words.split(sequence)) for sequence in sequences]


class EncoderTraining(nn.Module):
    """Encoder and finding head, trained before any token is written."""

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module) -> None:
        super().__init__()
        self.encoder = ImageEncoder(plan)
        count = len(plan["classes"]) + len(plan["findings"])
        self.head, self.loss = FindingHead(self.encoder.width, count, float(plan["network"]["dropout"])), loss

    def forward(
        self, pixel_values: torch.Tensor, views: torch.Tensor, findings: torch.Tensor, **_: torch.Tensor
    ) -> Output:
        is_present = views > 0.5
        tokens = self.encoder(pixel_values, is_present)
        logits = self.head(tokens, is_present.repeat_interleave(self.encoder.positions, dim=1))
        return {"logits": logits, **self.loss({"findings": (logits, findings)})}


class WriterTraining(nn.Module):
    """The writer, trained on reports with the findings that they state: it learns the language without images."""

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module) -> None:
        super().__init__()
        self.writer, self.loss = Writer(plan, True), loss

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor, findings: torch.Tensor, **_: torch.Tensor) -> Output:
        tokens, targets = self.writer.trim(tokens, targets)
        memory = self.writer.embed_findings(self.writer.soften_findings(findings))
        keep = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        return dict(self.loss({"text": (self.writer.predict_tokens(tokens, memory, keep), targets)}))


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> Reporter:
    """Build the network of plan.json. A deliverable builds it without loss, and pretrained parts from their configuration: their
    weights are among its own."""
    return Reporter(plan, get_recipe().build_loss(plan) if with_loss else None, weights=with_loss)


def resolve_folders(plan: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the plan with the folders of pretrained parts below `folder`."""
    network = dict(plan["network"])
    for key in ("text_model", "image_model"):
        if network.get(key):
            network[key] = str(folder / str(network[key]))
    return {**plan, "network": network}
