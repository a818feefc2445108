"""The view of training cases: their files and nothing else, archives with the items of other cases zeroed."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from m3b.data.records import Record
from m3b.dataset import view
from m3b.dataset.archive_subsets import runs, write_subset
from m3b.dataset.formats import get_format
from m3b.dataset.reading import read_image
from m3b.dataset.view import NeededFiles, ViewCounts, make_view, needed_files_of, place_file, shared_files
from m3b.errors import DataError

ITEMS = np.arange(6 * 5 * 7, dtype=np.int16).reshape(6, 5, 7) + 1


def picture(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((6, 5), 7, np.uint8)).save(file)


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def make(records: list[Record], base: Path, *, link: bool = True) -> tuple[ViewCounts, Path]:
    target = base.parent / "view"
    counts = make_view(needed_files_of(records, base), base, lambda path: target / path, link=link)
    return counts, target


def test_files_folders_lists_and_headers_of_the_cases_alone(tmp_path: Path) -> None:
    base = tmp_path / "base"
    for name in ("a.png", "test.png", "s/1.png", "s/2.png", "l/1.png", "l/2.png", "l/3.png", "m/a.png"):
        picture(base / name)
    (base / "s/labels.csv").write_text("what every case has")
    (base / "s/.hidden.png").write_bytes(b"x")
    (base / "v.mhd").write_text("NDims = 2\nElementDataFile = v.raw\n")
    (base / "v.raw").write_bytes(b"voxels")
    (base / "other.raw").write_bytes(b"voxels")
    records = [
        Record("a.png", mask="m/a.png"),
        Record("s"),
        Record(("l/1.png", "l/3.png")),
        Record("v.mhd"),
    ]
    counts, target = make(records, base)
    assert files_below(target) == [
        "a.png", "l/1.png", "l/3.png", "m/a.png", "s/1.png", "s/2.png", "v.mhd", "v.raw",
    ]  # fmt: skip
    assert counts.linked == 8
    assert (target / "a.png").stat().st_ino == (base / "a.png").stat().st_ino


def test_without_links_nothing_leads_back_to_the_raw_file(tmp_path: Path) -> None:
    picture(tmp_path / "base/a.png")
    counts, target = make([Record("a.png")], tmp_path / "base", link=False)
    assert counts.linked == 0
    assert (target / "a.png").stat().st_ino != (tmp_path / "base/a.png").stat().st_ino
    assert (target / "a.png").read_bytes() == (tmp_path / "base/a.png").read_bytes()


@pytest.mark.parametrize("error", [PermissionError(1, "protected"), OSError(18, "other file system")])
def test_where_links_are_refused_files_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    picture(tmp_path / "base/a.png")

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(os, "link", refuse)
    counts, target = make([Record("a.png")], tmp_path / "base")
    assert (counts.linked, counts.copied + counts.cloned) == (0, 1)
    assert (target / "a.png").read_bytes() == (tmp_path / "base/a.png").read_bytes()


def test_no_room_is_said_before_anything_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "base/a.png")
    monkeypatch.setattr(view, "clone", lambda real, target: False)
    monkeypatch.setattr(view.shutil, "disk_usage", lambda place: _Usage())
    with pytest.raises(DataError, match="Choose an --out on the file system of the data"):
        make([Record("a.png")], tmp_path / "base", link=False)


class _Usage:
    free = 1


def test_raw_files_behind_links_come_as_files(tmp_path: Path) -> None:
    picture(tmp_path / "base/store/1.png")
    (tmp_path / "base/a.png").symlink_to("store/1.png")
    _, target = make([Record("a.png")], tmp_path / "base")
    assert not (target / "a.png").is_symlink()


# --- archives -----------------------------------------------------------------------------------------------------


def write(file: Path, arrays: dict[str, Any]) -> None:
    if file.suffix == ".npy":
        np.save(file, arrays["images"])
    elif file.suffix == ".npz":
        np.savez_compressed(file, **arrays)
    elif file.suffix == ".h5":
        with h5py.File(file, "w") as out:
            for name, value in arrays.items():
                out.create_dataset(name, data=value, chunks=(1, *value.shape[1:]), compression="gzip")
            out.attrs["answers"] = "0 1 1 0"
    elif file.suffix == ".mat":
        matlab(file, arrays)
    elif file.suffix == ".pkl":
        file.write_bytes(pickle.dumps(arrays))
    elif file.suffix == ".zarr":
        import zarr

        group = zarr.open_group(str(file), mode="w", zarr_format=2)
        for name, value in arrays.items():
            group.create_array(name, data=value)
        group.attrs["answers"] = "0 1 1 0"
    else:
        import torch

        torch.save({name: torch.from_numpy(value) for name, value in arrays.items()}, file)


def matlab(file: Path, arrays: dict[str, Any]) -> None:
    """As MATLAB 7.3 writes it: a header, and HDF5 with the axes in reverse; items last in MATLAB are first here."""
    with h5py.File(file, "w", userblock_size=512) as out:
        for name, value in arrays.items():
            out[name] = value.swapaxes(-1, -2) if value.ndim > 1 else value
    with file.open("r+b") as out:
        out.write(b"MATLAB 7.3 MAT-file".ljust(116) + b"\0" * 8 + b"\0\2IM")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".pkl", ".pt", ".mat", ".zarr"])
def test_items_of_other_cases_are_zero_and_other_keys_gone(tmp_path: Path, suffix: str) -> None:
    base = tmp_path / "base"
    base.mkdir()
    write(base / f"all{suffix}", {"images": ITEMS, "labels": np.array([1, 0, 1, 0, 1, 1])})
    key = "" if suffix == ".npy" else "images"
    train = [Record(f"all{suffix}#{key}[{n}]") for n in (0, 2, -2)]
    counts, target = make(train, base)
    assert counts.rewritten == 1
    for number, item in enumerate(ITEMS):
        view_array = read_image(f"all{suffix}#{key}[{number}]", str(target)).array
        raw_array = read_image(f"all{suffix}#{key}[{number}]", str(base)).array
        assert view_array.dtype == raw_array.dtype
        assert np.array_equal(view_array, raw_array if number in (0, 2, 4) else np.zeros_like(raw_array)), item[0, 0]
    if suffix != ".npy":
        with pytest.raises(DataError, match="has no array 'labels'"):
            read_image(f"all{suffix}#labels[0]", str(target))
    if suffix == ".h5":
        with h5py.File(target / "all.h5") as out:
            assert not out.attrs
    assert b"answers" not in b"".join(file.read_bytes() for file in target.rglob(".z*") if file.is_file())


def test_an_archive_of_training_cases_alone_is_linked(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    write(base / "case.npz", {"image": ITEMS, "mask": ITEMS})
    counts, _ = make([Record("case.npz#image", mask="case.npz#mask")], base)
    assert (counts.linked, counts.rewritten) == (1, 0)


def test_chunks_of_several_items_are_taken_apart(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as out:
        out.create_dataset("x/images", data=ITEMS, chunks=(4, 5, 7), compression="gzip", shuffle=True)
        out.create_dataset("plain", data=ITEMS)
    assert write_subset(tmp_path / "a.h5", tmp_path / "b.h5", {"x/images": {1, 5}, "plain": None})
    with h5py.File(tmp_path / "b.h5") as out:
        assert np.array_equal(np.flatnonzero(out["x/images"][:].any(axis=(1, 2))), [1, 5])
        assert np.array_equal(out["plain"][:], ITEMS)


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_rows_and_columns_of_matlab_files_are_where_matlab_has_them(tmp_path: Path, version: str) -> None:
    from scipy.io import savemat

    image = np.arange(24 * 36, dtype=np.int16).reshape(24, 36)
    if version == "5":
        savemat(tmp_path / "a.mat", {"scan": image, "who": "Doe", "more": {"deep": image}})
    else:
        matlab(tmp_path / "a.mat", {"more/scan": image})
    key = "scan" if version == "5" else "more/scan"
    assert np.array_equal(read_image(f"a.mat#{key}", str(tmp_path)).array[0], image)
    assert np.array_equal(read_image("a.mat", str(tmp_path)).array[0], image), "the only array needs no name"


def test_an_item_that_is_not_there_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ITEMS)
    with pytest.raises(DataError, match=r"a\.npy: cannot be taken apart: item 9 of 6"):
        write_subset(tmp_path / "a.npy", tmp_path / "b.npy", {"": {9}})


@given(st.sets(st.integers(0, 40)))
def test_runs_are_the_items_again(items: set[int]) -> None:
    spans = runs(items)
    assert {item for first, last in spans for item in range(first, last)} == items
    assert all(second[0] > first[1] for first, second in itertools.pairwise(spans))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 5), min_size=1), st.sampled_from([".npy", ".npz", ".h5", ".pkl", ".mat"]))
def test_any_choice_of_items(tmp_path: Path, items: set[int], suffix: str) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))  # HDF5 files stay open, so each example has its own
    source, target = place / f"s{suffix}", place / f"t{suffix}"
    write(source, {"images": ITEMS})
    if not write_subset(source, target, {"": set(items)}):
        assert items == set(range(6))
        return
    for number in range(6):
        array = read_image(f"{target.name}#[{number}]", str(place)).array
        assert bool(array.any()) is (number in items)


# --- files that cannot be told apart --------------------------------------------------------------------------------


def test_files_of_both_sides_are_named() -> None:
    training_files = NeededFiles(frozenset({"a", "b"}), {"n.npz": {"x": {1}}})
    assert shared_files(training_files, NeededFiles(frozenset({"b"}), {"n.npz": {"x": {2}}})) == ["b"]
    assert shared_files(training_files, NeededFiles(frozenset({"n.npz"}), {"a": {"": {0}}})) == ["a", "n.npz"]


def test_a_folder_and_a_file_in_it_meet(tmp_path: Path) -> None:
    for name in ("s/1.png", "s/2.png"):
        picture(tmp_path / name)
    assert shared_files(needed_files_of([Record("s")], tmp_path), needed_files_of([Record("s/2.png")], tmp_path)) == [
        "s/2.png"
    ]


def test_a_header_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.nhdr").write_text("NRRD0004\ndata file: ../secret.raw\n")
    with pytest.raises(DataError, match="outside its folder"):
        needed_files_of([Record("v.nhdr")], tmp_path)


def test_a_pattern_and_a_list_of_data_files(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"v{number:03d}.raw").write_bytes(b"x")
    (tmp_path / "p.mhd").write_text("ElementDataFile = v%03d.raw 1 3 1\n")
    (tmp_path / "l.mhd").write_text("ElementDataFile = LIST\nv001.raw\nv003.raw\n")
    assert needed_files_of([Record("p.mhd")], tmp_path).files == {"p.mhd", "v001.raw", "v002.raw", "v003.raw"}
    assert needed_files_of([Record("l.mhd")], tmp_path).files == {"l.mhd", "v001.raw", "v003.raw"}


def test_put_says_which_way_it_went(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    counts = ViewCounts()
    place_file(tmp_path / "a", tmp_path / "b", counts, link=True)
    place_file(tmp_path / "a", tmp_path / "c", counts, link=False)
    assert counts.linked == 1
    assert counts.cloned + counts.copied == 1


# --- archives of files, and tables ---------------------------------------------------------------------------------


def png(value: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((4, 5), value, np.uint8)).save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_members_of_other_cases_are_left_out(tmp_path: Path, suffix: str) -> None:
    base = tmp_path / "base"
    base.mkdir()
    members = {"a/0.png": png(0), "a/1.png": png(1), "b/0.png": png(2), "b/0.txt": b"Doe", "c.mhd": b"", "c.raw": b"0"}
    if suffix == ".zip":
        with zipfile.ZipFile(base / "x.zip", "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(base / "x.tar.gz", "w:gz") as shard:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))
    counts, place = make([Record(f"x{suffix}#a/1.png"), Record(f"x{suffix}#c.mhd")], base)
    assert counts.rewritten == 1
    assert get_format(place / f"x{suffix}").items(place / f"x{suffix}") == ("a/1.png", "c.mhd")
    assert read_image(f"x{suffix}#a/1.png", str(place)).array.max() == 1
    with pytest.raises(DataError, match="no such file"):
        read_image(f"x{suffix}#a/0.png", str(place))


def test_rows_of_other_cases_are_black_and_labels_are_left_out(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    cells = [{"bytes": png(value), "path": f"Doe_{value}.png"} for value in range(4)]
    pyarrow.parquet.write_table(pyarrow.table({"image": cells, "label": [0, 1, 1, 0]}), base / "t.parquet")
    counts, place = make([Record("t.parquet#image[2]")], base)
    assert counts.rewritten == 1
    assert read_image("t.parquet#image[2]", str(place)).array.shape == (1, 4, 5)
    assert read_image("t.parquet#image[1]", str(place)).array.tolist() == [[[0]]]
    assert pyarrow.parquet.read_table(place / "t.parquet").column_names == ["image"]
    assert b"Doe_1" not in (place / "t.parquet").read_bytes()


def test_all_chunks_of_a_store_come_along(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    base = tmp_path / "base"
    base.mkdir()
    store = zarr.open_array(str(base / "v.zarr"), mode="w", shape=ITEMS.shape, chunks=(2, 5, 7), dtype=ITEMS.dtype)
    store[:] = ITEMS
    _, place = make([Record("v.zarr")], base)
    assert np.array_equal(read_image("v.zarr", str(place)).array, read_image("v.zarr", str(base)).array)
