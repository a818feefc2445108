"""Structure sets, segmentations and several modalities among images of the same names, as archives and exports leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pydicom
import pytest
from layout_kit import Verdict, Want
from layout_kit import read as asked
from pydicom.uid import RTStructureSetStorage
from test_spec_outlines import header, item, segments, series

from m3b.data.spec.execute import execute
from m3b.data.survey import survey
from m3b.dataset.reading import read_image, read_mask, read_masks

Place = Callable[[int, str, int, str], str]


def archive(patient: int, study: str, number: int, modality: str) -> str:
    """A folder a series, named by its UID, as the NCI's archives are downloaded."""
    return f"LIDC-{patient:04d}/{study}/{study}.{ {'CT': 1, 'SEG': 7, 'PT': 2}[modality] }/1-{number + 1:02d}.dcm"


def export(patient: int, study: str, number: int, modality: str) -> str:
    """A folder a patient with everything in it, numbered."""
    return f"p{patient:02d}/IM{ {'CT': 0, 'SEG': 400, 'PT': 600}[modality] + number:04d}"


def heap(patient: int, study: str, number: int, modality: str) -> str:
    """One folder with everything in it."""
    return f"{100 * patient + {'CT': 0, 'SEG': 50, 'PT': 60}[modality] + number:06d}.dcm"


def laid(root: Path, place: Place, *, pet: bool = False, patients: int = 6) -> None:
    for patient in range(patients):
        study, uid = f"1.3.6.{patient + 1}.77", f"1.2.3.100{patient}"
        made = root.parent / f"made{patient}"
        series(made / "CT", uid)
        segments(made / "SEG/s.dcm", uid)
        if pet:
            series(made / "PT", f"1.2.9.200{patient}")
        for modality, number, file in _each(made):
            whole = pydicom.dcmread(file)
            whole.StudyInstanceUID, whole.PatientID, whole.Modality = study, f"P{patient}", modality
            target = root / place(patient, study, number, modality)
            target.parent.mkdir(parents=True, exist_ok=True)
            whole.save_as(target)


def _each(made: Path) -> Iterator[tuple[str, int, Path]]:
    for folder in sorted(made.iterdir()):
        for number, file in enumerate(sorted(folder.iterdir())):
            yield folder.name, number, file


def read(root: Path, request: str) -> Verdict:
    work = root.parent / "work"
    work.mkdir(exist_ok=True)
    return asked(root, Want(request, "segmentation", 6, frozenset(("organ", "tumour"))), work)


@pytest.mark.parametrize("pet", [False, True])
@pytest.mark.parametrize("place", [archive, export, heap])
def test_segments_are_told_from_images_that_are_called_alike(tmp_path: Path, place: Place, pet: bool) -> None:
    root = tmp_path / "raw"
    laid(root, place, pet=pet)
    found = read(root, "Segment the organ and the tumour on CT")
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    assert found.best.spec.images.files.tags == {"Modality": ("CT",)}
    made = execute(found.best.spec, root, name="set", work=tmp_path / "work")
    assert made.accounting.whole
    assert sum(made.accounting.counts().values()) == 6 * 5
    case = made.train[0]
    paths = case.image if isinstance(case.image, str) else [str(one).removeprefix("data/set/") for one in case.image]
    image = read_image(paths.removeprefix("data/set/") if isinstance(paths, str) else paths, str(root))
    both = read_masks(case.mask, made.values, str(tmp_path / "work"))
    assert image.spacing == (1.0, 2.0, 3.0)
    assert both.sum(axis=(1, 2)).tolist() == [[0, 35, 35, 0], [0, 12, 0, 0]]


