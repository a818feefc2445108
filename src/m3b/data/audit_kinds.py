"""What the audit asks of each kind of index beyond what holds for all of them.

`m3b.tasks.TaskFamily` has its part as `audit`.
"""

from __future__ import annotations

from m3b.data import audit_boxes, audit_labels, audit_masks, audit_reports
from m3b.data.audit_classes import few_patients
from m3b.data.audit_common import Finding
from m3b.data.audit_images import Looks
from m3b.data.index import Index, counts
from m3b.errors import DataError
from m3b.plugins import Registry

__all__ = ["IndexAudit", "add", "of"]


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

    def counts(self, index: Index, looks: Looks) -> dict[str, dict[str, int]]:
        """Cases of each class by split (`train`, `test`)."""
        return {"train": counts(index.train, index.classes), "test": counts(index.test, index.classes)}


class DiagnosisAudit(IndexAudit):
    """See `IndexAudit`."""

    volumes = False

    def before(self, index: Index) -> list[Finding]:
        return audit_labels.labels(index)


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
        return audit_boxes.before_opening(index) if index.boxed else audit_masks.before_opening(index)

    def after(self, index: Index, looks: Looks, complete: bool) -> list[Finding]:
        if index.boxed:
            return audit_boxes.after_opening(looks)
        return audit_masks.after_opening(index, looks, complete, healthy=True)

    def counts(self, index: Index, looks: Looks) -> dict[str, dict[str, int]]:
        return super().counts(index, looks) if index.boxed else audit_masks.class_counts(index, looks)


class ReportAudit(IndexAudit):
    """See `IndexAudit`."""

    def before(self, index: Index) -> list[Finding]:
        return audit_reports.reports(index)


_AUDITS: Registry[IndexAudit] = Registry("audit of the task")


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


def of(task: str) -> IndexAudit:
    """The audit of a task.

    Raises:
        DataError: there is no such task.
    """
    found = _AUDITS.get(task)
    if found is None:
        raise DataError(f"There is no audit for the task {task!r}; there are those for {', '.join(_AUDITS.names())}.")
    return found
