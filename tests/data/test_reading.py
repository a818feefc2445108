"""m3b opens an image exactly as the templates do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b.dataset.reading import boxes_to_array, geometry, read_image, read_mask, read_masks
from m3b.errors import DataError
from m3b.resources import copy_template
from warm.commands import run_python

RANDOM = np.random.default_rng(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import nibabel as nib

    top = tmp_path_factory.mktemp("images")
    grey = RANDOM.integers(0, 255, (20, 30), dtype=np.uint8)
    Image.fromarray(grey).save(top / "grey.png")
    Image.fromarray(RANDOM.integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(top / "colour.png")
    Image.fromarray(grey.astype(np.uint16) * 200).save(top / "deep.tif")
    np.save(top / "volume.npy", RANDOM.normal(0, 1, (9, 20, 30)).astype(np.float32))
    np.savez(top / "a.npz", images=RANDOM.integers(0, 255, (4, 20, 30), dtype=np.uint8))
    volume = RANDOM.integers(-1000, 1000, (20, 30, 9)).astype(np.int16)
    nib.save(nib.Nifti1Image(volume, np.diag([-1.0, -1.0, 2.5, 1.0])), top / "ct.nii.gz")
    (top / "slices").mkdir()
    for number in range(12):
        Image.fromarray(RANDOM.integers(0, 255, (20, 30), dtype=np.uint8)).save(top / "slices" / f"s{number}.png")
    return top


IMAGES = ["grey.png", "colour.png", "deep.tif", "volume.npy", "a.npz#images[2]", "ct.nii.gz", "slices"]


def test_the_same_as_the_assembled_template_in_a_process_of_its_own(folder: Path, tmp_path: Path) -> None:
    copy_template("diagnosis", tmp_path)
    code = (
        "import hashlib, sys; from m3b.dataset.formats import read_image\n"
        "for name in sys.argv[2:]:\n"
        "    image = read_image(name, sys.argv[1])\n"
        "    print(hashlib.sha256(image.array.tobytes()).hexdigest(), image.array.shape, image.array.dtype, image.spacing)\n"
    )
    done = run_python("-c", code, folder, *IMAGES, cwd=tmp_path, check=True)
    import hashlib

    for line, name in zip(done.stdout.splitlines(), IMAGES, strict=True):
        image = read_image(name, str(folder))
        digest = hashlib.sha256(image.array.tobytes()).hexdigest()
        assert line == f"{digest} {image.array.shape} {image.array.dtype} {image.spacing}", name


def test_a_list_of_slices_is_their_folder(folder: Path) -> None:
    names = [f"slices/s{number}.png" for number in range(12)]
    assert np.array_equal(read_image(names, str(folder)).array, read_image("slices", str(folder)).array)


@pytest.mark.parametrize("name", ["absent.png", "a.npz#images[9]", "a.npz#masks[0]", "absent.npz#x[0]", ".", ""])
def test_what_cannot_be_opened_is_a_data_error(name: str, folder: Path) -> None:
    with pytest.raises(DataError):
        read_image(name, str(folder))


def test_masks_lie_in_the_axes_of_their_image(folder: Path, tmp_path: Path) -> None:
    import nibabel as nib

    image = nib.load(folder / "ct.nii.gz")
    ids = np.zeros((20, 30, 9), np.uint8)
    ids[3:8, 10:12, 4] = 6
    ids[12:15, 20:29, 2] = 1
    nib.save(nib.Nifti1Image(ids, image.affine), tmp_path / "ids.nii.gz")
    mask, grid = read_mask("ids.nii.gz", str(tmp_path)), geometry("ct.nii.gz", str(folder))
    assert mask.array.shape == grid.shape == read_image("ct.nii.gz", str(folder)).array.shape[1:]
    assert np.allclose(mask.affine, grid.affine)
    both = read_masks("ids.nii.gz", {"a": 1, "b": 6}, str(tmp_path))
    assert [int(class_mask.sum()) for class_mask in both] == [27, 10]
    box = boxes_to_array((3, 10, 4, 8, 12, 5), "ids.nii.gz", str(tmp_path))
    rows, columns, slices = (slice(int(low), int(high)) for low, high in zip(box[:3], box[3:], strict=True))
    assert both[1][rows, columns, slices].all(), "the box of the second class, in the array's axes, holds all of it"
    assert both[1][rows, columns, slices].size == 10
    assert not read_masks(None, {"a": 1}, shape=(4, 5)).any()


def test_a_mask_that_cannot_be_used_is_a_data_error(folder: Path) -> None:
    for name, words in (("volume.npy", "fractions"), ("colour.png", "one channel"), ("absent.png", "no such file")):
        with pytest.raises(DataError, match=words):
            read_mask(name, str(folder))
    with pytest.raises(DataError, match="shape"):
        read_masks(None, {"a": 1}, str(folder))
    with pytest.raises(DataError):
        geometry("absent.nii.gz", str(folder))
