"""Altered copies of staged images: nobody sees the noise, a crop keeps the size, and what cannot be altered stays."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from m3b.data.altering import CROP, MAX_BYTES, NOISE, alter, altered, can_alter

PICTURE = np.random.default_rng(0).integers(0, 256, (40, 32), dtype=np.uint8)


def save(file: Path, array: np.ndarray) -> Path:
    if file.name.endswith(".npy"):
        np.save(file, array)
    elif ".nii" in file.name:
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), file)
    else:
        Image.fromarray(array).save(file)
    return file


def load(file: Path) -> np.ndarray:
    if file.name.endswith(".npy"):
        return np.load(file)
    return np.asanyarray(nibabel.load(file).dataobj) if ".nii" in file.name else np.asarray(Image.open(file))


KINDS = {
    "grey.png": PICTURE,
    "colour.png": np.stack([PICTURE] * 3, axis=-1),
    "deep.png": PICTURE.astype(np.uint16) * 200,
    "scan.tif": PICTURE.astype(np.float32),
    "item.npy": PICTURE.astype(np.float64),
    "volume.nii.gz": np.stack([PICTURE] * 20, axis=-1).astype(np.int16),
}


@pytest.mark.parametrize("name", KINDS)
def test_noise_is_there_and_is_not_seen(tmp_path: Path, name: str) -> None:
    file = save(tmp_path / name, KINDS[name])
    before = load(file).astype(float)
    assert alter(file, NOISE)
    after = load(file)
    assert after.shape == before.shape
    assert after.dtype == KINDS[name].dtype
    change = np.abs(after - before)
    assert (change > 0).mean() > 0.5
    assert change.max() < 0.02 * np.ptp(before)


@pytest.mark.parametrize("name", KINDS)
def test_a_crop_keeps_the_size_and_loses_the_border(tmp_path: Path, name: str) -> None:
    file = save(tmp_path / name, KINDS[name])
    before = load(file)
    assert alter(file, CROP)
    after = load(file)
    assert after.shape == before.shape
    assert set(np.unique(after)) <= set(np.unique(before))
    assert not np.array_equal(after, before)


def test_a_jpeg_differs_little(tmp_path: Path) -> None:
    smooth = np.asarray(Image.fromarray(PICTURE).resize((64, 64), Image.Resampling.BICUBIC))
    file = tmp_path / "a.jpg"
    Image.fromarray(smooth).save(file, quality=90)
    before = load(file).astype(float)
    assert alter(file, NOISE)
    change = np.abs(load(file) - before)
    assert 0 < change.mean() < 3


def test_the_same_file_is_altered_in_the_same_way(tmp_path: Path) -> None:
    files = [save(tmp_path / f"{n}.png", PICTURE) for n in range(2)]
    for way in (NOISE, CROP):
        assert all(alter(file, way) for file in files)
        assert np.array_equal(load(files[0]), load(files[1]))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.dcm", b"x"), ("broken.png", b"no picture"), ("broken.npy", b"x"), ("large.png", b"x" * (MAX_BYTES + 1))],
)
def test_what_cannot_be_altered_stays(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert not alter(file, NOISE)
    assert file.read_bytes() == content
    assert not alter(tmp_path / "missing.png", NOISE)


def test_two_grey_levels_show_any_noise() -> None:
    random = np.random.default_rng(0)
    assert altered((PICTURE > 128).astype(np.uint8), NOISE, random) is None
    assert altered(np.zeros(5), CROP, random) is None, "no axes of space"
    assert altered(np.array(["a"]), NOISE, random) is None


def test_which_images_are_tried(tmp_path: Path) -> None:
    save(tmp_path / "a.png", PICTURE)
    (tmp_path / "b.png").write_bytes(b"x" * (MAX_BYTES + 1))
    (tmp_path / "series").mkdir()
    alterable = {name: can_alter(name, tmp_path) for name in ("a.png", "b.png", "series", "gone.png", "set.npz#x[3]")}
    assert alterable == {"a.png": True, "b.png": False, "series": False, "gone.png": False, "set.npz#x[3]": True}
    assert not can_alter(["a.png", "a.png"], tmp_path)
