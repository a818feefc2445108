"""What plan.py measures of each sampled image, and what the sample has in common: the facts that every plan starts from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import Image, grey_values, normalised_range
from m3b.training.channels import lacking, names_of
from m3b.training.intensity_scales import averaged, colour, count_notes, count_scales, grey_in_common, scale_of
from m3b.training.named_channels import by_channel, measured
from m3b.training.patients import people


def measure(image: Image, masks: np.ndarray | None = None) -> dict[str, Any]:
    """Form, unit and range of the values of an image.

    Args:
        masks: (K, ...) what is marked, which the values of named channels are measured in.
    """
    array = image.array
    low, high = (float(v) for v in np.percentile(array, (0.5, 99.5)))
    return {
        "dims": image.dims,
        "channels": int(array.shape[0]),
        "shape": array.shape[1:],
        "spacing": image.spacing,
        "modality": image.modality,
        "unit": image.unit,
        "eight_bit": array.dtype == np.uint8,
        "scale": scale_of(array, image.modality, high),
        "low": low,
        "high": high,
        "mean": float(array.mean(dtype=np.float64)),
        "std": float(array.std(dtype=np.float64)),
        "by_channel": measured(image, masks),
        "notes": {note.code: str(note) for note in image.notes},
        **measure_grey(image),
    }


def measure_grey(image: Image) -> dict[str, Any]:
    """`bits` that the values of a picture need, 0 if its file says its range; mean and deviation on the scale of 0 to 255
    (`grey_values`), None if it has no such scale."""
    limits = normalised_range(image)
    scaled = grey_values(image)
    if image.dims != 2 or image.channels or limits is None or (scaled is image.array and limits != (0.0, 255.0)):
        return {"bits": 0, "grey_mean": None, "grey_std": None}
    by_values = image.array.dtype.kind in "iu" and limits not in (image.window, image.stored_range)
    return {
        "bits": round(np.log2(limits[1] + 1)) if by_values else 0,
        "grey_mean": float(scaled.mean(dtype=np.float64)),
        "grey_std": float(scaled.std(dtype=np.float64)),
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
        "lacking": lacking(records, names),
        "by_channel": by_channel(same, names),
        "averaged": averaged(same, channels),
        "modality": Counter(item["modality"] for item in same).most_common(1)[0][0],
        "eight_bit": all(item["eight_bit"] for item in same),
        "scales": count_scales(same),
        "units": sorted({item["unit"] for item in same}),
        "bits": max(item["bits"] for item in same) or None,
        "notes": count_notes(same),
        **grey_in_common(same),
        "shapes": np.array([item["shape"] for item in same]),
        "spacing": [float(v) for v in np.median(spacings, axis=0)] if len(spacings) > len(same) / 2 else None,
        **{key: float(np.median([item[key] for item in same])) for key in ("low", "high")},
        **{key: float(np.mean([item[key] for item in same])) for key in ("mean", "std")},
    }
