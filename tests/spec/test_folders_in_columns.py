"""Tables whose paths are not those of the files, but hold the folders in which these lie, at any level."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import layout_kit as kit
import pytest
from spec_kit import mask, picture

from m3b.data.survey.keys import key

REQUEST = "Tell benign from malignant masses on mammograms"
LABELS = ("BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK")


def uid(case: int, sort: int) -> str:
    return f"1.3.6.1.4.1.{4000 + 13 * case}.{100 + 7 * sort}.{case * 5 + sort}"


def table(file: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def judged(root: Path, work: Path, want: kit.Want) -> tuple[str, str]:
    work.mkdir()
    found = kit.read(root, want, work)
    return found.wrong, found.why


@pytest.mark.parametrize(
    ("rule", "made"), [("up0", "000000.dcm"), ("up1", "1.3.7"), ("up2", "1.3.6"), ("up3", "case_1"), ("up4", "")]
)
def test_folders_of_a_path_are_counted_from_its_name_up(rule: str, made: str) -> None:
    assert key(rule, "Case_1/1.3.6\\1.3.7/000000.dcm") == made  # type: ignore[arg-type]
    assert key(rule, "Case_1") == "case_1"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    [
        lambda case: f"{uid(case, 1)}/1-{case:03d}.jpg",  # the last folder of three
        lambda case: f"{uid(case, 0)}/a/film {case}.jpg",  # the middle one, above another
        lambda case: f"P{case:04d}_CC/scan{case}.jpg",  # the first
    ],
)
def test_images_are_joined_by_any_folder_of_a_columns_paths(tmp_path: Path, path: Callable[[int], str]) -> None:
    rows = []
    for case in range(24):
        picture(tmp_path / "raw" / "films" / path(case))
        rows.append((f"P{case // 2}", LABELS[case % 3], f"P{case:04d}_CC/{uid(case, 0)}/{uid(case, 1)}/000000.dcm"))
    table(tmp_path / "raw" / "cases.csv", ("patient_id", "pathology", "image file path"), rows)
    want = kit.Want(REQUEST, "diagnosis", 24, frozenset({"benign", "malignant"}), patients=12)
    assert judged(tmp_path / "raw", tmp_path / "work", want) == ("", "")


def films_and_crops(root: Path) -> None:
    """A folder a film, and another with a crop and its mask, which three columns name."""
    rows = []
    for case in range(16):
        full, part, above = uid(case, 1), uid(case, 2), f"P{case:04d}"
        picture(root / f"jpeg/{full}/1-{case:03d}.jpg")
        picture(root / f"jpeg/{part}/1-{case:03d}.jpg")
        mask(root / f"jpeg/{part}/2-{case:03d}.jpg", (case % 4, 2, 9, 8))
        named = [f"{above}/{uid(case, 3)}/{folder}/00000{at}.dcm" for folder, at in ((full, 0), (part, 0), (part, 1))]
        rows.append((f"P{case // 2}", LABELS[case % 2], *named))
    columns = ("image file path", "cropped image file path", "ROI mask file path")
    table(root / "cases.csv", ("patient_id", "pathology", *columns), rows)


def test_of_columns_with_images_crops_and_masks_the_images_are_taken(tmp_path: Path) -> None:
    films_and_crops(tmp_path / "raw")
    want = kit.Want(REQUEST, "diagnosis", 16, frozenset({"benign", "malignant"}), patients=8)
    assert judged(tmp_path / "raw", tmp_path / "work", want) == ("", "")


def test_crops_that_are_asked_for_are_asked_about(tmp_path: Path) -> None:
    films_and_crops(tmp_path / "raw")
    want = kit.Want("Tell benign from malignant masses on cropped mammograms", "diagnosis", 16)
    assert "'cropped image file path' are meant" in judged(tmp_path / "raw", tmp_path / "work", want)[1]


def test_several_files_of_a_folder_that_a_row_names_are_asked_about(tmp_path: Path) -> None:
    rows = []
    for case in range(16):
        for at in range(2):
            picture(tmp_path / "raw" / f"jpeg/{uid(case, 1)}/{at}-{case:03d}.jpg")
        rows.append((LABELS[case % 2], f"P{case:04d}/{uid(case, 1)}/000000.dcm"))
    table(tmp_path / "raw" / "cases.csv", ("pathology", "path"), rows)
    why = judged(tmp_path / "raw", tmp_path / "work", kit.Want(REQUEST, "diagnosis", 16))[1]
    assert "which of the files of a folder" in why


def test_folders_that_are_classes_or_parts_of_a_split_join_nothing(tmp_path: Path) -> None:
    rows = []
    for case in range(24):
        part, sort = ("train", "test")[case % 3 // 2], ("a", "b")[case % 2]
        picture(tmp_path / "raw" / part / sort / f"x{case:03d}.png")
        rows.append((LABELS[case % 2], f"old/{part}/{sort}/{case * 17 + 5000}.png"))
    table(tmp_path / "raw" / "cases.csv", ("pathology", "path"), rows)
    assert judged(tmp_path / "raw", tmp_path / "work", kit.Want(REQUEST, "diagnosis", 24))[1]


def test_a_table_with_a_row_for_each_file_of_two_groups_is_read_for_both(tmp_path: Path) -> None:
    rows = []
    for case in range(24):
        for view in ("CC", "MLO"):
            picture(tmp_path / "raw" / f"films/P_{case:03d}_{view}/{case + 400}/film.png")
            rows.append((f"P{case}", LABELS[case % 2], f"P_{case:03d}_{view}/{uid(case, 1)}/000000.dcm"))
    table(tmp_path / "raw" / "cases.csv", ("patient_id", "pathology", "path"), rows)
    want = kit.Want(REQUEST, "diagnosis", 48, frozenset({"benign", "malignant"}), patients=24)
    assert judged(tmp_path / "raw", tmp_path / "work", want) == ("", "")
