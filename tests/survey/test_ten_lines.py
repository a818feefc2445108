"""A folder in some ten lines, of bounded length, with what a plan needs."""

from __future__ import annotations

from pathlib import Path

from survey_kit import mask, picture

from m3b.data.survey import survey
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.ten_lines import MAX_LINE, MAX_LINES, ten_lines

LIMITS = SurveyLimits(seconds=600)


def test_values_of_masks_tables_split_and_patients_are_told(tmp_path: Path) -> None:
    rows = ["file,patient_id,grade,remark"]
    for number in range(24):
        side = "train" if number < 18 else "test"
        picture(tmp_path / side / "images" / f"case_{number:03d}.png", seed=number)
        mask(tmp_path / side / "masks" / f"case_{number:03d}.png", seed=number, value=3)
        rows.append(
            f"case_{number:03d}.png,MR-{4711 + number // 2},{'high' if number % 3 else 'low'},Seen by Dr. Muster today"
        )
    (tmp_path / "cases.csv").write_text("\n".join(rows) + "\n")
    lines = ten_lines(survey(tmp_path, limits=LIMITS))
    text = "\n".join(lines)
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_LINE
    assert "values 0 (" in text
    assert ", 3 (" in text
    assert "masks of g" in text
    assert "24 of 24 files" in text
    assert "`file` names 24 of 24 files" in text
    assert "grade: high x 16, low x 8" in text
    assert "own split by folders: test 6, train 18" in text
    assert "patients: 12 in 24 files" in text
    assert "by the column 'patient_id' of cases.csv (the column is called after patients)" in text
    assert "4711" not in text, "whose images they are is told by the column alone"
    assert "Muster" not in text


def test_a_second_reader_s_masks_parts_of_names_and_no_split_are_told(tmp_path: Path) -> None:
    for number in range(1, 9):
        for side in "LR":
            picture(tmp_path / f"Image_{number:02d}{side}.png", seed=number)
            for reader in ("1st", "2nd"):
                mask(tmp_path / f"Image_{number:02d}{side}_{reader}.png", seed=number, value=255)
    text = "\n".join(ten_lines(survey(tmp_path, limits=LIMITS)))
    assert text.count("masks of g1, 16 of 16 files") == 1
    assert text.count("masks of g1 too, 16 of 16 files") == 1
    assert "own split: none" in text
    assert "patients: 8 in 16 files of g1, by the number after 'Image_' in names (left or right follows it)" in text


def test_many_groups_and_long_names_stay_within_the_bounds(tmp_path: Path) -> None:
    words = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
    for at, word in enumerate(words):
        for number in range(3):
            picture(tmp_path / f"{word * 9}" / f"{word}_{'x' * 40}_{number}.png", seed=10 * at + number)
    lines = ten_lines(survey(tmp_path, limits=LIMITS))
    assert 1 <= len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= MAX_LINE
