"""The report writer: image tokens and predicted findings are the memory that every word is written from.

    images -> encoder -> image tokens -> finding head -> probabilities
                              |                               |
                              +---------- memory -------------+ -> text decoder -> findings, impression

Reports resemble each other, so a decoder left alone learns the language and ignores the image. Against that: the
encoder is trained on the findings first (`Warming`) and the writer on reports given their findings (`Speaking`); each
finding enters the memory as a token of its own, in training often with
the report's true findings, so that the decoder learns to say what the memory says; words of its input are dropped, so
that it cannot live on its own text; and image tokens or finding tokens are hidden at random, so that it uses both.
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
    """The text decoder, and a token a finding between absent and present."""

    def __init__(self, plan: Mapping[str, Any], weights: bool) -> None:
        super().__init__()
        network, self.count = plan["network"], len(plan["classes"]) + len(plan["findings"])
        self.unknown, self.pad, self.word_dropout = int(plan["unknown"]), int(plan["pad"]), float(plan["word_dropout"])
        vocabulary, longest = int(plan["vocabulary"]), sum(int(v) for v in plan["max_tokens"].values()) + 4
        if network.get("text_model"):
            self.text: Any = borrowed(plan, vocabulary, longest, weights)
        else:
            sizes = [int(network[key]) for key in ("width", "layers", "heads")]
            self.text = TextDecoder(vocabulary, *sizes, float(network["dropout"]), longest)
        self.width = int(self.text.width)
        self.present = nn.Parameter(torch.randn(self.count, self.width) * 0.5)
        self.absent = nn.Parameter(torch.randn(self.count, self.width) * 0.5)

    def facts(self, chances: torch.Tensor) -> torch.Tensor:
        """(B, findings) probabilities to (B, findings, width)."""
        return chances[..., None] * self.present + (1 - chances[..., None]) * self.absent

    def doubt(self, findings: torch.Tensor) -> torch.Tensor:
        """In training, true findings as unsure as predicted ones: each up to 0.35 away from its value."""
        return (findings - torch.rand_like(findings) * 0.35).abs() if self.training else findings

    def say(self, tokens: torch.Tensor, memory: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """(B, T, vocabulary) logits of what follows each token; in training some input words become unknown."""
        if self.training and self.word_dropout:
            chosen = torch.rand(tokens.shape, device=tokens.device) < self.word_dropout
            chosen[:, 0] = False  # the mark of the section stays
            tokens = torch.where(chosen & (tokens != self.pad), torch.full_like(tokens, self.unknown), tokens)
        logits: torch.Tensor = self.text.advance(tokens, self.text.begin(memory, keep))[0]
        return logits

    def trim(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both without the columns that are padding in every row. A GPU would have to be waited for: `collate` did it."""
        if tokens.device.type != "cpu":
            return tokens, targets
        longest = int((tokens != self.pad).any(dim=0).nonzero().max()) + 1
        return tokens[:, :longest], targets[:, :longest]


def borrowed(plan: Mapping[str, Any], vocabulary: int, longest: int, weights: bool) -> nn.Module:
    """The pretrained writer of the plan, with adapters where it has `network.lora`."""
    folder, rank = str(plan["network"]["text_model"]), int(plan["network"].get("lora") or 0)
    if rank:
        from m3b.training.report.lora import AdaptedText

        return AdaptedText(folder, vocabulary, longest, rank, plan["marks"])
    from m3b.training.report.pretrained_writer import PretrainedText

    return PretrainedText(folder, vocabulary, longest, weights)


