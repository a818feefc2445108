"""Images of one kind whose names have two styles: all of them are cases, or m3b asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_mask, write_picture, write_rows

from m3b.dataset.manifest.execute import execute
from m3b.dataset.survey.walk import walk

Style = tuple[Callable[[int], str], Callable[[int], str]]

STYLES: dict[str, Style] = {
    "slides": (
        lambda number: f"TCGA-{'ABEG'[number % 4]}{number % 7}-A{100 + number * 37 % 800}-01Z-00-DX{1 + number % 2}",
        lambda number: f"Human_{('Kidney', 'Liver')[number % 2]}_{number:02d}",
    ),
    "cameras": (lambda number: f"DSC{number:04d}", lambda number: f"photo {number}"),
    "numbers": (lambda number: f"IMG_{number:04d}", lambda number: f"{number}"),
}
N_FIRST = 24


def list_names(style: str, n_second: int, *, is_restarted: bool = False) -> list[str]:
    """Return names of the first style, then of the second; numbers of the second may start anew."""
    first, second = STYLES[style]
    start = 0 if is_restarted else N_FIRST
    return [first(number) for number in range(N_FIRST)] + [second(start + number) for number in range(n_second)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("n_second", [8, 3])
@pytest.mark.parametrize(
    "form", ["{folder}masks/{name}.png", "{folder}masks/{name}_mask.png", "{folder}images/{name}_mask.png"]
)
def test_images_with_masks_are_united_or_asked_about(tmp_path: Path, style: str, n_second: int, form: str) -> None:
    for number, name in enumerate(list_names(style, n_second)):
        write_picture(tmp_path / "images" / f"{name}.png", number)
        write_mask(tmp_path / form.format(folder="", name=name), number)
    outcome = decide_folder(tmp_path, "Segment the nuclei")
    assert outcome.kind != "refuse"
    if outcome.kind == "proposed":
        assert outcome.proposals[0].cases == N_FIRST + n_second
    else:
        assert "unexplained_exclusions" in [doubt.code for doubt in outcome.proposals[0].doubts]


@pytest.mark.parametrize(("style", "form"), [("slides", "{name}"), ("cameras", "{name}"), ("cameras", "{name}_mask")])
def test_masks_that_one_key_names_are_united(tmp_path: Path, style: str, form: str) -> None:
    for number, name in enumerate(list_names(style, 8)):
        write_picture(tmp_path / "images" / f"{name}.png", number)
        write_mask(tmp_path / "masks" / f"{form.format(name=name)}.png", number)
    outcome = decide_folder(tmp_path, "Segment the nuclei")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", N_FIRST + 8)


@pytest.mark.parametrize("style", ["cameras", "numbers"])
def test_numbers_that_two_styles_share_give_no_image_two_masks(tmp_path: Path, style: str) -> None:
    folder = tmp_path / "data"
    for number, name in enumerate(list_names(style, 8, is_restarted=True)):
        name = name.replace("000", "")
        write_picture(folder / "images" / f"{name}.png", number)
        write_mask(folder / "masks" / f"{name}_mask.png", number)
    outcome = decide_folder(folder, "Segment the nuclei")
    if outcome.kind == "proposed":
        index = execute(outcome.proposals[0].manifest, walk(folder), name="data", work=tmp_path / "work")
        cases = (*index.train, *index.test)
        assert len(cases) == N_FIRST + 8
        assert all(Path(str(case.image)).stem in str(case.mask) for case in cases)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("n_second", [8, 3])
@pytest.mark.parametrize("source", ["table", "folders"])
def test_images_with_labels_are_all_cases(tmp_path: Path, style: str, n_second: int, source: str) -> None:
    rows: list[list[object]] = [["image", "label"]]
    for number, name in enumerate(list_names(style, n_second)):
        label = ("benign", "malignant")[number // 2 % 2]
        write_picture(tmp_path / ("images" if source == "table" else label) / f"{name}.png", number)
        rows.append([f"{name}.png", label])
    if source == "table":
        write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, "Classify the images as benign or malignant")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", N_FIRST + n_second)


def test_a_part_of_names_that_half_of_the_images_lack_is_no_patient(tmp_path: Path) -> None:
    for number, name in enumerate(list_names("slides", 8)):
        write_picture(tmp_path / ("benign", "malignant")[number // 2 % 2] / f"{name}.png", number)
    proposal = decide_folder(tmp_path, "Classify the images as benign or malignant").proposals[0]
    assert proposal.cases == N_FIRST + 8
    assert proposal.manifest.patient is None
