"""What plan.py measures of each sampled image, and what the sample has in common: the facts that every plan starts from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .channels import names_of
from .formats import Image
from .named import by_channel, measured
from .people import people
from .scales import averaged, colour, count_scales, scale_of


def measure(image: Image, masks: np.ndarray | None = None, values: np.ndarray | None = None) -> dict[str, Any]:
    """Form, unit and range of the values of an image.

    Args:
        masks: (K, ...) what is marked, which the values of named channels are measured in.
        values: the image's array where something in it was replaced, in the same form.
    """
    array = image.array if values is None else values
    low, high = (float(v) for v in np.percentile(array, (0.5, 99.5)))
    return {
        "dims": image.dims,
        "channels": int(array.shape[0]),
        "shape": array.shape[1:],
        "spacing": image.spacing,
        "modality": image.modality,
        "eight_bit": array.dtype == np.uint8,
        "scale": scale_of(array, image.modality, high),
        "low": low,
        "high": high,
        "mean": float(array.mean(dtype=np.float64)),
        "std": float(array.std(dtype=np.float64)),
        "by_channel": measured(image, masks),
    }


def counted(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Cases and patients of the index."""
    of = [r.get("patient") or r["image_path"] for r in records]
    return {"cases": len(records), "patients": len({str(one) for one in of}), "people": people(of)}


def in_common(same: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What sampled images of one form (`measure`) say of all `records`: medians of ranges and spacings, means of means."""
    spacings = [item["spacing"] for item in same if item["spacing"]]
    names, channels = names_of(records), colour(same)
    return {
        "channels": channels,
        "channel_names": names,
        "by_channel": by_channel(same, names),
        "averaged": averaged(same, channels),
        "modality": Counter(item["modality"] for item in same).most_common(1)[0][0],
        "eight_bit": all(item["eight_bit"] for item in same),
        "scales": count_scales(same),
        "shapes": np.array([item["shape"] for item in same]),
        "spacing": [float(v) for v in np.median(spacings, axis=0)] if len(spacings) > len(same) / 2 else None,
        **{key: float(np.median([item[key] for item in same])) for key in ("low", "high")},
        **{key: float(np.mean([item[key] for item in same])) for key in ("mean", "std")},
    }
