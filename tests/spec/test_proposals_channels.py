"""Proposed readings of several sequences a case: channels on one grid or on that of the first, for masks and for labels."""

from __future__ import annotations

import csv
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from pydantic import ValidationError
from spec_kit import picture

from m3b.data.records import Channels
from m3b.data.spec.execute import Executed, execute
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.proposals import Ask, Proposal, propose, rival, sufficient
from m3b.data.survey import survey
from m3b.dataset.reading import read_image

GRID, COARSE = (16, 18, 12), (8, 9, 6)


def volume(file: Path, shape: tuple[int, ...], zoom: float, *, mask: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(len(file.as_posix()) + sum(file.as_posix().encode()))
    array = random.normal(100, 20, shape).astype(np.float32)
    if mask:
        array = np.zeros(shape, np.uint8)
        at = random.integers(2, 6, 3)
        array[tuple(slice(v, v + 4) for v in at)] = 1
    affine = np.diag([zoom, zoom, zoom, 1.0])
    affine[:3, 3] = (zoom - 1) / 2  # the corners of both grids meet
    nib.save(nib.Nifti1Image(array, affine), file)


def patients(root: Path, names: tuple[str, ...], count: int = 10, *, masks: bool = False) -> None:
    rows = []
    for at in range(count):
        place = root / f"patient_{at:03d}"
        volume(place / f"{names[0]}.nii.gz", GRID, 1.0)
        for name in names[1:]:
            volume(place / f"{name}.nii.gz", COARSE, 2.0)
        if masks:
            volume(place / "lesion_mask.nii.gz", GRID, 1.0, mask=True)
        rows.append([f"patient_{at:03d}", ("relapsing", "stable")[at % 2]])
    if not masks:
        with (root / "patients.csv").open("w", newline="") as out:
            csv.writer(out).writerows([["patient", "diagnosis"], *rows])


def read(root: Path, ask: Ask, work: Path) -> tuple[Proposal, Executed]:
    found = propose(survey(root), ask)
    assert sufficient(found) == ""
    work.mkdir()
    return found[0], execute(found[0].spec, root, name="set", work=work)


def test_masks_lie_on_the_grid_of_one_sequence_and_the_other_is_resampled(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    patients(root, ("flair", "t1"), masks=True)
    best, made = read(root, Ask("segmentation", "Segment lesions on brain MRI"), tmp_path / "w")
    assert "2 images a case, as channels: flair, t1; on the grid of flair, to which t1 is resampled by the headers" in (
        best.evidence)  # fmt: skip
    cases = [*made.train, *made.test]
    assert len(cases) == 10
    assert all(case.channels == ("flair", "t1") for case in cases)
    image = cases[0].image
    assert isinstance(image, Channels)
    paths = {name: path.removeprefix("data/set/") for name, path in image.items()}
    assert read_image(paths, str(root)).array.shape == (2, GRID[1], GRID[0], GRID[2]), "turned as every volume is"


def test_sequences_of_a_case_are_channels_where_labels_are_learnt(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    patients(root, ("flair", "t1"))
    best, made = read(root, Ask("diagnosis", "Tell relapsing from stable on brain MRI"), tmp_path / "w")
    assert len([*made.train, *made.test]) == 10, "a case has both, and neither is a case of its own"
    assert made.train[0].channels == ("flair", "t1")
    assert any("resampled" in one for one in best.evidence)


def test_visits_are_no_channels(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    patients(root, ("baseline", "followup"))
    found = propose(survey(root), Ask("diagnosis", "Tell relapsing from stable on brain MRI"))
    assert not any(one.spec.images.channels for one in found)


def test_planes_are_no_channels(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    patients(root, ("t2_axial", "t2_sagittal"))
    found = propose(survey(root), Ask("diagnosis", "Tell relapsing from stable on spine MRI"))
    assert not any(one.spec.images.channels for one in found)


def studies(root: Path, name: str, views: tuple[str, ...]) -> None:
    rows = []
    for at in range(12):
        for view in views:
            picture(root / "images" / name.format(at, view))
            rows.append([name.format(at, view), f"p{at:03d}", ("pneumonia", "normal")[at % 2]])
    with (root / "labels.csv").open("w", newline="") as out:
        csv.writer(out).writerows([["image", "patient_id", "diagnosis"], *rows])


def test_views_under_names_of_their_own_are_asked_about_unless_one_is_asked_for(tmp_path: Path) -> None:
    studies(tmp_path, "s{:03d}_{}.png", ("frontal", "lateral"))
    found = survey(tmp_path)
    asked = propose(found, Ask("diagnosis", "Tell pneumonia from normal on chest X-rays"))
    assert "other views of the same cases" in sufficient(asked)
    best = propose(found, Ask("diagnosis", "Tell pneumonia from normal on frontal chest X-rays"))[0]
    assert "frontal" in best.title
    assert not best.unclear


def reports(root: Path, name: str, own: bool) -> None:
    rows = []
    for at in range(12):
        for view in ("frontal", "lateral"):
            picture(root / "images" / name.format(at, view))
            text = f"Study {at} shows no effusion and a heart of normal size{f' on the {view} view' if own else ''}."
            rows.append([name.format(at, view), f"st{at:03d}", text])
    with (root / "reports.csv").open("w", newline="") as out:
        csv.writer(out).writerows([["image", "study_id", "findings"], *rows])


@pytest.mark.parametrize("name", ["s{:03d}_{}.png", "{1}/s{0:03d}.png", "{1}_{0:03d}.png"])
def test_views_of_a_study_with_one_text_are_one_case_of_a_report(tmp_path: Path, name: str) -> None:
    """They were asked about, or each was a case of its own, where their names tell what is a study."""
    root = tmp_path / "raw"
    reports(root, name, own=False)
    best, made = read(root, Ask("report", "Write the report of a chest X-ray"), tmp_path / "w")
    cases = [*made.train, *made.test]
    assert sufficient([best]) == ""
    assert len(cases) == 12
    assert all(not isinstance(one.image, str) and len(one.image) == 2 for one in cases)
    assert len({one.report.findings for one in cases if one.report}) == 12
    asked = propose(survey(root), Ask("report", "Write the report of a lateral chest X-ray"))
    assert asked[0].spec.images.several == "one"
    assert sufficient(asked) == ""


def test_views_with_texts_of_their_own_are_cases_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    reports(root, "s{:03d}_{}.png", own=True)
    found = propose(survey(root), Ask("report", "Write the report of a chest X-ray"))
    assert all(one.spec.images.several == "one" for one in found)


def test_a_reading_that_takes_views_for_slices_is_refused() -> None:
    spec = {"task": "segmentation", "images": {"files": {"pattern": "{id}_*.png"}, "case": "{id}", "several": "views"},
            "masks": {"files": {"pattern": "{id}_m.png"}, "case": "{id}", "image": "{id}", "classes": {"a": 1}}}  # fmt: skip
    with pytest.raises(ValidationError, match="make each view a case of its own"):
        IndexSpec.model_validate(spec)


def test_views_in_one_group_are_cases_of_their_own_and_it_is_said(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    studies(root, "{1}/s{0:03d}.png", ("frontal", "lateral"))
    best, made = read(root, Ask("diagnosis", "Tell pneumonia from normal on chest X-rays"), tmp_path / "w")
    assert len([*made.train, *made.test]) == 24
    assert not {one.patient for one in made.train} & {one.patient for one in made.test}
    assert any(one.startswith("several views (frontal, lateral): each image is a case") for one in best.evidence)


def test_the_same_channels_in_another_order_are_no_other_reading(tmp_path: Path) -> None:
    """Each sequence led a reading of its own, "borne out as well", though all had the same channels and masks."""
    root = tmp_path / "raw"
    for at in range(10):
        for name in ("flair", "t1c"):
            volume(root / f"patient_{at:03d}" / f"{name}.nii.gz", GRID, 1.0)
        volume(root / f"patient_{at:03d}" / "lesion_mask.nii.gz", GRID, 1.0, mask=True)
    found = propose(survey(root), Ask("segmentation", "Segment lesions on FLAIR and T1c MRI"))
    several = [one for one in found if one.spec.images.channels]
    assert len(several) == 1
    assert rival(found) == ""
