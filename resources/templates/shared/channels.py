"""Several images of one case as the channels of one image, by name: sequences of an MR study, CT and PET, two stains.

`image_path` is then an object, channel name -> path. The order of the names is that of the channels, and it is kept in
plan.json (`channel_names`): a model finds its channels by name, never by place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .clips import with_frames
from .formats import DataError, Image, ImagePath, read_image, select_channels


def names_of(records: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the channels of an index, in order; None if its images have no named channels. Ends the program for a mixture."""
    examples: dict[tuple[str, ...] | None, Any] = {}
    for record in records:
        path = record["image_path"]
        examples.setdefault(tuple(path) if isinstance(path, Mapping) else None, path)
    if len(examples) > 1:
        listed = "; ".join(
            ", ".join(names) if names else f"no names ({examples[names]})" for names in list(examples)[:3]
        )
        raise SystemExit(f"train.json: every image_path must name the same channels in the same order; found {listed}")
    names = next(iter(examples), None)
    return list(names) if names else None


def read_case(path: ImagePath, plan: Mapping[str, Any], base: str | Path = ".") -> Image:
    """Return the image of a case with the channels that plan.json names, or as many frames of a clip. Raises DataError."""
    names = plan.get("channel_names")
    if names and int(plan.get("channels", len(names))) < len(names):
        raise DataError(f"plan.json has channels={plan['channels']} for the {len(names)} channels {', '.join(names)}")
    path = select_channels(path, names)
    return read_image(with_frames(path, plan.get("frames")) if isinstance(path, str) else path, base)
