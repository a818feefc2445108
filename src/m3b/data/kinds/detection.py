"""Records of a detection: an image and what is marked in it: a mask, boxes, or only whether anything is."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.kinds.parts import IGNORED, MASK, PATH, mask_fields, mask_target, mixed_masks
from m3b.data.records import BoxLabel, Record, kind

TARGETS: Final = ("mask_path", "boxes", "abnormal")
"""What tells how an image is marked; an index uses one of them throughout."""
_NUMBERS: Final = {"type": "array", "items": {"type": "number"}}
_BOX: Final = {
    "type": "object",
    "required": ["label", "box"],
    "properties": {
        "label": {"type": "string", "minLength": 1},
        "box": {"anyOf": [{**_NUMBERS, "minItems": size, "maxItems": size} for size in (4, 6)]},
    },
}


class DetectionRecords(RecordKind):
    """See `RecordKind`."""

    name = "detection"
    title = "a detection"
    targets = ("masks", "boxes", "states")
    taught = ("masks, boxes or states", "Join what is marked in one image into one record.", "Keep one copy of each.")

    def properties(self) -> dict[str, Any]:
        return {
            "mask_path": {"anyOf": [*MASK, {"type": "null"}]},
            IGNORED: PATH,
            "boxes": {"type": "array", "items": _BOX},
            "abnormal": {"type": "boolean"},
        }

    def choice(self) -> dict[str, Any]:
        return {"oneOf": [{"required": [key]} for key in TARGETS]}

    def missing(self, item: Item) -> tuple[str, ...]:
        present = [key for key in TARGETS if key in item]
        if len(present) > 1:
            raise ValueError(f"has both {' and '.join(present)}; an index uses one of them, the same throughout")
        return () if present else ("mask_path, boxes or abnormal",)

    def parse(self, item: Item) -> dict[str, Any]:
        if item.get(IGNORED) is not None and item.get("mask_path") is None:
            raise ValueError(
                f"{IGNORED} belongs to a mask; where nothing else is marked, let mask_path name a mask that is 0 everywhere"
            )
        if "abnormal" in item:
            if not isinstance(item["abnormal"], bool):
                raise ValueError(f"abnormal must be true or false, is {json.dumps(item['abnormal'])[:60]}")
            return {"extra": {"abnormal": item["abnormal"]}}
        if "boxes" in item:
            return {"boxes": _boxes(item["boxes"])}
        return {} if item["mask_path"] is None else mask_fields(item)

    def target(self, record: Record) -> dict[str, Any]:
        if "abnormal" in record.extra:
            return {"abnormal": record.extra["abnormal"]}
        if record.boxes is None:
            return mask_target(record)
        return {"boxes": [{"label": item.label, "box": list(item.box)} for item in record.boxes]}

    def mixed(self, records: Sequence[Record]) -> str:
        if len({_form(record) for record in records}) > 1:
            return (
                "the records have some of mask_path, boxes and abnormal each; use one of them throughout ([] or null: "
                "nothing marked)"
            )
        return mixed_masks(records)

    def in_items(self, items: Sequence[Item]) -> bool:
        return any("boxes" in item or "abnormal" in item or item.get("mask_path", "") is None for item in items)

    def in_records(self, records: Sequence[Record]) -> bool:
        return any(_form(record) != "mask_path" for record in records)

    def masked(self, records: Sequence[Record]) -> bool:
        return not any(_form(record) != "mask_path" for record in records)

    def boxed(self, records: Sequence[Record]) -> bool:
        return any(record.boxes is not None for record in records)

    def stated(self, records: Sequence[Record]) -> bool:
        return any(_form(record) == "abnormal" for record in records)

    def multi_label(self, records: Sequence[Record]) -> bool:
        return True

    def example(self) -> list[dict[str, Any]]:
        return [
            {"image_path": "data/ct/i/01.nii.gz", "mask_path": "data/ct/l/01.nii.gz", "patient": "p001"},
            {
                "image_path": "data/ct/i/02.nii.gz",
                "mask_path": {"nodule": "data/ct/nodule/02.nii.gz", "effusion": "data/ct/effusion/02.nii.gz"},
                "patient": "p002",
            },
            {"image_path": "data/ct/i/03.nii.gz", "mask_path": None, "patient": "p003"},
        ]

    def example_labels(self) -> dict[str, int]:
        return {"nodule": 1, "effusion": 2}


def _form(record: Record) -> str:
    if "abnormal" in record.extra:
        return "abnormal"
    return "mask_path" if record.boxes is None else "boxes"


def example_boxes() -> list[dict[str, Any]]:
    """Detection with boxes in place of masks: a picture, a volume and a healthy picture. Labels count from 0."""
    return [
        {
            "image_path": "data/chest/i/01.png",
            "boxes": [{"label": "nodule", "box": [31, 20.5, 44, 38]}],
            "patient": "p001",
        },
        {
            "image_path": "data/ct/i/02.nii.gz",
            "boxes": [
                {"label": "nodule", "box": [101, 88, 12, 109, 97, 17]},
                {"label": "effusion", "box": [20, 40, 3, 80, 130, 30]},
            ],
            "patient": "p002",
        },
        {"image_path": "data/chest/i/03.png", "boxes": [], "patient": "p003"},
    ]


def _boxes(value: Any) -> tuple[BoxLabel, ...]:
    if not isinstance(value, list):
        raise ValueError(f"boxes must be a list, [] for a healthy image; is {kind(value)}")
    return tuple(_box(item, place) for place, item in enumerate(value))


def _box(value: Any, place: int) -> BoxLabel:
    example = '{"label": "nodule", "box": [x0, y0, x1, y1]}'
    if not isinstance(value, dict) or not isinstance(value.get("label"), str) or not value["label"]:
        raise ValueError(f"boxes[{place}] must look like {example}, is {json.dumps(value)[:60]}")
    box = value.get("box")
    numbers = box if isinstance(box, list) else []
    if len(numbers) not in (4, 6) or not all(_number(number) for number in numbers):
        raise ValueError(f"boxes[{place}]: box must be 4 numbers (picture) or 6 (volume), is {json.dumps(box)[:60]}")
    return BoxLabel(value["label"], tuple(float(number) for number in numbers))


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
