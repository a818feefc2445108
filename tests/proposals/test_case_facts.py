"""Attributes and covariates of proposals: facts of cases beside the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from proposals_kit import decide_folder, write_dicom, write_picture, write_rows

from m3b.dataset.proposals.outcome import Outcome


def decide_with_columns(folder: Path, request_text: str, *columns: str) -> Outcome:
    """Decide on a folder of radiographs whose table has a finding and these columns of every patient."""
    notes = [f"Seen in clinic {number}: cough for {number} days, fever, no history of smoking." for number in range(9)]
    texts: dict[str, Sequence[str]] = {
        "clinical_notes": notes,
        "hospital": notes,
        "sex": "FM",
        "site": ("Bonn", "Ulm"),
        "comments from web site": ("Fig 1", " ".join(notes), "CAP"),
        "batch": "ab",
    }
    rows: list[list[object]] = [["file", "patient_id", "finding", *columns]]
    for number in range(60):
        write_picture(folder / f"films/film{number:03d}.png", number)
        facts = [
            40 + number % 37 if name == "age" else texts[name][number // len(name) % len(texts[name])]
            for name in columns
        ]
        rows.append([f"film{number:03d}.png", f"p{number // 2:03d}", ("healthy", "ill")[number // 2 % 2], *facts])
    write_rows(folder / "films.csv", rows)
    return decide_folder(folder, request_text)


def test_attributes_are_those_of_the_table_and_covariates_those_of_the_request(tmp_path: Path) -> None:
    outcome = decide_with_columns(
        tmp_path, "Tell healthy from ill on chest films, using age and sex", "age", "sex", "site", "batch"
    )
    manifest = outcome.proposals[0].manifest
    assert outcome.kind == "proposed"
    assert {name: source.value for name, source in manifest.attributes.items()} == {
        "age": "{films.age}", "sex": "{films.sex}", "site": "{films.site}"
    }  # fmt: skip
    assert {name: (item.value.value, item.kind) for name, item in manifest.covariates.items()} == {
        "age": ("{films.age}", "number"), "sex": ("{films.sex}", "category")
    }  # fmt: skip


def test_free_text_is_no_attribute(tmp_path: Path) -> None:
    outcome = decide_with_columns(tmp_path, "Tell healthy from ill on chest films", "clinical_notes", "hospital", "sex")
    assert set(outcome.proposals[0].manifest.attributes) == {"sex"}


def test_a_column_with_a_cell_that_no_attribute_may_hold_is_none(tmp_path: Path) -> None:
    outcome = decide_with_columns(tmp_path, "Tell healthy from ill on chest films", "comments from web site", "sex")
    assert set(outcome.proposals[0].manifest.attributes) == {"sex"}


def test_without_a_word_in_the_request_nothing_is_given_to_the_model(tmp_path: Path) -> None:
    manifest = decide_with_columns(tmp_path, "Tell healthy from ill on chest films", "age").proposals[0].manifest
    assert (set(manifest.attributes), manifest.covariates) == ({"age"}, {})


@pytest.mark.parametrize("column", ["sex", "batch"])
def test_a_covariate_that_is_not_there_is_asked_about(tmp_path: Path, column: str) -> None:
    outcome = decide_with_columns(tmp_path, "Tell healthy from ill on chest films, using age", column)
    assert outcome.kind == "ask"
    assert [doubt.code for doubt in outcome.proposals[0].blocking] == ["request_contradicted"]


def test_covariates_of_dicom_headers(tmp_path: Path) -> None:
    for number in range(40):
        folder = ("healthy", "ill")[number % 2]
        tags = {"PatientID": f"p{number}", "PatientSex": "FM"[number // 2 % 2], "PatientAge": f"0{40 + number}Y"}
        write_dicom(tmp_path / folder / f"{number:03d}.dcm", number, {**tags, "Modality": "CR"})
    outcome = decide_folder(tmp_path, "Tell healthy from ill on chest films, using age and sex")
    assert outcome.kind == "proposed"
    covariates = outcome.proposals[0].manifest.covariates
    assert {name: (item.value.value, item.kind) for name, item in covariates.items()} == {
        "age": ("{tag.PatientAge}", "number"), "sex": ("{tag.PatientSex}", "category")
    }  # fmt: skip
