"""The walk: regular files in natural order, everything else as notes, one fingerprint."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.walk import sort_naturally, walk


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def test_paths_are_in_natural_order(tmp_path: Path) -> None:
    touch(tmp_path, "b/s10.png", "b/s9.png", "a10/x.png", "a9/x.png", "top.txt")
    assert walk(tmp_path).paths == ["top.txt", "a9/x.png", "a10/x.png", "b/s9.png", "b/s10.png"]


def _reference_key(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split("([0-9]+)", name) if part]


@given(st.lists(st.from_regex(r"[a-c]{1,2}_[0-9]{1,4}", fullmatch=True), max_size=30, unique=True))
def test_natural_order_equals_a_plain_reference(names: list[str]) -> None:
    expected = sorted(sorted(names), key=_reference_key)
    values = [int(name.split("_")[1]) for name in names]
    if len({(name.split("_")[0], value) for name, value in zip(names, values, strict=True)}) == len(names):
        assert sort_naturally(names) == expected


def test_long_lists_of_names_are_sorted_like_short_ones() -> None:
    names = [f"s{number}" for number in range(5_000)]
    assert sort_naturally(names[::-1]) == names


def test_what_is_no_regular_file_is_a_note(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", ".hidden", "__MACOSX/a.png", "Thumbs.db", "sub/.DS_Store")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty.png").write_bytes(b"")
    inventory = walk(tmp_path)
    assert inventory.paths == ["a.png", "empty.png"]
    assert inventory.counts == {"empty": 1, "link": 2, "special": 1, "stray": 4}
    assert inventory.notes["link"] == ("link.png", "loop")


def test_names_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    with open(os.fsencode(tmp_path) + b"/b\xff.png", "wb"):
        pass
    inventory = walk(tmp_path)
    assert inventory.paths == ["a.png"]
    assert inventory.undecodable == ("b\udcff.png",)
    assert inventory.counts["undecodable"] == 1


def test_depth_and_number_of_files_are_limited(tmp_path: Path) -> None:
    touch(tmp_path, *(f"f{number}.png" for number in range(9)), "a/b/c/d.png")
    inventory = walk(tmp_path, SurveyLimits(files=4, depth=1))
    assert len(inventory.paths) == 4
    assert inventory.counts == {"cut_off": 5, "deep": 1}


def test_a_zarr_store_is_one_path(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.zarr/.zgroup", "a/x.zarr/image/0.0", "y.zarr/zarr.json", "z.zarr/0.0", "b.png")
    inventory = walk(tmp_path)
    assert inventory.paths == ["b.png", "a/x.zarr", "y.zarr", "z.zarr/0.0"]
    fingerprint = inventory.fingerprint
    (tmp_path / "a/x.zarr/image/0.0").write_bytes(b"longer than before")
    assert walk(tmp_path).fingerprint != fingerprint


def test_the_fingerprint_changes_with_names_sizes_and_times(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b/c.png")
    first = walk(tmp_path).fingerprint
    assert walk(tmp_path).fingerprint == first
    os.utime(tmp_path / "a.png", (1, 1))
    second = walk(tmp_path).fingerprint
    (tmp_path / "a.png").rename(tmp_path / "d.png")
    assert len({first, second, walk(tmp_path).fingerprint}) == 3


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        walk(tmp_path / "none")
