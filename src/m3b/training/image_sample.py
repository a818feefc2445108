"""Properties of each sampled image, and of the sample as a whole: the facts that every plan starts from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import Image, grey_values, normalised_range
from m3b.training.channels import count_missing_channels, find_channel_names
from m3b.training.intensity_scales import (
    choose_channel_count,
    count_notes,
    count_scales,
    describe_channel_conversion,
    name_scale,
    summarise_grey,
)
from m3b.training.named_channels import measure_channels, summarise_channels
from m3b.training.patients import describe_patients


def measure_image(image: Image, masks: np.ndarray | None = None) -> dict[str, Any]:
    """Return shape, unit and value range of an image.

    Args:
        masks: (K, ...) annotated regions, in which the values of named channels are measured.
    """
    array = image.array
    low, high = (float(value) for value in np.percentile(array, (0.5, 99.5)))
    return {
        "dims": image.dims,
        "channels": int(array.shape[0]),
        "shape": array.shape[1:],
        "spacing": image.spacing,
        "modality": image.modality,
        "unit": image.unit,
        "eight_bit": array.dtype == np.uint8,
        "scale": name_scale(array, image.modality, high),
        "low": low,
        "high": high,
        "mean": float(array.mean(dtype=np.float64)),
        "std": float(array.std(dtype=np.float64)),
        "by_channel": measure_channels(image, masks),
        "notes": {note.code: str(note) for note in image.notes},
        **measure_grey(image),
    }


def measure_grey(image: Image) -> dict[str, Any]:
    """Return `bits` that the values of a 2D image need, 0 if its file states their range; mean and deviation on the scale of 0 to 255
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


def count_cases(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the cases and patients of the index."""
    patients = [str(r.get("patient") or r["image_path"]) for r in records]
    return {"cases": len(records), "patients": len(set(patients)), "people": describe_patients(patients)}


def summarise_sample(sample: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise sampled images of one form (`measure_image`) for all `records`: medians of ranges and spacings, means of means."""
    spacings = [item["spacing"] for item in sample if item["spacing"]]
    names, channels = find_channel_names(records), choose_channel_count(sample)
    return {
        "channels": channels,
        "channel_names": names,
        "lacking": count_missing_channels(records, names),
        "by_channel": summarise_channels(sample, names),
        "averaged": describe_channel_conversion(sample, channels),
        "modality": Counter(item["modality"] for item in sample).most_common(1)[0][0],
        "eight_bit": all(item["eight_bit"] for item in sample),
        "scales": count_scales(sample),
        "units": sorted({item["unit"] for item in sample}),
        "bits": max(item["bits"] for item in sample) or None,
        "notes": count_notes(sample),
        **summarise_grey(sample),
        "shapes": np.array([item["shape"] for item in sample]),
        "spacing": [float(value) for value in np.median(spacings, axis=0)] if len(spacings) > len(sample) / 2 else None,
        **{key: float(np.median([item[key] for item in sample])) for key in ("low", "high")},
        **{key: float(np.mean([item[key] for item in sample])) for key in ("mean", "std")},
    }
