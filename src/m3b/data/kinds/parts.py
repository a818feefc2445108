"""Keys that several kinds of records share: their JSON Schema, and how they are read and written."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from m3b.data.records import Channels, Image, Mask, Record, share_names

PATH: Final = {"type": "string", "minLength": 1}
IMAGE: Final = [
    PATH,
    {"type": "array", "items": PATH, "minItems": 1},
    {"type": "object", "additionalProperties": PATH, "minProperties": 1},
]
NAMES: Final = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
MASK: Final = [
    PATH,
    {"type": "array", "items": PATH, "minItems": 1},
    {"type": "object", "additionalProperties": PATH, "minProperties": 1},
]

IGNORED: Final = "ignore_path"
"""Key of a record: a mask that is not 0 in pixels that nobody labelled."""

ATTRIBUTES: Final = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
MAX_ATTRIBUTE = 100
"""Characters of a value: it names a group, and is no place for texts."""


def attributes(value: Any) -> dict[str, str]:
    """What a case's figure is told apart by.

    Raises:
        ValueError: no object of short texts and numbers.
    """
    is_valid = isinstance(value, dict) and all(
        isinstance(item, str | int | float) and not isinstance(item, bool) and len(str(item)) <= MAX_ATTRIBUTE
        for item in value.values()
    )
    if not is_valid:
        raise ValueError(
            f'attributes must look like {{"sex": "F", "age": 61}}, numbers and texts of up to {MAX_ATTRIBUTE} characters, '
            f"is {json.dumps(value)[:60]}"
        )
    return {sys.intern(str(name)): sys.intern(str(item)) for name, item in value.items()}


def paths(value: Any, name: str) -> str | tuple[str, ...]:
    """One path or several.

    Raises:
        ValueError: neither.
    """
    several = value if isinstance(value, list) else [value]
    if not several or not all(isinstance(path, str) and path for path in several):
        raise ValueError(f"{name} must be a path or a list of paths")
    return value if isinstance(value, str) else tuple(value)


def image(value: Any) -> Image:
    """One path, several, or an object of named channels.

    Raises:
        ValueError: none of these, or channels without different names.
    """
    if not isinstance(value, dict):
        return paths(value, "image_path")
    if not value or not all(name and isinstance(path, str) and path for name, path in value.items()):
        raise ValueError(
            "image_path, as an object, must name one path a channel, such as {'flair': 'data/x/f.nii', 't1': 'data/x/t.nii'}"
        )
    if unusable := [name for name in value if "=" in name or name != name.strip()]:
        raise ValueError(f"image_path: the channel name {unusable[0]!r} must have no = and no space around it")
    return Channels(tuple((sys.intern(str(name)), path) for name, path in value.items()))


def mixed_channels(records: Sequence[Record]) -> str:
    """Images with other channels, or channels in another order, than the one with most, in words; a case may lack some."""
    first = max(records, key=lambda record: len(record.channels), default=None)
    if first is None:
        return ""
    for record in records:
        shared_channels = tuple(name for name in first.channels if name in record.channels)
        if record.channels != shared_channels or bool(record.channels) != bool(first.channels):
            first_names, other_names = (", ".join(case.channels) or "no named channels" for case in (first, record))
            return f"image_path must name the same channels in the same order in all records; found {first_names}, and {other_names}"
    return ""


def mixed_views(records: Sequence[Record]) -> str:
    """Records of views beside a volume's slices or a clip, in words; a single picture is a study of one view."""
    if not any(record.views for record in records):
        return ""
    mixed = next(
        (
            record
            for record in records
            if not record.views and not (isinstance(record.image, str) and not record.channels)
        ),
        None,
    )
    return (
        f"'several' says 'views' in some records; {mixed.key[:80]} is several images too and does not say so"
        if mixed
        else ""
    )


def labels(value: Any) -> tuple[str, ...]:
    """Label names.

    Raises:
        ValueError: no list of different names.
    """
    if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
        raise ValueError(f"labels must be a list of label names, is {json.dumps(value)[:60]}")
    if len(set(value)) != len(value):
        raise ValueError(f"labels names {value} twice")
    return share_names(tuple(value))


def mask(value: Any) -> Mask:
    """A mask file, its slices, or a binary mask a class.

    Raises:
        ValueError: none of these.
    """
    if not isinstance(value, dict):
        return paths(value, "mask_path")
    if not value or not all(name and isinstance(path, str) and path for name, path in value.items()):
        raise ValueError(
            "mask_path, as an object, must name one path a class, such as {'liver': 'data/x/liver.nii.gz'}"
        )
    return {sys.intern(str(name)): path for name, path in value.items()}


def mask_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `mask` and `ignored` of a record that has a mask.

    Raises:
        ValueError: neither a mask file, its slices, nor a binary mask a class; or no path of ignored pixels.
    """
    ignored = item.get(IGNORED)
    if ignored is not None and (not isinstance(ignored, str) or not ignored):
        raise ValueError(f"{IGNORED} must be the path of one mask file, is {json.dumps(ignored)[:60]}")
    return {"mask": mask(item["mask_path"]), **({"ignored": ignored} if ignored else {})}


def mask_target(record: Record) -> dict[str, Any]:
    """`mask_path` and `ignore_path` as they stand in an index."""
    ignored = {IGNORED: record.ignored} if record.ignored else {}
    if record.mask is None or isinstance(record.mask, str):
        return {"mask_path": record.mask, **ignored}
    return {"mask_path": dict(record.mask) if isinstance(record.mask, Mapping) else list(record.mask), **ignored}


def overlapping(records: Sequence[Record]) -> bool:
    """Whether every class has a mask of its own, so that classes may overlap."""
    return any(isinstance(record.mask, Mapping) for record in records)


def mixed_masks(records: Sequence[Record]) -> str:
    """Masks with label ids and masks a class in one index, in words."""
    kinds = {isinstance(record.mask, Mapping) for record in records if record.mask is not None}
    if len(kinds) > 1:
        return "mask_path is an object in some records and a path in others; use one of them throughout"
    return ""
