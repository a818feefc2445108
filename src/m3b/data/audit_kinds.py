"""What the audit asks of each kind of index beyond what holds for all of them.

`m3b.tasks.TaskFamily` has its part as `audit`.
"""

from __future__ import annotations

from m3b.data import (
    audit_boxes,
    audit_covariates,
    audit_labels,
    audit_masks,
    audit_meaning,
    audit_reports,
    audit_states,
    audit_survival,
    audit_values,
)
from m3b.data.audit_classes import few_patients
from m3b.data.audit_common import Finding
from m3b.data.audit_images import Looks
from m3b.data.audit_meaning import IndexRequest
from m3b.data.index import Index, counts
from m3b.errors import DataError
from m3b.plugins import TaskRegistry

__all__ = ["IndexRequest", "IndexAudit", "add", "of"]


OF_BOXES = ("map_50", "map", "map_10", "centre_ap", "froc")
OF_IMAGES = ("image_auroc", "image_ap")
"""Metrics of detection that need no mark at all."""
OF_MASKS = ("dice", "iou", "nsd", "hd95", "lesion_f1", "lesion_precision", "lesion_recall", "pixel_auroc",
            "pixel_ap", "pro")  # fmt: skip
"""Metrics of detection that can be computed of one kind of annotation alone."""


class IndexAudit:
    """The audit of one kind of index. Stateless; what is not overridden asks for enough patients and nothing else.

    Attributes:
        volumes: whether volumes are looked at for odd slices, channels and voxels.
    """

    volumes: bool = True

    def before(self, index: Index) -> list[Finding]:
        """What the index alone shows."""
        return few_patients(index)

    def after(self, index: Index, looks: Looks, complete: bool) -> list[Finding]:
        """What the opened images and masks show.

        Args:
            looks: by `Record.key`, of the images that opened or failed to.
            complete: whether every case was opened, so that what was not seen is not there.
        """
        return []

    def asked(self, index: Index, asked: IndexRequest) -> list[Finding]:
        """The index held against what was asked for. A metric that it cannot bear is named by `bears`."""
        fault = self.bears(index, asked.metric) if asked.metric else ""
        return [Finding("metric_not_borne", "fix", fault, (), fault)] if fault else []

    def bears(self, index: Index, metric: str) -> str:
        """Why a metric of the task cannot be computed of these cases, in a sentence; empty where it can."""
        return ""

    def counts(self, index: Index, looks: Looks) -> dict[str, dict[str, int]]:
        """Cases of each class by split (`train`, `test`)."""
        return {"train": counts(index.train, index.classes), "test": counts(index.test, index.classes)}


class DiagnosisAudit(IndexAudit):
    """See `IndexAudit`."""

    volumes = False

    def before(self, index: Index) -> list[Finding]:
        return [*audit_labels.labels(index), *audit_meaning.classes(index), *audit_covariates.covariates(index)]

    def after(self, index: Index, looks: Looks, complete: bool) -> list[Finding]:
        return audit_meaning.told_beside(index, looks)

    def asked(self, index: Index, asked: IndexRequest) -> list[Finding]:
        return [*super().asked(index, asked), *audit_meaning.against(index, asked)]


class SegmentationAudit(IndexAudit):
    """See `IndexAudit`."""

    def before(self, index: Index) -> list[Finding]:
        return audit_masks.before_opening(index)

    def after(self, index: Index, looks: Looks, complete: bool) -> list[Finding]:
        return audit_masks.after_opening(index, looks, complete)

    def counts(self, index: Index, looks: Looks) -> dict[str, dict[str, int]]:
        return audit_masks.class_counts(index, looks)


