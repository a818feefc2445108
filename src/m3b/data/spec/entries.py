"""Cases with their targets: what the index says of each, or why it cannot hold it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from m3b.data import kinds
from m3b.data.kinds.regression import VALUE
from m3b.data.records import BoxLabel, Channels, Image, Mask, Record, Report
from m3b.data.spec.boxes import BoxSource
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.covariates import covariate_of, told_covariates
from m3b.data.spec.job import Entry, SpecExecution
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.masks import MaskSource
from m3b.data.spec.model import IndexSpec, Text
from m3b.data.spec.numbers import number_of
from m3b.data.spec.only import meant
from m3b.data.spec.prompted import BY_PROMPTS, ORIGIN, mask_for
from m3b.data.spec.sources import Sources
from m3b.data.spec.states import OF_NORMAL, UNMARKED, is_abnormal
from m3b.data.spec.survivals import survival_of
from m3b.errors import DataError

WORDS = {
    "rtstruct": "DICOM contours",
    "dicom_seg": "DICOM segments",
    "labelme": "outlines (LabelMe)",
    "coco": "outlines (COCO)",
    "aperio": "outlines (Aperio)",
    "yolo": "outlines (YOLO)",
    "cvat": "outlines (CVAT)",
    "via": "outlines (VIA)",
    "csv_runs": "run lengths",
}
"""What masks are drawn from, by format."""


def entries_of(job: SpecExecution, cases: Sequence[CaseDraft]) -> list[Entry]:
    spec = job.spec
    prefix = f"data/{job.name}/"
    masks = MaskSource(spec.masks, job.folder, job.accounting, prefix, job.work, cases) if spec.masks else None
    boxes = BoxSource(spec.boxes, job.folder, job.accounting, cases) if spec.boxes else None
    entries = []
    for case in cases:
        try:
            meant(spec, job.sources, case)
            record = _record(job, case, masks, boxes)
        except LeaveOut as reason:
            job.dropped.append((case, str(reason)))
            job.accounting.leave(case.files, str(reason))
            continue
        job.accounting.use(case.files, "image")
        entries.append(Entry(case, record))
    if masks is not None:
        masks.leave_unmatched()
    job.notes += [*_converted(spec), *told_covariates([entry.record for entry in entries])]
    if boxes is not None:
        _some_boxes(boxes, entries)
        job.notes += [f"{count} boxes left out: {reason}" for reason, count in boxes.notes.items()]
        job.notes += [boxes.told] if boxes.told else []
    return entries


def _some_boxes(boxes: BoxSource, entries: Sequence[Entry]) -> None:
    """Raise where no case has a box.

    Raises:
        DataError: the message names the classes of the files and those of the reading.
    """
    if not entries or any(one.record.boxes for one in entries):
        return
    why = (
        "; ".join(f"{count:,} {reason}" for reason, count in boxes.notes.items()) or "no file holds one of these images"
    )
    raise DataError(
        f"boxes: none is left ({why}). The files call their classes {', '.join(boxes.named_classes()[:12])}; "
        f"boxes.classes has {', '.join(boxes.texts()[:12])}."
    )


def _converted(spec: IndexSpec) -> list[str]:
    """What was made of the files of masks and channels, where that changes what they say."""
    told = []
    masks, channels = spec.masks, spec.images.channels
    if masks is not None and masks.cut is not None:
        name = next(iter(masks.classes))
        told.append(
            f"masks that number objects or tell several values were united: what is not background is {name}"
            if 0 < masks.cut < 1
            else f"masks hold more than two levels, as lossy compression leaves them, and were cut: above {masks.cut:g} is {name}"
        )
    if masks is not None and masks.format != "image":
        told.append(f"masks were drawn from {WORDS[masks.format]}, on the grid of their images")
    elif masks is not None and masks.combine == "union":
        told.append("of several mask files of a case one mask was made: what any of them marks")
    if frames := spec.images.frames:
        what = (
            "the middle frame is" if frames == 1 else f"{frames} evenly spaced frames, as the slices of a volume, are"
        )
        told.append(f"of each clip {what} what a model sees")
    if channels:
        told.append(f"images are read as {len(channels)} channels ({', '.join(one.name for one in channels)}), the others on the "
                    f"grid of {channels[0].name}")  # fmt: skip
    return told


def _record(job: SpecExecution, case: CaseDraft, masks: MaskSource | None, boxes: BoxSource | None) -> Record:
    spec = job.spec
    labels: tuple[str, ...] = ()
    if spec.labels is not None:
        try:
            labels = labels_of(spec.labels, job.sources, case)
        except LeaveOut:
            if "labels" in kinds.of(spec.task).targets:
                raise  # a report may do without labels
    abnormal = is_abnormal(spec.states, job.sources, case) if spec.states is not None else None
    made = (
        job.prompted.get(f"data/{job.name}/{case.items[0].reference}") if masks and not masks.items_of(case) else None
    )
    mask = _mask(case, masks, abnormal) if masks is None or made is None else mask_for(masks, case, made)
    marked: tuple[BoxLabel, ...] | None = boxes.boxes_of(case) if boxes is not None else None
    report = _report(spec.report, job.sources, case) if spec.report is not None else None
    extra: dict[str, Any] = {VALUE: number_of(spec.value, job.sources, case)} if spec.value is not None else {}
    if masks is None and abnormal is not None:
        extra["abnormal"] = abnormal
    if made is not None:
        extra[ORIGIN] = BY_PROMPTS
    if spec.survival is not None:
        extra |= survival_of(spec.survival, job.sources, case)
    patient = _patient(job, case)
    attributes = {name: text for name, value in spec.attributes.items() if (text := job.sources.text(value, case))}
    covariates = {name: covariate_of(one, job.sources, case) for name, one in spec.covariates.items()}
    views = spec.images.several == "views" and len(case.items) > 1 and not kinds.of(spec.task).separate_images
    image = _image(job, case)
    if isinstance(image, tuple) and not views and spec.images.several == "views" and kinds.of(spec.task).takes_views:
        image = image[0]  # a study of one view
    return Record(image, labels, patient, mask, marked, report, extra, attributes, covariates, views)


def _mask(case: CaseDraft, masks: MaskSource | None, abnormal: bool | None) -> Mask | None:
    """The mask of a case; of one that is known to be normal none, whatever file there is."""
    if masks is None:
        return None
    items = masks.items_of(case)
    if abnormal is False:
        masks.accounting.leave((item.path for item in items), OF_NORMAL)
        return None
    if abnormal and not items:
        raise LeaveOut(UNMARKED)
    return masks.mask_of(case)


def _image(job: SpecExecution, case: CaseDraft) -> Image:
    prefix = f"data/{job.name}/"
    if case.channels:
        return Channels(tuple((name, prefix + item.reference) for name, item in case.channels.items()))
    if case.folder is not None:
        return prefix + case.folder
    paths = tuple(prefix + item.reference for item in case.items)
    return paths[0] if len(paths) == 1 and job.spec.images.several == "one" else paths


def _report(text: Text, sources: Sources, case: CaseDraft) -> Report:
    parts = [sources.text(one, case) if one is not None else None for one in (text.findings, text.impression)]
    if not any(part and part.strip() for part in parts):
        raise LeaveOut("no report")
    return Report(*((part or "").strip() for part in parts))


def _patient(job: SpecExecution, case: CaseDraft) -> str:
    """Whose case it is; of unknown patients, a name that no other case has."""
    if job.spec.patient is None:
        return f"case {case.key}"
    found = job.sources.text(job.spec.patient, case)
    if not found:
        raise LeaveOut("no patient is known")
    return found