def test_the_survey_tells_them_apart(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    laid(root, heap, pet=True)
    found = survey(root)
    assert sorted((one.modality, one.count) for one in found.groups) == [(("CT",), 24), (("PT",), 24), (("SEG",), 6)]


def test_films_of_two_kinds_stay_one_set(tmp_path: Path) -> None:
    """CR and DX are of different patients: nothing that one case would have both of."""
    root = tmp_path / "raw"
    root.mkdir()
    for number in range(8):
        series(tmp_path / f"made{number}", f"1.2.3.300{number}", slices=1)
        one = pydicom.dcmread(tmp_path / f"made{number}/0.dcm")
        one.Modality, one.PatientID, one.StudyInstanceUID = ("CR", "DX")[number % 2], f"P{number}", f"1.9.{number}"
        one.save_as(root / f"{number:03d}.dcm")
    assert [(one.modality, one.count) for one in survey(root).groups] == [((), 8)]


def test_a_list_of_slices_is_the_volume_that_its_folder_is(tmp_path: Path) -> None:
    series(tmp_path / "one", "1.2.3.4000")
    files = [f"one/{at}.dcm" for at in (2, 0, 3, 1)]
    listed, folder = read_image(files, str(tmp_path)), read_image("one", str(tmp_path))
    assert np.array_equal(listed.array, folder.array)
    assert listed.spacing == folder.spacing


def regions(file: Path, uid: str, frame: str) -> None:
    """A square of the tumour on slices 1 and 2, in mm: rows 3 to 7, columns 2 to 8 by the centres of pixels."""
    corners = [(2, 3), (8, 3), (8, 7), (2, 7)]
    contours = [
        item(ContourGeometricType="CLOSED_PLANAR", NumberOfContourPoints=4,
             ContourData=[v for column, row in corners for v in (5 + 2 * column, 6 + row, -3.0 * level)])
        for level in (1, 2)
    ]  # fmt: skip
    referred = item(RTReferencedStudySequence=[item(RTReferencedSeriesSequence=[item(SeriesInstanceUID=uid)])])
    one = header(RTStructureSetStorage, Modality="RTSTRUCT", SeriesInstanceUID=f"{uid}.9",
                 StructureSetROISequence=[item(ROINumber=1, ROIName="GTV tumour"), item(ROINumber=2, ROIName="Body")],
                 ROIContourSequence=[item(ReferencedROINumber=1, ContourSequence=contours)],
                 ReferencedFrameOfReferenceSequence=[referred], FrameOfReferenceUID=frame)  # fmt: skip
    del one.Rows, one.Columns
    file.parent.mkdir(parents=True, exist_ok=True)
    one.save_as(file)


@pytest.mark.parametrize("together", [False, True])
def test_contours_and_doses_lie_among_the_slices_of_a_plan(tmp_path: Path, together: bool) -> None:
    root = tmp_path / "raw"
    for patient in range(6):
        uid, folder = f"1.2.3.500{patient}", tmp_path / f"plan{patient}"
        series(folder, uid)
        dose = pydicom.dcmread(folder / "0.dcm")
        dose.Modality, dose.SeriesInstanceUID = "RTDOSE", f"{uid}.8"
        dose.save_as(folder / "4.dcm")
        regions(folder / "5.dcm", uid, "1.9")
        for number, file in enumerate(sorted(folder.iterdir())):
            one = pydicom.dcmread(file)
            one.PatientID, one.StudyInstanceUID = f"P{patient}", f"1.8.{patient}"
            place = root / (f"{20 * patient + number:04d}.dcm" if together else f"P{patient}/{number}.dcm")
            place.parent.mkdir(parents=True, exist_ok=True)
            one.save_as(place)
    found = asked(
        root, Want("Segment the GTV tumour on planning CT", "segmentation", 6, frozenset(("gtv tumour",))), tmp_path
    )
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    made = execute(found.best.spec, root, name="set", work=tmp_path)
    assert len(made.train) + len(made.test) == 6
    mask = read_mask(str(made.train[0].mask), str(tmp_path)).array
    assert mask.sum(axis=(0, 1)).tolist() == [0, 35, 35, 0]
