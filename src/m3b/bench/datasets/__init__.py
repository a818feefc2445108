"""The fourteen data sets of M3Bench: a trusted reader of each raw layout, and a stand-in with that very layout.

spec = get_dataset("KneeMRI")
generated = spec.make(Path("knees"))   # invented images, real layout, real faults
raw_dataset = spec.read(Path("knees"))  # cases without any agent; the same call reads the real set
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