class DetectionAudit(IndexAudit):
    """See `IndexAudit`."""

    def before(self, index: Index) -> list[Finding]:
        if index.stated:
            return audit_states.before_opening(index)
        return audit_boxes.before_opening(index) if index.boxed else audit_masks.before_opening(index)

    def after(self, index: Index, looks: Looks, complete: bool) -> list[Finding]:
        if index.stated:
            return []
        if index.boxed:
            return audit_boxes.after_opening(looks)
        found = audit_masks.after_opening(index, looks, complete, healthy=True)
        if any(record.mask is not None for record in index.train):
            return found
        kept = [
            one for one in found if one.code not in ("class_absent_train", "class_rare_train", "class_scarce_train")
        ]
        return [*kept, audit_states.normal_only()]

    def bears(self, index: Index, metric: str) -> str:
        if index.stated and metric in (*OF_MASKS, *OF_BOXES):
            return (
                f"The metric {metric} compares marks, and this index says of each image only whether it is abnormal. Such models "
                f"are measured by {' or '.join(OF_IMAGES)}."
            )
        if index.boxed and metric in OF_MASKS:
            return (
                f"The metric {metric} compares masks, and this index has boxes. Take the masks where there are any; else boxes "
                f"are measured by {', '.join(OF_BOXES)}."
            )
        if not index.boxed and metric in OF_BOXES:
            return (
                f"The metric {metric} compares boxes, and this index has masks. Take the boxes where there are any, or write "
                "each connected region as a box; masks are measured by lesion_f1 or dice."
            )
        return ""

    def counts(self, index: Index, looks: Looks) -> dict[str, dict[str, int]]:
        if index.stated:
            return {
                "train": audit_states.counts(index.train, index.classes),
                "test": audit_states.counts(index.test, index.classes),
            }
        return super().counts(index, looks) if index.boxed else audit_masks.class_counts(index, looks)


class ReportAudit(IndexAudit):
    """See `IndexAudit`."""

    def before(self, index: Index) -> list[Finding]:
        return audit_reports.reports(index)


class GradingAudit(DiagnosisAudit):
    """See `IndexAudit`. Of a diagnosis, and the grades stand in their order."""

    def before(self, index: Index) -> list[Finding]:
        return [*super().before(index), *audit_values.one_each(index), *audit_values.order(index)]


class RegressionAudit(IndexAudit):
    """See `IndexAudit`."""

    volumes = False

    def before(self, index: Index) -> list[Finding]:
        return [*audit_values.values(index), *audit_covariates.covariates(index)]

    def asked(self, index: Index, asked: IndexRequest) -> list[Finding]:
        return [*super().asked(index, asked), *audit_values.unit(index, asked.request)]

    def counts(self, index: Index, looks: Looks) -> dict[str, dict[str, int]]:
        return {
            "train": dict.fromkeys(index.classes, len(index.train)),
            "test": dict.fromkeys(index.classes, len(index.test)),
        }


class SurvivalAudit(IndexAudit):
    """See `IndexAudit`."""

    volumes = False

    def before(self, index: Index) -> list[Finding]:
        return [*audit_survival.survival(index), *audit_covariates.covariates(index)]

    def counts(self, index: Index, looks: Looks) -> dict[str, dict[str, int]]:
        return {"train": audit_survival.counts(index.train), "test": audit_survival.counts(index.test)}


_AUDITS: TaskRegistry[IndexAudit] = TaskRegistry("audit of the task")


def add(task: str, audit: IndexAudit) -> None:
    """Register the audit of a task.

    Raises:
        ValueError: the task has another one.
    """
    _AUDITS.add(task, audit)


add("diagnosis", DiagnosisAudit())
add("segmentation", SegmentationAudit())
add("detection", DetectionAudit())
add("report", ReportAudit())
add("grading", GradingAudit())
add("regression", RegressionAudit())
add("survival", SurvivalAudit())


def of(task: str) -> IndexAudit:
    """The audit of a task.

    Raises:
        DataError: there is no such task.
    """
    found = _AUDITS.get(task)
    if found is None:
        raise DataError(f"There is no audit for the task {task!r}; there are those for {', '.join(_AUDITS.names())}.")
    return found
