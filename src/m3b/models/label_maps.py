"""Masks as one label map, in another file format: a worker job for viewers that take one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader


@dataclass(frozen=True)
class LabelMapRequest:
    """Mask files on one grid, the value of each in the label map (0: its own values), and the file to write."""

    masks: dict[str, int]
    file: Path


def write_label_map(request: LabelMapRequest) -> str:
    """Worker job: write the label map, and return the name of its file. Of masks that overlap, the last one counts."""
    import SimpleITK as sitk

    label_map: sitk.Image | None = None
    for name, value in request.masks.items():
        mask = sitk.ReadImage(name)
        if value:
            mask = sitk.Cast(mask != 0, sitk.sitkUInt16) * value
        mask = sitk.Cast(mask, sitk.sitkUInt16)
        label_map = mask if label_map is None else sitk.Maximum(label_map * sitk.Cast(mask == 0, sitk.sitkUInt16), mask)
    sitk.WriteImage(label_map, str(request.file))
    return request.file.name


LABEL_MAP_JOB = WorkerJob("m3b.models.label_maps:write_label_map", LabelMapRequest, str)


def make_label_map(masks: dict[Path, int], file: Path) -> Path:
    """Write masks as one label map, in a confined reader; the suffix of `file` chooses the format.

    Raises:
        DataError: a mask cannot be read, or the format cannot hold it.
    """
    with open_reader(list(masks), writable=(file.parent,)) as reader:
        reader.run_job(LABEL_MAP_JOB, LabelMapRequest({str(mask): value for mask, value in masks.items()}, file))
    return file
