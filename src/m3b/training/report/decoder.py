"""The writer: a small Transformer whose layers attend to the memory (image tokens and findings).

A text model has `begin(memory, keep)`, which returns a state, and `advance(tokens, state)`, which returns the logits after further
tokens. Training reads a whole report at once; writing proceeds token by token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass
class DecoderState:
    """Keys and values of the memory and of the tokens so far, a pair for each layer."""

    memory: list[Pair]
    keep: torch.Tensor
    past: list[Pair] = field(default_factory=list)

    def select_rows(self, rows: torch.Tensor) -> DecoderState:
        """Return the state of the given rows, in their order; rows may repeat."""
        memory = [(key[rows], value[rows]) for key, value in self.memory]
        return DecoderState(memory, self.keep[rows], [(key[rows], value[rows]) for key, value in self.past])


class DecoderLayer(nn.Module):
    """Self-attention, attention to the memory, two dense layers; each after a layer norm, with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.inner, self.inner_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query, self.memory, self.cross_out = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)  # sizes that an export can follow

    def project_memory(self, memory: torch.Tensor) -> Pair:
        key, value = self.memory(memory).chunk(2, dim=-1)
        return self._split(key), self._split(value)

    def forward(
        self, x: torch.Tensor, memory: Pair, keep: torch.Tensor, past: Pair | None
    ) -> tuple[torch.Tensor, Pair]:
        query, key, value = (self._split(part) for part in self.inner(self.norms[0](x)).chunk(3, dim=-1))
        past_length = 0
        if past is not None:
            past_length = past[0].shape[2]
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        causal = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=x.device).tril(past_length)
        dropout_rate = self.drop if self.training else 0.0
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=causal, dropout_p=dropout_rate)
        x = x + self.dropout(self.inner_out(attended.transpose(1, 2).flatten(2)))
        query = self._split(self.query(self.norms[1](x)))
        attended = functional.scaled_dot_product_attention(
            query, *memory, attn_mask=keep[:, None, None].expand(-1, 1, query.shape[2], -1), dropout_p=dropout_rate
        )
        x = x + self.dropout(self.cross_out(attended.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.dense(self.norms[2](x))), (key, value)


class TextDecoder(nn.Module):
    """Tokens to logits of the next token, given the memory; input and output share the word vectors."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, dropout: float, longest: int) -> None:
        super().__init__()
        self.width = width
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, dropout) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        nn.init.normal_(self.words.weight, std=0.02)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the word vectors, (B, T, width)."""
        vectors: torch.Tensor = self.words(tokens)
        return vectors

    def begin(self, memory: torch.Tensor, keep: torch.Tensor) -> DecoderState:
        """Return the state after the memory (B, N, width); `keep` (B, N) bool masks its existing tokens."""
        return DecoderState([layer.project_memory(memory) for layer in self.layers], keep)

    def advance(self, tokens: torch.Tensor, state: DecoderState) -> tuple[torch.Tensor, DecoderState]:
        """Return (B, T, vocabulary) logits after (B, T) further tokens, and the state after them."""
        past_length = state.past[0][0].shape[2] if state.past else 0
        positions = self.places[past_length : past_length + tokens.shape[1]]
        x = self.dropout(self.words(tokens) + positions)
        past = []
        for number, layer in enumerate(self.layers):
            x, pair = layer(x, state.memory[number], state.keep, state.past[number] if state.past else None)
            past.append(pair)
        return functional.linear(self.norm(x), self.words.weight), DecoderState(state.memory, state.keep, past)
