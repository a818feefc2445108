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


def write_table(folder: Path, header: list[object], rows: list[list[object]]) -> None:
    for number in range(len(rows)):
        write_picture(folder / "images" / f"{number:03d}.png", number)
    write_rows(
        folder / "table.csv", [["image", *header], *([f"{number:03d}.png", *row] for number, row in enumerate(rows))]
    )


@pytest.mark.parametrize("request_text", ["Tell male from female on radiographs", "Predict sex from the picture"])
def test_sex_is_a_target_if_it_is_asked_for(tmp_path: Path, request_text: str) -> None:
    write_table(tmp_path, ["sex", "group"], [["MF"[n % 2], ("patient", "control")[n // 2 % 2]] for n in range(40)])
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].classes == {"female": 20, "male": 20}
    control_outcome = decide_folder(tmp_path, "Tell patients from controls on radiographs")
    assert set(control_outcome.proposals[0].classes) == {"patient", "control"}


def test_classes_of_other_names_are_no_proposal(tmp_path: Path) -> None:
    write_table(tmp_path, ["group"], [[("patient", "control")[n % 2]] for n in range(40)])
    assert decide_folder(tmp_path, "Tell male from female on radiographs").kind == "refuse"


def test_the_column_that_a_request_names(tmp_path: Path) -> None:
    write_table(tmp_path, ["outcome", "recurrence"], [[n % 2, n // 2 % 2] for n in range(40)])
    outcome = decide_folder(tmp_path, "Predict the column recurrence on MRI")
    assert "{table.recurrence}" in outcome.proposals[0].title


def test_cells_for_no_answer_are_no_classes(tmp_path: Path) -> None:
    rows: list[list[object]] = [[("yes", "no")[n % 2]] for n in range(40)]
    write_table(tmp_path, ["fracture"], [*rows, ["n/a"], ["?"], ["-999"], ["missing"]])
    outcome = decide_folder(tmp_path, "Detect fractures on wrist radiographs")
    assert sum(outcome.proposals[0].classes.values()) == 40
    assert len(outcome.proposals[0].classes) == 2


@pytest.mark.parametrize(("n_uncertain", "kind"), [(30, "ask"), (3, "proposed")])
def test_most_cases_without_a_certain_label_are_asked_about(tmp_path: Path, n_uncertain: int, kind: str) -> None:
    rows: list[list[object]] = [[n % 2, n // 2 % 2, -1 if n < n_uncertain else n // 4 % 2] for n in range(40)]
    write_table(tmp_path, ["Edema", "Effusion", "Fracture"], rows)
    outcome = decide_folder(tmp_path, "Which of edema, effusion and fracture are on the chest radiograph?")
    assert outcome.kind == kind
