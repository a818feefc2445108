"""The task that a look takes where a request names none: the one of which the folder gives a reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from wrong_kit import picture, polyps

from m3b.errors import WrongUse
from m3b.run.looking import look, may_mean


@pytest.mark.parametrize(("request_", "task"), [("Find polyps in endoscopy images", "detection"),
                                                ("Polyps in endoscopy images", "segmentation")])  # fmt: skip
def test_masks_are_read_where_no_class_is(tmp_path: Path, request_: str, task: str) -> None:
    polyps(tmp_path / "data")
    (tmp_path / "place").mkdir()
    seen = look(tmp_path / "data", request_, tmp_path / "place")
    assert seen.task == task
    assert seen.counted["train"] + seen.counted["test"] == 16


def test_a_task_that_is_named_stays(tmp_path: Path) -> None:
    assert may_mean("Segment polyps") == ()
    polyps(tmp_path / "data")
    (tmp_path / "place").mkdir()
    seen = look(tmp_path / "data", "Find polyps", tmp_path / "place", task="diagnosis")
    assert seen.task == "diagnosis"
    assert not seen.readings


def test_nothing_that_fits_is_told_of_the_task_first_thought_of(tmp_path: Path) -> None:
    for number in range(8):
        picture(tmp_path / "data" / f"s{number}.png", number)
    (tmp_path / "place").mkdir()
    seen = look(tmp_path / "data", "Find polyps", tmp_path / "place")
    assert seen.task == "diagnosis"
    assert "8 pictures" in seen.insufficient
    with pytest.raises(WrongUse, match="empty"):
        look(tmp_path / "data", " ", tmp_path / "place")
