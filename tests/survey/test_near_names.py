"""Names that a table writes otherwise than the files are called: found where one is meant, and asked about."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from survey_kit import picture, write

from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey
from m3b.data.survey.near_names import near_names


@pytest.mark.parametrize(
    ("row", "file", "near"),
    [
        ("scan12", "a/scan_012_resized.png", True),
        ("scan12", "a/scan123.png", False),
        ("scan12", "a/2scan12.png", True),
        ("IMG_2020_07", "img-2020-7.jpg", True),
        ("IMG_2020_07", "img-2020-17.jpg", False),
        ("ab", "ab_1.png", False),
        ("case-7", "case-7-of-the-second-hospital.png", False),
    ],
)
def test_a_number_is_no_piece_of_a_longer_one(row: str, file: str, near: bool) -> None:
    assert near_names([row, "something else"], [file]) == ([(row, file)] if near else [])


def test_a_name_that_two_rows_could_mean_is_none() -> None:
    assert near_names(["lesion-a", "lesion-b"], ["lesion.png", "lesion-a-1.png"]) == [("lesion-a", "lesion-a-1.png")]


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_names_are_compared(one: str, other: str) -> None:
    assert near_names([one], [other]) in ([], [(one, other)])


@pytest.mark.parametrize(("odd", "asked"), [(2, False), (8, True)])
def test_images_that_rows_nearly_name_are_asked_about(tmp_path: Path, odd: int, asked: bool) -> None:
    """A fifth of the images had been left out as unlabelled, and the reading passed."""
    rows, words = ["file,finding"], ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta")
    for at in range(40):
        first, second = words[at % 7], words[(3 * at) % 5]
        name = (f"{first}-{at}-of-{second}", f"{second}_{at:05d}_{first}_day{at % 4}", f"{at}{first}")[at % 3]
        picture(tmp_path / "films" / f"{name}{'_resized' if at < odd else ''}.png", seed=at)
        rows.append(f"{name}.png,{'sick' if at % 3 else 'well'}")
    write(tmp_path / "films.csv", "\n".join(rows))
    best = propose(survey(tmp_path), Ask("diagnosis", "Tell sick from well on X-rays"))[0]
    assert ("their names are nearly the same" in sufficient([best])) is asked


def test_images_that_nobody_labelled_are_not(tmp_path: Path) -> None:
    rows = ["file,finding"]
    for at in range(40):
        picture(tmp_path / "films" / f"film_{at:03d}.png", seed=at)
        rows.append(f"film_{at + 8:03d}.png,{'sick' if at % 3 else 'well'}")
    write(tmp_path / "films.csv", "\n".join(rows))
    assert sufficient(propose(survey(tmp_path), Ask("diagnosis", "Tell sick from well on X-rays"))) == ""
