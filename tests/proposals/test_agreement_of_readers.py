"""Columns of two readers with a consensus that is filled only where they differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture, write_rows

IMAGES = 60
REQUEST = "Grade ulcerative colitis by the Mayo score (0 to 3)"


def _write_reading(folder: Path, settle: Callable[[int, int, int], str]) -> list[str]:
    """Write images with two readings, which differ in every sixth, and return the first ones."""
    rows: list[list[object]] = [["image", "reader A", "reader B", "consensus"]]
    firsts = []
    for number in range(IMAGES):
        write_picture(folder / "frames" / f"UC{number:02d}.png", number)
        first = number * 7 % 11 % 4
        second = (first + 1) % 4 if number % 6 == 0 else first
        rows.append([f"UC{number:02d}", first, second, settle(number, first, second)])
        firsts.append(str(first))
    write_rows(folder / "reading.csv", rows)
    (folder / "README.txt").write_text("Mayo score: 0 normal, 1 mild, 2 moderate, 3 severe.")
    return firsts


def test_the_label_is_what_readers_agree_on_or_the_consensus(tmp_path: Path) -> None:
    def settle(number: int, first: int, second: int) -> str:
        return str(second) if first != second and number else ""

    firsts = _write_reading(tmp_path, settle)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.cases == IMAGES - 1  # the readers of the first image did not come to an agreement
    agreed_grades = [str((int(first) + 1) % 4) if number % 6 == 0 else first for number, first in enumerate(firsts)][1:]
    assert sorted(best.classes.values()) == sorted(agreed_grades.count(str(grade)) for grade in range(4))
    (agreement,) = best.manifest.tables["reading"].agreements.values()
    assert (agreement.readers, agreement.consensus) == (("reader A", "reader B"), "consensus")


@pytest.mark.parametrize(
    "settle",
    [
        lambda number, first, second: str(second) if number % 5 == 0 else "",  # a third opinion on a part
        lambda number, first, second: str(second),  # a consensus of all images
        lambda number, first, second: str(second) if number == 6 else "",
    ],
)
def test_other_columns_settle_nothing(tmp_path: Path, settle: Callable[[int, int, int], str]) -> None:
    _write_reading(tmp_path, settle)
    outcome = decide_folder(tmp_path, REQUEST)
    assert not any(table.agreements for item in outcome.proposals for table in item.manifest.tables.values())
