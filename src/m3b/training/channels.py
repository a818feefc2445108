"""Several images of one case as the named channels of one image: sequences of an MR study, CT and PET, two stains.

`image_path` is then an object, channel name -> path. plan.json keeps the order of the names (`channel_names`), so a model finds its
channels by name. A case may lack some of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, FormatNote, Image, ImagePath, read_image, select_channels
from m3b.training.clips import add_frame_count
from m3b.training.normalization import MISSING


def find_channel_names(records: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the channel names of an index in order; None if its images have no named channels.

    Cases with missing channels must have the others in the same order.

    Raises:
        SystemExit: the cases have different channels or orders.
    """
    examples: dict[tuple[str, ...] | None, Any] = {}
    for record in records:
        path = record["image_path"]
        examples.setdefault(tuple(path) if isinstance(path, Mapping) else None, path)
    all_names = max((names for names in examples if names), key=len, default=None)
    if all_names and all(
        names == tuple(name for name in all_names if name in (names or ())) != () for names in examples
    ):
        return list(all_names)
    if len(examples) > 1:
        examples_text = "; ".join(
            ", ".join(names) if names else f"no names ({examples[names]})" for names in list(examples)[:3]
        )
        raise SystemExit(
            f"train.json: every image_path must name the same channels in the same order; found {examples_text}"
        )
    return None


def count_missing_channels(records: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> dict[str, int]:
    """Return the number of cases that lack each channel; channels that all cases have are omitted."""
    counts = {name: sum(name not in record["image_path"] for record in records) for name in names or ()}
    return {name: count for name, count in counts.items() if count}


def read_case(path: ImagePath, plan: Mapping[str, Any], base: str | Path = ".") -> Image:
    """Return the image of a case with the channels of plan.json, or with its number of frames of a clip.

    Missing channels are 0, of kind `MISSING` and with a note; they stay 0 when intensities are scaled. Raises DataError.
    """
    names = plan.get("channel_names")
    if names and int(plan.get("channels", len(names))) < len(names):
        raise DataError(f"plan.json has channels={plan['channels']} for the {len(names)} channels {', '.join(names)}")
    path = select_channels(path, names)
    image = read_image(add_frame_count(path, plan.get("frames")) if isinstance(path, str) else path, base)
    if names and isinstance(path, Mapping) and len(path) < len(names):
        return _add_missing_channels(image, names, path)
    return image


def _add_missing_channels(image: Image, names: Sequence[str], path: Mapping[str, Any]) -> Image:
    planes = dict(zip(path, image.array, strict=True))
    kinds = dict(zip(path, image.channels, strict=True))
    zeros = np.zeros_like(image.array[0])
    return replace(
        image,
        array=np.stack([planes.get(name, zeros) for name in names]),
        channels=tuple(kinds.get(name, (MISSING, False)) for name in names),
        notes=(*image.notes, *(FormatNote("missing_channel", {"name": name}) for name in names if name not in path)),
    )
