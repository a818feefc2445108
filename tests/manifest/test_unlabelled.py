"""Images without a label as a part of the index: what is found, what is never given to training, and what is locked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manifest_kit import case_reasons, execute_folder, resolve_folder
from PIL import Image

from m3b.agents.artifacts import Selection
from m3b.agents.checks.index import check_index
from m3b.agents.checks.index_lock import check_integrity, freeze_index, lock_index, serialize_training_index
from m3b.data.index import LABELS, TRAIN, UNLABELLED, Index, read_index, write_records, write_unlabelled
from m3b.data.records import Record
from m3b.data.synthetic import radiograph
from m3b.dataset.manifest.execute import UNLABELLED_PER_LABELLED, write
from m3b.dataset.manifest.explain import explain, summary_lines
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.proposals.decide import decide
from m3b.dataset.proposals.request import parse
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk
from m3b.errors import DataError

CLASSES = {"no": ["0"], "yes": ["1"]}


def manifest(unlabelled: str = "keep", **changes: Any) -> dict[str, Any]:
    labels = {"value": "{t.label}", "classes": CLASSES, "unlabelled": unlabelled}
    table = {"files": "t.csv", "key": "{image}", "image": "{stem}"}
    images = {"files": "images/*.png"}
    base = {"task": "diagnosis", "images": images, "tables": {"t": table}, "labels": labels, "patient": "{t.patient}"}
    return {**base, **changes}


def fill(root: Path, rows: list[str], header: str = "image,patient,label") -> Path:
    (root / "images").mkdir(parents=True)
    for number, row in enumerate(rows):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40), np.uint8)
        Image.fromarray(pixels).save(root / f"images/{row.partition(',')[0]}.png")
    (root / "t.csv").write_text("\n".join([header, *(row for row in rows if "," in row)]))
    return root


def test_only_what_lacks_nothing_but_a_label_is_kept(tmp_path: Path) -> None:
    rows = ["a,1,0,train", "b,2,1,test", "c,3,,train", "d,4,,test", "e,5,?,train", "f,,,train", "g,7,1,train", "h"]
    root = fill(tmp_path, rows, "image,patient,label,part")
    split = {"value": "{t.part}", "train": ["train"], "test": ["test"]}
    resolved, reduced = (resolve_folder(root, **manifest(choice, split=split)) for choice in ("keep", "leave_out"))
    assert resolved.unlabelled["case"].to_list() == reduced.unlabelled["case"].to_list() == ["images/c.png"]
    assert case_reasons(resolved) == {"text_without_class": 1, "no_label": 3}
    assert case_reasons(reduced) == {"text_without_class": 1, "no_label": 4}
    assert dict(resolved.uses.group_by("use").len().drop_nulls().iter_rows())["unlabelled image"] == 1
    assert len(reduced.kept_unlabelled) == 0
    assert explain(resolved.manifest, resolved).unlabelled == 1
    assert any("1 unlabelled images" in line for line in summary_lines(explain(resolved.manifest, resolved)))


@pytest.mark.parametrize(
    ("labels", "count"),
    [
        ({"columns": {"x": "{t.x}", "y": "{t.y}"}}, 1),
        ({"columns": {"x": "{t.x}", "y": "{t.y}"}, "multi_label": True}, 1),
        ({"value": "{t.x}", "classes": CLASSES, "multi_label": True}, 2),
    ],
)
def test_known_negatives_are_not_unlabelled(labels: dict[str, Any], count: int, tmp_path: Path) -> None:
    root = fill(tmp_path, ["a,1,1,0", "b,2,0,1", "c,3,0,0", "d,4,,1", "e,5,,"], "image,patient,x,y")
    resolved = resolve_folder(root, **manifest(labels={**labels, "unlabelled": "keep"}))
    assert len(resolved.unlabelled) == count
    assert resolved.unlabelled["case"].to_list()[-1] == "images/e.png"


def test_a_grading_keeps_no_unlabelled_images(tmp_path: Path) -> None:
    root = fill(tmp_path, ["a,1,0", "b,2,1", "c,3,"])
    assert case_reasons(resolve_folder(root, **manifest(task="grading"))) == {"no_label": 1}


def test_tested_patients_and_more_than_self_training_takes_are_left_out(tmp_path: Path) -> None:
    labelled = [f"l{at:02d},{at},{at % 2}" for at in range(10)]
    free = [f"u{at:03d},{100 + at}," for at in range(200)]
    root = fill(tmp_path / "raw", [*labelled, *(f"s{at},{at}," for at in range(10)), *free])
    executed = execute_folder(root, tmp_path / "work", **manifest())
    tested = {record.patient for record in executed.test}
    trained = {record.patient for record in executed.train}
    unlabelled_patients = {record.patient for record in executed.unlabelled}
    assert tested
    assert not tested & unlabelled_patients
    assert len(executed.unlabelled) <= UNLABELLED_PER_LABELLED * len(executed.train)
    assert len(executed.unlabelled) >= UNLABELLED_PER_LABELLED * len(executed.train) / 2
    assert case_reasons(executed.resolved)["patient_in_test_part"] == len(tested)
    assert executed.to_json()["unlabelled"] == len(executed.unlabelled)
    reduced = execute_folder(root, tmp_path / "plain", **manifest("leave_out"))
    assert (reduced.train, reduced.test, reduced.unlabelled) == (executed.train, executed.test, ())
    assert trained.isdisjoint(tested)


def test_an_earlier_index_has_no_such_part_and_none_stays_behind(tmp_path: Path) -> None:
    root = fill(
        tmp_path / "raw", [*(f"l{at},{at},{at % 2}" for at in range(10)), *(f"u{at},{50 + at}," for at in range(9))]
    )
    work = tmp_path / "work"
    for choice, count in (("keep", 9), ("leave_out", 0)):
        write(execute_folder(root, work, **manifest(choice)), work)
        assert len(read_index(work).unlabelled) == count
        assert (work / UNLABELLED).exists() == bool(count)
    record = Record("data/x/1.png", (), "1")
    write_unlabelled(work, [record], "diagnosis")
    assert read_index(work).unlabelled == (record,)
    assert record not in read_index(work).records
    graded = [Record(f"data/x/{at}.png", (str(at),), str(at)) for at in range(3)]
    for name in (TRAIN, "Datapath/test.json"):
        write_records(work / name, graded, "grading")
    (work / LABELS).write_text(json.dumps({"0": 0, "1": 1, "2": 2}))
    with pytest.raises(DataError, match="unlabelled"):
        read_index(work, "grading")


@pytest.mark.parametrize(("unlabelled", "handling"), [(19, "leave_out"), (20, "keep")])
def test_a_proposal_keeps_as_many_unlabelled_images_as_there_are_cases(
    unlabelled: int, handling: str, tmp_path: Path
) -> None:
    names = ("normal", "pneumonia")
    rows = [f"i{at:02d},p{at:02d},{names[at % 2] if at < 20 else ''}" for at in range(20 + unlabelled)]
    root = fill(tmp_path, rows, "image,patient,diagnosis")
    inventory = walk(root)
    request = parse("classify pneumonia against normal", "")
    readers = FolderReaders(inventory)
    outcome = decide(survey_inventory(inventory, SurveyLimits()), inventory, request, readers=readers)
    best = outcome.proposals[0]
    assert best.manifest.labels is not None
    assert best.manifest.labels.unlabelled == handling
    assert ("unlabelled_images" in {item.code for item in best.evidence}) == (handling == "keep")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An index of radiographs, and unlabelled images of which all but two must not be used."""
    raw, work = tmp_path / "raw", tmp_path / "work"
    raw.mkdir()
    names = [*map(str, range(24)), "u", "v", "tested"]
    pictures = {name: radiograph(np.random.default_rng(at), at % 2 == 1) for at, name in enumerate(names)}
    pictures |= {"copy": pictures["0"], "near": pictures["23"][:, ::-1]}
    for name, pixels in pictures.items():
        Image.fromarray(pixels).save(raw / f"{name}.png")
    (raw / "broken.png").write_bytes(b"no image")
    records = [Record(f"data/x/{at}.png", (("no", "yes")[at % 2],), f"p{at:02d}") for at in range(24)]
    write_records(work / TRAIN, records[:18], "diagnosis")
    write_records(work / "Datapath/test.json", records[18:], "diagnosis")
    (work / LABELS).write_text(json.dumps({"no": 0, "yes": 1}))
    names = ["u", "copy", "near", "tested", "broken", "absent", "3", "v", "v"]
    patients = {"tested": "p20", "u": "p05"}
    write_unlabelled(
        work, [Record(f"data/x/{name}.png", (), patients.get(name, f"q{name}")) for name in names], "diagnosis"
    )
    return work


