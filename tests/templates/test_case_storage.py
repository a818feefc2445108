"""Storages of preprocessed cases: memory maps, compressed, direct; free space, eviction, fingerprints."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from m3b.training import cache, case_storage, volume_cache
from m3b.training.augment_masks import cut_block
from m3b.training.case_storage import CacheRoom, CompressedArray, Storage, choose_storage, compress, fingerprint_files
from m3b.training.detection.dataset import cut_image
from m3b.training.segmentation.dataset import CachedMasks

PLAN: dict[str, Any] = {
    "dims": 3, "channels": 1, "spacing": [1.0, 1.0, 1.0], "intensity": {"mode": "percentile"}, "classes": ["a", "b"],
    "labels": {"a": 1, "b": 2}, "overlap": False, "workers": 1,
}  # fmt: skip


def write_record(folder: Path, name: str, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    mask = np.zeros((20, 18, 16), np.uint8)
    mask[2:9, 3:8, 4:9], mask[12:15, 10:14, 5:12] = 1, 2
    image = rng.normal(0, 1, mask.shape).astype(np.float32) + mask
    for suffix, array in (("", image), ("_mask", mask)):
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), folder / f"{name}{suffix}.nii.gz")
    return {"image_path": f"{name}.nii.gz", "mask_path": f"{name}_mask.nii.gz", "patient": name}


def build(folder: Path, records: list[dict[str, Any]], **settings: Any) -> volume_cache.Volumes:
    return volume_cache.build_volumes(records, {**PLAN, **settings}, folder / "cache", str(folder))


def sizes(folder: Path) -> dict[str, int]:
    """Return part of a case -> its bytes in the cache."""
    totals: dict[str, int] = {}
    for file in (folder / "cache").iterdir():
        part = file.name.partition(".")[2]
        totals[part] = totals.get(part, 0) + file.stat().st_size
    return totals


@pytest.mark.parametrize("storage", ["map", "compressed", "direct"])
def test_all_storages_give_the_same_arrays(tmp_path: Path, storage: str) -> None:
    records = [write_record(tmp_path, f"case{n}", n) for n in range(3)]
    volumes = build(tmp_path, records, cache=storage)
    for item, record in enumerate(records):
        image, mask, shape = volume_cache.prepare_case(record, PLAN, str(tmp_path))
        assert np.array_equal(np.asarray(volumes.image(item)), image)
        assert np.array_equal(volumes.image(item)[..., 3:9, 2:5, 1:8], image[..., 3:9, 2:5, 1:8])
        assert np.array_equal(np.asarray(volumes.mask(item)), mask)
        assert volumes.shape(item) == shape
        assert set(volumes.classes(item)) == {0, 1}
    stored = {"map": {"image.npy", "mask.npy"}, "compressed": {"image.b2nd", "mask.b2nd"}, "direct": set()}
    assert {part for part in sizes(tmp_path) if part.startswith(("image", "mask"))} == stored[storage]


def test_patches_are_cut_from_compressed_images_as_from_maps(tmp_path: Path) -> None:
    image = np.random.default_rng(0).normal(size=(2, 40, 50, 60)).astype(np.float32)
    (tmp_path / "image.b2nd").write_bytes(compress(image))
    stored = CompressedArray(tmp_path / "image.b2nd")
    for start, size in (((-5, 20, 40), (16, 16, 30)), ((3, 4, 5), (8, 9, 10))):
        assert np.array_equal(cut_image(stored, start, size), cut_image(image, start, size))
        assert np.array_equal(cut_block(stored, start, size, 0.5), cut_block(image, start, size, 0.5))
    assert np.array_equal(np.stack(list(stored)), image)


def test_masks_are_compressed_to_less_than_a_tenth(tmp_path: Path) -> None:
    mask = np.zeros((120, 100, 90), np.uint8)
    mask[30:60, 20:70, 40:80] = 1
    frame = compress(mask)
    (tmp_path / "mask.b2nd").write_bytes(frame)
    stored = CompressedArray(tmp_path / "mask.b2nd")
    assert len(frame) < mask.nbytes / 10
    assert np.array_equal(stored[25:35, 10:80, 35:45], mask[25:35, 10:80, 35:45])
    assert np.array_equal(np.asarray(stored) == 1, mask == 1)


@pytest.mark.parametrize(
    ("free", "storage"), [(10_000, "map"), (1_000, "map"), (999, "compressed"), (100, "compressed"), (99, "direct")]
)
def test_storage_follows_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, storage: Storage) -> None:
    room = CacheRoom(tmp_path)
    monkeypatch.setattr(CacheRoom, "free", lambda self: free)
    assert choose_storage({}, 1_000, 100, room) == storage
    assert choose_storage({"cache": "direct"}, 1_000, 100, room) == "direct"
    with pytest.raises(SystemExit, match="none"):
        choose_storage({"cache": "none"}, 1_000, 100, room)


def test_a_disk_without_room_is_read_directly_and_never_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [write_record(tmp_path, f"case{n}", n) for n in range(4)]
    monkeypatch.setenv(case_storage.GROWTH_VARIABLE, "0")
    volumes = build(tmp_path, records)
    assert "no cache" in capsys.readouterr().out
    assert not any(part.startswith(("image", "mask")) for part in sizes(tmp_path))
    expected = volume_cache.prepare_case(records[3], PLAN, str(tmp_path))[0]
    assert np.array_equal(volumes.image(3), expected)
    monkeypatch.delenv(case_storage.GROWTH_VARIABLE)
    assert np.array_equal(build(tmp_path, records).image(3), expected)
    assert sizes(tmp_path)["image.npy"] > 4 * expected.nbytes, "there is room now, so that the cases are stored"


def test_direct_reading_holds_few_cases_in_memory(tmp_path: Path) -> None:
    records = [write_record(tmp_path, f"case{n}", n) for n in range(5)]
    volumes = build(tmp_path, records, cache="direct")
    masks = CachedMasks(volumes, np.array([4, 2, 0]))
    expected = [volume_cache.prepare_case(records[n], PLAN, str(tmp_path))[1] for n in (4, 2, 0)]
    for _ in range(2):
        assert all(np.array_equal(mask, truth) for mask, truth in zip(masks, expected, strict=True))
    assert len(volumes._prepared) <= volume_cache.MAX_PREPARED_CASES


def test_cases_larger_than_the_first_do_not_exceed_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room is estimated from the first case; each case reserves its own bytes."""
    records = [write_record(tmp_path, f"case{n}", n) for n in range(3)]
    image, mask, _ = volume_cache.prepare_case(records[0], PLAN, str(tmp_path))
    monkeypatch.setattr(CacheRoom, "free", lambda self: 2 * (image.nbytes + mask.nbytes) - self._written)
    volumes = build(tmp_path, records, cache="map")
    stored = [volumes.files[item].with_name(f"{volumes.files[item].name}.image.npy").exists() for item in range(3)]
    assert stored == [True, True, False]
    assert np.array_equal(volumes.image(2), volume_cache.prepare_case(records[2], PLAN, str(tmp_path))[0])


