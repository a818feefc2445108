"""In which unit the values of an image are: images of different units cannot share a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def scale_of(array: np.ndarray, modality: str, high: float) -> str:
    """The unit, as far as the values tell; `high` is their 99.5th percentile."""
    if modality == "ct":
        return "Hounsfield units"
    if array.dtype == np.uint8:
        return "8 bit"
    if array.dtype.kind == "f" and high <= 2.0:
        return "fractions"
    return "up to 255" if high <= 255 else "beyond 8 bit"


def count_scales(images: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Unit -> images, the most frequent first."""
    return dict(Counter(str(item["scale"]) for item in images).most_common())


def mixed(facts: Mapping[str, Any]) -> list[str]:
    """A line where the images have different units, or none."""
    units = facts["scales"]
    return [f"values come in different units {units}: each image is scaled by itself"] if len(units) > 1 else []
