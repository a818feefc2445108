"""Masks and images of test cases that were made in the run: locked, and watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from m3b.agents.checks.integrity import CLEAN, INDEX_FILES, integrity, lock_index, sha256
from m3b.data.index import LABELS, TEST, TRAIN, Record, read_index, read_records


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("data/x/1.png", "data/x/2.png", "data/x/m2.png", "Datapath/i1.png", "Datapath/masks/1.nii.gz"):
        (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name).write_bytes(name.encode())
    for number in (1, 2):
        file = tmp_path / f"work/Datapath/masks/slices/{number}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes([number]))
    return tmp_path


def record(image: str, mask: Any) -> dict[str, Any]:
    return {"image_path": image, "mask_path": mask, "patient": image}


def locked(run: Path, *test: dict[str, Any], labels: Any = None, task: str = "segmentation") -> dict[str, str]:
    put = {TRAIN: [record("data/x/9.png", "Datapath/masks/9.png")], TEST: list(test), LABELS: labels or {"a": 1}}
    for name, value in put.items():
        (run / "work" / name).write_text(json.dumps(value))
    return lock_index(run / "work", run / "locked", task)


def label(run: Path, hashes: dict[str, str]) -> str:
    return integrity(run / "work", run / "locked", hashes, "same", "same", "segmentation")


def the_record(run: Path) -> Record:
    (one,) = read_records(run / "locked" / TEST, "segmentation")
    return one


def test_masks_in_the_raw_data_are_left_where_they_are(run: Path) -> None:
    hashes = locked(run, record("data/x/2.png", "data/x/m2.png"))
    assert hashes == {name: sha256(run / "work" / name) for name in INDEX_FILES}
    assert (run / "locked" / TEST).read_bytes() == (run / "work" / TEST).read_bytes()
    assert label(run, hashes) == CLEAN


def test_a_derived_mask_is_copied_and_the_locked_index_names_the_copy(run: Path) -> None:
    hashes = locked(run, record("data/x/1.png", "Datapath/masks/1.nii.gz"))
    copy = run / "work" / str(the_record(run).mask)
    assert copy.resolve().is_relative_to(run / "locked" / "targets")
    assert copy.name.endswith(".nii.gz")
    assert copy.read_bytes() == b"Datapath/masks/1.nii.gz"
    assert the_record(run).image == "data/x/1.png"
    assert label(run, hashes) == CLEAN
    assert read_index(run / "locked", "segmentation").values == {"a": 1}
    (run / "work/Datapath/masks/1.nii.gz").write_bytes(b"other")
    assert copy.read_bytes() == b"Datapath/masks/1.nii.gz", "the score rests on the copy"
    assert "1 files of test cases changed after they were locked (Datapath/masks/1.nii.gz)" in label(run, hashes)


@pytest.mark.parametrize(
    "mask",
    [
        {"a": "Datapath/masks/1.nii.gz", "b": "data/x/m2.png"},
        ["Datapath/masks/slices/1.png", "Datapath/masks/slices/2.png"],
        "Datapath/masks/slices",
        "Datapath/masks/1.nii.gz#key[3]",
    ],
)
def test_every_way_to_name_a_mask(run: Path, mask: Any) -> None:
    hashes = locked(run, record("data/x/1.png", mask), labels={"a": 1, "b": 2})
    one = the_record(run)
    before = Record("", mask=tuple(mask) if isinstance(mask, list) else mask)
    assert len(one.masks) == len(before.masks)
    assert [path.partition("#")[2] for path in one.masks] == [path.partition("#")[2] for path in before.masks]
    for path in one.targets:
        assert (run / "work" / path).exists()
        assert path.startswith(("data/", "../locked/targets/"))
    assert label(run, hashes) == CLEAN
    for file in (run / "work/Datapath/masks").rglob("*"):
        if file.is_file():
            file.write_bytes(b"other")
    assert "of test cases changed" in label(run, hashes)


def test_a_locked_mask_that_changed_or_is_gone(run: Path) -> None:
    hashes = locked(run, record("data/x/1.png", "Datapath/masks/1.nii.gz"))
    (copy,) = (run / "locked/targets").iterdir()
    copy.write_bytes(b"other")
    assert label(run, hashes) == "1 locked masks changed"
    copy.unlink()
    assert label(run, hashes) == "1 locked masks changed"


def test_a_derived_image_is_watched_where_it_is(run: Path) -> None:
    hashes = locked(run, record("Datapath/i1.png", "data/x/m2.png"))
    assert hashes["Datapath/i1.png"] == sha256(run / "work/Datapath/i1.png")
    assert the_record(run).image == "Datapath/i1.png"
    assert label(run, hashes) == CLEAN
    (run / "work/Datapath/i1.png").write_bytes(b"other")
    assert "(Datapath/i1.png)" in label(run, hashes)


@pytest.mark.parametrize("name", INDEX_FILES)
def test_either_copy_of_the_index_is_still_watched(run: Path, name: str) -> None:
    hashes = locked(run, record("data/x/1.png", "Datapath/masks/1.nii.gz"))
    for place, words in (("work", f"{Path(name).name} changed after"), ("locked", f"locked copy of {Path(name).name}")):
        before = (run / place / name).read_bytes()
        (run / place / name).write_bytes(before + b" ")
        assert words in label(run, hashes)
        (run / place / name).write_bytes(before)
    assert label(run, hashes) == CLEAN


def test_locking_again_leaves_nothing_of_the_first_time(run: Path) -> None:
    locked(run, record("data/x/1.png", "Datapath/masks/1.nii.gz"))
    hashes = locked(run, record("data/x/2.png", ["Datapath/masks/slices/1.png"]))
    assert [file.name for file in (run / "locked/targets").iterdir()] == ["00000_1.png"]
    assert label(run, hashes) == CLEAN


def test_a_view_that_came_into_training(run: Path) -> None:
    report = {"findings": "x", "impression": ""}
    test = {"image_path": ["data/x/1.png", "data/x/2.png"], "report": report, "patient": "p"}
    hashes = locked(run, test, task="report")
    train = {"image_path": "data/x/2.png", "report": report, "patient": "q"}
    (run / "work" / TRAIN).write_text(json.dumps([train]))
    said = integrity(run / "work", run / "locked", hashes, "same", "same", "report")
    assert said == "train.json changed after it was locked; 1 test images in the training index"
