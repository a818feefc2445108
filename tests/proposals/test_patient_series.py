"""Several volumes of one patient with one target: scouts, reconstructions and phases are not further cases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import nibabel as nib
import numpy as np
import pytest
from proposals_kit import decide_folder, write_dicom, write_rows

from m3b.dataset.manifest.execute import execute
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.survey.walk import walk

N_PATIENTS = 12
REQUEST = "Classify CT scans as benign or malignant"

Layout = Literal["dicom", "nifti_names", "nifti_folders"]


@dataclass(frozen=True)
class Series:
    """One series of each patient.

    Args:
        share: of the patients that have it.
    """

    name: str
    n_slices: int
    share: float = 1.0


SCOUT, THICK, THIN = Series("scout", 2), Series("thick", 3), Series("thin", 9)


def name_class(patient: int) -> str:
    return ("benign", "malignant")[patient % 3 % 2]


def write_series(folder: Path, layout: Layout, patient: int, number: int, series: Series) -> None:
    seed = patient * 100 + number * 20
    if layout == "dicom":
        for place in range(series.n_slices):
            tags = {
                "PatientID": f"P{patient:03d}",
                "StudyInstanceUID": f"1.2.{patient + 1}",
                "SeriesInstanceUID": f"1.2.{patient + 1}.{number}",
                "SeriesNumber": number,
                "SeriesDescription": series.name,
                "InstanceNumber": place + 1,
                "ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"],
                "ImagePositionPatient": [0, 0, place],
                "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
                "PixelSpacing": [1, 1],
            }
            write_dicom(folder / f"P{patient:03d}" / f"S{number}" / f"IM{place + 1:03d}.dcm", seed + place, tags)
        return
    name = f"P{patient:03d}_{series.name}" if layout == "nifti_names" else f"P{patient:03d}/{series.name}"
    path = folder / f"{name}.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 1000, (24, 24, series.n_slices)).astype(np.int16)
    nib.save(nib.Nifti1Image(values, np.eye(4)), path)


def write_patients(
    folder: Path, layout: Layout, kinds: tuple[Series, ...], *, has_class_folders: bool = False, swaps: bool = False
) -> None:
    """Write each patient's series with a table of one label a patient, or in a folder a class.

    Args:
        swaps: whether the numbers of the series differ from patient to patient.
    """
    for patient in range(N_PATIENTS):
        parent = folder / name_class(patient) if has_class_folders else folder
        for place, series in enumerate(kinds):
            if patient < series.share * N_PATIENTS:
                number = len(kinds) - place if swaps and patient % 2 else place + 1
                write_series(parent, layout, patient, number, series)
    if not has_class_folders:
        rows = [[f"P{patient:03d}", name_class(patient)] for patient in range(N_PATIENTS)]
        write_rows(folder / "labels.csv", [["patient", "label"], *rows])


def list_stated(outcome: Outcome) -> list[str]:
    return [assumption.kind for assumption in outcome.assumptions]


@pytest.mark.parametrize(
    ("layout", "kinds", "has_class_folders"),
    [
        ("dicom", (SCOUT, THIN), False),
        ("dicom", (SCOUT, THICK, THIN), True),
        *(
            (layout, kinds, has_class_folders)
            for layout in ("nifti_names", "nifti_folders")
            for kinds in ((SCOUT, THIN), (THICK, THIN), (SCOUT, THICK, THIN), (THIN, SCOUT))
            for has_class_folders in (False, True)
        ),
    ],
)
def test_the_series_of_most_slices_is_the_case(
    tmp_path: Path, layout: Layout, kinds: tuple[Series, ...], has_class_folders: bool
) -> None:
    write_patients(tmp_path, layout, kinds, has_class_folders=has_class_folders)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed", outcome.question
    assert (outcome.proposals[0].cases, sum(outcome.proposals[0].classes.values())) == (N_PATIENTS, N_PATIENTS)
    assert "series" in list_stated(outcome)


def test_scouts_that_nothing_but_their_length_tells(tmp_path: Path) -> None:
    write_patients(tmp_path, "dicom", (Series("", 2), Series("", 9)), swaps=True)
    outcome = decide_folder(tmp_path, REQUEST)
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", N_PATIENTS)
    assert outcome.proposals[0].manifest.images.min_files == 3
    assert "series" in list_stated(outcome)


@pytest.mark.parametrize(("n_times", "kind", "n_cases"), [(8, "proposed", N_PATIENTS), (1, "ask", 3 * N_PATIENTS)])
def test_a_recording_over_time_is_the_case_and_not_its_frames(
    tmp_path: Path, n_times: int, kind: str, n_cases: int
) -> None:
    write_patients(tmp_path, "nifti_names", ())
    for patient in range(N_PATIENTS):
        for name, length in (("all", n_times), ("frame01", 1), (f"frame0{3 + patient % 3}", 1)):
            values = np.random.default_rng(patient).integers(0, 1000, (24, 24, 5, length)).astype(np.int16)
            image = nib.Nifti1Image(values if length > 1 else values[..., 0], np.eye(4))
            nib.save(image, tmp_path / f"P{patient:03d}_{name}.nii.gz")
    outcome = decide_folder(tmp_path, "Classify MRI as benign or malignant")
    assert (outcome.kind, outcome.proposals[0].cases) == (kind, n_cases)


@pytest.mark.parametrize(
    ("layout", "share"), [("dicom", 0.7), ("nifti_names", 1.0), ("nifti_names", 0.7), ("nifti_folders", 1.0)]
)
def test_phases_of_one_length_are_asked_about(tmp_path: Path, layout: Layout, share: float) -> None:
    write_patients(tmp_path, layout, (Series("arterial", 5), Series("venous", 5), Series("native", 5, share)))
    assert decide_folder(tmp_path, REQUEST).kind == "ask"


@pytest.mark.parametrize(
    ("layout", "phase"), [("dicom", "venous"), ("nifti_names", "arterial"), ("nifti_folders", "venous")]
)
def test_the_phase_that_the_request_names(tmp_path: Path, layout: Layout, phase: str) -> None:
    write_patients(tmp_path, layout, (Series("arterial", 5), Series("venous", 5), Series("native", 5)))
    outcome = decide_folder(tmp_path, f"Classify {phase} CT scans as benign or malignant")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", N_PATIENTS)


def test_kinds_that_are_the_target_are_all_cases(tmp_path: Path) -> None:
    write_patients(tmp_path, "dicom", (Series("arterial", 5), Series("venous", 7)))
    (tmp_path / "labels.csv").unlink()
    outcome = decide_folder(tmp_path, "Tell whether the CT scan is arterial or venous")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 2 * N_PATIENTS)


def test_rows_that_name_each_volume_make_it_a_case(tmp_path: Path) -> None:
    rows: list[list[object]] = [["file", "label"]]
    for patient in range(N_PATIENTS):
        for series in (THICK, THIN):
            write_series(tmp_path, "nifti_names", patient, 1, series)
            rows.append([f"P{patient:03d}_{series.name}.nii.gz", name_class(patient)])
    write_rows(tmp_path / "labels.csv", rows)
    assert decide_folder(tmp_path, REQUEST).proposals[0].cases == 2 * N_PATIENTS


def test_numbered_visits_are_not_left_out(tmp_path: Path) -> None:
    write_patients(tmp_path, "nifti_names", (Series("1", 8), Series("2", 8)))
    outcome = decide_folder(tmp_path, REQUEST)
    assert 2 * N_PATIENTS in [proposal.cases for proposal in outcome.proposals]
    assert "series" not in list_stated(outcome)


def test_the_index_has_one_series_a_patient(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_patients(folder, "dicom", (SCOUT, THICK, THIN))
    manifest = decide_folder(folder, REQUEST).proposals[0].manifest
    index = execute(manifest, walk(folder), name="scans", work=tmp_path / "work")
    images = [case.image for case in (*index.train, *index.test)]
    assert len(images) == N_PATIENTS
    assert all("/S3" in str(image) for image in images)
