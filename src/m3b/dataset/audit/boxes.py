"""Checks of boxes: in the right order, and inside their images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from m3b.data.index import BoxLabel
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding, Severity
from m3b.dataset.audit.probes import BoxProbe

ORDER = "Boxes are the lower corner, then the upper: [x0, y0, x1, y1], in a volume [x0, y0, z0, x1, y1, z1]."


class NoBoxes(AuditCheck):
    """No image has a box."""

    code = "all_empty"
    severity = "reject"
    targets = ("boxes",)
    remedy = "Check that the boxes were read."

    def find(self, data: AuditData) -> Iterator[Finding]:
        if not any(record.boxes for record in data.index.records):
            yield self.make_finding(f"No image of {len(data.index.records)} has a box.")


class BoxFractions(AuditCheck):
    """Boxes as shares of the image's size."""

    code = "box_fractions"
    severity = "fix"
    targets = ("boxes",)
    remedy = "Multiply them by its size."

    def find(self, data: AuditData) -> Iterator[Finding]:
        boxes = [(record, label) for record in data.index.records for label in record.boxes or ()]
        if boxes and all(0 <= edge <= 1 for _, label in boxes for edge in label.box):
            yield self.make_finding(
                "All boxes lie between 0 and 1: these are shares of the image's size (YOLO).",
                data.shorten_all(record.key for record, _ in boxes),
            )


class BoxCheck(AuditCheck):
    """A check of single boxes."""

    severity = "fix"
    targets = ("boxes",)
    explained_by = ("box_fractions",)

    def __init__(self, code: str, has_problem: Callable[[BoxLabel], bool], message: str, remedy: str) -> None:
        self.code, self.has_problem, self.message, self.remedy = code, has_problem, message, remedy

    def find(self, data: AuditData) -> Iterator[Finding]:
        boxes = [(record, label) for record in data.index.records for label in record.boxes or ()]
        wrong = [(record, label) for record, label in boxes if self.has_problem(label)]
        if wrong:
            record, label = wrong[0]
            yield self.make_finding(
                f"{len(wrong)} of {len(boxes)} boxes {self.message}, e.g. {label.label} {list(label.box)} in "
                f"{data.shorten(record.key)}.",
                data.shorten_all(record.key for record, _ in wrong),
            )


def _list_edges(label: BoxLabel) -> list[tuple[float, float]]:
    half = len(label.box) // 2
    return list(zip(label.box[:half], label.box[half:], strict=True))


def _is_reversed(label: BoxLabel) -> bool:
    return any(lower > upper for lower, upper in _list_edges(label))


def _has_no_size(label: BoxLabel) -> bool:
    return not _is_reversed(label) and any(lower == upper for lower, upper in _list_edges(label))


class RepeatedBox(AuditCheck):
    """The same box twice in an image."""

    code = "box_twice"
    severity = "fix"
    targets = ("boxes",)
    remedy = "Keep one."

    def find(self, data: AuditData) -> Iterator[Finding]:
        keys = [record.key for record in data.index.records if record.boxes and max(Counter(record.boxes).values()) > 1]
        if keys:
            yield self.make_finding(
                f"{len(keys)} images list the same box twice; each would count by itself.", data.shorten_all(keys)
            )


class BoxPlaceCheck(AuditCheck):
    """A check of boxes in their images; `get_problem` gives the first such box of an image."""

    targets = ("boxes",)
    needs_images = True

    def __init__(
        self, code: str, severity: Severity, get_problem: Callable[[BoxProbe], str], message: str, remedy: str = ""
    ) -> None:
        self.code, self.severity, self.get_problem = code, severity, get_problem
        self.message, self.remedy = message, remedy

    def find(self, data: AuditData) -> Iterator[Finding]:
        boxes = {key: probe.boxes for key, probe in data.probes.items() if probe.boxes}
        problems = {key: problem for key, probe in boxes.items() if (problem := self.get_problem(probe))}
        if problems:
            key, problem = next(iter(problems.items()))
            yield self.make_finding(
                f"{len(problems)} of {len(boxes)} images {self.message}, e.g. {problem} in {data.shorten(key)}.",
                data.shorten_all(problems),
            )


CHECKS = (
    NoBoxes(),
    BoxFractions(),
    BoxCheck(
        "box_reversed", _is_reversed, "have an upper corner below the lower one",
        f"{ORDER} COCO's [x, y, width, height] becomes [x, y, x + width, y + height].",
    ),
    BoxCheck("box_no_size", _has_no_size, "have no size along an axis", f"Drop or fix them. {ORDER}"),
    RepeatedBox(),
    BoxPlaceCheck("box_unplaced", "fix", lambda probe: probe.error, "cannot be placed in their image"),
    BoxPlaceCheck("box_dims", "fix", lambda probe: probe.wrong_dims,
                  "have boxes with 4 numbers in a volume, or 6 in a picture", ORDER),
    BoxPlaceCheck("box_outside", "fix", lambda probe: probe.outside_box, "have boxes outside the image",
                  "Are x and y swapped, or do the boxes belong to another size of the image?"),
    BoxPlaceCheck("box_beyond", "warn", lambda probe: probe.beyond,
                  "have boxes that reach beyond the image and are cut at its border"),
)  # fmt: skip
