"""Cases of several images: named channels in index files, read onto one grid, staged and asked for by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from m3b.data.index import Index, read_records
from m3b.data.records import Channels, Record, plain, relocated
from m3b.dataset.audit import audit_index
from m3b.dataset.formats import parse_cases, select_channels
from m3b.dataset.reading import geometry, read_image, read_mask, write_mask
from m3b.dataset.view import needed_files_of
from m3b.errors import DataError
from m3b.models.predict_process import parse_predictions
from m3b.models.staging import stage_cases

NAMES = st.lists(
    st.text(st.characters(blacklist_characters="=", blacklist_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=8),
    min_size=1, max_size=5, unique=True,
)  # fmt: skip


def ramp(file: Path, shape: Sequence[int], affine: np.ndarray) -> str:
    """A volume whose value is its place: x + 2 y + 3 z, in mm."""
    grid = np.stack([*np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"), np.ones(shape)])
    x, y, z, _ = np.tensordot(affine, grid, 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image((x + 2 * y + 3 * z).astype(np.float32), affine), file)
    return file.name


def write_train_file(folder: Path, *records: dict[str, Any]) -> Path:
    file = folder / "train.json"
    file.write_text(json.dumps(list(records)))
    return file


# --- index files --------------------------------------------------------------------------------------------------


@given(NAMES)
def test_channels_keep_their_names_and_order(names: list[str]) -> None:
    image = Channels(tuple((name, f"data/x/{place}.nii") for place, name in enumerate(names)))
    assert list(plain(image)) == list(image) == names
    assert Channels(tuple(json.loads(json.dumps(plain(image))).items())) == image
    assert len({image, Channels(image.pairs)}) == 1, "records are hashable"
    moved = relocated(image, lambda path: f"/root/{path}")
    assert list(moved) == names
    assert all(path.startswith("/root/data/x/") for path in moved.values())


def test_an_index_of_channels_is_read_back(tmp_path: Path) -> None:
    paths = {"flair": "data/x/f.nii", "t1": "data/x/t.npz#t1[3]"}
    [record] = read_records(write_train_file(tmp_path, {"image_path": paths, "labels": ["a"], "patient": "p"}))
    assert record.channels == ("flair", "t1")
    assert record.reference == paths
    assert record.files == ("data/x/f.nii", "data/x/t.npz")
    assert needed_files_of([record], tmp_path).archives == {"data/x/t.npz": {"t1": {3}}}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"t1": "c.nii", "flair": "d.nii"}, "same order"),
        ({"t2": "c.nii"}, "found flair, t1, and t2"),
        ("c.nii", "no named channels"),
        ({"flair": "c.nii", "t1": ""}, "one path a channel"),
        ({"flair": "c.nii", "t=1": "d.nii"}, "no ="),
        ({}, "one path a channel"),
    ],
)
def test_channels_that_do_not_fit_together_are_named(tmp_path: Path, second: Any, words: str) -> None:
    first = {"image_path": {"flair": "a.nii", "t1": "b.nii"}, "labels": ["a"], "patient": "p"}
    with pytest.raises(DataError, match=words):
        read_records(write_train_file(tmp_path, first, {**first, "image_path": second}))


# --- reading ------------------------------------------------------------------------------------------------------


def test_channels_of_one_grid_are_put_together_as_they_are(tmp_path: Path) -> None:
    paths = {name: ramp(tmp_path / f"{name}.nii", (6, 5, 4), np.diag([2.0, 1.0, 3.0, 1.0])) for name in ("flair", "t1")}
    image = read_image(paths, str(tmp_path))
    assert image.array.shape == (2, 5, 6, 4)
    assert np.array_equal(image.array[0], read_image("flair.nii", str(tmp_path)).array[0])
    assert image.spacing == (1.0, 2.0, 3.0)
    assert image.channels == (("", False), ("", False))


@pytest.mark.parametrize("flip", [1.0, -1.0])
def test_other_grids_are_resampled_to_the_first(tmp_path: Path, flip: float) -> None:
    """Spacing, place and direction of axes differ; values are linear in space, so each channel must show the same."""
    fine, coarse = np.diag([1.0, 1.0, 1.0, 1.0]), np.diag([2.0 * flip, 1.5, 3.0, 1.0])
    coarse[:3, 3] = [-4 if flip > 0 else 22, -3, -5]
    paths = {
        "flair": ramp(tmp_path / "f.nii", (12, 10, 8), fine),
        "t1": ramp(tmp_path / "t.nii", (14, 12, 8), coarse),
    }
    first, second = read_image(paths, str(tmp_path)).array
    assert np.allclose(first, second, atol=1e-3)
    back = read_image({"t1": paths["t1"], "flair": paths["flair"]}, str(tmp_path)).array
    assert back.shape == (2, 12, 14, 8), "the grid is that of the first"
    assert geometry({"t1": paths["t1"], "flair": paths["flair"]}, str(tmp_path)).shape == (12, 14, 8)


def test_what_cannot_be_brought_together_is_refused_by_name(tmp_path: Path) -> None:
    for name, size in (("small", (8, 8)), ("large", (16, 16))):
        Image.fromarray(np.arange(np.prod(size), dtype=np.uint8).reshape(size)).save(tmp_path / f"{name}.png")
    with pytest.raises(DataError, match=r"channel b \(large.png\).*nothing says how they lie"):
        read_image({"a": "small.png", "b": "large.png"}, str(tmp_path))
    colours = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    Image.fromarray(colours).save(tmp_path / "colour.png")
    with pytest.raises(DataError, match=r"channel b \(colour.png\): has 3 channels itself"):
        read_image({"a": "small.png", "b": "colour.png"}, str(tmp_path))
    far = np.eye(4)
    far[:3, 3] = 500
    paths = {"a": ramp(tmp_path / "a.nii", (6, 6, 6), np.eye(4)), "b": ramp(tmp_path / "b.nii", (6, 6, 6), far)}
    with pytest.raises(DataError, match="lies outside the first channel"):
        read_image(paths, str(tmp_path))


def test_masks_are_written_on_the_grid_of_the_first_channel(tmp_path: Path) -> None:
    turned = np.diag([-1.0, 1.0, 2.0, 1.0])
    paths = {"a": str(tmp_path / ramp(tmp_path / "a.nii", (6, 5, 4), turned)), "b": str(tmp_path / "a.nii")}
    mask = np.zeros((5, 6, 4), np.uint8)
    mask[1, 2, 3] = 1
    file = write_mask(mask, paths, tmp_path / "mask")
    assert np.allclose(nib.load(file).affine, turned)
    assert np.array_equal(read_mask(str(file)).array, mask)


# --- asked of a model ---------------------------------------------------------------------------------------------


def test_a_model_gets_its_channels_in_its_own_order() -> None:
    assert list(select_channels({"t1": "b", "flair": "a"}, ["flair", "t1"]).items()) == [("flair", "a"), ("t1", "b")]
    assert select_channels("a.png", None) == "a.png"
    assert select_channels({"t1": "b"}, ["flair", "t1"]) == {"t1": "b"}


@pytest.mark.parametrize(
    ("path", "names", "words"),
    [
        ({"flair": ""}, ["flair", "t1"], "none of the channels flair, t1"),
        ({"flair": "a", "t1": "b", "t2": "c"}, ["flair", "t1"], "no channel t2"),
        ("a.nii", ["flair", "t1"], "2 images a case, by name: flair=PATH t1=PATH"),
        (["a.png", "b.png"], ["flair", "t1"], "by name"),
        ({"flair": "a"}, None, "one image a case"),
    ],
)
def test_a_case_with_other_channels_is_refused_by_name(path: Any, names: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        select_channels(path, names)


def test_cases_on_a_command_line() -> None:
    assert parse_cases(["a.png", "x=y.png"], None) == ["a.png", "x=y.png"]
    words = ["flair=1f.nii", "t1=1=t.nii", "t1=2t.nii", "flair=2f.nii"]
    assert parse_cases(words, ["flair", "t1"]) == [
        {"flair": "1f.nii", "t1": "1=t.nii"}, {"t1": "2t.nii", "flair": "2f.nii"}
    ]  # fmt: skip
    with pytest.raises(DataError, match="by name"):
        parse_cases(["a.nii"], ["flair", "t1"])


def test_staged_channels_keep_their_names_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "raw/series").mkdir(parents=True)
    for number in range(3):
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(tmp_path / f"raw/series/patient_ill_{number}.png")
    ramp(tmp_path / "raw/flair_ill.nii.gz", (4, 4, 3), np.eye(4))
    case = {"flair": "raw/flair_ill.nii.gz", "t1": "raw/series"}
    staged = stage_cases([case], tmp_path / "staged", False, base=tmp_path)
    [paths] = staged.paths
    assert isinstance(paths, dict)
    assert list(paths) == ["flair", "t1"]
    assert not any("ill" in str(file) for file in (tmp_path / "staged").rglob("*"))
    read = read_image(paths, str(staged.folder)).array
    assert np.array_equal(read[0], read_image(case["flair"], str(tmp_path)).array[0])
    assert read[1, 0, 0].tolist() == [0, 1, 2]
    answer = {"image": paths, "probabilities": {"a": 0.5, "b": 0.5}, "prediction": "a"}
    assert parse_predictions([answer], [paths], ["a", "b"])[0].image == Channels(tuple(paths.items()))


# --- audit --------------------------------------------------------------------------------------------------------


def test_named_channels_pass_the_audit_where_four_axes_are_warned_of(tmp_path: Path) -> None:
    """The names say that they are channels and not time."""
    random, records = np.random.default_rng(0), []
    for case in range(12):
        paths = []
        for name in ("flair", "t1"):
            file = tmp_path / f"data/x/{name}_{case}.nii"
            file.parent.mkdir(parents=True, exist_ok=True)
            nib.save(nib.Nifti1Image(random.normal(size=(6, 6, 6)).astype(np.float32), np.eye(4)), file)
            paths.append((name, f"data/x/{file.name}"))
        records.append(Record(Channels(tuple(paths)), labels=("ab"[case % 2],), patient=f"p{case}"))
    audit = audit_index(Index(tuple(records[:8]), tuple(records[8:]), ("a", "b")), tmp_path)
    assert {finding.code for finding in audit.findings} == {"small_test"}
    assert audit.opened == 12