def test_entries_of_other_settings_make_room_the_longest_unused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [write_record(tmp_path, "case", 1)]
    keys = {}
    for side in (2.0, 3.0, 4.0):
        plan = {**PLAN, "spacing": [side] * 3}
        keys[side] = volume_cache.case_keys(records, plan, str(tmp_path))[0]
        build(tmp_path, records, spacing=[side] * 3)
    monkeypatch.setattr(case_storage, "_used_keys", set())
    for order, side in enumerate((3.0, 2.0, 4.0)):
        for file in (tmp_path / "cache").glob(f"{keys[side]}.*"):
            os.utime(file, ns=(order * 10**9, order * 10**9))
    entry_bytes = [
        sum(file.stat().st_size for file in (tmp_path / "cache").glob(f"{keys[side]}.*")) for side in (3.0, 2.0)
    ]
    before = sum(sizes(tmp_path).values())
    monkeypatch.setattr(CacheRoom, "free", lambda self: before - sum(sizes(tmp_path).values()))
    removed = case_storage.evict_unused(tmp_path / "cache", sum(entry_bytes), CacheRoom(tmp_path), {"0" * 20})
    assert removed == sum(entry_bytes)
    assert {file.name.split(".")[0] for file in (tmp_path / "cache").glob("*.npy")} == {keys[4.0]}


def test_fingerprints_follow_the_content(tmp_path: Path) -> None:
    file, folder, header = tmp_path / "a.nii.gz", tmp_path / "series", tmp_path / "b.mhd"
    file.write_bytes(b"one")
    folder.mkdir()
    (folder / "1.dcm").write_bytes(b"slice")
    header.write_text("ElementDataFile = b.raw\n")
    (tmp_path / "b.raw").write_bytes(b"voxels")
    names = [file, folder, header, tmp_path / "missing.nii.gz"]
    first = fingerprint_files(names, tmp_path / "cache")
    assert first[names[3]] == ""
    assert len({*first.values()}) == 4
    for path in (file, folder / "1.dcm"):
        os.utime(path, ns=(1, 1))  # another time, the same content
    assert fingerprint_files(names, tmp_path / "cache") == first
    (folder / "1.dcm").write_bytes(b"Slice")
    (tmp_path / "b.raw").write_bytes(b"Voxels")
    second = fingerprint_files(names, tmp_path / "cache")
    assert second[file] == first[file]
    assert second[folder] != first[folder]
    assert second[header] != first[header], "the data of a detached header belong to it"


