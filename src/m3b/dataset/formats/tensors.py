"""Tensors in PyTorch files, by `torch.load(weights_only=True)`, and the arrays of nested containers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import ArrayFormat
from .base import load_library


class TorchArrays(ArrayFormat):
    """Tensors in PyTorch files."""

    name = "torch"
    suffixes = (".pt", ".pth")

    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        return load_tensors(path)


def load_tensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a file as arrays by name."""
    torch = load_library(path, "torch", "torch")
    return named_arrays(_as_numpy(torch.load(path, map_location="cpu", weights_only=True)))


def _as_numpy(value: Any) -> Any:
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return value.detach().cpu().float().numpy() if str(value.dtype) == "torch.bfloat16" else value.detach().numpy()
    if isinstance(value, Mapping):
        return {str(key): _as_numpy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_numpy(item) for item in value]
    return value


def named_arrays(value: Any) -> dict[str, Any]:
    """Return the arrays of nested containers by name; a bare array, and a list of arrays, has the empty name.

    Of a list of records each key is an array, if all have the same shape there; else each record has its number as name.
    """
    if isinstance(value, np.ndarray):
        return {"": value}
    if isinstance(value, Mapping):
        return {
            f"{key}/{inner}" if inner else str(key): array
            for key, item in value.items()
            for inner, array in named_arrays(_number_shapes(item)).items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value:
        if all(isinstance(item, np.ndarray) for item in value):
            return {"": value}
        if all(np.isscalar(item) for item in value):
            return {"": np.asarray(value)}
        if all(isinstance(item, Mapping) and item.keys() == value[0].keys() for item in value):
            if all(len({np.shape(item[key]) for item in value}) == 1 for key in value[0]):
                return named_arrays({key: np.asarray([item[key] for item in value]) for key in value[0]})
            return named_arrays({str(number): item for number, item in enumerate(value)})
    return {}


def _number_shapes(value: Any) -> Any:
    """Return a list of arrays of different shapes as arrays by number, one of the same shape as one array, and others as they are."""
    if np.isscalar(value):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(item, np.ndarray) for item in value):
        is_stack = len({item.shape for item in value}) == 1
        return np.stack(value) if is_stack else {str(number): item for number, item in enumerate(value)}
    return value


FORMATS = (TorchArrays(),)
