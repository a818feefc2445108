"""A language model of a local transformers folder as the writer, with image tokens and findings as its prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.report.model_folders import load_language_model


@dataclass
class Prefix:
    """State of the model: its cache, and the mask of its positions."""

    cache: Any
    keep: torch.Tensor

    def select_rows(self, rows: torch.Tensor) -> Prefix:
        """Return the given rows, in their order; rows may repeat. The cache is changed in place."""
        self.cache.reorder_cache(rows)
        return Prefix(self.cache, self.keep[rows])


class PretrainedText(nn.Module):
    """Any causal language model (safetensors) that accepts `inputs_embeds`; without `weights` only its configuration."""

    def __init__(self, folder: str, vocabulary: int, longest: int, weights: bool) -> None:
        super().__init__()
        model = load_language_model(folder, weights)
        model.resize_token_embeddings(vocabulary, mean_resizing=False)
        # tied weights are stored once: the output layer then has no second name for the word vectors
        is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        self.body: Any = model.base_model
        self.head = None if is_tied else model.get_output_embeddings()
        self.width = int(model.config.hidden_size)
        self.folder, self.longest = folder, longest
        self.make_room(0)

    def make_room(self, prefix: int) -> None:
        """Raise SystemExit if image tokens, findings and the longest report exceed the model's positions."""
        max_positions = getattr(self.body.config, "max_position_embeddings", None)
        if max_positions and self.longest + prefix > max_positions:
            raise SystemExit(
                f"{self.folder} has {max_positions} positions, image tokens with a report need {self.longest + prefix}: reduce size, "
                "views or max_tokens in plan.json"
            )

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the word vectors, (B, T, width)."""
        vectors: torch.Tensor = self.body.get_input_embeddings()(tokens)
        return vectors

    def begin(self, memory: torch.Tensor, keep: torch.Tensor) -> Prefix:
        """Return the state after the memory (B, N, width); `keep` (B, N) bool."""
        outputs = self.body(inputs_embeds=memory, attention_mask=keep.long(), use_cache=True)
        return Prefix(outputs.past_key_values, keep)

    def advance(self, tokens: torch.Tensor, state: Prefix) -> tuple[torch.Tensor, Prefix]:
        """Return (B, T, vocabulary) logits after (B, T) further tokens, and the state after them."""
        keep = torch.cat([state.keep, state.keep.new_ones(tokens.shape)], dim=1)
        embedded = self.embed(tokens)
        outputs = self.body(
            inputs_embeds=embedded, attention_mask=keep.long(), past_key_values=state.cache, use_cache=True
        )
        return self.logits(outputs.last_hidden_state), Prefix(outputs.past_key_values, keep)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (B, T, vocabulary) logits of (B, T, width)."""
        if self.head is None:
            return functional.linear(hidden, self.body.get_input_embeddings().weight)
        logits: torch.Tensor = self.head(hidden)
        return logits
