"""Which files of a data set are looked at before the Data Engineer begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from m3b.agents.example_files import find_example_files


def lay_out(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def test_an_image_and_its_mask(tmp_path: Path) -> None:
    lay_out(tmp_path, *(f"{kind}/ct_{n}.nii.gz" for kind in ("images", "masks") for n in (1, 2, 10)))
    assert find_example_files(tmp_path, masks=True, texts=False) == ["images/ct_1.nii.gz", "masks/ct_1.nii.gz"]
    assert find_example_files(tmp_path, masks=False, texts=False) == []


def test_both_halves_of_a_set_from_two_places_are_shown(tmp_path: Path) -> None:
    names = ("corona_1", "corona_2", "radio_4_8", "radio_7_1")
    lay_out(tmp_path, *(f"{kind}/{name}.nii.gz" for kind in ("images", "masks") for name in names))
    expected = ["images/corona_1.nii.gz", "masks/corona_1.nii.gz", "images/radio_4_8.nii.gz", "masks/radio_4_8.nii.gz"]
    assert find_example_files(tmp_path, masks=True, texts=True) == expected


def test_names_that_are_all_different_are_not_kinds(tmp_path: Path) -> None:
    names = ("anna", "bert", "carl", "dora")
    lay_out(tmp_path, *(f"{kind}/{name}.png" for kind in ("images", "masks") for name in names))
    assert find_example_files(tmp_path, masks=True, texts=False) == ["images/anna.png", "masks/anna.png"]


@pytest.mark.parametrize(
    ("files", "expected_count"),
    [
        (("p07/flair.nii.gz", "p07/gold_mask.nii.gz", "p19/flair.nii.gz", "p19/gold_mask.nii.gz"), 2),
        (("CXR/1.png", "leftMask/1.png", "rightMask/1.png", "CXR/2.png", "leftMask/2.png", "rightMask/2.png"), 3),
    ],
)
def test_masks_of_one_case_are_shown_and_no_others(tmp_path: Path, files: tuple[str, ...], expected_count: int) -> None:
    assert find_example_files(lay_out(tmp_path, *files), masks=True, texts=False) == list(files[:expected_count])
