"""Whose is a file or a table's row: what the carve-out needs to know of the fourteen layouts beyond their readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

MEDICAL_SUFFIX = re.compile(
    r"((\.dcm)?\.(png|jpe?g)|\.nii(\.gz)?|\.pt|\.pck|\.xml|\.dcm|\.json|\.csv|\.mha|\.mhd|\.nrrd|\.npy)$", re.I
)


def strip_suffixes(name: str) -> str:
    """The last part of a path without the suffixes of medical files, and without the `._` of macOS."""
    return MEDICAL_SUFFIX.sub("", PurePosixPath(name.replace("\\", "/")).name.removeprefix("._"))


@dataclass(frozen=True)
class PatientLookup:
    """How one set says whose a file or row is.

    Args:
        find_patient: relative path of a file -> the patient as the reader names them, or None where the name does not tell.
        id_columns: columns (or JSON keys) that hold a patient or a case without a file suffix.
    """

    find_patient: Callable[[str], str | None] = lambda path: None
    id_columns: tuple[str, ...] = ()


def _last_number(path: str) -> str | None:
    numbers = re.findall(r"\d+", strip_suffixes(path))
    return str(numbers[-1]) if numbers else None


def _match_stem(pattern: str, *, skip: str = "") -> Callable[[str], str | None]:
    """The first group of `pattern` in the stem; paths with a part that `skip` matches belong to nobody."""

    def find_patient(path: str) -> str | None:
        if skip and re.search(skip, path):
            return None
        match = re.match(pattern, strip_suffixes(path))
        return str(match[1]) if match else None

    return find_patient


def _match_last_number(*, skip: str) -> Callable[[str], str | None]:
    return lambda path: None if re.search(skip, path) else _last_number(path)


def _find_ccccii_patient(path: str) -> str | None:
    match = re.match(r"(?:.*/)?(?:CP|NCP|Normal)/([^/]+)/", path)
    return str(match[1]) if match else None


def _find_covid_patient(path: str) -> str | None:
    match = re.match(r"(coronacases|radiopaedia)(?:_org)?_(?:covid-19-pneumonia-)?(\d+)", strip_suffixes(path))
    return f"{match[1]}_{match[2]}" if match else None


def _find_brats_patient(path: str) -> str | None:
    from .datasets.radgenome import patient_of

    return patient_of(strip_suffixes(path))


PATIENT_LOOKUPS: Mapping[str, PatientLookup] = {
    "ADNI": PatientLookup(id_columns=("Subject", "Image Data ID")),
    "KneeMRI": PatientLookup(_match_stem(r"(\d+)-\d+$"), ("examId",)),
    "CC-CCII": PatientLookup(_find_ccccii_patient, ("patient_id",)),
    "CT-Kidney": PatientLookup(id_columns=("image_id",)),
    "BTCV": PatientLookup(_match_last_number(skip=r"(^|/)Testing/|\.(json|csv|md)$")),
    "VerSe": PatientLookup(_match_stem(r"(sub-[A-Za-z0-9]+)"), ("participant_id", "subject")),
    "OASIS": PatientLookup(
        lambda path: _last_number(strip_suffixes(path).removesuffix("_0000")) if ".nii" in path else None
    ),
    "COVID19": PatientLookup(_find_covid_patient),
    "INSTANCE22": PatientLookup(_match_last_number(skip=r"(^|/)evaluation/|\.(json|csv|md)$")),
    "MSD-Pancreas": PatientLookup(_match_stem(r"pancreas_(\d+)", skip=r"(^|/)imagesTs/")),
    "ChestX-Det10": PatientLookup(lambda path: strip_suffixes(path) if path.endswith(".png") else None),
    "CT-RATE": PatientLookup(_match_stem(r"((?:train|valid)_\d+)(?:_|$)")),
    "RadGenome-BrainMRI": PatientLookup(lambda path: _find_brats_patient(path) if ".nii" in path else None),
    "IU-Xray": PatientLookup(_match_stem(r"(?:CXR)?(\d+)(?:_|$)"), ("uid",)),
}
"""Name of the set -> how it names people. Sets that record no patients own by file or by run (see their readers)."""
