"""Pretrained starting points: what is known of them, where they lie on this machine, how they come there."""

from __future__ import annotations

from .registry import PretrainedModel, find_pretrained, list_pretrained
from .store import WEIGHTS_DIR_VARIABLE, StoredWeights, find_stored_weights, store_dir

__all__ = [
    "WEIGHTS_DIR_VARIABLE",
    "PretrainedModel",
    "StoredWeights",
    "list_pretrained",
    "find_pretrained",
    "store_dir",
    "find_stored_weights",
]
