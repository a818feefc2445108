"""Keys of remote files become local paths: inside the folder, unique, never a file and a folder at once."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.remote.key_paths import assign_paths, tells_case

HOSTILE_PARTS = st.sampled_from(
    ["", ".", "..", "a", "A", "b.nii.gz", "...", "~", " ", "\x00", "\n", "\u202e", "x" * 300, "\udcff", "\ud800", "%2e",
     "\u00df", "ss", "e\u0301", "\u00e9", "\udcc3\udca9", "-rf", ".hidden"]
)  # fmt: skip
KEYS = st.lists(HOSTILE_PARTS | st.text(max_size=12), min_size=1, max_size=6).map("/".join)


@given(keys=st.sets(KEYS, max_size=12), is_case_sensitive=st.booleans())
def test_paths_are_safe_unique_and_disjoint(keys: set[str], is_case_sensitive: bool) -> None:
    paths = assign_paths(keys, is_case_sensitive=is_case_sensitive)
    assert set(paths) == keys
    assert len(set(paths.values())) == len(keys)
    folders = {str(folder) for path in paths.values() for folder in PurePosixPath(path).parents}
    assert not folders & set(paths.values())
    for path in paths.values():
        parts = path.split("/")
        assert all(part not in ("", ".", "..") for part in parts)
        assert all("\0" not in part and len(os.fsencode(part)) <= 255 for part in parts)
    assert len({os.fsencode(path) for path in paths.values()}) == len(keys)
    if not is_case_sensitive:
        assert len({path.casefold() for path in paths.values()}) == len(keys)


@given(keys=st.lists(KEYS, max_size=8, unique=True), seed=st.randoms(use_true_random=False))
def test_the_order_of_a_listing_does_not_matter(keys: list[str], seed: object) -> None:
    shuffled_keys = sorted(keys, key=lambda key: hash((str(seed), key)))
    assert assign_paths(keys) == assign_paths(shuffled_keys)


@given(keys=st.sets(KEYS, max_size=12))
def test_the_paths_can_be_written(keys: set[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("names")
    for key, path in assign_paths(keys).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(key.encode("utf-8", "surrogatepass"))
    assert all(path.resolve().is_relative_to(folder.resolve()) for path in folder.rglob("*"))
    assert sum(path.is_file() for path in folder.rglob("*")) == len(keys)


@pytest.mark.parametrize(
    "key", ["scans/p1/ct.nii.gz", "a b/ü.png", "images/.hidden", "x/IMG_1.JPG", "..a/b..", "~user", "q?x#y"]
)
def test_ordinary_names_stay(key: str) -> None:
    assert assign_paths([key]) == {key: key}


@pytest.mark.parametrize(
    ("key", "suffix"),
    [
        ("../x.png", "/x.png"),
        ("/etc/passwd", "/etc/passwd"),
        ("a//b.nii.gz", "/b.nii.gz"),
        ("x" * 300 + ".nii.gz", ".nii.gz"),
    ],
)
def test_changed_names_keep_what_is_readable(key: str, suffix: str) -> None:
    path = assign_paths([key])[key]
    assert path != key
    assert path.endswith(suffix)


def test_a_key_that_is_a_file_and_a_folder() -> None:
    paths = assign_paths(["scan", "scan/1.dcm"])
    assert paths["scan/1.dcm"] == "scan/1.dcm"
    assert paths["scan"].startswith("scan~")


def test_keys_that_anticipate_the_hash_of_another_one() -> None:
    name = assign_paths(["scan", "scan/1.dcm"])["scan"]
    paths = assign_paths(["scan", "scan/1.dcm", f"{name}/2.dcm", name])
    assert len(set(paths.values())) == 4
    assert paths[f"{name}/2.dcm"] == f"{name}/2.dcm"
    assert paths["scan"] not in (name, paths[name])


def test_names_that_differ_in_case_only() -> None:
    assert assign_paths(["IMG.png", "img.png"]) == {"IMG.png": "IMG.png", "img.png": "img.png"}
    paths = assign_paths(["IMG.png", "img.png"], is_case_sensitive=False)
    assert paths["IMG.png"] == "IMG.png"
    assert paths["img.png"].startswith("img~")
    assert paths["img.png"].endswith(".png")


def test_the_file_system_of_a_folder_is_asked(tmp_path: Path) -> None:
    (tmp_path / "probe").touch()
    assert tells_case(tmp_path) == (not (tmp_path / "PROBE").exists())
    assert [path.name for path in tmp_path.iterdir()] == ["probe"]
