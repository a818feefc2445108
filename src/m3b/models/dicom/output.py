"""Write predictions as DICOM objects in the reader, which opens the sources; results are copied from its own folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.records import Reference, frozen, relocated
from m3b.errors import DataError, UsageError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader, to_reader_path
from m3b.isolation.untrusted import TemporaryFolder, copy_file
from m3b.models.image_jobs import paths_to_mount
from m3b.models.predictions import ModelInfo, Prediction

PACKAGE = "highdicom"


@dataclass(frozen=True)
class WriteDicomRequest:
    """A prediction for an image at an absolute path, the model's info, name and version, and the output folder."""

    prediction: Prediction
    model_info: ModelInfo
    model: str
    version: str
    folder: Path


@dataclass(frozen=True)
class CheckSourcesRequest:
    """Images at absolute paths."""

    images: list[str | list[str]]


WRITE_DICOM_JOB = WorkerJob("m3b.models.dicom.output:write_objects", WriteDicomRequest, list[str], 600.0)
CHECK_SOURCES_JOB: WorkerJob[CheckSourcesRequest, str] = WorkerJob(
    "m3b.models.dicom.output:find_source_problem", CheckSourcesRequest, str
)


def write_objects(request: WriteDicomRequest) -> list[str]:
    """Worker job: write the objects and return the names of the files. Raises DataError."""
    from m3b.models.dicom.objects import make_measurement_report, make_segmentation, save_dicom
    from m3b.models.dicom.sources import read_source_headers

    prediction, model_info = request.prediction, request.model_info
    sources, file_names = read_source_headers(prediction.image), []
    try:
        if prediction.mask is not None or prediction.masks:
            labels = model_info.labels or {name: number for number, name in enumerate(model_info.classes, start=1)}
            segmentation_object = make_segmentation(prediction, labels, sources, request.model, request.version)
            file_names.append(save_dicom(segmentation_object, request.folder / "seg.dcm"))
        report = make_measurement_report(prediction, sources, request.model, request.version)
    except (AttributeError, TypeError, ValueError) as error:  # highdicom raises these for missing attributes of sources
        raise DataError(f"{sources[0].get('SeriesInstanceUID')}: no DICOM object can be made of it: {error}") from error
    if report is not None:
        file_names.append(save_dicom(report, request.folder / "sr.dcm"))
    return file_names


def find_source_problem(request: CheckSourcesRequest) -> str:
    """Worker job: return why DICOM objects cannot refer to one of these images; empty if they can."""
    from m3b.models.dicom.sources import read_source_headers

    try:
        for image in request.images:
            read_source_headers(image)
    except DataError as error:
        return str(error)
    return ""


def check_sources(images: Sequence[Reference]) -> None:
    """Check, before anything is predicted, that DICOM objects can refer to these images.

    Raises:
        UsageError: highdicom is not installed, or an image is no DICOM series or file.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise UsageError("--dicom needs highdicom, which is not installed: pip install 'm3b[dicom]'.")
    references = [relocated(frozen(image), to_reader_path) for image in images]
    if any(not isinstance(image, str | tuple) for image in references):
        raise UsageError(
            "--dicom takes models of one image a case; of several, nothing says to which one the answer belongs."
        )
    with open_reader(paths_to_mount([Prediction(image) for image in references])) as reader:
        json_references: list[Any] = [image if isinstance(image, str) else list(image) for image in references]
        if problem := reader.run_job(CHECK_SOURCES_JOB, CheckSourcesRequest(json_references)):
            raise UsageError(f"--dicom: {problem}")


def write_dicom(
    predictions: Sequence[Prediction], model_info: ModelInfo, model: str, version: str, folder: Path
) -> dict[int, list[Path]]:
    """Write the objects `0001_seg.dcm` and `0001_sr.dcm` in `folder`; return the files by prediction.

    Predictions with errors have none.

    Args:
        model: its name, for the objects.
        version: of the model.

    Raises:
        DataError: an object cannot be made of these sources.
    """
    files_by_case: dict[int, list[Path]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder("dicom") as scratch, open_reader(paths_to_mount(predictions), writable=(scratch,)) as reader:
        for number, prediction in enumerate(predictions):
            if prediction.error:
                continue
            case_folder = scratch / f"{number:05d}"
            case_folder.mkdir()
            located = replace(prediction, image=relocated(prediction.image, to_reader_path))
            for name in reader.run_job(
                WRITE_DICOM_JOB,
                WriteDicomRequest(_with_absolute_masks(located), model_info, model, version, case_folder),
            ):
                if Path(name).name != name:
                    raise DataError(f"A DICOM object was written as {name!r}, which is no plain name.")
                copy_file(case_folder, name, folder, target := f"{number + 1:04d}_{name}")
                files_by_case.setdefault(number, []).append(folder / target)
    return files_by_case


def _with_absolute_masks(prediction: Prediction) -> Prediction:
    mask = None if prediction.mask is None else prediction.mask.resolve()
    return replace(prediction, mask=mask, masks={name: file.resolve() for name, file in prediction.masks.items()})