def test_the_audit_takes_out_copies_and_tested_patients(work: Path, tmp_path: Path) -> None:
    frozen = tmp_path / "frozen"
    freeze_index(work, frozen, {"x": tmp_path / "raw"}, "diagnosis")
    result = check_index(frozen, Selection("x", "diagnosis", "auroc", "plan"))
    assert result.is_accepted
    assert [record.image for record in read_index(frozen).unlabelled] == ["data/x/u.png"]
    audit = json.loads((frozen / "data_audit.json").read_text())
    finding = next(item for item in audit["findings"] if item["code"] == "unlabelled_left_out")
    assert finding["weight"] == "warn"
    assert "2 copies" in finding["message"]
    assert "8 of 9" in finding["message"]


def test_training_gets_the_locked_part_under_the_same_invented_names(work: Path, tmp_path: Path) -> None:
    frozen, locked = tmp_path / "frozen", tmp_path / "locked"
    locked.mkdir()
    freeze_index(work, frozen, {"x": tmp_path / "raw"}, "diagnosis")
    hashes = lock_index(frozen, locked, "diagnosis")
    for name, pieces in serialize_training_index(read_index(locked)).items():
        (work / name).write_bytes(b"".join(pieces))
    trained, unlabelled = (json.loads((work / name).read_text()) for name in (TRAIN, UNLABELLED))
    assert unlabelled[0]["patient"] == next(
        item["patient"] for item in trained if item["image_path"].endswith("/5.png")
    )
    assert all(set(item) == {"image_path", "patient"} for item in unlabelled)
    (work / LABELS).write_bytes((locked / LABELS).read_bytes())
    assert check_integrity(work, locked, hashes, "", "") == "clean"
    (work / UNLABELLED).write_text(json.dumps([{"image_path": "data/x/20.png", "patient": "p"}]))
    assert "unlabelled.json changed" in check_integrity(work, locked, hashes, "", "")
    assert "1 test images" in check_integrity(work, locked, hashes, "", "")


def test_a_part_that_appears_after_the_lock_is_a_violation(work: Path, tmp_path: Path) -> None:
    frozen, locked = tmp_path / "frozen", tmp_path / "locked"
    locked.mkdir()
    write_unlabelled(work, [], "diagnosis")
    freeze_index(work, frozen, {"x": tmp_path / "raw"}, "diagnosis")
    hashes = lock_index(frozen, locked, "diagnosis")
    index: Index = read_index(locked)
    assert UNLABELLED not in hashes
    (work / TRAIN).write_bytes(b"".join(serialize_training_index(index)[TRAIN]))
    (work / LABELS).write_bytes((locked / LABELS).read_bytes())
    assert check_integrity(work, locked, hashes, "", "") == "clean"
    write_unlabelled(work, [Record("data/x/u.png", (), "1")], "diagnosis")
    assert "unlabelled.json changed" in check_integrity(work, locked, hashes, "", "")
