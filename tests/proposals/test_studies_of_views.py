"""Several views of a study: together where the request says so, else each alone; a study has one report."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture, write_rows

STUDIES = 40


def write_studies(folder: Path, *, views: tuple[str, ...] = ("frontal", "lateral"), per_image: bool = False) -> None:
    """Write views of each study, and a table of findings with a row a study, or a row an image."""
    rows: list[list[object]] = [["image" if per_image else "study", "patient_id", "finding", "bone_age_months"]]
    for number in range(STUDIES):
        names = [f"s{number:03d}_{view}" for view in views]
        for place, name in enumerate(names):
            write_picture(folder / "films" / f"{name}.png", 2 * number + place)
        for name in [f"{name}.png" for name in names] if per_image else [f"s{number:03d}"]:
            rows.append([name, f"p{number // 2:03d}", ("healthy", "ill")[number % 2], 20 + number * 7 % 90])
    write_rows(folder / "films.csv", rows)


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize(
    "request_text",
    [
        "Tell healthy from ill on chest films, from both views",
        "Tell healthy from ill on frontal and lateral chest films",
        "Tell healthy from ill on chest films, using the two projections together",
        "Tell healthy from ill on both views of chest films",
        "Tell healthy from ill on PA/lateral chest films",
        "Distinguer sain de malade sur les deux incidences",
        "Unterscheide gesunde von kranken Thoraxaufnahmen anhand beider Ansichten",
    ],
)
def test_views_that_are_asked_for_together_are_one_case(tmp_path: Path, request_text: str, per_image: bool) -> None:
    write_studies(tmp_path, per_image=per_image)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    manifest = outcome.proposals[0].manifest
    assert (manifest.images.several, outcome.proposals[0].cases) == ("views", STUDIES)
    assert not manifest.images.channels
    assert manifest.labels is not None
    assert set(manifest.labels.classes) == {"healthy", "ill"}


@pytest.mark.parametrize(
    "views", [("frontal", "lateral"), ("CC", "MLO"), ("PA", "LAT"), ("axial", "coronal", "sagittal")]
)
def test_else_each_view_is_a_case_and_none_a_channel(tmp_path: Path, views: tuple[str, ...]) -> None:
    write_studies(tmp_path, views=views)
    outcome = decide_folder(tmp_path, "Tell healthy from ill on chest films")
    assert outcome.kind == "proposed"
    images = outcome.proposals[0].manifest.images
    assert "views_apart" in [item.code for item in outcome.proposals[0].evidence]
    assert (images.several, images.channels, outcome.proposals[0].cases) == ("one", (), STUDIES * len(views))


def test_a_number_from_both_views(tmp_path: Path) -> None:
    write_studies(tmp_path)
    outcome = decide_folder(tmp_path, "Predict the bone age (months) from both views of wrist films")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].manifest.images.several == "views"
    assert outcome.proposals[0].manifest.value is not None


def write_reports(folder: Path, *, differ: bool) -> None:
    """Write a table with a row an image: the report of its study, or one of its own."""
    rows: list[list[object]] = [["image", "study_id", "findings", "impression"]]
    for number in range(STUDIES):
        for place, view in enumerate(("frontal", "lateral")):
            name = f"s{number:03d}_{view}.png"
            write_picture(folder / "images" / name, 2 * number + place)
            text = f"There are {number} nodules" + (f" on the {view} image" if differ else "")
            rows.append([name, f"s{number:03d}", f"{text} in the lungs, which are aerated.", f"{number} nodules."])
    write_rows(folder / "reports.csv", rows)


@pytest.mark.parametrize(("differ", "several", "cases"), [(False, "views", STUDIES), (True, "one", 2 * STUDIES)])
def test_a_report_that_is_repeated_for_each_view_is_of_the_study(
    tmp_path: Path, differ: bool, several: str, cases: int
) -> None:
    write_reports(tmp_path, differ=differ)
    proposal = decide_folder(tmp_path, "Write the report of a chest X-ray").proposals[0]
    assert (proposal.manifest.images.several, proposal.cases) == (several, cases)
