"""The frozen hand-over of an index: what is copied, what is refused, what m3b writes itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from m3b.agents.checks.index_lock import (
    digest_derived_files,
    freeze_index,
    list_derived_files,
    lock_index,
    serialize_training_index,
)
from m3b.data.index import LABELS, TEST, TRAIN, read_index
from m3b.errors import DataError

DERIVED_FILES = (
    "Datapath/i1.png",
    "Datapath/masks/1.nii.gz",
    "Datapath/masks/slices/1.png",
    "Datapath/masks/slices/2.png",
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("raw/1.png", "raw/2.png", "raw/m2.png", "raw/series/a.png", "outside/secret.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    for name in DERIVED_FILES:
        (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name).write_bytes(name.encode())
    (tmp_path / "locked").mkdir()
    return tmp_path


def record(image: Any, mask: Any, **fields: Any) -> dict[str, Any]:
    return {"image_path": image, "mask_path": mask, "patient": str(image), **fields}


def frozen(place: Path, *test: dict[str, Any], train: Any = None, labels: Any = None) -> list[str]:
    contents = {TRAIN: train or [record("data/x/1.png", "data/x/m2.png")], TEST: list(test), LABELS: labels or {"a": 1}}
    for name, value in contents.items():
        (place / "work" / name).write_text(json.dumps(value))
    return freeze_index(place / "work", place / "frozen", {"x": place / "raw"}, "segmentation")


@pytest.mark.parametrize(
    ("mask", "derived"),
    [
        ("data/x/m2.png", []),
        ("Datapath/masks/1.nii.gz", ["Datapath/masks/1.nii.gz"]),
        ({"a": "Datapath/masks/1.nii.gz", "b": "data/x/m2.png"}, ["Datapath/masks/1.nii.gz"]),
        (["Datapath/masks/slices/1.png", "Datapath/masks/slices/2.png"], list(DERIVED_FILES[2:])),
        ("Datapath/masks/slices", ["Datapath/masks/slices"]),
        ("./Datapath//masks/1.nii.gz#key[3]", ["Datapath/masks/1.nii.gz"]),
    ],
)
def test_what_scripts_made_is_copied_and_named_as_before(place: Path, mask: Any, derived: list[str]) -> None:
    labels = {"a": 1, "b": 2} if isinstance(mask, dict) else None
    train = [record("data/x/1.png", {"a": "data/x/m2.png"})] if isinstance(mask, dict) else None
    assert frozen(place, record("data/x/2.png", mask), labels=labels, train=train) == []
    lock_index(place / "frozen", place / "locked", "segmentation")
    index = read_index(place / "locked", "segmentation")
    assert list_derived_files(index.test) == derived
    for path in (*index.test[0].files, *index.test[0].targets):
        assert (place / "locked" / path).exists()
    before = digest_derived_files(place / "locked", derived)
    for path in derived:
        for file in [p for p in (place / "work" / path, *(place / "work" / path).rglob("*")) if p.is_file()]:
            file.write_bytes(b"other")
    assert digest_derived_files(place / "locked", derived) == before, "later changes of a script do not reach the copy"
    assert not (place / "frozen").exists()


def test_a_change_of_a_copy_shows(place: Path) -> None:
    frozen(place, record("data/x/2.png", "Datapath/masks/slices"))
    hashes = lock_index(place / "frozen", place / "locked", "segmentation")
    assert digest_derived_files(place / "locked", ["Datapath/masks/slices"]) == hashes["made"]
    (place / "locked/Datapath/masks/slices/1.png").unlink()
    assert digest_derived_files(place / "locked", ["Datapath/masks/slices"]) != hashes["made"]


def test_keys_that_the_schema_does_not_know_are_left_out_and_said(place: Path) -> None:
    answers = {f"answer{n}": n for n in range(9)}
    notes = frozen(place, record("data/x/2.png", "data/x/m2.png", note="x"),
                   train=[record("data/x/1.png", "data/x/m2.png", **answers)])  # fmt: skip
    assert "'answer0', 'answer1'" in notes[0]
    assert notes[0].startswith(TRAIN)
    assert "'note'" in notes[1]
    for name in (TRAIN, TEST):
        assert set(json.loads((place / "frozen" / name).read_text())[0]) == {"image_path", "mask_path", "patient"}


def test_training_gets_patients_under_invented_names_in_the_same_order(place: Path) -> None:
    train = [record("data/x/2.png", "data/x/m2.png") | {"patient": "zoe, ill: data/x/9.png"},
             record("data/x/1.png", "data/x/m2.png") | {"patient": "adam"}]  # fmt: skip
    frozen(place, record("data/x/series", "data/x/m2.png"), train=train)
    rows = json.loads(b"".join(serialize_training_index(read_index(place / "frozen", "segmentation"))[TRAIN]))
    assert [row["patient"] for row in rows] == ["p0002", "p0001"]
    assert [row["image_path"] for row in rows] == ["data/x/2.png", "data/x/1.png"]


def test_patients_whom_nobody_knows_stay_unknown_to_training(place: Path) -> None:
    train = [record("data/x/2.png", "data/x/m2.png") | {"patient": "unknown-7"},
             record("data/x/1.png", "data/x/m2.png") | {"patient": "adam"}]  # fmt: skip
    frozen(place, record("data/x/series", "data/x/m2.png"), train=train)
    rows = json.loads(b"".join(serialize_training_index(read_index(place / "frozen", "segmentation"))[TRAIN]))
    assert [row["patient"] for row in rows] == ["unknown-0002", "p0001"]


def test_a_link_into_the_raw_data_becomes_a_copy(place: Path) -> None:
    (place / "work/Datapath/link.png").symlink_to(place / "raw/2.png")
    (place / "work/Datapath/series").symlink_to(place / "raw/series")
    frozen(place, record("Datapath/link.png", "data/x/m2.png"), record("Datapath/series", "data/x/m2.png"))
    copy = place / "frozen/Datapath/link.png"
    assert not copy.is_symlink()
    assert copy.read_bytes() == b"raw/2.png"
    assert (place / "frozen/Datapath/series/a.png").read_bytes() == b"raw/series/a.png"


@pytest.mark.parametrize("kind", ["link", "folder", "inside", "fifo", "own"])
def test_what_leads_elsewhere_is_refused(place: Path, kind: str) -> None:
    datapath, path = place / "work/Datapath", "Datapath/odd.png"
    if kind == "link":
        (datapath / "odd.png").symlink_to(place / "outside/secret.png")
    elif kind == "folder":
        (datapath / "odd").symlink_to(place / "outside")
        path = "Datapath/odd/secret.png"
    elif kind == "inside":
        (datapath / "masks/slices/3.png").symlink_to(place / "outside/secret.png")
        path = "Datapath/masks/slices"
    elif kind == "fifo":
        os.mkfifo(datapath / "odd.png")
    else:
        path = "model/odd.png"
    with pytest.raises(DataError, match="m3b uses" if kind == "own" else "link to somewhere else"):
        frozen(place, record(path, "data/x/m2.png"))
    copies = [file for file in (place / "frozen").rglob("*") if file.is_file()]
    assert not any(file.read_bytes() == b"outside/secret.png" for file in copies)


@pytest.mark.parametrize("name", [TRAIN, TEST, LABELS])
def test_an_index_file_that_is_a_link_is_refused(place: Path, name: str) -> None:
    frozen(place, record("data/x/2.png", "data/x/m2.png"))
    (place / "work" / name).rename(place / "elsewhere.json")
    (place / "work" / name).symlink_to(place / "elsewhere.json")
    with pytest.raises(DataError, match=f"{name} cannot be taken"):
        freeze_index(place / "work", place / "frozen", {"x": place / "raw"}, "segmentation")


def test_a_header_takes_its_data_along(place: Path) -> None:
    (place / "work/Datapath/v.mhd").write_text("NDims = 2\nElementDataFile = v.raw\n")
    (place / "work/Datapath/v.raw").write_bytes(b"voxels")
    frozen(place, record("Datapath/v.mhd", "data/x/m2.png"))
    assert (place / "frozen/Datapath/v.raw").read_bytes() == b"voxels"
    (place / "work/Datapath/v.mhd").write_text("NDims = 2\nElementDataFile = ../../outside/secret.png\n")
    with pytest.raises(DataError, match="outside its folder"):
        frozen(place, record("Datapath/v.mhd", "data/x/m2.png"))
