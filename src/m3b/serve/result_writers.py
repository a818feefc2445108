"""Forms of an answer: JSON, masks, DICOM objects. The parameter `format` or the header `Accept` chooses one of `WRITERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.data.records import paths_of
from m3b.errors import ModelError, UsageError
from m3b.models import Prediction, read_model_info
from m3b.models.answers import answer_format_of
from m3b.models.prediction_store import relative_to, with_relative_files
from m3b.serve.model_pool import ServedModel
from m3b.serve.serve_errors import ServeError, hide_paths
from m3b.serve.zip_contents import pack_files
from m3b.writing import json_text

MEDIA_TYPES = {".nii.gz": "application/gzip", ".nii": "application/octet-stream", ".png": "image/png",
               ".dcm": "application/dicom", ".json": "application/json", ".zip": "application/zip"}  # fmt: skip


@dataclass(frozen=True)
class PredictedCases:
    """The predictions of one request.

    Args:
        served: the model.
        predictions: in the order of the cases.
        folder: of the files that predictions name; further files are written here.
        names: paths on this machine -> names that the client knows.
        notes: what was skipped or chosen when the cases were found.
    """

    served: ServedModel
    predictions: Sequence[Prediction]
    folder: Path
    names: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values of the answer."""
        return {
            "model": self.served.name,
            "version": self.served.version,
            "task": self.served.model.task,
            "predictions": [self._to_entry(prediction) for prediction in self.predictions],
            "notes": [hide_paths(note, self.names) for note in self.notes],
        }

    def _to_entry(self, prediction: Prediction) -> dict[str, Any]:
        paths = paths_of(prediction.image)
        hidden = replace(prediction, error=hide_paths(prediction.error, self.names), image="")
        entry = with_relative_files(hidden, self.folder)
        return {**entry, "image": [self.names.get(path, "image") for path in paths]}


@dataclass(frozen=True)
class ResultWriter:
    """A form of the answer that is files.

    Args:
        media_types: of `Accept` that choose it.
        write: writes the files of an answer and returns them; none if the model's answers have no such form.
        description: for the OpenAPI document.
    """

    media_types: tuple[str, ...]
    write: Callable[[PredictedCases], list[Path]]
    description: str


def list_mask_files(cases: PredictedCases) -> list[Path]:
    """Return the mask files as the model wrote them, on the grid of the image: NIfTI of volumes, PNG of pictures."""
    return [
        file
        for prediction in cases.predictions
        for file in (prediction.mask, *prediction.masks.values(), prediction.anomaly_map)
        if file is not None
    ]


def make_dicom_writer(name: str) -> Callable[[PredictedCases], list[Path]]:
    """Return the function that writes each DICOM case as an object of one of `DICOM_FORMATS`."""

    def write(cases: PredictedCases) -> list[Path]:
        from m3b.models.dicom.output import check_sources, write_dicom

        model = cases.served.model
        if not answer_format_of(model.task).fits_dicom():
            return []
        answered = [prediction for prediction in cases.predictions if not prediction.error]
        check_sources([prediction.image for prediction in answered])
        files = write_dicom(
            answered, read_model_info(model.folder), model.title, model.version, cases.folder / "dicom", [name],
            model.display_window,
        )  # fmt: skip
        return [file for case_files in files.values() for file in case_files]

    return write


def write_all(cases: PredictedCases) -> list[Path]:
    """Write predictions.json beside the mask files, in one archive."""
    document = cases.folder / "predictions.json"
    document.write_text(json_text(cases.to_json(), indent=1), encoding="utf-8")
    return [_pack(cases, [document, *list_mask_files(cases)])]


WRITERS: Mapping[str, ResultWriter] = {
    "mask": ResultWriter(("image/png", "application/gzip"), list_mask_files, "mask files, NIfTI or PNG as the input"),
    "dicom-seg": ResultWriter(("application/dicom",), make_dicom_writer("seg"), "masks as DICOM SEG; DICOM in"),
    "dicom-sr": ResultWriter((), make_dicom_writer("sr"), "classes, numbers and boxes as DICOM SR; DICOM in"),
    "dicom-rtstruct": ResultWriter((), make_dicom_writer("rtstruct"), "masks as contours, DICOM RTSTRUCT; DICOM in"),
    "dicom-pdf": ResultWriter((), make_dicom_writer("pdf"), "one page with its picture, encapsulated PDF; DICOM in"),
    "zip": ResultWriter(("application/zip",), write_all, "predictions.json and mask files"),
}
"""`format` -> writer; `json` is the form without one."""


def choose_format(format_name: str, accept: str) -> str:
    """Return the name of the form that a request asks for, `json` by default.

    Raises:
        ServeError: there is no such form.
    """
    if format_name not in ("", "json", *WRITERS):
        raise ServeError(406, "unknown_format", f"There is no format of this name: json, {', '.join(WRITERS)}.")
    accepted = [part.partition(";")[0].strip() for part in accept.split(",")]
    by_header = (
        name for media_type in accepted for name, writer in WRITERS.items() if media_type in writer.media_types
    )
    return format_name or next(by_header, "json")


def write_files(cases: PredictedCases, format_name: str) -> Path:
    """Write an answer as one file: of several, an archive of them.

    Raises:
        ServeError: the model's answers have no such form, or the images are no DICOM.
    """
    try:
        files = WRITERS[format_name].write(cases)
    except UsageError as error:
        raise ServeError(422, "no_dicom_source", hide_paths(str(error), cases.names)) from error
    if not files:
        message = f"An answer of this model has no {format_name}; ask for another format."
        raise ServeError(406, "no_such_output", message)
    return files[0] if len(files) == 1 else _pack(cases, files)


def media_type_of(file: Path) -> str:
    """Return the media type of a file that is sent."""
    return next(
        (kind for suffix, kind in MEDIA_TYPES.items() if file.name.endswith(suffix)), "application/octet-stream"
    )


def _pack(cases: PredictedCases, files: Sequence[Path]) -> Path:
    archive = cases.folder / "answer.zip"
    pack_files(archive, {relative_to(file, cases.folder): file for file in files})
    return archive


def refuse_failed(cases: PredictedCases) -> None:
    """Raise ServeError if no case of a request was predicted; the error is that of the first."""
    errors = [prediction for prediction in cases.predictions if prediction.error]
    if cases.predictions and len(errors) == len(cases.predictions):
        error = ModelError(errors[0].error, code=errors[0].error_code or "not_predicted")
        raise ServeError(422, error.code, hide_paths(str(error), cases.names))
