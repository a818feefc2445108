"""Checks of images of which it is only known whether they are abnormal, and of metrics that an annotation does not allow."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.data.kinds.segmentation import FROM_BOXES, ORIGIN
from m3b.dataset.audit.base import MARKS, SPLITS, AuditCheck, AuditData, Finding

MIN_STATE_CASES = 2
"""Cases of a state below which the test part is no sample of it."""
BOX_METRICS = ("map_50", "map", "map_10", "centre_ap", "froc")
IOU_OF_BOXES = "box_iou"
"""Metric of a segmentation whose true masks are boxes."""
IMAGE_METRICS = ("image_auroc", "image_ap")
"""Metrics of detection that need no mark at all."""
MASK_METRICS = (
    "dice",
    "iou",
    "nsd",
    "hd95",
    "lesion_f1",
    "lesion_precision",
    "lesion_recall",
    "pixel_auroc",
    "pixel_ap",
    "pro",
)


class OneAnomaly(AuditCheck):
    """More than one class, where records say only whether an image is abnormal."""

    code = "one_anomaly"
    severity = "fix"
    targets = ("states",)
    remedy = 'Name one class, what is not normal: {"anomaly": 0}.'

    def find(self, data: AuditData) -> Iterator[Finding]:
        if len(data.index.classes) != 1:
            yield self.make_finding(
                f"label_dict.json names {', '.join(data.index.classes)}; where records say `abnormal` it names one class."
            )


class StateAbsent(AuditCheck):
    """A side of the split without normal images, or a test split without abnormal ones."""

    severity = "fix"
    targets = ("states",)
    remedy = "Split again so that it has."

    def __init__(self, split: str) -> None:
        self.split, self.code = split, f"state_absent_{split}"

    def find(self, data: AuditData) -> Iterator[Finding]:
        for state, count in _count_states(data, self.split).items():
            if not count and (self.split == "test" or state == "normal"):
                yield self.make_finding(f"The {self.split} split has no {state} image.")


class StateRare(AuditCheck):
    """A test split with hardly any images of a state."""

    code = "state_rare_test"
    targets = ("states",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        for state, count in _count_states(data, "test").items():
            if 0 < count < MIN_STATE_CASES:
                yield self.make_finding(
                    f"The test split has {count} {state} images only: what is measured says little."
                )


class NormalOnly(AuditCheck):
    """No abnormal image to learn from."""

    code = "normal_only"
    tasks = ("detection",)
    targets = ("states", "masks")

    def find(self, data: AuditData) -> Iterator[Finding]:
        if data.target == "states":
            is_normal_only = not _count_states(data, "train")["abnormal"]
        else:
            is_normal_only = not any(record.mask is not None for record in data.index.train) and bool(
                data.readable_images
            )
        if is_normal_only:
            yield self.make_finding(
                "No training image is abnormal: the model learns what is normal, and calls abnormal what is unlike it."
            )


def _count_states(data: AuditData, split: str) -> dict[str, int]:
    records = data.splits[split]
    abnormal = sum(bool(record.extra["abnormal"]) for record in records)
    return {"normal": len(records) - abnormal, "abnormal": abnormal}


class MetricNotBorne(AuditCheck):
    """A metric that the annotation does not allow."""

    code = "metric_not_borne"
    severity = "fix"
    tasks = ("detection", "segmentation")
    targets = ("states", *MARKS)

    def find(self, data: AuditData) -> Iterator[Finding]:
        metric = data.request.metric
        is_boxed = any(record.extra.get(ORIGIN) == FROM_BOXES for record in data.index.test)
        if is_boxed and metric and metric != IOU_OF_BOXES:
            yield self.make_finding(
                f"The metric {metric} compares outlines, and the masks of this index are boxes, which {IOU_OF_BOXES} measures."
            )
        elif metric == IOU_OF_BOXES and not is_boxed:
            yield self.make_finding(
                f"The metric {metric} compares boxes, and the masks of this index are outlines: take dice."
            )
        elif data.target == "states" and metric in (*MASK_METRICS, *BOX_METRICS):
            yield self.make_finding(
                f"The metric {metric} compares marks, and this index says of each image only whether it is abnormal. Such "
                f"models are measured by {' or '.join(IMAGE_METRICS)}."
            )
        elif data.target == "boxes" and metric in MASK_METRICS:
            yield self.make_finding(
                f"The metric {metric} compares masks, and this index has boxes. Take the masks if there are any; else boxes "
                f"are measured by {', '.join(BOX_METRICS)}."
            )
        elif data.target == "masks" and metric in BOX_METRICS:
            yield self.make_finding(
                f"The metric {metric} compares boxes, and this index has masks. Take the boxes if there are any, or write "
                "each connected region as a box; masks are measured by lesion_f1 or dice."
            )


CHECKS = (OneAnomaly(), *map(StateAbsent, SPLITS), StateRare(), NormalOnly(), MetricNotBorne())
