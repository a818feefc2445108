"""Tables with a row a patient and a column for each side or level, which the names of the images tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture, write_rows

PATIENTS = 24
GRADES = ("none", "mild", "moderate", "severe")
REQUEST = "Grade the stenosis (none, mild, moderate, severe) on MRI"


def _grade(number: int, place: int) -> str:
    return GRADES[(number * (place + 1) + place) % 4]


def _write_images(folder: Path, names: tuple[str, ...]) -> None:
    for number in range(1, PATIENTS + 1):
        for place, name in enumerate(names):
            write_picture(folder / "slices" / f"P{number:02d}_{name}.png", 10 * number + place)


@pytest.mark.parametrize(
    ("names", "header"),
    [
        (("L", "R"), [["ID", "age", "stenosis left", "stenosis right", "note"]]),
        (("OD", "OS"), [["ID", "age", "stenosis right eye", "stenosis left eye", "note"]]),
        (("R", "L"), [["ID", "age", "Stenose rechts", "Stenose links", "note"]]),
        (("L3L4", "L5S1"), [["ID", "age", "stenosis L3-L4", "stenosis L5-S1", "note"]]),
        (("L3L4", "L5S1"), [["ID", "age", "stenosis", "", "note"], ["", "", "L3-L4", "L5-S1", ""]]),
        (("C", "R"), [["Institute of radiology"], ["ID", "age", "stenosis", "", "note"], ["", "", "C", "R", ""]]),
    ],
)
def test_the_name_of_an_image_says_which_column_holds_its_label(
    tmp_path: Path, names: tuple[str, str], header: list[list[object]]
) -> None:
    _write_images(tmp_path, names)
    rows = [
        [f"P{n:02d}", 40 + n % 9, _grade(n, 0), _grade(n, 1), "x" if n == 3 else ""] for n in range(1, PATIENTS + 1)
    ]
    write_rows(tmp_path / "reading.csv", [*header, *rows])
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    proposal = outcome.proposals[0]
    expected = [_grade(number, place) for number in range(1, PATIENTS + 1) for place in (0, 1)]
    assert proposal.classes == {grade: expected.count(grade) for grade in proposal.classes}
    assert set(proposal.classes) == set(GRADES)
    assert next(iter(proposal.manifest.tables["reading"].choices)).casefold() in {"stenosis", "stenosis eye", "stenose"}


def test_a_request_for_one_side_takes_its_column(tmp_path: Path) -> None:
    _write_images(tmp_path, ("left", "right"))
    rows = [[f"P{n:02d}", _grade(n, 0), _grade(n + 1, 0)] for n in range(1, PATIENTS + 1)]
    write_rows(tmp_path / "reading.csv", [["ID", "stenosis left", "stenosis right"], *rows])
    outcome = decide_folder(tmp_path, "Grade the stenosis of the right side on MRI")
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", PATIENTS)
    assert [item.texts for item in outcome.proposals[0].manifest.only] == [("right",)]


def test_columns_of_sides_stay_apart_if_images_show_both(tmp_path: Path) -> None:
    for number in range(1, PATIENTS + 1):
        write_picture(tmp_path / "slices" / f"P{number:02d}.png", number)
    rows = [[f"P{n:02d}", _grade(n, 0), _grade(n, 1)] for n in range(1, PATIENTS + 1)]
    write_rows(tmp_path / "reading.csv", [["ID", "stenosis left", "stenosis right"], *rows])
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.question is not None
    assert outcome.question.code == "rival"
    assert not any(table.choices for proposal in outcome.proposals for table in proposal.manifest.tables.values())


@pytest.mark.parametrize(
    ("names", "columns"), [(("A", "B"), ("reader A", "reader B")), (("1", "2"), ("grade 1", "grade 2"))]
)
def test_numbers_of_readers_are_not_those_of_images(
    tmp_path: Path, names: tuple[str, str], columns: tuple[str, str]
) -> None:
    _write_images(tmp_path, names)
    rows = [[f"P{n:02d}", _grade(n, 0), _grade(n, 1)] for n in range(1, PATIENTS + 1)]
    write_rows(tmp_path / "reading.csv", [["ID", *columns], *rows])
    outcome = decide_folder(tmp_path, REQUEST)
    assert not any(table.choices for proposal in outcome.proposals for table in proposal.manifest.tables.values())


def test_rows_of_single_images_have_no_columns_for_sides(tmp_path: Path) -> None:
    _write_images(tmp_path, ("L", "R"))
    rows = [
        [f"P{n:02d}_{side}.png", _grade(n, place), 1 + n % 5, 2 + n % 7]
        for n in range(1, PATIENTS + 1)
        for place, side in enumerate(("L", "R"))
    ]
    write_rows(tmp_path / "reading.csv", [["image", "stenosis", "width left", "width right"], *rows])
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    assert not any(table.choices for proposal in outcome.proposals for table in proposal.manifest.tables.values())


@pytest.mark.parametrize(
    ("spellings", "note", "cases"),
    [
        ({"severe": "marked"}, "", 60),
        ({"mild": "grade x"}, "grade x = mild", 60),
        ({"mild": "grade x"}, "", 55),
        ({"mild": "n/v (motion)"}, "n/v = not assessable", 55),
    ],
)
def test_words_of_one_grade_are_united(tmp_path: Path, spellings: dict[str, str], note: str, cases: int) -> None:
    rows = []
    for number in range(60):
        write_picture(tmp_path / "slices" / f"S{number:02d}.png", number)
        grade = GRADES[number % 4]
        rows.append([f"S{number:02d}", spellings.get(grade, grade) if number % 3 == 0 else grade])
    write_rows(tmp_path / "reading.csv", [["image", "stenosis"], *rows])
    (tmp_path / "README.txt").write_text(f"Reading of one radiologist.\n{note}\n", "utf-8")
    outcome = decide_folder(tmp_path, REQUEST)
    assert (set(outcome.proposals[0].classes), outcome.proposals[0].cases) == (set(GRADES), cases)


@pytest.mark.parametrize(
    ("request_text", "classes"),
    [
        ("Classify mammograms into BI-RADS 1 to 5", ["1", "2", "3", "4", "5"]),
        ("Classify mammograms into BI-RADS 0 to 5", ["0", "1", "2", "3", "4", "5"]),
    ],
)
def test_parts_of_a_grade_count_as_it_and_other_grades_are_left_out(
    tmp_path: Path, request_text: str, classes: list[str]
) -> None:
    rows = []
    for number in range(60):
        write_picture(tmp_path / "images" / f"M{number:02d}.png", number)
        grade = str(number % 6)
        rows.append([f"M{number:02d}", grade + "abc"[number % 3] if grade == "4" and number % 4 else grade])
    write_rows(tmp_path / "reading.csv", [["image", "BI-RADS"], *rows])
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == dict.fromkeys(classes, 10)
