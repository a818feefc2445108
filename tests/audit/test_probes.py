"""One look at each image: digests, thumbnails, and what does not open."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from formats.slide_kit import draw_slide, write_slide
from m3b.data.synthetic import radiograph
from m3b.dataset.audit.probes import ImageProbe, ProbeScope, probe_image
from m3b.dataset.similarity import THUMBNAIL_SIDE, make_thumbnails

RANDOM = np.random.default_rng(5)
CHESTS = [radiograph(RANDOM, number % 3 == 0) for number in range(2)]


def saved(array: np.ndarray, file: Path) -> ImageProbe:
    if file.suffix == ".npy":
        np.save(file, array)
    else:
        Image.fromarray(array).save(file)
    return probe_image(file.name, file.parent)


def test_copies_in_another_lossless_format_have_the_same_digest(tmp_path: Path) -> None:
    chest = CHESTS[0]
    grey = np.stack([chest] * 3, axis=-1)
    files = ["a.png", "a.tif", "a.bmp", "a.npy"]
    digests = {saved(chest, tmp_path / name).digest for name in files} | {saved(grey, tmp_path / "rgb.png").digest}
    assert len(digests) == 1


def test_volumes_have_a_look_too(tmp_path: Path) -> None:
    volume = RANDOM.normal(0, 300, (20, 24, 28)).astype(np.int16)
    look = saved(volume, tmp_path / "a.npy")
    assert look.shape.count("x") == 3
    assert not look.flat
    assert look.thumbnail is not None
    changed_look = saved(np.where(volume > 0, volume, volume // 2).astype(np.int16), tmp_path / "b.npy")
    assert changed_look.digest != look.digest


def test_a_slide_is_probed_by_its_overview_unless_masks_are_of_its_full_size(tmp_path: Path) -> None:
    write_slide(tmp_path / "a.tif", draw_slide(2048, seed=0), "subifds")
    write_slide(tmp_path / "b.tif", draw_slide(2048, seed=0), "subifds", compression=None)
    probes = [probe_image(name, tmp_path) for name in ("a.tif", "b.tif")]
    assert probes[0].size == (3, 1024, 1024)
    assert probes[0].digest == probes[1].digest
    assert probe_image("a.tif", tmp_path, scope=ProbeScope("detection", "boxes", {})).size == (3, 2048, 2048)


@pytest.mark.parametrize("value", [0, 7])
def test_a_blank_image_is_flat(value: int, tmp_path: Path) -> None:
    looks = {
        name: saved(np.full((40, 40 + at), value, np.uint8), tmp_path / f"{name}.png") for at, name in enumerate("abc")
    }
    assert all(look.flat for look in looks.values())


def test_what_does_not_open_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    for name in ("cut.png", "absent.png"):
        look = probe_image(name, tmp_path)
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
    small, _ = make_thumbnails(array)
    assert small.shape == (THUMBNAIL_SIDE * THUMBNAIL_SIDE,)
    norm = float(np.linalg.norm(small))
    assert norm == pytest.approx(1, abs=1e-3) or norm == pytest.approx(0, abs=1e-3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_do_not_spoil_it(bad: float) -> None:
    array = CHESTS[0].astype(np.float32)[None]
    array[0, 3, 3] = bad
    small, _ = make_thumbnails(array)
    assert np.isfinite(small).all()


@pytest.mark.parametrize(("shape", "dim"), [((4, 5, 0), 3), ((4, 0, 5), 2), ((4, 0), 2)])
def test_an_image_without_pixels_is_an_error_and_no_crash(tmp_path: Path, shape: tuple[int, ...], dim: int) -> None:
    nibabel.save(nibabel.Nifti1Image(np.zeros(shape, np.float32), np.eye(4)), tmp_path / "empty.nii")
    assert f"empty.nii: its header says dim[{dim}] = 0" in probe_image("empty.nii", tmp_path).error
