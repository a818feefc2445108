"""Several images of one case as the channels of one image, by name: sequences of an MR study, CT and PET, two stains.

`image_path` is then an object, channel name -> path. The order of the names is that of the channels, and it is kept in
plan.json (`channel_names`): a model finds its channels by name, never by place. A case may lack some of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, FormatNote, Image, ImagePath, read_image, select_channels
from m3b.training.clips import with_frames
from m3b.training.normalization import MISSING


def names_of(records: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the channels of an index, in order; None if its images have no named channels. Ends the program for a mixture.

    Cases that lack channels have those of the others, in the same order.
    """
    examples: dict[tuple[str, ...] | None, Any] = {}
    for record in records:
        path = record["image_path"]
        examples.setdefault(tuple(path) if isinstance(path, Mapping) else None, path)
    every = max((names for names in examples if names), key=len, default=None)
    if every and all(names == tuple(name for name in every if name in (names or ())) != () for names in examples):
        return list(every)
    if len(examples) > 1:
        listed = "; ".join(
            ", ".join(names) if names else f"no names ({examples[names]})" for names in list(examples)[:3]
        )
        raise SystemExit(f"train.json: every image_path must name the same channels in the same order; found {listed}")
    return None


def lacking(records: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> dict[str, int]:
    """Return how many cases lack each channel, of those that some lack."""
    counts = {name: sum(name not in record["image_path"] for record in records) for name in names or ()}
    return {name: count for name, count in counts.items() if count}


def read_case(path: ImagePath, plan: Mapping[str, Any], base: str | Path = ".") -> Image:
    """Return the image of a case with the channels that plan.json names, or as many frames of a clip. Raises DataError.

    Channels that the case lacks are 0, with the kind `MISSING` and a note; they stay 0 when values are scaled.
    """
    names = plan.get("channel_names")
    if names and int(plan.get("channels", len(names))) < len(names):
        raise DataError(f"plan.json has channels={plan['channels']} for the {len(names)} channels {', '.join(names)}")
    path = select_channels(path, names)
    image = read_image(with_frames(path, plan.get("frames")) if isinstance(path, str) else path, base)
    return _with_missing(image, names, path) if names and len(path) < len(names) else image


def _with_missing(image: Image, names: Sequence[str], path: Mapping[str, Any]) -> Image:
    planes = dict(zip(path, image.array, strict=True))
    kinds = dict(zip(path, image.channels, strict=True))
    nothing = np.zeros_like(image.array[0])
    return replace(
        image,
        array=np.stack([planes.get(name, nothing) for name in names]),
        channels=tuple(kinds.get(name, (MISSING, False)) for name in names),
        notes=(*image.notes, *(FormatNote("missing_channel", {"name": name}) for name in names if name not in path)),
    )
