"""A language model whose own weights stay as they are: low-rank adapters (LoRA; Hu et al., 2021, arXiv 2106.09685; by peft)
and the vectors of the five marks are learnt. What is saved while it trains are these alone; `merge` makes a plain model of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from m3b.training.report.pretrained_writer import PretrainedText

DROPOUT = 0.05
SCALE = 2
"""The adapters' `lora_alpha`, in ranks."""


class AdaptedText(PretrainedText):
    """See `PretrainedText`; always with the folder's weights.

    Args:
        rank: of the adapters.
        marks: token numbers of [PAD], [UNK], [FINDINGS], [IMPRESSION] and [EOS], which the model has never seen.
    """

    def __init__(self, folder: str, vocabulary: int, longest: int, rank: int, marks: Sequence[int]) -> None:
        super().__init__(folder, vocabulary, longest, True)
        _inject(self.body, rank)
        for parameter in self.head.parameters() if self.head is not None else ():
            parameter.requires_grad_(False)
        rows = self.body.get_input_embeddings().weight.detach()
        self.register_buffer("mark_ids", torch.tensor(sorted(marks)), persistent=False)
        row_of = torch.full((vocabulary,), -1)
        row_of[self.mark_ids] = torch.arange(len(self.mark_ids))
        self.register_buffer("mark_rows", row_of, persistent=False)
        spread = 0.5 * rows.std(dim=0) * torch.randn(len(self.mark_ids), rows.shape[1])
        self.marks = nn.Parameter(rows.mean(dim=0) + spread)
        self.head_rows = None if self.head is None else nn.Parameter(self.marks.detach().clone())
        self.frozen = [name for name in self.state_dict() if name not in ("marks", "head_rows") and "lora_" not in name]
        self.register_state_dict_post_hook(_without_frozen)
        self.register_load_state_dict_pre_hook(_with_frozen)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        row_of = self.mark_rows[tokens]
        own = self.marks[row_of.clamp_min(0)] * self._scale()
        return torch.where((row_of >= 0)[..., None], own, super().embed(tokens))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = self.marks if self.head_rows is None else self.head_rows
        found = super().logits(hidden)
        return found.index_copy(-1, self.mark_ids, nn.functional.linear(hidden, rows).to(found.dtype))

    def _scale(self) -> Any:
        """By what the model multiplies its word vectors (Gemma's do)."""
        return getattr(self.body.get_input_embeddings(), "embed_scale", 1.0)

    @torch.no_grad()
    def merge(self) -> None:
        """Adapters and marks into the model's own weights; `state_dict` is that of `PretrainedText` then."""
        from peft.tuners.lora import LoraLayer

        for name, module in list(self.body.named_modules()):
            if isinstance(module, LoraLayer):
                module.merge()
                above, _, last = name.rpartition(".")
                setattr(self.body.get_submodule(above), last, module.get_base_layer())
        self.body.get_input_embeddings().weight[self.mark_ids] = self.marks
        if self.head is not None:
            self.head.weight[self.mark_ids] = self.head_rows
        self.frozen = []
        del self.marks, self.head_rows


def _inject(body: nn.Module, rank: int) -> None:
    """Adapters on every linear layer; all other weights are frozen."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise SystemExit(
            "network.lora needs peft: pip install 'peft>=0.19,<0.22'; without it set network.lora=0"
        ) from error
    rule = LoraConfig(r=rank, lora_alpha=SCALE * rank, lora_dropout=DROPOUT, target_modules="all-linear")
    inject_adapter_in_model(rule, body)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("lora_" in name)


def _without_frozen(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in module.frozen:
        state.pop(prefix + name, None)


def _with_frozen(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name in module.frozen:
        state.setdefault(prefix + name, own[name].detach())
