"""DICOM objects of answers, written by the reader: it opens the sources, and what it made is copied from its own folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.records import Reference, frozen, relocated
from m3b.errors import DataError, WrongUse
from m3b.models.opened import places_of
from m3b.models.predictions import Prediction, Promise
from m3b.reader import Request
from m3b.reader.outside import placed, reading
from m3b.untrusted import TemporaryFolder, copy_file

PACKAGE = "highdicom"


@dataclass(frozen=True)
class ToWriteDicom:
    """An answer on an image at an absolute path, what the model says of itself, its name, and the folder for the objects."""

    prediction: Prediction
    promise: Promise
    model: str
    version: str
    folder: Path


@dataclass(frozen=True)
class ToCheckSources:
    """Images at absolute paths."""

    images: list[str | list[str]]


WRITE = Request("m3b.models.dicom.writing:write", ToWriteDicom, list[str], 600.0)
CHECK: Request[ToCheckSources, str] = Request("m3b.models.dicom.writing:check", ToCheckSources, str)


def write(asked: ToWriteDicom) -> list[str]:
    """Inside the reader: names of the files. Raises DataError."""
    from .measurements import measurement_report
    from .segments import save, segmentation
    from .sources import sources_of

    prediction, model_info = asked.prediction, asked.promise
    sources, file_names = sources_of(prediction.image), []
    try:
        if prediction.mask is not None or prediction.masks:
            labels = model_info.labels or {name: number for number, name in enumerate(model_info.classes, start=1)}
            segmentation_object = segmentation(prediction, labels, sources, asked.model, asked.version)
            file_names.append(save(segmentation_object, asked.folder / "seg.dcm"))
        report = measurement_report(prediction, sources, asked.model, asked.version)
    except (AttributeError, TypeError, ValueError) as error:  # what highdicom says of attributes that sources lack
        raise DataError(f"{sources[0].get('SeriesInstanceUID')}: no DICOM object can be made of it: {error}") from error
    if report is not None:
        file_names.append(save(report, asked.folder / "sr.dcm"))
    return file_names


def check(asked: ToCheckSources) -> str:
    """Inside the reader: why DICOM objects cannot refer to one of these images; empty where they can."""
    from .sources import sources_of

    try:
        for image in asked.images:
            sources_of(image)
    except DataError as error:
        return str(error)
    return ""


def check_sources(images: Sequence[Reference]) -> None:
    """To be called before anything is predicted.

    Raises:
        WrongUse: highdicom is not installed, or an image is no DICOM series or file.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise WrongUse("--dicom needs highdicom, which is not installed: pip install 'm3b[dicom]'.")
    references = [relocated(frozen(image), placed) for image in images]
    if any(not isinstance(image, str | tuple) for image in references):
        raise WrongUse(
            "--dicom takes models of one image a case; of several, nothing says to which one the answer belongs."
        )
    with reading(places_of([Prediction(image) for image in references])) as reader:
        json_references: list[Any] = [image if isinstance(image, str) else list(image) for image in references]
        if problem := reader.ask(CHECK, ToCheckSources(json_references)):
            raise WrongUse(f"--dicom: {problem}")


def write_dicom(
    found: Sequence[Prediction], promise: Promise, model: str, version: str, folder: Path
) -> dict[int, list[Path]]:
    """The objects of each answer by its position, `0001_seg.dcm` and `0001_sr.dcm` in `folder`; none of those with an error.

    Args:
        model: its name, for the objects.
        version: of the model.

    Raises:
        DataError: sources that an object cannot be made of.
    """
    files_by_case: dict[int, list[Path]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder("dicom") as scratch, reading(places_of(found), write=(scratch,)) as reader:
        for number, prediction in enumerate(found):
            if prediction.error:
                continue
            case_folder = scratch / f"{number:05d}"
            case_folder.mkdir()
            located = replace(prediction, image=relocated(prediction.image, placed))
            for name in reader.ask(WRITE, ToWriteDicom(_absolute(located), promise, model, version, case_folder)):
                if Path(name).name != name:
                    raise DataError(f"A DICOM object was written as {name!r}, which is no plain name.")
                copy_file(case_folder, name, folder, target := f"{number + 1:04d}_{name}")
                files_by_case.setdefault(number, []).append(folder / target)
    return files_by_case


def _absolute(answer: Prediction) -> Prediction:
    mask = None if answer.mask is None else answer.mask.resolve()
    return replace(answer, mask=mask, masks={name: file.resolve() for name, file in answer.masks.items()})
