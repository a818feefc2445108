"""A frozen language model with low-rank adapters (LoRA; Hu et al., 2021, arXiv 2106.09685; by peft) and learnt vectors of the five
marks. Only these are saved while training; `merge` makes a plain model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from m3b.training.report.pretrained_writer import PretrainedText

LORA_DROPOUT = 0.05
LORA_ALPHA_PER_RANK = 2
"""`lora_alpha` of the adapters as a multiple of the rank."""


class AdaptedText(PretrainedText):
    """A `PretrainedText` with adapters; always with the folder's weights.

    Args:
        rank: of the adapters.
        marks: token numbers of [PAD], [UNK], [FINDINGS], [IMPRESSION] and [EOS], which are new to the model.
    """

    def __init__(self, folder: str, vocabulary: int, longest: int, rank: int, marks: Sequence[int]) -> None:
        super().__init__(folder, vocabulary, longest, True)
        _inject_adapters(self.body, rank)
        for parameter in self.head.parameters() if self.head is not None else ():
            parameter.requires_grad_(False)
        rows = self.body.get_input_embeddings().weight.detach()
        self.register_buffer("mark_ids", torch.tensor(sorted(marks)), persistent=False)
        row_of = torch.full((vocabulary,), -1)
        row_of[self.mark_ids] = torch.arange(len(self.mark_ids))
        self.register_buffer("mark_rows", row_of, persistent=False)
        noise = 0.5 * rows.std(dim=0) * torch.randn(len(self.mark_ids), rows.shape[1])
        self.marks = nn.Parameter(rows.mean(dim=0) + noise)
        self.head_rows = None if self.head is None else nn.Parameter(self.marks.detach().clone())
        self.frozen = [name for name in self.state_dict() if name not in ("marks", "head_rows") and "lora_" not in name]
        self.register_state_dict_post_hook(_remove_frozen)
        self.register_load_state_dict_pre_hook(_add_frozen)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        row_of = self.mark_rows[tokens]
        mark_vectors = self.marks[row_of.clamp_min(0)] * self._scale()
        return torch.where((row_of >= 0)[..., None], mark_vectors, super().embed(tokens))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = self.marks if self.head_rows is None else self.head_rows
        logits = super().logits(hidden)
        return logits.index_copy(-1, self.mark_ids, nn.functional.linear(hidden, rows).to(logits.dtype))

    def _scale(self) -> Any:
        """Return the factor of the model's word vectors (as in Gemma)."""
        return getattr(self.body.get_input_embeddings(), "embed_scale", 1.0)

    @torch.no_grad()
    def merge(self) -> None:
        """Merge adapters and marks into the model's own weights; `state_dict` is then that of `PretrainedText`."""
        from peft.tuners.lora import LoraLayer

        for name, module in list(self.body.named_modules()):
            if isinstance(module, LoraLayer):
                module.merge()
                parent_name, _, module_name = name.rpartition(".")
                setattr(self.body.get_submodule(parent_name), module_name, module.get_base_layer())
        self.body.get_input_embeddings().weight[self.mark_ids] = self.marks
        if self.head is not None:
            self.head.weight[self.mark_ids] = self.head_rows
        self.frozen = []
        del self.marks, self.head_rows


def _inject_adapters(body: nn.Module, rank: int) -> None:
    """Add adapters to every linear layer and freeze all other weights."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise SystemExit(
            "network.lora needs peft: pip install 'peft>=0.19,<0.22'; without it set network.lora=0"
        ) from error
    config = LoraConfig(
        r=rank, lora_alpha=LORA_ALPHA_PER_RANK * rank, lora_dropout=LORA_DROPOUT, target_modules="all-linear"
    )
    inject_adapter_in_model(config, body)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("lora_" in name)


def _remove_frozen(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in module.frozen:
        state.pop(prefix + name, None)


def _add_frozen(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name in module.frozen:
        state.setdefault(prefix + name, tensors[name].detach())
