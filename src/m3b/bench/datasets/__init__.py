"""The fourteen data sets of M3Bench: a trusted reader of each raw layout, and a stand-in with that very layout.

spec = dataset("KneeMRI")
made = spec.make(Path("knees"))          # invented images, real layout, real faults
reading = spec.read(Path("knees"))       # cases without any agent; the same call reads the real set
"""

from __future__ import annotations

from .registry import NAMES, dataset
from .spec import DatasetSpec, GeneratedSet, Order, PixelBox, RawCase, RawReading, StandIn

__all__ = ["NAMES", "PixelBox", "RawCase", "DatasetSpec", "GeneratedSet", "Order", "RawReading", "StandIn", "dataset"]
