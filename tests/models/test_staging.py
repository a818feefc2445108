"""Staged test images: anonymous, shuffled, copied, and put back in order."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from m3b.dataset.reading import read_image
from m3b.errors import ModelError
from m3b.metrics import Measure, Scores
from m3b.models import StagedCases, stage_cases, staging
from m3b.models.model_card import format_metrics_section
from m3b.tasks import get_family
from m3b.tasks.score_details import add_lookup_control, mark_verbatim


def picture(file: Path, value: int) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 5), value, np.uint8)).save(file)
    return file.name


def value_of(staged: StagedCases, position: int) -> float:
    path = staged.paths[position]
    return float(read_image(path, str(staged.folder)).array.mean())


def test_names_say_nothing_and_order_comes_back(tmp_path: Path) -> None:
    names = [picture(tmp_path / f"raw/{'sick' if i % 2 else 'well'}_{i}.png", i) for i in range(40)]
    staged = stage_cases([f"raw/{name}" for name in names], tmp_path / "staged", False, base=tmp_path)
    assert sorted(map(str, staged.paths)) == [f"case_{n:04d}.png" for n in range(1, 41)]
    assert staged.order != tuple(range(40))
    values = [value_of(staged, i) for i in range(40)]
    assert staged.restore_order(values) == list(range(40))
    assert {file.stat().st_mtime for file in (tmp_path / "staged").iterdir()} == {0.0}
    again = stage_cases([f"raw/{name}" for name in names], tmp_path / "again", False, base=tmp_path)
    assert again.order != staged.order


def test_files_tell_neither_by_time_nor_by_number(tmp_path: Path) -> None:
    """Files of an archive often lie class by class: their inodes, times and order in the folder would tell the class."""
    names = [picture(tmp_path / f"raw/{i}.png", i) for i in range(40)]
    orders = []
    for attempt in range(2):
        staged = stage_cases([f"raw/{name}" for name in names], tmp_path / f"staged{attempt}", True, base=tmp_path)
        files = {path: (staged.folder / str(path)).stat() for path in staged.paths}
        sources = dict(zip(map(str, staged.paths), staged.order, strict=True))
        raw = {(tmp_path / "raw" / name).stat().st_ino for name in names}
        assert not raw & {file_stat.st_ino for file_stat in files.values()}
        assert {(file_stat.st_mtime, file_stat.st_nlink) for file_stat in files.values()} == {(0.0, 1)}
        by_listing = [name.name for name in staged.folder.iterdir()]
        by_number = sorted(files, key=lambda path: files[path].st_ino)
        by_time = sorted(files, key=lambda path: files[path].st_ctime_ns)
        orders.append([[sources[str(path)] for path in order] for order in (by_number, by_time, by_listing)])
    for first, second in zip(*orders, strict=True):
        assert first != second
        assert list(range(40)) not in (first, second)


def test_copies_hold_no_texts_or_are_named(tmp_path: Path) -> None:
    """Texts of the files told predict.py the class, although names and order did not."""
    for name in ("a.png", "b.pgm", "c/s1.jpg", "c/s2.jpg"):
        picture(tmp_path / name, 3)
        with (tmp_path / name).open("ab") as stream:
            stream.write(b"malignant")
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.write(tmp_path / "a.png", "x.png")
    cases = ["a.png", "b.pgm", ["c/s1.jpg", "c/s2.jpg"], {"t1": "a.png", "t2": "b.pgm"}, "set.zip#x.png"]
    staged = stage_cases(cases, tmp_path / "staged", True, base=tmp_path)
    assert staged.verbatim == (1, 3)
    files = [file for file in staged.folder.rglob("*") if file.is_file()]
    assert {file.suffix for file in files if b"malignant" in file.read_bytes()} == {".pgm"}
    assert {file.stat().st_mtime for file in files} == {0.0}
    rows = mark_verbatim([{"image": name} for name in "abcde"], staged.verbatim)
    scores = add_lookup_control(Scores(Measure("auroc", 0.5, 0.4, 0.6, 5), {}, (), 5, 5), rows, get_family("diagnosis"))
    assert scores.details["verbatim"] == 2
    card = "\n".join(format_metrics_section({"metrics": {"auroc": {"value": 0.5}}, "details": dict(scores.details)}))
    assert "control not possible for 2 test cases" in card


def test_every_kind_of_case(tmp_path: Path) -> None:
    for i in range(12):
        picture(tmp_path / f"volume/s{i}.png", i)
    items = np.arange(3 * 6 * 7, dtype=np.int16).reshape(3, 6, 7)
    np.savez(tmp_path / "set.npz", test_images=items)
    np.save(tmp_path / "bare.npy", items)
    (tmp_path / "scan.nii.gz").write_bytes(b"kept as it is")
    (tmp_path / "IM.1.2.840").write_bytes(b"a name that only looks like an extension")
    cases = [
        "volume",
        ["volume/s10.png", "volume/s2.png"],
        "set.npz#test_images[2]",
        "bare.npy#[1]",
        "scan.nii.gz",
        "IM.1.2.840",
    ]
    staged = stage_cases(cases, tmp_path / "staged", True, base=tmp_path)
    paths = staged.restore_order(staged.paths)
    volume = read_image(str(paths[0]), str(staged.folder)).array
    assert volume[0, 0, 0].tolist() == list(range(12))  # natural order, not s0 s1 s10
    slices = read_image(paths[1], str(staged.folder)).array
    assert slices[0, 0, 0].tolist() == [10, 2]
    for position, item in ((2, items[2]), (3, items[1])):
        loaded = np.load(staged.folder / str(paths[position]))
        assert np.array_equal(loaded, item)
        assert loaded.dtype == item.dtype
    assert str(paths[4]).endswith(".nii.gz")
    assert "." not in str(paths[5])


def test_a_header_keeps_its_data_file(tmp_path: Path) -> None:
    import SimpleITK as sitk

    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    sitk.WriteImage(sitk.GetImageFromArray(array), str(tmp_path / "patient7.mhd"))
    staged = stage_cases(["patient7.mhd"], tmp_path / "staged", False, base=tmp_path)
    assert sorted(p.suffix for p in staged.folder.iterdir()) == [".mhd", ".raw"]
    assert np.array_equal(sitk.GetArrayFromImage(sitk.ReadImage(str(staged.folder / str(staged.paths[0])))), array)
    assert "patient7" not in (staged.folder / str(staged.paths[0])).read_text()


def test_unconfined_is_never_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MIN_LINK_BYTES", 1)
    raw = tmp_path / "a.pgm"
    picture(raw, 1)
    (tmp_path / "link.pgm").symlink_to(raw)
    for confined in (False, True):
        staged = stage_cases(["link.pgm"], tmp_path / f"staged{confined}", confined, base=tmp_path)
        target = staged.folder / str(staged.paths[0])
        assert not target.is_symlink()
        assert (target.stat().st_ino == raw.stat().st_ino) is confined
    assert raw.stat().st_mtime > 0


@pytest.mark.parametrize(("max_copy_bytes", "is_link"), [(2**20, False), (0, True)])
def test_large_files_are_copies_unless_copying_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_copy_bytes: int, is_link: bool
) -> None:
    """Files from 64 MiB on were links, with the number and time of the raw file, however few they were."""
    monkeypatch.setattr(staging, "MAX_COPY_BYTES", max_copy_bytes)
    monkeypatch.setattr(staging, "clone", lambda real, target: False)
    raw = tmp_path / "a.pgm"
    picture(raw, 1)
    staged = stage_cases(["a.pgm"], tmp_path / "staged", True, base=tmp_path, defer_links=True, min_link_bytes=1)
    target = staged.folder / str(staged.paths[0])
    assert not target.exists()
    staging.place_links(staged, tmp_path)
    assert (target.stat().st_ino == raw.stat().st_ino) is is_link
    assert (target.stat().st_mtime == 0) is not is_link
    assert target.read_bytes() == raw.read_bytes()


@pytest.mark.parametrize("case", ["absent.png", "empty", "set.npz#no[0]", "set.npz#a[9]", "bad.mhd"])
def test_what_cannot_be_staged_is_named(tmp_path: Path, case: str) -> None:
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "set.npz", a=np.zeros((2, 3)))
    (tmp_path / "bad.mhd").write_text("NDims = 2\nElementDataFile = ../../secret.raw\n")
    with pytest.raises(ModelError, match="test case 0"):
        stage_cases([case], tmp_path / "staged", False, base=tmp_path)


def test_folder_must_be_empty(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 1)
    with pytest.raises(ModelError, match="not empty"):
        stage_cases(["a.png"], tmp_path, False, base=tmp_path)


@given(st.permutations(range(9)))
def test_restore_inverts_any_order(order: list[int]) -> None:
    staged = StagedCases(Path("x"), tuple(map(str, order)), tuple(order))
    assert staged.restore_order([f"result {i}" for i in order]) == [f"result {i}" for i in range(9)]
    with pytest.raises(ModelError, match="8 results for 9"):
        staged.restore_order(order[:-1])


def test_items_of_archives_tables_and_stores_are_staged_alone(tmp_path: Path) -> None:
    import zipfile

    import pyarrow
    import pyarrow.parquet

    for value in range(3):
        picture(tmp_path / f"raw/ill_{value}.png", value)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for value in range(3):
            archive.write(tmp_path / f"raw/ill_{value}.png", f"ill/{value}.png")
    cells = [
        {"bytes": (tmp_path / f"raw/ill_{value}.png").read_bytes(), "path": f"ill_{value}.png"} for value in range(3)
    ]
    pyarrow.parquet.write_table(pyarrow.table({"image": cells, "label": [0, 1, 1]}), tmp_path / "t.parquet")
    cases = ["a.zip#ill/2.png", "t.parquet#image[1]"]
    staged = stage_cases(cases, tmp_path / "staged", True, base=tmp_path)
    assert staged.restore_order([value_of(staged, i) for i in range(2)]) == [2, 1]
    assert sorted(file.name for file in (tmp_path / "staged").iterdir()) == ["case_0001.png", "case_0002.png"]


@pytest.mark.parametrize("has_axes", [True, False])
def test_an_array_of_a_zarr_store_comes_without_the_others(tmp_path: Path, *, has_axes: bool) -> None:
    zarr = pytest.importorskip("zarr")
    for number in range(3):
        group = zarr.open_group(str(tmp_path / f"raw/x{number}.zarr"), mode="w", zarr_format=2)
        group.create_array("0", data=np.full((9, 11, 12), number, np.uint8))
        group.create_array("answer", data=np.full((9, 11, 12), 77, np.uint8))
        group.attrs["sick"] = number
        if has_axes:
            axes = [{"name": name, "type": "space", "unit": "millimeter"} for name in "zyx"]
            scale = {"type": "scale", "scale": [3.0, 2.0, 1.0]}
            datasets = [{"path": "0", "coordinateTransformations": [scale]}]
            group.attrs["multiscales"] = [{"axes": axes, "datasets": datasets}]
    staged = stage_cases([f"raw/x{number}.zarr#0" for number in range(3)], tmp_path / "staged", False, base=tmp_path)
    assert sorted(value_of(staged, place) for place in range(3)) == [0, 1, 2]
    spacings = {read_image(path, str(staged.folder)).spacing for path in staged.paths}
    assert spacings == {(2.0, 1.0, 3.0) if has_axes else None}
    files = [file for file in staged.folder.rglob("*") if file.is_file()]
    assert not any("answer" in str(file) or b"sick" in file.read_bytes() for file in files)
