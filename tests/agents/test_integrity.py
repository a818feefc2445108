"""The locked test split, and what shows when somebody touched what is locked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from m3b.agents.checks.index_lock import (
    INDEX_FILES,
    INTEGRITY_CLEAN,
    check_integrity,
    digest_derived_files,
    fingerprint_folder,
    freeze_index,
    list_derived_files,
    lock_index,
    save_hashes,
    serialize_training_index,
    sha256_or_missing,
)
from m3b.data.index import LABELS, TEST, TRAIN, read_index


def record(name: str) -> dict[str, object]:
    return {"image_path": f"data/x/{name}.png", "labels": ["a"], "patient": name}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work" / "Datapath").mkdir(parents=True)
    texts = {"train": [record("1"), record("2")], "test": [record("3")], "label_dict": {"a": 0, "b": 1}}
    for name, value in texts.items():
        (tmp_path / "work" / "Datapath" / f"{name}.json").write_text(json.dumps(value))
    raw = tmp_path / "raw" / "deep"
    raw.mkdir(parents=True)
    (raw / "a.png").write_bytes(b"aaaa")
    (tmp_path / "raw" / "b.csv").write_text("x")
    return tmp_path


def accept(place: Path) -> dict[str, str]:
    """Freeze and lock what lies in `work`, then give `work` the training part as m3b does."""
    work, locked = place / "work", place / "locked"
    locked.mkdir(exist_ok=True)
    freeze_index(work, place / "frozen", {"x": place / "raw"}, "diagnosis")
    hashes = lock_index(place / "frozen", locked, "diagnosis")
    (work / TRAIN).write_bytes(b"".join(serialize_training_index(read_index(locked))[TRAIN]))
    (work / LABELS).write_bytes((locked / LABELS).read_bytes())
    return hashes


def label(place: Path, hashes: dict[str, str], before: str = "same", after: str = "same") -> str:
    paths = list_derived_files(read_index(place / "locked").records) if (place / "locked" / TEST).is_file() else []
    digest = digest_derived_files(place / "locked", paths) if paths else None
    return check_integrity(place / "work", place / "locked", hashes, before, after, derived_digest=digest)


def test_what_nobody_touched_is_clean(place: Path) -> None:
    hashes = accept(place)
    assert set(hashes) == {*INDEX_FILES, f"work/{TRAIN}", f"work/{LABELS}"}
    assert all(hashes[name] == sha256_or_missing(place / "locked", name) for name in INDEX_FILES)
    assert label(place, hashes) == INTEGRITY_CLEAN


def test_hashes_are_kept_beside_the_locked_files(place: Path) -> None:
    hashes = accept(place)
    save_hashes(place / "locked", hashes, "raw")
    assert json.loads((place / "locked/hashes.json").read_text()) == {"index": hashes, "raw_data": "raw"}


@pytest.mark.parametrize("name", INDEX_FILES)
def test_a_change_of_a_locked_file_is_named(place: Path, name: str) -> None:
    hashes = accept(place)
    file = place / "locked" / name
    file.write_bytes(file.read_bytes() + b" ")
    assert label(place, hashes) == f"locked copy of {Path(name).name} changed"


@pytest.mark.parametrize("name", [TRAIN, LABELS])
def test_a_change_of_what_training_was_given_is_named(place: Path, name: str) -> None:
    hashes = accept(place)
    file = place / "work" / name
    before = file.read_bytes()
    file.write_bytes(before + b" ")
    assert label(place, hashes) == f"{Path(name).name} changed after it was locked"
    file.unlink()
    assert label(place, hashes) == f"{Path(name).name} changed after it was locked"
    file.write_bytes(before)
    assert label(place, hashes) == INTEGRITY_CLEAN


def test_test_images_that_came_into_training(place: Path) -> None:
    hashes = accept(place)
    (place / "work/Datapath/train.json").write_text(json.dumps([record("1"), record("3")]))
    assert label(place, hashes) == "train.json changed after it was locked; 1 test images in the training index"


def test_raw_data_that_changed(place: Path) -> None:
    assert label(place, accept(place), "one", "other") == "raw data changed during the run"


# --- the raw data ------------------------------------------------------------------------------------------------


def overwrite(raw: Path) -> None:
    """The same size and, put back, the same time: only the kernel's own change time tells."""
    file = raw / "deep/a.png"
    stat = file.stat()
    file.write_bytes(b"bbbb")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_mtime_ns == stat.st_mtime_ns


def swap(raw: Path) -> None:
    copy = raw / "copy"
    shutil.copy2(raw / "deep/a.png", copy)
    copy.rename(raw / "deep/a.png")


CHANGES: list[Callable[[Path], object]] = [
    overwrite,
    swap,
    lambda raw: (raw / "deep/a.png").unlink(),
    lambda raw: (raw / "new").touch(),
    lambda raw: (raw / "b.csv").rename(raw / "c.csv"),
    lambda raw: (raw / "b.csv").chmod(0o600),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_shows(place: Path, change: Callable[[Path], object]) -> None:
    raw = place / "raw"
    before = fingerprint_folder(raw)
    change(raw)
    assert fingerprint_folder(raw) != before


def test_reading_does_not_show(place: Path) -> None:
    raw = place / "raw"
    before = fingerprint_folder(raw)
    for file in raw.rglob("*"):
        if file.is_file():
            file.read_bytes()
    assert fingerprint_folder(raw) == before


def test_a_hard_link_shows_only_where_change_times_count(place: Path) -> None:
    raw = place / "raw"
    before, content_fingerprint = fingerprint_folder(raw), fingerprint_folder(raw, change_times=False)
    os.link(raw / "b.csv", place / "linked")
    assert fingerprint_folder(raw) != before
    assert fingerprint_folder(raw, change_times=False) == content_fingerprint


@pytest.mark.parametrize("change", CHANGES[1:5])
def test_without_change_times_other_changes_still_show(place: Path, change: Callable[[Path], object]) -> None:
    raw = place / "raw"
    before = fingerprint_folder(raw, change_times=False)
    change(raw)
    assert fingerprint_folder(raw, change_times=False) != before


def test_names_that_are_no_text(place: Path) -> None:
    raw = place / "raw"
    before = fingerprint_folder(raw)
    try:
        Path(os.fsdecode(bytes(raw) + b"/\xff\xfe.png")).touch()
    except OSError:
        pytest.skip("this file system takes no such names")
    assert fingerprint_folder(raw) != before
