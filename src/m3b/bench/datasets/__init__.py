"""The fourteen data sets of M3Bench: a trusted reader of each raw layout, and a stand-in with the same layout.

spec = get_dataset("KneeMRI")
generated = spec.make(Path("knees"))   # synthetic images in the real layout with the faults of real data
raw_dataset = spec.read(Path("knees"))  # cases read without an agent; the same call reads the real data set
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .registry import DATASET_NAMES, get_dataset

if TYPE_CHECKING:
    from m3b.bench.datasets.definitions import (
        DatasetSpec,
        GeneratedSet,
        GeneratorOptions,
        PixelBox,
        RawCase,
        RawDataset,
        StandIn,
    )

__all__ = [
    "DATASET_NAMES",
    "PixelBox",
    "RawCase",
    "DatasetSpec",
    "GeneratedSet",
    "GeneratorOptions",
    "RawDataset",
    "StandIn",
    "get_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from m3b.bench.datasets import definitions

    return getattr(definitions, name)
