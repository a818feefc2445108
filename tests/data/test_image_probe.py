"""One look at each image: digests, thumbnails, and which images resemble each other."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from m3b.data.image_probe import SIDE, ImageProbe, examine, near_pairs
from m3b.data.image_probe import _thumbnail as thumbnail
from m3b.data.synthetic import radiograph

RANDOM = np.random.default_rng(5)
CHESTS = [radiograph(RANDOM, number % 3 == 0) for number in range(60)]


def saved(array: np.ndarray, file: Path, **options: object) -> ImageProbe:
    if file.suffix == ".npy":
        np.save(file, array)
    else:
        Image.fromarray(array).save(file, **options)  # type: ignore[arg-type]
    return examine(file.name, file.parent)


def test_radiographs_of_different_people_are_not_near(tmp_path: Path) -> None:
    looks = {str(at): saved(array, tmp_path / f"{at}.png") for at, array in enumerate(CHESTS)}
    assert near_pairs(looks) == []


@pytest.mark.parametrize("kind", ["jpeg", "smaller", "brighter", "noise", "deeper"])
def test_a_changed_copy_of_one_radiograph_is_near_and_nothing_else(kind: str, tmp_path: Path) -> None:
    one = CHESTS[0]
    copy, name, options = one, "copy.png", {}
    if kind == "jpeg":
        name, options = "copy.jpg", {"quality": 70}
    elif kind == "smaller":
        copy = np.asarray(Image.fromarray(one).resize((96, 96), Image.Resampling.BILINEAR))
    elif kind == "brighter":
        copy = np.clip(one.astype(int) + 9, 0, 255).astype(np.uint8)
    elif kind == "noise":
        copy = np.clip(one + RANDOM.normal(0, 2, one.shape), 0, 255).astype(np.uint8)
    else:
        copy = one.astype(np.uint16) * 257
    looks = {str(at): saved(array, tmp_path / f"{at}.png") for at, array in enumerate(CHESTS[:30])}
    looks["copy"] = saved(copy, tmp_path / name, **options)
    assert near_pairs(looks) == [("0", "copy")]


def test_copies_in_another_lossless_format_have_the_same_digest(tmp_path: Path) -> None:
    one = CHESTS[0]
    grey = np.stack([one] * 3, axis=-1)
    files = ["a.png", "a.tif", "a.bmp", "a.npy"]
    digests = {saved(one, tmp_path / name).digest for name in files} | {saved(grey, tmp_path / "rgb.png").digest}
    assert len(digests) == 1


def test_exact_copies_are_not_called_near(tmp_path: Path) -> None:
    looks = {name: saved(CHESTS[1], tmp_path / f"{name}.png") for name in "ab"}
    assert looks["a"].digest == looks["b"].digest
    assert near_pairs(looks) == []


def test_volumes_have_a_look_too(tmp_path: Path) -> None:
    volume = RANDOM.normal(0, 300, (20, 24, 28)).astype(np.int16)
    look = saved(volume, tmp_path / "a.npy")
    assert look.shape.count("x") == 3
    assert not look.flat
    assert look.thumbnail is not None
    other = saved(np.where(volume > 0, volume, volume // 2).astype(np.int16), tmp_path / "b.npy")
    assert other.digest != look.digest


@pytest.mark.parametrize("value", [0, 7])
def test_a_blank_image_is_flat_and_never_near(value: int, tmp_path: Path) -> None:
    looks = {
        name: saved(np.full((40, 40 + at), value, np.uint8), tmp_path / f"{name}.png") for at, name in enumerate("abc")
    }
    assert all(look.flat for look in looks.values())
    assert near_pairs(looks) == []


def test_what_does_not_open_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    for name in ("cut.png", "absent.png"):
        look = examine(name, tmp_path)
        assert name in look.error
        assert look.thumbnail is None


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.int16, np.uint16, np.float32]),
        st.tuples(st.just(1), st.integers(1, 60), st.integers(1, 60)),
        elements=st.integers(0, 255),
    )
)
def test_a_thumbnail_has_one_size_and_unit_norm(array: np.ndarray) -> None:
    small, _, flat = thumbnail(array)
    assert small.shape == (SIDE * SIDE,)
    norm = float(np.linalg.norm(small))
    assert norm == pytest.approx(1, abs=1e-3) or norm == pytest.approx(0, abs=1e-3)
    assert flat == bool((array == array.flat[0]).all())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_do_not_spoil_it(bad: float) -> None:
    array = CHESTS[0].astype(np.float32)[None]
    array[0, 3, 3] = bad
    small, _, flat = thumbnail(array)
    assert np.isfinite(small).all()
    assert not flat


def test_a_heap_of_lookalikes_stays_bounded() -> None:
    small, _, _ = thumbnail(CHESTS[0][None])
    looks = {str(at): ImageProbe("1x8x8", str(at), small) for at in range(3000)}
    pairs = near_pairs(looks)
    assert 0 < len(pairs) <= 100_000


@pytest.mark.parametrize(("shape", "dim"), [((4, 5, 0), 3), ((4, 0, 5), 2), ((4, 0), 2)])
def test_an_image_without_pixels_is_an_error_and_no_crash(tmp_path: Path, shape: tuple[int, ...], dim: int) -> None:
    nibabel.save(nibabel.Nifti1Image(np.zeros(shape, np.float32), np.eye(4)), tmp_path / "empty.nii")
    assert f"empty.nii: its header says dim[{dim}] = 0; 1 to" in examine("empty.nii", tmp_path).error


def scan(seed: int) -> np.ndarray:
    """A smooth volume, different for every seed."""
    from scipy import ndimage

    noise = np.random.default_rng(seed).normal(0, 1, (40, 44, 48))
    return np.asarray(1000 * ndimage.gaussian_filter(noise, 3) / 0.02, np.float32)


def of_volume(array: np.ndarray, file: Path) -> ImageProbe:
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), file)
    return examine(file.name, file.parent)


def test_a_volume_is_a_copy_by_all_its_slices_and_not_by_the_middle_one(tmp_path: Path) -> None:
    looks = {str(at): of_volume(scan(at), tmp_path / f"{at}.nii.gz") for at in range(6)}
    assert near_pairs(looks) == []
    marked, noisy, grafted = scan(0), scan(1), scan(2)
    marked[10:14, 10:14, 24] = 2.5 * marked.std()  # an arrow burnt into the slice in the middle
    noisy += np.random.default_rng(9).normal(0, 20, noisy.shape).astype(np.float32)
    grafted[:, :, 23:26] = scan(3)[:, :, 23:26]  # another scan, with the middle of this one
    looks["marked"] = of_volume(marked, tmp_path / "marked.nii.gz")
    looks["noisy"] = of_volume(noisy, tmp_path / "noisy.nii.gz")
    looks["grafted"] = of_volume(grafted, tmp_path / "grafted.nii.gz")
    alike = (
        float(looks["marked"].thumbnail @ looks["0"].thumbnail),
        float(looks["grafted"].thumbnail @ looks["3"].thumbnail),
    )
    assert alike[0] < 0.9985 < alike[1], "by the middle slice it was the other way round"
    assert near_pairs(looks) == [("0", "marked"), ("1", "noisy")]
