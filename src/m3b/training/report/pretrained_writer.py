"""A language model from a local transformers folder as the writer: image tokens and findings are its prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.report.model_folders import language


@dataclass
class Prefix:
    """The model's own cache, and which of its positions count."""

    cache: Any
    keep: torch.Tensor

    def pick(self, rows: torch.Tensor) -> Prefix:
        """The given rows, in their order; rows may repeat. The cache is changed in place."""
        self.cache.reorder_cache(rows)
        return Prefix(self.cache, self.keep[rows])


class PretrainedText(nn.Module):
    """Any causal language model (safetensors) that takes `inputs_embeds`; without `weights` its configuration only."""

    def __init__(self, folder: str, vocabulary: int, longest: int, weights: bool) -> None:
        super().__init__()
        model = language(folder, weights)
        model.resize_token_embeddings(vocabulary, mean_resizing=False)
        # one weight is stored once: where the output layer is the word vectors themselves, there is no second name for it
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        self.body: Any = model.base_model
        self.head = None if tied else model.get_output_embeddings()
        self.width = int(model.config.hidden_size)
        self.folder, self.longest = folder, longest
        self.make_room(0)

    def make_room(self, prefix: int) -> None:
        """Ends where image tokens, findings and the longest report do not fit into the model's positions."""
        room = getattr(self.body.config, "max_position_embeddings", None)
        if room and self.longest + prefix > room:
            raise SystemExit(
                f"{self.folder} has room for {room} positions, and image tokens with a report take "
                f"{self.longest + prefix}: make size, views or max_tokens in plan.json smaller"
            )

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Word vectors, (B, T, width)."""
        found: torch.Tensor = self.body.get_input_embeddings()(tokens)
        return found

    def begin(self, memory: torch.Tensor, keep: torch.Tensor) -> Prefix:
        """`memory` (B, N, width); `keep` (B, N) bool."""
        found = self.body(inputs_embeds=memory, attention_mask=keep.long(), use_cache=True)
        return Prefix(found.past_key_values, keep)

    def advance(self, tokens: torch.Tensor, state: Prefix) -> tuple[torch.Tensor, Prefix]:
        """(B, T) further tokens to (B, T, vocabulary) logits, and the state after them."""
        keep = torch.cat([state.keep, state.keep.new_ones(tokens.shape)], dim=1)
        embedded = self.embed(tokens)
        found = self.body(
            inputs_embeds=embedded, attention_mask=keep.long(), past_key_values=state.cache, use_cache=True
        )
        return self.logits(found.last_hidden_state), Prefix(found.past_key_values, keep)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, T, width) to (B, T, vocabulary)."""
        if self.head is None:
            return functional.linear(hidden, self.body.get_input_embeddings().weight)
        found: torch.Tensor = self.head(hidden)
        return found
