"""Write predictions as DICOM objects in the reader, which opens the sources; results are copied from its own folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.records import Reference, frozen, relocated
from m3b.errors import DataError, UsageError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader, to_reader_path
from m3b.isolation.untrusted import TemporaryFolder, copy_file
from m3b.models.answers import answer_format_of
from m3b.models.image_jobs import paths_to_mount
from m3b.models.predict_process import read_model_info
from m3b.models.predictions import ModelInfo, Prediction

if TYPE_CHECKING:
    from m3b.models.loading import Model

PACKAGE = "highdicom"
DICOM_FORMATS = ("seg", "sr", "rtstruct", "pdf")
MASK_FORMATS = ("seg", "rtstruct")
DEFAULT_FORMATS = ("seg", "sr")


@dataclass(frozen=True)
class WriteDicomRequest:
    """A prediction for an image at an absolute path, the model's info, name, version and window, and the output folder."""

    prediction: Prediction
    model_info: ModelInfo
    model: str
    version: str
    folder: Path
    formats: list[str]
    window: dict[str, Any] | None


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
    from m3b.models.dicom.objects import make_measurement_report, make_segmentation, read_mask_planes, save_dicom
    from m3b.models.dicom.result_page import make_pdf_object
    from m3b.models.dicom.sources import read_source_headers
    from m3b.models.dicom.structure_set import make_structure_set

    prediction, model_info, model = request.prediction, request.model_info, (request.model, request.version)
    sources, objects, planes = read_source_headers(prediction.image), {}, {}
    if prediction.mask is not None or prediction.masks:
        labels = model_info.labels or {name: number for number, name in enumerate(model_info.classes, start=1)}
        planes = read_mask_planes(prediction, labels, sources)
    try:
        if planes and "seg" in request.formats:
            objects["seg"] = make_segmentation(planes, sources, *model)
        if planes and "rtstruct" in request.formats:
            objects["rtstruct"] = make_structure_set(planes, sources, *model)
        if "sr" in request.formats:
            objects["sr"] = make_measurement_report(prediction, sources, *model)
        if "pdf" in request.formats:
            objects["pdf"] = make_pdf_object(prediction, model_info, request.window, sources, *model)
    except (AttributeError, TypeError, ValueError) as error:  # highdicom raises these for missing attributes of sources
        raise DataError(f"{sources[0].get('SeriesInstanceUID')}: no DICOM object can be made of it: {error}") from error
    return [
        save_dicom(dataset, request.folder / f"{name}.dcm") for name, dataset in objects.items() if dataset is not None
    ]


def find_source_problem(request: CheckSourcesRequest) -> str:
    """Worker job: return why DICOM objects cannot refer to one of these images; empty if they can."""
    from m3b.models.dicom.sources import read_source_headers

    try:
        for image in request.images:
            read_source_headers(image)
    except DataError as error:
        return str(error)
    return ""


def check_formats(formats: Sequence[str], model: Model) -> None:
    """Check that a model's predictions can be written in each of these formats.

    Raises:
        UsageError: an unknown format, one of masks for a model without masks, a model of texts, or no highdicom.
    """
    if unknown := sorted(set(formats) - set(DICOM_FORMATS)):
        raise UsageError(f"--dicom-format {unknown[0]}: choose of {', '.join(DICOM_FORMATS)}.")
    answer_format = answer_format_of(model.task)
    if not answer_format.fits_dicom():
        raise UsageError(f"--dicom writes masks, classes and numbers; a {model.task} model answers in text.")
    if set(formats) <= set(MASK_FORMATS) and not answer_format.has_mask_output(read_model_info(model.folder)):
        raise UsageError(f"--dicom-format {' and '.join(formats)}: this {model.task} model predicts no masks.")
    _require_highdicom()


def _require_highdicom() -> None:
    if importlib.util.find_spec(PACKAGE) is None:
        raise UsageError("DICOM objects need highdicom, which is not installed: pip install 'm3b[dicom]'.")


def check_sources(images: Sequence[Reference]) -> None:
    """Check, before anything is predicted, that DICOM objects can refer to these images.

    Raises:
        UsageError: highdicom is not installed, or an image is no DICOM series or file.
    """
    _require_highdicom()
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
    predictions: Sequence[Prediction],
    model_info: ModelInfo,
    model: str,
    version: str,
    folder: Path,
    formats: Sequence[str] = DEFAULT_FORMATS,
    window: dict[str, Any] | None = None,
) -> dict[int, list[Path]]:
    """Write the objects, such as `0001_seg.dcm` and `0001_sr.dcm`, in `folder`; return the files by prediction.

    Predictions with errors have none.

    Args:
        model: its name, for the objects.
        version: of the model.
        formats: some of `DICOM_FORMATS`; masks alone have no `sr`, and predictions without masks no `seg` and `rtstruct`.
        window: the intensity of the model's plan, for the picture in `pdf`.

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
                WriteDicomRequest(
                    _with_absolute_masks(located), model_info, model, version, case_folder, list(formats), window
                ),
            ):
                if Path(name).name != name:
                    raise DataError(f"A DICOM object was written as {name!r}, which is no plain name.")
                copy_file(case_folder, name, folder, target := f"{number + 1:04d}_{name}")
                files_by_case.setdefault(number, []).append(folder / target)
    return files_by_case


def _with_absolute_masks(prediction: Prediction) -> Prediction:
    mask = None if prediction.mask is None else prediction.mask.resolve()
    return replace(prediction, mask=mask, masks={name: file.resolve() for name, file in prediction.masks.items()})