class Reporter(nn.Module):
    """`forward(pixel_values (B, C, H, W[, D]) or (B, V, C, ...), ...) -> {"logits": (B, findings), "loss"?}`."""

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module | None, weights: bool) -> None:
        super().__init__()
        network = plan["network"]
        self.dims, self.loss = int(plan["dims"]), loss
        self.rule = {key: float(network[key]) for key in ("hide_image", "hide_findings", "truth", "image_gradient")}
        self.encoder, self.writer = ImageEncoder(plan, weights), Writer(plan, weights)
        self.count, width, inside = self.writer.count, self.encoder.width, self.writer.width
        if network.get("text_model"):
            self.text.make_room(self.encoder.positions * int(plan["views"]) + self.count)
        self.head = FindingHead(width, self.count, float(network["dropout"]))
        self.bridge = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, inside))
        self.matched = nn.ModuleList((nn.Linear(width, 64), nn.Linear(inside, 64))) if plan.get("contrastive") else None

    @property
    def text(self) -> Any:
        """The text decoder."""
        return self.writer.text

    def look(self, pixel_values: torch.Tensor, views: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """Image tokens (B, N, width), which of them exist (B, N) bool, and the findings' logits (B, findings)."""
        if pixel_values.ndim == self.dims + 2:
            pixel_values = pixel_values[:, None]
        there = pixel_values.new_ones(pixel_values.shape[:2]) if views is None else views
        there = there > 0.5
        tokens = self.encoder(pixel_values, there)
        keep = there.repeat_interleave(self.encoder.positions, dim=1)
        return tokens, keep, self.head(tokens, keep)

    def remember(self, tokens: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
        """(B, N + findings, width of the writer): what every word is written from."""
        return torch.cat([self.bridge(tokens), self.writer.facts(chances)], dim=1)

    def forward(
        self,
        pixel_values: torch.Tensor,
        views: torch.Tensor | None = None,
        tokens: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
        findings: torch.Tensor | None = None,
    ) -> Output:
        """`tokens`, `targets` (B, T) int64, -100 where nothing is learnt; `findings` (B, findings) 0 or 1."""
        image, keep, logits = self.look(pixel_values, views)
        output = {"logits": logits}
        if findings is None or self.loss is None:
            return output
        parts = {"findings": (logits, findings)}
        if tokens is not None and targets is not None:
            tokens, targets = self.writer.trim(tokens, targets)
            memory, keep = self._memory(image, keep, logits, findings)
            parts["text"] = (self.writer.say(tokens, memory, keep), targets)
            if self.matched is not None:
                parts["match"] = self._match(image, tokens)
        return output | self.loss(parts)

    def _memory(
        self, image: torch.Tensor, keep: torch.Tensor, logits: torch.Tensor, findings: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        chances, rows = logits.detach().sigmoid(), image.shape[0]
        share = self.rule["image_gradient"]
        image = share * image + (1 - share) * image.detach()
        facts = keep.new_ones(rows, self.count)
        if self.training:
            truth = (torch.rand(rows, 1, device=image.device) < self.rule["truth"]).float()
            chances = truth * self.writer.doubt(findings) + (1 - truth) * chances
            hidden = torch.rand(rows, 1, device=image.device)
            some = self.count > 0
            keep = keep & ~((hidden < self.rule["hide_image"]) & some)
            facts = facts & (hidden < 1 - self.rule["hide_findings"])
        return self.remember(image, chances), torch.cat([keep, facts], dim=1)

    def _match(self, image: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, 64) of the images and of the reports, for the contrastive loss."""
        assert self.matched is not None
        vectors = self.text.embed(tokens)
        there = (tokens != self.writer.pad).float()[..., None]
        mean = (vectors * there).sum(dim=1) / there.sum(dim=1).clamp_min(1)
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
        """{"findings", "impression"} of each study, by beam search; `beams` instead of the plan's if not 0."""
        from m3b.training.report.beam_search import rules_of, search

        image, keep, logits = self.look(pixel_values, views)
        memory = self.remember(image, logits.sigmoid())
        keep = torch.cat([keep, keep.new_ones(len(image), self.count)], dim=1)
        decode = plan["decode"]
        found = search(
            self.text,
            memory,
            keep,
            rules_of(plan, words),
            beams or int(decode["beams"]),
            float(decode["length_penalty"]),
        )
        return [words.split(sequence) for sequence in found]


class Warming(nn.Module):
    """The encoder and its finding head alone, before any word is written."""

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module) -> None:
        super().__init__()
        self.encoder = ImageEncoder(plan)
        count = len(plan["classes"]) + len(plan["findings"])
        self.head, self.loss = FindingHead(self.encoder.width, count, float(plan["network"]["dropout"])), loss

    def forward(
        self, pixel_values: torch.Tensor, views: torch.Tensor, findings: torch.Tensor, **_: torch.Tensor
    ) -> Output:
        there = views > 0.5
        tokens = self.encoder(pixel_values, there)
        logits = self.head(tokens, there.repeat_interleave(self.encoder.positions, dim=1))
        return {"logits": logits, **self.loss({"findings": (logits, findings)})}


class Speaking(nn.Module):
    """The writer alone, from the findings that its reports state: it learns the language before it sees an image."""

    def __init__(self, plan: Mapping[str, Any], loss: nn.Module) -> None:
        super().__init__()
        self.writer, self.loss = Writer(plan, True), loss

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor, findings: torch.Tensor, **_: torch.Tensor) -> Output:
        tokens, targets = self.writer.trim(tokens, targets)
        memory = self.writer.facts(self.writer.doubt(findings))
        keep = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        return dict(self.loss({"text": (self.writer.say(tokens, memory, keep), targets)}))


def build_model(plan: Mapping[str, Any], with_loss: bool = True) -> Reporter:
    """The network of plan.json. The deliverable builds it without its loss, and pretrained parts from their
    configuration: their weights are among its own."""
    return Reporter(plan, get_recipe().build_loss(plan) if with_loss else None, weights=with_loss)


def inside(plan: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The plan with the folders of pretrained parts looked for in `folder`."""
    network = dict(plan["network"])
    for key in ("text_model", "image_model"):
        if network.get(key):
            network[key] = str(folder / str(network[key]))
    return {**plan, "network": network}
