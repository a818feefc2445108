"""Columns and header fields that say of what kind a patient is, and those that only sound like it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from spec_kit import picture

from m3b.data.spec.execute import execute
from m3b.data.spec.model import FromTable, Task
from m3b.data.spec.proposals import Ask, Proposal, propose
from m3b.data.spec.proposals.attributes import attribute
from m3b.data.survey import survey
from m3b.data.survey.table_facts import Column


def folder(root: Path, head: list[str]) -> Path:
    """Films with a table: name, patient, diagnosis, then sex, age and site under the given names."""
    root.mkdir()
    with (root / "films.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["file", "patient_id", "finding", *head])
        for at in range(40):
            picture(root / "films" / f"f{at:03d}.png", 40 + at, (24, 24))
            finding, sex, site = ("normal", "pneumonia")[at % 2], "FM"[at // 2 % 2], ("north", "south")[at // 4 % 2]
            rows.writerow([f"f{at:03d}.png", f"p{at:02d}", finding, sex, 20 + at, site])
    return root


def best(root: Path, request: str, task: Task = "diagnosis") -> Proposal:
    return propose(survey(root), Ask(task, request))[0]


@pytest.mark.parametrize(
    "head", [["sex", "age", "site"], ["Geschlecht", "Alter", "Klinik"], ["gender", "age_at_scan", "hospital"]]
)
def test_sex_age_and_site_are_attributes_of_the_cases(head: list[str], tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", head)
    spec = best(root, "Tell pneumonia from normal on chest films").spec
    columns = {name: one.column for name, one in spec.attributes.items() if isinstance(one, FromTable)}
    assert columns == dict(zip(["sex", "age", "site"], head, strict=True))
    done = execute(spec, root, name="films", work=tmp_path / "work")
    first = next(one for one in (*done.train, *done.test) if one.key.endswith("f006.png"))
    assert first.attributes == {"sex": "M", "age": "26", "site": "south"}


def test_what_is_to_be_learnt_is_no_attribute(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", ["sex", "age", "site"])
    spec = best(root, "Predict the age in years on chest films", "regression").spec
    assert spec.value is not None
    assert set(spec.attributes) == {"sex", "site"}


@pytest.mark.parametrize(
    ("name", "found"),
    [("sex", "sex"), ("Patient Age", "age"), ("bone_age", ""), ("stage", ""), ("sexe", "sex"), ("性别", "sex"),
     ("age_of_implant", ""), ("age_at_mri", "age"), ("age_at_diagnosis", "age"), ("age_at_death", ""),
     ("View", "view"), ("Manufacturer", "scanner")],
)  # fmt: skip
def test_names_of_columns(name: str, found: str) -> None:
    assert attribute(Column(name=name, type="category", filled=30, missing=0, distinct=3, folded=3)) == found
    assert attribute(Column(name=name, type="category", filled=10, missing=20, distinct=3, folded=3)) == ""
    assert attribute(Column(name=name, type="category", filled=30, missing=0, distinct=1, folded=1)) == ""
