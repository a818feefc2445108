"""Records of a segmentation: an image and the mask of everything in it that has a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.kinds.parts import IGNORED, MASK, PATH, mask_fields, mask_target, mixed_masks, overlapping
from m3b.data.records import Record

ORIGIN = "mask_origin"
"""Key of a record whose mask no person drew as it is; its values are `BY_PROMPTS` and `FROM_BOXES`."""
BY_PROMPTS = "prompted"
"""The mask was prompted for in the run."""
FROM_BOXES = "boxes"
"""The mask is filled boxes: outside is background, and inside it is unknown which pixels belong to the structure."""


class SegmentationRecords(RecordKind):
    """See `RecordKind`."""

    name = "segmentation"
    title = "a segmentation"
    targets = ("masks",)
    needed = ("mask_path",)
    taught = (
        "masks",
        "Where each class has a file of its own, make one record with mask_path as an object.",
        "Keep one copy of each.",
    )

    def properties(self) -> dict[str, Any]:
        return {"mask_path": {"anyOf": MASK}, IGNORED: PATH, ORIGIN: {"enum": [BY_PROMPTS, FROM_BOXES]}}

    def parse(self, item: Item) -> dict[str, Any]:
        if item["mask_path"] is None:
            raise ValueError("mask_path is null; leave out images without a mask")
        origin = item.get(ORIGIN)
        if origin not in (None, BY_PROMPTS, FROM_BOXES):
            raise ValueError(
                f'{ORIGIN} is "{BY_PROMPTS}" for a mask that no person drew, "{FROM_BOXES}" for filled boxes, and else left out; '
                f"is {origin!r}"
            )
        return {**mask_fields(item), **({"extra": {ORIGIN: origin}} if origin else {})}

    def target(self, record: Record) -> dict[str, Any]:
        origin = record.extra.get(ORIGIN)
        return {**mask_target(record), **({ORIGIN: origin} if origin else {})}

    def mixed(self, records: Sequence[Record]) -> str:
        return mixed_masks(records)

    def in_records(self, records: Sequence[Record]) -> bool:
        return any(record.mask is not None for record in records)

    def masked(self, records: Sequence[Record]) -> bool:
        return True

    def multi_label(self, records: Sequence[Record]) -> bool:
        return overlapping(records)

    def example(self) -> list[dict[str, Any]]:
        return [
            {"image_path": "data/ct/i/01.nii.gz", "mask_path": "data/ct/l/01.nii.gz", "patient": "p001"},
            {"image_path": "data/ct/dicom/02", "mask_path": "Datapath/masks/02.nii.gz", "patient": "p002"},
            {"image_path": "data/ct/a.npz#images[3]", "mask_path": "data/ct/a.npz#masks[3]", "patient": "p003"},
            {
                "image_path": ["data/ct/04/1.png", "data/ct/04/2.png"],
                "mask_path": ["data/ct/04m/1.png", "data/ct/04m/2.png"],
                "patient": "p004",
            },
        ]

    def example_labels(self) -> dict[str, int]:
        return {"spleen": 1, "liver": 6}
