"""Pretrained models as starting points: the registry, the local store, and the installation into it."""

from __future__ import annotations

from m3b.models.pretrained.registry import (
    WEIGHTS_DIR_VARIABLE,
    PretrainedModel,
    StoredWeights,
    find_pretrained,
    find_stored_weights,
    list_pretrained,
    store_dir,
)

__all__ = [
    "WEIGHTS_DIR_VARIABLE",
    "PretrainedModel",
    "StoredWeights",
    "list_pretrained",
    "find_pretrained",
    "store_dir",
    "find_stored_weights",
]
