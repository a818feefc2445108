"""The writer: a small Transformer whose every layer attends to the memory (image tokens and findings).

Any text model here has `begin(memory, keep)`, which gives a state, and `advance(tokens, state)`, which reads further
tokens and gives the logits of what follows each. Training reads a whole report at once; writing goes token by token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass
class State:
    """Keys and values of the memory and of what was read so far, a pair a layer."""

    memory: list[Pair]
    keep: torch.Tensor
    past: list[Pair] = field(default_factory=list)

    def pick(self, rows: torch.Tensor) -> State:
        """The state of the given rows, in their order; rows may repeat."""
        memory = [(key[rows], value[rows]) for key, value in self.memory]
        return State(memory, self.keep[rows], [(key[rows], value[rows]) for key, value in self.past])


class Layer(nn.Module):
    """Self-attention, attention to the memory, two dense layers; each after a layer norm, each added."""

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

    def remember(self, memory: torch.Tensor) -> Pair:
        key, value = self.memory(memory).chunk(2, dim=-1)
        return self._split(key), self._split(value)

    def forward(
        self, x: torch.Tensor, memory: Pair, keep: torch.Tensor, past: Pair | None
    ) -> tuple[torch.Tensor, Pair]:
        query, key, value = (self._split(part) for part in self.inner(self.norms[0](x)).chunk(3, dim=-1))
        before = 0
        if past is not None:
            before = past[0].shape[2]
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        causal = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=x.device).tril(before)
        rate = self.drop if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=causal, dropout_p=rate)
        x = x + self.dropout(self.inner_out(seen.transpose(1, 2).flatten(2)))
        query = self._split(self.query(self.norms[1](x)))
        seen = functional.scaled_dot_product_attention(
            query, *memory, attn_mask=keep[:, None, None].expand(-1, 1, query.shape[2], -1), dropout_p=rate
        )
        x = x + self.dropout(self.cross_out(seen.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.dense(self.norms[2](x))), (key, value)


class TextDecoder(nn.Module):
    """Words to logits of the next word, with the memory in sight; input and output share their word vectors."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, dropout: float, longest: int) -> None:
        super().__init__()
        self.width = width
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        nn.init.normal_(self.words.weight, std=0.02)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Word vectors, (B, T, width)."""
        vectors: torch.Tensor = self.words(tokens)
        return vectors

    def begin(self, memory: torch.Tensor, keep: torch.Tensor) -> State:
        """`memory` (B, N, width); `keep` (B, N) bool, what of it is there."""
        return State([layer.remember(memory) for layer in self.layers], keep)  # type: ignore[operator]

    def advance(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """(B, T) further tokens to (B, T, vocabulary) logits, and the state after them."""
        before = state.past[0][0].shape[2] if state.past else 0
        place = self.places[before : before + tokens.shape[1]]
        x = self.dropout(self.words(tokens) + place)
        past = []
        for number, layer in enumerate(self.layers):
            x, pair = layer(x, state.memory[number], state.keep, state.past[number] if state.past else None)
            past.append(pair)
        return functional.linear(self.norm(x), self.words.weight), State(state.memory, state.keep, past)
