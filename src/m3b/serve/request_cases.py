"""The cases of a request: files, DICOM series, archives, channels and covariates of a form, as the model takes them."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.dataset.formats import parse_cases, select_channels
from m3b.errors import ModelError
from m3b.models import Model
from m3b.models.covariate_input import split_covariates
from m3b.models.input_cases import find_model_images
from m3b.serve.serve_errors import ServeError, hide_paths
from m3b.serve.uploads import Upload, UploadedFile, UploadLimits
from m3b.serve.zip_contents import unpack_zip

FILE_FIELD = "file"
PARAMETERS = ("format", "threshold")
"""Form fields that are no covariates."""
_DICOM_SUFFIXES = (".dcm", ".dicom", ".ima", ".dic")


@dataclass
class RequestCases:
    """The inputs of a prediction, the client's names of their paths, and notes on what was chosen."""

    inputs: list[Any]
    names: dict[str, str]
    notes: list[str] = field(default_factory=list)


def read_cases(model: Model, upload: Upload, limits: UploadLimits, folder: Path) -> RequestCases:
    """Return the cases of an upload. Each file is a case; DICOM files together are one series, archives are searched.

    If a case of the model has several images, the form field of a file is the name of its channel, and a name that comes
    again begins the next case. Covariates are form fields, and hold for all cases.

    Args:
        folder: for the content of archives.

    Raises:
        ServeError: no file, or an unknown form field.
        DataError: a case is incomplete, or an archive cannot be unpacked.
    """
    if not upload.files:
        raise ServeError(422, "no_image", "The form has no file.")
    covariates = _read_covariates(model, upload.fields)
    if model.channels:
        arguments = [f"{item.field}={item.path}" for item in upload.files]
        cases = [select_channels(case, model.channels) for case in parse_cases(arguments, model.channels)]
        found = RequestCases(cases, dict(upload.names))
    else:
        found = _find_images(model, upload, limits, folder)
    if not found.inputs:
        raise ServeError(422, "no_image", "No image was found in the files.")
    if model.covariates:
        found.inputs = [{"image": image, **covariates} for image in found.inputs]
        try:
            split_covariates(found.inputs[0], model.covariates)
        except ModelError as error:
            raise ServeError(422, "invalid_covariates", hide_paths(str(error), found.names)) from error
    return found


def _find_images(model: Model, upload: Upload, limits: UploadLimits, folder: Path) -> RequestCases:
    places: list[str] = []
    names = dict(upload.names)
    series = folder / "series"
    for item in upload.files:
        if item.path.suffix == ".zip":
            unpacked = folder / f"zip{item.path.stem}"
            members = unpack_zip(item.path, unpacked, limits.max_bytes, limits.max_files)
            prefix = f"{item.client_name}/" if len(upload.files) > 1 else ""
            names |= {str(path): f"{prefix}{name}" for path, name in members.items()}
            names[str(unpacked)] = item.client_name
            places.append(str(unpacked))
        elif _may_be_dicom(item):
            series.mkdir(exist_ok=True)
            _link(item.path, linked := series / item.path.name)
            names |= {str(linked): item.client_name, str(series): "series"}
            places += [str(series)] if str(series) not in places else []
        else:
            places.append(str(item.path))
    listing = find_model_images(places, model.config)
    return RequestCases(list(listing.images), names, listing.notes)


def _link(file: Path, target: Path) -> None:
    """Put a file beside the others of its series; the file itself stays where it is."""
    try:
        os.link(file, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, target)


def _may_be_dicom(item: UploadedFile) -> bool:
    """Return whether a file has a suffix of DICOM, or one that is a part of a UID, or none."""
    suffix = item.path.suffix
    return suffix in ("", *_DICOM_SUFFIXES) or suffix[1:].isdigit()


def _read_covariates(model: Model, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the covariates of a form. An empty field is an unknown value."""
    rules = {str(rule["name"]): rule for rule in model.covariates}
    values: dict[str, Any] = {}
    for name, text in fields.items():
        if name in PARAMETERS:
            continue
        if name not in rules:
            known = ", ".join([*(model.channels or (FILE_FIELD,)), *rules, *PARAMETERS])
            raise ServeError(
                422, "unknown_field", f"The form has a field that this model does not take; known: {known}."
            )
        values[name] = text or None
        if text and rules[name]["kind"] == "number":
            values[name] = parse_number(text, name)
    return values


def check_parameters(query: Mapping[str, str]) -> None:
    """Check the names of a request's parameters. Raises ServeError."""
    known = ("version", *PARAMETERS)
    if any(name not in known for name in query):
        raise ServeError(422, "unknown_parameter", f"The address has a parameter that is none of {', '.join(known)}.")


def parse_number(text: str, name: str) -> float:
    """Return a finite number. Raises ServeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ServeError(422, "invalid_number", f"{name} must be a number.")
    return value


def parse_threshold(text: str) -> float | None:
    """Return the least score of a box or probability of a class; None if the request gives none. Raises ServeError."""
    return parse_number(text, "threshold") if text else None
