"""What values say: masks, labels, instances, pictures; and what samples of a group have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dataset_folders import (
    BORDER,
    GREEN,
    RED,
    blocks,
    colour,
    fill,
    grey,
    instances,
    save,
    save_nifti,
    save_palette,
    save_turned,
)
from scipy import ndimage

from formats.slide_kit import draw_slide, write_slide
from m3b.dataset.survey.contents import read_grid, read_sample, summarise
from m3b.dataset.survey.facts import Content, SurveyLimits
from m3b.dataset.survey.values import analyse_values


def content_of(root: Path, paths: list[str], file_format: str = "picture") -> Content:
    content = summarise([read_sample(root, path, file_format, SurveyLimits()) for path in paths])
    if content.is_mask and content.values not in ("lossy_binary", "instance_ids"):
        assert sum(level.share for level in content.levels) == pytest.approx(1, abs=1e-4)
    return content


def smooth(levels: int) -> np.ndarray:
    noise = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(64, 64)), 6)
    return np.round((noise - noise.min()) / np.ptp(noise) * levels).astype(np.uint8)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (blocks(1), "binary"),
        (blocks(1) * 255, "binary"),
        (blocks(1).astype(bool), "binary"),
        (blocks(3, (1, 2, 4)), "few_integers"),
        (blocks(3, (1, 2, 4)).astype(np.float32), "few_integers"),
        (blocks(3, (1, 2, 255)), "few_integers"),
        (blocks(3, (85, 170, 255)), "few_integers"),
        (grey(1), "grey"),
        (smooth(30), "grey"),
        (smooth(200), "grey"),
        (smooth(40).astype(np.float32) / 7, "grey"),
        (np.full((9, 9), 3, np.uint8), "constant"),
        (
            np.where(blocks(1), 0.97, 0.02).astype(np.float32) + np.random.default_rng(1).uniform(0, 0.02, (40, 48)),
            "float_probability",
        ),
        (instances(0, 64).astype(np.int32), "instance_ids"),
        (np.array([["a"]]), "unknown"),
    ],
)
def test_structure_of_one_array(array: np.ndarray, kind: str) -> None:
    assert analyse_values(array).kind == kind


def test_colours() -> None:
    mask = np.zeros((30, 30, 3), np.uint8)
    mask[4:12, 4:12], mask[15:25, 15:25] = RED, GREEN
    structure = analyse_values(mask, channels_last=True)
    assert structure.kind == "colour_labels"
    assert structure.levels == {
        "#000000": pytest.approx(736 / 900),
        "#800000": pytest.approx(64 / 900),
        "#008000": pytest.approx(100 / 900),
    }
    assert analyse_values(colour(1), channels_last=True).kind == "colour"
    assert analyse_values(np.repeat(grey(1)[..., None], 3, axis=2), channels_last=True).colour is False


def test_masks_with_the_noise_of_compression(tmp_path: Path) -> None:
    big = [np.kron(blocks(seed), np.ones((7, 7), np.uint8)) * 255 for seed in range(3)]
    for seed, mask in enumerate(big):
        save(tmp_path / f"{seed}.jpg", mask.astype(np.uint8), quality=70)
    content = content_of(tmp_path, ["0.jpg", "1.jpg", "2.jpg"])
    assert content.values == "lossy_binary"
    assert content.cut == pytest.approx(127.5, abs=3)
    assert len(content.levels) == 2


def test_scribbles_of_lines_are_no_compressed_mask() -> None:
    disc = np.hypot(*np.mgrid[-32:32, -32:32]) < 18
    lines = np.zeros((64, 64), bool)
    lines[::9] = True
    structure = analyse_values(np.where(lines, disc, 255).astype(np.uint8))
    assert structure.kind == "few_integers"
    assert set(structure.levels) == {"0", "1", "255"}


def test_dark_pictures_with_bright_spots_are_no_masks() -> None:
    picture = ndimage.gaussian_filter((np.random.default_rng(0).random((256, 256)) > 0.9995).astype(float), 3)
    assert analyse_values((picture / picture.max() * 200).astype(np.uint8)).kind == "grey"


def test_air_and_soft_tissue_are_no_mask() -> None:
    noise = np.random.default_rng(0).normal(0, 10, (40, 48))
    volume = np.where(blocks(1) > 0, 40, -1000) + noise
    assert analyse_values(volume.astype(np.int16)).kind == "grey"
    assert analyse_values((volume + 1000).clip(0).astype(np.int16)).kind == "lossy_binary"


def test_whole_numbers_are_read_before_the_slope(tmp_path: Path) -> None:
    """Fault 5: a scale factor of 0.99998 made 1 and 4 the fractions 0.99998 and 3.99992."""
    labels = np.zeros((12, 12, 6), np.int16)
    labels[2:5, 2:5, 1:3], labels[6:9, 6:9, 2:5], labels[2:5, 8:11, 3:5] = 1, 2, 4
    save_nifti(tmp_path / "m.nii", labels, slope=0.99998)
    content = content_of(tmp_path, ["m.nii"], "nifti")
    assert content.values == "few_integers"
    assert [level.value for level in content.levels] == ["0", "1", "2", "4"]
    assert content.slope == pytest.approx(0.99998)
    assert content.spacing == (1.0, 1.0, 2.0)


def test_palettes_and_their_colours_in_other_files(tmp_path: Path) -> None:
    """Fault 5: index, palette colour and void border belong together."""
    index = blocks(2, (1, 2))
    index[0] = 255
    colours = {0: (0, 0, 0), 1: RED, 2: GREEN, 255: BORDER}
    save_palette(tmp_path / "a.png", index, colours)
    painted = np.zeros((*index.shape, 3), np.uint8)
    for value, rgb in colours.items():
        painted[index == value] = rgb
    save(tmp_path / "b.png", painted)
    content = content_of(tmp_path, ["a.png", "b.png"])
    assert content.values == "colour_labels"
    assert content.palette
    numbers = {level.value: level.colour for level in content.levels if level.colour}
    assert numbers == {"0": "#000000", "1": "#800000", "2": "#008000", "255": "#e0e0c0"}
    assert {level.value for level in content.levels if not level.colour} == set(numbers.values())


def test_numbered_objects(tmp_path: Path) -> None:
    for at, count in enumerate((3, 7, 12, 20)):
        save(tmp_path / f"{at}.png", instances(at, count))
    assert content_of(tmp_path, [f"{at}.png" for at in range(4)]).values == "instance_ids"
    for at in range(4):
        save(tmp_path / f"organs{at}.png", blocks(at, (1, 2, 3)))
    assert content_of(tmp_path, [f"organs{at}.png" for at in range(4)]).values == "few_integers"


def test_empty_masks_are_counted(tmp_path: Path) -> None:
    fill(tmp_path, ["0.png", "1.png", "2.png"], blocks)
    save(tmp_path / "3.png", np.zeros((40, 48), np.uint8))
    content = content_of(tmp_path, [f"{at}.png" for at in range(4)])
    assert (content.values, content.empty, content.foreground and content.foreground[0]) == ("binary", 1, 0.0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_shapes(tmp_path: Path, orientation: int) -> None:
    """Fault 4."""
    save_turned(tmp_path / "a.jpg", grey(0, (30, 50)), orientation)
    sample = read_sample(tmp_path, "a.jpg", "picture", SurveyLimits())
    expected = (50, 30) if orientation >= 5 else (30, 50)
    assert sample.shape == read_grid(tmp_path, "a.jpg") == expected
    assert sample.turned == (orientation > 1)


def test_two_dimensional_nifti(tmp_path: Path) -> None:
    """Fault 7."""
    save_nifti(
        tmp_path / "a.nii.gz", np.random.default_rng(0).normal(size=(21, 29)).astype(np.float32), spacing=(0.5, 0.5, 1)
    )
    content = content_of(tmp_path, ["a.nii.gz"], "nifti")
    assert (content.dims, content.failed, content.shapes[0].shape, content.spacing) == (2, 0, (21, 29), (0.5, 0.5))


def test_damaged_files_are_counted(tmp_path: Path) -> None:
    data = save(tmp_path / "a.jpg", colour(0, (200, 200))).read_bytes()
    (tmp_path / "b.jpg").write_bytes(data[: len(data) // 2])
    (tmp_path / "c.jpg").write_bytes(b"no picture at all")
    (tmp_path / "d.jpg").write_bytes(b"")
    errors = [
        read_sample(tmp_path, name, "picture", SurveyLimits()).error
        for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg")
    ]
    assert errors == ["", "truncated", "damaged", "empty", "unreadable"]
    content = content_of(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    assert (content.samples, content.failed, content.truncated) == (3, 2, 1)


def test_large_files_are_not_opened(tmp_path: Path) -> None:
    save(tmp_path / "a.png", grey(0))
    assert read_sample(tmp_path, "a.png", "picture", SurveyLimits(pixels=100)).error == "large"
    assert read_sample(tmp_path, "a.png", "picture", SurveyLimits(file_bytes=100)).error == "large"


def test_rounding_of_a_compressed_grey_picture_is_no_colour() -> None:
    picture = np.stack([smooth(200)] * 3, axis=-1)
    picture[::2, :, 1] += 1
    assert analyse_values(picture, channels_last=True).kind == "grey"
    painted = np.zeros((40, 40, 3), np.uint8)
    painted[:20, :, 0], painted[:, 20:, 1] = 1, 2
    assert analyse_values(painted, channels_last=True).kind == "colour_labels"


def test_numbers_of_labels_in_a_row_are_no_grey_values() -> None:
    spaced, touching = np.zeros((64, 64), np.uint8), np.zeros((64, 64), np.uint8)
    for number in range(10):
        spaced[6 * number : 6 * number + 4, 20:40] = 10 + number
        touching[6 * number : 6 * number + 6, 20:40] = 10 + number
    assert [analyse_values(plane).kind for plane in (spaced, touching)] == ["few_integers", "few_integers"]
    assert analyse_values(smooth(11)).kind == "grey"


def test_a_slide_is_looked_at_by_its_overview_however_large_it_is(tmp_path: Path) -> None:
    pixels = draw_slide(2048, seed=0)
    write_slide(tmp_path / "a.tif", pixels, "pages", um=0.5)
    for limits in (SurveyLimits(), SurveyLimits(file_bytes=1000, pixels=1000)):
        sample = read_sample(tmp_path, "a.tif", "picture", limits)
        assert (sample.shape, sample.slide, sample.frames, sample.structure.colour) == ((2048, 2048), True, 1, True)
        assert sample.spacing == pytest.approx((0.0005, 0.0005))
    write_slide(tmp_path / "b.tif", pixels[:512, :512], "one level")
    assert not read_sample(tmp_path, "b.tif", "picture", SurveyLimits()).slide
    assert read_sample(tmp_path, "b.tif", "picture", SurveyLimits(file_bytes=1000)).error == "large"
