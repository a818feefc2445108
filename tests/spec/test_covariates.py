"""What a request wants given beside the image, from its words to the records of the index."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from spec_kit import picture

from m3b.data.index import Index, read_records, write_records
from m3b.data.records import Record
from m3b.data.spec.execute import Executed, execute
from m3b.data.spec.model import FromTable, Task
from m3b.data.spec.proposals import Ask, Proposal, propose
from m3b.data.survey import survey
from m3b.errors import DataError

HEAD = ["file", "patient_id", "finding", "sex", "age", "crp_mg_l", "bone_age"]


def folder(root: Path, head: list[str] = HEAD) -> Path:
    """Films with a table: name, patient, diagnosis, sex, age (-1: unknown), CRP (some cells empty) and a bone age."""
    root.mkdir()
    with (root / "films.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(head)
        for at in range(60):
            picture(root / "films" / f"f{at:03d}.png", 40 + at, (24, 24))
            finding, sex = ("normal", "pneumonia")[at % 2], "FM"[at // 2 % 2]
            values = [sex, -1 if at == 7 else 20 + at, "" if at % 9 == 0 else at % 7 + 0.5, 30 + at % 40]
            rows.writerow([f"f{at:03d}.png", f"p{at:02d}", finding, *values][: len(head)])
    return root


def best(root: Path, request: str, task: Task = "diagnosis") -> Proposal:
    return propose(survey(root), Ask(task, request))[0]


def made(root: Path, request: str, work: Path, task: Task = "diagnosis") -> Executed:
    return execute(best(root, request, task).spec, root, name="films", work=work)


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("Tell pneumonia from normal on chest films", set()),
        ("Tell pneumonia from normal on chest films using age and sex", {"age", "sex"}),
        ("Tell pneumonia from normal on chest films, together with the patient's age", {"age"}),
        ("Classify pneumonia and normal using films, CRP and sex", {"crp_mg_l", "sex"}),
        ("Tell pneumonia from normal on chest films, with age and sex as additional inputs", {"age", "sex"}),
        ("Predict pneumonia or normal from chest films and age", {"age"}),
        ("Tell pneumonia from normal on chest films using the labels of the column finding", set()),
        ("Tell pneumonia from normal on films of patients of all ages", set()),
    ],
)
def test_only_what_the_request_asks_for_is_given(request_: str, names: set[str], tmp_path: Path) -> None:
    found = best(folder(tmp_path / "raw"), request_)
    assert set(found.spec.covariates) == names
    assert found.spec.labels is not None
    assert set(found.spec.labels.classes) == {"normal", "pneumonia"}
    assert bool(names) == any("given beside the image" in one for one in found.evidence)


def test_a_column_that_is_to_be_learnt_is_not_given(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    spec = best(root, "Predict the bone age in years on hand films using sex and bone age", "regression").spec
    assert set(spec.covariates) == {"sex"}
    assert isinstance(spec.value.source if spec.value else None, FromTable)


def test_what_is_asked_for_and_is_not_there_leaves_the_reading_open(tmp_path: Path) -> None:
    found = best(folder(tmp_path / "raw", HEAD[:3]), "Tell pneumonia from normal on chest films using age")
    assert "asks for age beside the image" in found.unclear


def test_numbers_texts_and_unknown_ones_stand_in_the_index(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    done = made(root, "Tell pneumonia from normal on films using age, sex and CRP", tmp_path / "work")
    known = {one.key.rsplit("/", 1)[-1]: one.covariates for one in (*done.train, *done.test)}
    assert known["f006.png"] == {"sex": "M", "age": 26.0, "crp_mg_l": 6.5}
    assert known["f007.png"]["age"] is None, "-1 stands for an unknown age"
    assert known["f009.png"]["crp_mg_l"] is None
    assert any("unknown of 7 cases" in note for note in done.notes)
    write_records(tmp_path / "train.json", done.train, "diagnosis")
    assert read_records(tmp_path / "train.json", "diagnosis") == done.train
    assert Index(done.train, done.test, ("normal", "pneumonia")).covariates == tuple(done.train[0].covariates)


@pytest.mark.parametrize(
    ("some", "told"),
    [
        ([{"age": 61}, {}], "same names in all records"),
        ([{"age": 61}, {"age": "old"}], "a number in some records and a text in others"),
        ([{"age": [61]}], "must look like"),
        ([{"age": float("inf")}], "must look like"),
        ([{"image": 3}], "other than 'image'"),
    ],
)
def test_covariates_that_do_not_go_together_are_refused(
    some: list[dict[str, object]], told: str, tmp_path: Path
) -> None:
    records = [
        Record(f"data/x/{at}.png", ("ill",), f"p{at}", covariates=one)  # type: ignore[arg-type]
        for at, one in enumerate(some)
    ]
    write_records(tmp_path / "train.json", records, "diagnosis")
    with pytest.raises(DataError, match=told):
        read_records(tmp_path / "train.json", "diagnosis")


def test_a_task_of_masks_takes_none(tmp_path: Path) -> None:
    record = Record("data/x/1.png", patient="p1", mask="data/x/m.png", covariates={"age": 3.0})
    write_records(tmp_path / "train.json", [record], "segmentation")
    with pytest.raises(DataError, match="does not take"):
        read_records(tmp_path / "train.json", "segmentation")