def test_known_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"{n}.png" for n in range(20)]
    for n, file in enumerate(files):
        file.write_bytes(bytes([n]))
    read: list[Path] = []
    real = case_storage._hash_content
    monkeypatch.setattr(case_storage, "_hash_content", lambda file: read.append(file) or real(file))
    first = fingerprint_files(files, tmp_path / "cache")
    files[7].write_bytes(b"changed")
    second = fingerprint_files(files, tmp_path / "cache")
    assert sorted(read) == sorted([*files, files[7]])
    assert [file for file in files if first[file] != second[file]] == [files[7]]


def corrupt_page(file: Path) -> None:
    """Overwrite what follows the first page of a database: it opens, and its rows cannot be read."""
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)


@pytest.mark.parametrize("damage", ["no database", "corrupt page", "other columns", "folder"])
def test_a_damaged_store_of_fingerprints_stops_no_training(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{n}.png" for n in range(200)]
    for n, file in enumerate(files):
        file.write_bytes(bytes([n]))
    cache_folder = tmp_path / "cache"
    expected = fingerprint_files(files, cache_folder)
    store = cache_folder / case_storage.FINGERPRINTS_FILE
    if damage == "no database":
        store.write_bytes(b"no database" * 1000)
    elif damage == "corrupt page":
        corrupt_page(store)
    else:
        store.unlink()
    if damage == "other columns":
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("CREATE TABLE files (name TEXT)")
    elif damage == "folder":
        store.mkdir()
    assert fingerprint_files(files, cache_folder) == expected
    assert str(store) in capsys.readouterr().out
    assert fingerprint_files(files, cache_folder) == expected
    if damage != "folder":
        assert (cache_folder / case_storage.DAMAGED_FINGERPRINTS_FILE).is_file()
        assert not capsys.readouterr().out, "the new store is whole"


IMAGE_PLAN = {
    "dims": 2,
    "channels": 1,
    "size": [8, 8],
    "spacing": None,
    "intensity": {"mode": "percentile"},
    "workers": 2,
}


def write_images(folder: Path, count: int) -> list[str]:
    for n in range(count):
        np.save(folder / f"{n}.npy", np.random.default_rng(n).normal(size=(12, 10)).astype(np.float32))
    return [f"{n}.npy" for n in range(count)]


@pytest.mark.parametrize("storage", ["map", "compressed", "direct"])
def test_images_are_the_same_in_all_storages(tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SHARD_CASES", 4)
    paths = write_images(tmp_path, 10)
    images, readable = cache.build_cache(paths, {**IMAGE_PLAN, "cache": storage}, tmp_path / "cache", str(tmp_path))
    expected = np.stack([cache.prepare_image(path, IMAGE_PLAN, str(tmp_path)) for path in paths])
    assert readable.all()
    assert images.shape == expected.shape
    assert np.array_equal(np.asarray(images), expected)
    assert np.array_equal(images[7], expected[7])
    for index in (slice(2, 9), [9, 0, 4], np.array([1, 1]), expected[:, 0, 0, 0] > 0.5):
        assert np.array_equal(images[index], expected[index])
    suffix = {"map": ".npy", "compressed": ".b2nd", "direct": ".none"}[storage]
    assert len(list((tmp_path / "cache").glob(f"*/images*{suffix}"))) == 3


def test_images_without_room_are_read_directly_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = write_images(tmp_path, 30)
    (tmp_path / "3.npy").write_bytes(b"no")
    monkeypatch.setenv(case_storage.GROWTH_VARIABLE, "0")
    images, readable = cache.build_cache(paths, IMAGE_PLAN, tmp_path / "cache", str(tmp_path))
    assert "no cache" in capsys.readouterr().out
    assert np.flatnonzero(~readable).tolist() == [3]
    assert not images[3].any()
    assert np.array_equal(images[5], cache.prepare_image(paths[5], IMAGE_PLAN, str(tmp_path)))
    monkeypatch.delenv(case_storage.GROWTH_VARIABLE)
    stored, again = cache.build_cache(paths, IMAGE_PLAN, tmp_path / "cache", str(tmp_path))
    assert np.array_equal(again, readable)
    assert len(list((tmp_path / "cache").glob("*/images*.npy"))) == 1
    assert np.array_equal(np.asarray(stored), np.asarray(images))
