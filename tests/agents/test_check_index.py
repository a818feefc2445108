"""What the second role hands over: index files whose images open and whose patients stay on one side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.agents.artifacts import DataIndex, Selection, find_json_object
from m3b.agents.checks.index import CLASS_NAMES_KEY, check_index
from m3b.agents.checks.index_lock import sha256_or_missing
from m3b.errors import DataRejected

CHOICE = Selection("Cards", "diagnosis", "auroc", "plan")
Records = list[dict[str, Any]]
Change = Callable[[Records, Records], None]


def make_work(work: Path, cases: int = 24, change: Change = lambda train, test: None) -> Path:
    """Images of noise in two classes; every fourth case is for testing."""
    random = np.random.default_rng(7)
    (work / "data" / "x").mkdir(parents=True)
    (work / "Datapath").mkdir()
    train: Records = []
    test: Records = []
    for number in range(cases):
        pixels = random.integers(0, 256, (20, 20), dtype=np.uint8)
        Image.fromarray(pixels).save(work / "data" / "x" / f"{number}.png")
        record = {"image_path": f"data/x/{number}.png", "labels": ["ab"[number % 2]], "patient": f"p{number}"}
        (test if number % 4 < 2 and number < cases // 2 else train).append(record)
    change(train, test)
    write(work, train, test)
    return work


def write(work: Path, train: Any, test: Any, labels: Any = None) -> None:
    for name, value in (("train", train), ("test", test), ("label_dict", labels or {"a": 0, "b": 1})):
        (work / "Datapath" / f"{name}.json").write_text(json.dumps(value))


def test_a_good_index(tmp_path: Path) -> None:
    work = make_work(tmp_path)
    verdict = check_index(work, CHOICE)
    assert verdict.is_accepted, verdict.agent_messages
    data = verdict.artifact
    assert isinstance(data, DataIndex)
    assert data.classes == ("a", "b")
    assert not data.multi_label
    assert data.cases == {"train": 18, "test": 6}
    assert data.patients == {"train": 18, "test": 6}
    assert data.counts == {"train": {"a": 9, "b": 9}, "test": {"a": 3, "b": 3}}
    assert data.hashes["Datapath/test.json"] == sha256_or_missing(work, "Datapath/test.json")
    assert verdict.warnings == (), "a quarter of the cases: there are no more to test on"
    audit = json.loads((work / "data_audit.json").read_text())
    assert audit["opened"] == audit["cases"] == 24


def test_a_test_split_that_could_be_larger_is_worth_a_word(tmp_path: Path) -> None:
    def take(train: Records, test: Records) -> None:
        train.extend(test[2:])
        del test[2:]

    verdict = check_index(make_work(tmp_path, change=take), CHOICE)
    assert verdict.is_accepted, verdict.agent_messages
    assert any("2 cases" in note for note in verdict.warnings)


def test_a_small_test_part_of_the_sets_own_split_is_no_warning(tmp_path: Path) -> None:
    def take(train: Records, test: Records) -> None:
        train.extend(test[2:])
        del test[2:]

    work = make_work(tmp_path, change=take)
    assert check_index(work, CHOICE, manifest={"split": {"value": "{folder0}"}}).warnings == ()


@pytest.mark.parametrize("patients", [3, 9])
def test_a_class_of_few_patients_is_not_put_to_the_agent_again(tmp_path: Path, patients: int) -> None:
    """No other split would have more of it."""

    def thin(train: Records, test: Records) -> None:
        image_paths = {record["image_path"] for record in train if record["labels"] == ["b"]}
        image_paths = set(sorted(image_paths)[: patients - 1]) | {
            next(r["image_path"] for r in test if r["labels"] == ["b"])
        }
        for part in (train, test):
            part[:] = [row for row in part if row["labels"] == ["a"] or row["image_path"] in image_paths]

    verdict = check_index(make_work(tmp_path, cases=40, change=thin), CHOICE)
    assert verdict.is_accepted, verdict.agent_messages
    assert any("test split has of: b: 1" in note for note in verdict.warnings) == (patients > 4)
    audit = json.loads((tmp_path / "data_audit.json").read_text())
    assert ("class_scarce_test" if patients < 5 else "class_rare_test") in str(audit)


def first_train(**changes: Any) -> Change:
    return lambda train, test: train[0].update(changes)


@pytest.mark.parametrize(
    ("change", "code", "expected_text"),
    [
        (first_train(image_path="data/x/nothing.png"), "missing_file", "data/x/nothing.png"),
        (first_train(labels=["c"]), "unknown_label", "'c'"),
        (lambda train, test: train[0].update(patient=test[0]["patient"]), "patient_overlap", "p0"),
        (lambda train, test: train.append({**test[0], "patient": "new"}), "repeated", " 0.png"),
        (first_train(image_path="/etc/hostname"), "path_outside", "/etc/hostname"),
        (first_train(image_path="data/x/../../../../etc/hostname"), "path_outside", "/etc/hostname"),
        (first_train(image_path=["data/x/1.png", "../0.png"]), "path_outside", "../0.png"),
        (first_train(patient=""), "index_unreadable", "record 0: patient"),
        (first_train(labels="a"), "index_unreadable", "record 0: labels"),
        (lambda train, test: test.clear(), "index_unreadable", "test.json"),
    ],
)
def test_faults_that_go_back(tmp_path: Path, change: Change, code: str, expected_text: str) -> None:
    verdict = check_index(make_work(tmp_path, change=change), CHOICE)
    assert not verdict.is_accepted
    assert verdict.end_error is None, "the index is to blame, not the data"
    assert [issue.code for issue in verdict.issues] == [code]
    assert expected_text in verdict.agent_messages[0]


def test_the_cases_concerned_are_named(tmp_path: Path) -> None:
    work = make_work(tmp_path)
    (work / "data/x/3.png").write_bytes(b"not a picture")
    verdict = check_index(work, CHOICE)
    assert verdict.issues[0].code == "unreadable"
    assert "Cases: 3.png." in verdict.agent_messages[0]


def test_the_same_image_in_two_classes(tmp_path: Path) -> None:
    work = make_work(tmp_path)
    (work / "data/x/23.png").write_bytes((work / "data/x/22.png").read_bytes())
    verdict = check_index(work, CHOICE)
    assert verdict.issues[0].code == "same_image_two_classes"
    assert "22.png" in verdict.agent_messages[0]


@pytest.mark.parametrize("name", ["train.json", "test.json", "label_dict.json"])
def test_missing_and_broken_files(tmp_path: Path, name: str) -> None:
    work = make_work(tmp_path)
    for content in ("{", "null", '"text"', "[" * 100_000):
        (work / "Datapath" / name).write_text(content)
        verdict = check_index(work, CHOICE)
        assert verdict.issues[0].code == "index_unreadable"
        assert name in verdict.agent_messages[0]
        assert "resources/indexes/" in verdict.agent_messages[0]
    (work / "Datapath" / name).unlink()
    verdict = check_index(work, CHOICE)
    assert verdict.issues[0].code == "index_unreadable"
    assert f"Datapath/{name}" in verdict.agent_messages[0]


def one_class(train: Records, test: Records) -> None:
    for record in (*train, *test):
        record["labels"] = ["a"]


def test_data_that_nobody_can_train_on_is_rejected_as_data(tmp_path: Path) -> None:
    verdict = check_index(make_work(tmp_path, change=one_class), CHOICE)
    assert verdict.end_error is DataRejected
    assert verdict.issues[0].code == "one_class"


def test_images_of_which_none_opens(tmp_path: Path) -> None:
    work = make_work(tmp_path)
    for file in (work / "data/x").iterdir():
        file.write_bytes(b"\x00")
    verdict = check_index(work, CHOICE)
    assert verdict.end_error is DataRejected
    assert "nothing_opens" in verdict.to_rejection().codes


def test_classes_must_be_those_of_the_selection(tmp_path: Path) -> None:
    work = make_work(tmp_path)
    selection = Selection("Cards", "diagnosis", "auroc", "plan", classes=("healthy", "ill"))
    assert check_index(work, selection).issues[0].code == "other_classes"
    reordered = Selection("Cards", "diagnosis", "auroc", "plan", classes=("B", "A"))
    assert check_index(work, reordered).is_accepted, "order and case are the index's own"


def test_classes_may_be_inflected_otherwise_than_in_the_selection(tmp_path: Path) -> None:
    """`polyp` of the selection beside `polyps` of the manifest cost a second manifest."""
    work = make_work(tmp_path)
    names = {"a": "polyps", "b": "nuclei"}
    train, test = (json.loads((work / f"Datapath/{part}.json").read_text()) for part in ("train", "test"))
    for record in (*train, *test):
        record["labels"] = [names[label] for label in record["labels"]]
    write(work, train, test, {"polyps": 0, "nuclei": 1})
    for classes, is_accepted in (
        (("Polyp", "nucleus"), True),
        (("polyp", "polyps"), False),
        (("polyp", "cell"), False),
    ):
        selection = Selection("Cards", "diagnosis", "auroc", "plan", classes=classes)
        assert check_index(work, selection).is_accepted is is_accepted, classes


@pytest.mark.parametrize(
    ("manifest", "classes", "is_offered"),
    [(None, ("healthy", "ill"), False), ({}, ("healthy", "ill"), True), ({}, ("healthy", "ill", "dead"), False)],
    ids=str,
)
def test_names_of_as_many_classes_can_be_given_to_a_manifest(
    tmp_path: Path, manifest: dict[str, Any] | None, classes: tuple[str, ...], is_offered: bool
) -> None:
    selection = Selection("Cards", "diagnosis", "auroc", "plan", classes=classes)
    (issue,) = check_index(make_work(tmp_path), selection, manifest=manifest).issues
    assert issue.code == "other_classes"
    assert (CLASS_NAMES_KEY in issue.agent_message) is is_offered
    assert CLASS_NAMES_KEY not in issue.user_message
    if is_offered:
        assert find_json_object(issue.agent_message, CLASS_NAMES_KEY)[CLASS_NAMES_KEY].keys() == {"a", "b"}


def test_classes_may_be_numbered_otherwise_than_in_the_selection(tmp_path: Path) -> None:
    """`KL grade 0` of the selection beside the folder `0` cost a second manifest."""
    work = make_work(tmp_path)
    names = {"a": "0", "b": "1"}
    train, test = (json.loads((work / f"Datapath/{part}.json").read_text()) for part in ("train", "test"))
    for record in (*train, *test):
        record["labels"] = [names[label] for label in record["labels"]]
    write(work, train, test, {"0": 0, "1": 1})
    for classes, is_accepted in ((("KL grade 0", "KL grade 1"), True), (("KL grade 1", "KL grade 2"), False)):
        selection = Selection("Cards", "diagnosis", "auroc", "plan", classes=classes)
        assert check_index(work, selection).is_accepted is is_accepted, classes
