"""The audit of boxes: do they lie in their image, are they the right way round, and what do they mark?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from m3b.data.audit_classes import absent_classes, few_patients, no_healthy
from m3b.data.audit_common import Finding, Weight, some
from m3b.data.audit_images import Looks
from m3b.data.audit_labels import vocabulary
from m3b.data.box_targets import BoxLook
from m3b.data.index import BoxLabel, Index, Record, names_in

ORDER = "Boxes are the lower corner, then the upper: [x0, y0, x1, y1], in a volume [x0, y0, z0, x1, y1, z1]."


def before_opening(index: Index) -> list[Finding]:
    """What the index alone shows."""
    if not any(record.boxes for record in index.records):
        text = f"No image of {len(index.records)} has a box. Check that the boxes were read."
        return [Finding("all_empty", "reject", text)]
    return [*few_patients(index), *vocabulary(index), *_shapes(index), *_twice(index), *_amounts(index)]


def _shapes(index: Index) -> list[Finding]:
    boxed = [(record, one) for record in index.records for one in record.boxes or ()]
    if all(0 <= edge <= 1 for _, one in boxed for edge in one.box):
        text = "All boxes lie between 0 and 1: these are shares of the image's size (YOLO). Multiply them by its size."
        return [Finding("box_fractions", "fix", text, some(record.key for record, _ in boxed))]
    return [
        *_faulty(
            boxed,
            _reversed,
            "box_reversed",
            "have an upper corner below the lower one",
            f"{ORDER} COCO's [x, y, width, height] becomes [x, y, x + width, y + height].",
        ),
        *_faulty(boxed, _no_size, "box_no_size", "have no size along an axis", f"Drop or fix them. {ORDER}"),
    ]


def _halves(one: BoxLabel) -> list[tuple[float, float]]:
    half = len(one.box) // 2
    return list(zip(one.box[:half], one.box[half:], strict=True))


def _reversed(one: BoxLabel) -> bool:
    return any(lower > upper for lower, upper in _halves(one))


def _no_size(one: BoxLabel) -> bool:
    return not _reversed(one) and any(lower == upper for lower, upper in _halves(one))


def _faulty(
    boxed: list[tuple[Record, BoxLabel]], fault: Callable[[BoxLabel], bool], code: str, what: str, remedy: str
) -> list[Finding]:
    found = [(record, one) for record, one in boxed if fault(one)]
    if not found:
        return []
    record, one = found[0]
    text = f"{len(found)} of {len(boxed)} boxes {what}, e.g. {one.label} {list(one.box)} in {record.key}. {remedy}"
    return [Finding(code, "fix", text, some(record.key for record, _ in found))]


def _twice(index: Index) -> list[Finding]:
    found = [record.key for record in index.records if record.boxes and max(Counter(record.boxes).values()) > 1]
    if not found:
        return []
    text = f"{len(found)} images list the same box twice; each would count by itself. Keep one."
    return [Finding("box_twice", "fix", text, some(found))]


def _amounts(index: Index) -> list[Finding]:
    findings = absent_classes(index, names_in, "box is labelled")
    return findings if any(not record.boxes for record in index.records) else [*findings, no_healthy()]


def after_opening(looks: Looks) -> list[Finding]:
    """Boxes held against the images that they are in."""
    seen = {key: look.boxes for key, look in looks.items() if look.boxes}
    swapped = "Are x and y swapped, or do the boxes belong to another size of the image?"
    return [
        *_placed(seen, lambda one: one.error, "box_unplaced", "fix", "cannot be placed in their image", ""),
        *_placed(
            seen,
            lambda one: one.wrong_dims,
            "box_dims",
            "fix",
            "have boxes with 4 numbers in a volume, or 6 in a picture",
            ORDER,
        ),
        *_placed(seen, lambda one: one.outside, "box_outside", "fix", "have boxes outside the image", swapped),
        *_placed(
            seen,
            lambda one: one.beyond,
            "box_beyond",
            "warn",
            "have boxes that reach beyond the image and are cut at its border",
            "",
        ),
    ]


def _placed(
    seen: dict[str, BoxLook], fault: Callable[[BoxLook], str], code: str, weight: Weight, what: str, remedy: str
) -> list[Finding]:
    found = {key: words for key, look in seen.items() if (words := fault(look))}
    if not found:
        return []
    key, words = next(iter(found.items()))
    text = f"{len(found)} of {len(seen)} images {what}, e.g. {words} in {key}. {remedy}".rstrip()
    return [Finding(code, weight, text, some(found))]
