"""A request that names a column is not answered by another one with the same values."""

from __future__ import annotations

from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_picture, write_rows


@pytest.mark.parametrize("n_unclear", [0, 12])
def test_a_reader_does_not_stand_for_the_named_consensus(tmp_path: Path, n_unclear: int) -> None:
    rows: list[list[object]] = [["file", "Reader 2", "Consensus"]]
    for number in range(48):
        write_picture(tmp_path / "images" / f"{number:03}.png", number)
        grade = 1 + number % 4
        rows.append([f"{number:03}.png", 1 + (number + (number % 6 == 0)) % 4, 9 if number < n_unclear else grade])
    write_rows(tmp_path / "table.csv", rows)
    outcome = decide_folder(tmp_path, "Classify the Graf type (consensus) of hips on ultrasound")
    labels = outcome.proposals[0].manifest.labels
    assert labels is not None
    assert labels.value is not None
    assert outcome.kind != "proposed" or labels.value.value == "{table.Consensus}"
