"""Masks: integers before a slope, palettes with their colours, painted colours, layers; and masks written on a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
import tifffile
from PIL import Image as Pillow

from formats.store_kit import FILMS, PHOTOGRAPHS, VOLUMES, dicom_file, film, volume
from m3b.dataset.formats import (
    DataError,
    align_labels,
    box_to_array,
    box_to_file,
    grid_of,
    probe_image,
    read_class_masks,
    read_image,
    read_labels,
    write_labels,
)


def scaled_nifti(file: Path, stored: np.ndarray, slope: float, intercept: float = 0.0) -> None:
    image: Any = nib.Nifti1Image(stored, np.diag([-1.0, -1, 1, 1]))
    nib.save(image, file)
    content = bytearray(file.read_bytes())
    content[112:120] = np.array([slope, intercept], "<f4").tobytes()
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("stored", "slope", "intercept", "labels", "before"),
    [
        ([0, 1, 4], 0.99998, 0.0, [0, 1, 4], False),  # rounding of a converter
        ([0, 64, 128, 191, 255], 4 / 255, 0.0, [0, 1, 2, 3, 4], False),  # written as floats in 8 bits
        ([0, 1, 2], 0.3, 0.0, [0, 1, 2], True),  # a slope that means nothing
        ([0, 1, 2], 2.0, 0.0, [0, 2, 4], False),
        ([0, 1, 2], 1.0, 1.0, [1, 2, 3], False),
    ],
)
def test_labels_of_scaled_integers(
    tmp_path: Path, stored: list[int], slope: float, intercept: float, labels: list[int], before: bool
) -> None:
    values = np.resize(np.array(stored, np.uint8), (5, 4, 3))
    scaled_nifti(tmp_path / "a.nii", values, slope, intercept)
    mask = read_labels("a.nii", tmp_path)
    assert np.unique(mask.array).tolist() == labels
    assert [note.code for note in mask.notes] == ["labels_before_slope"] * before
    image, info = read_image("a.nii", tmp_path), probe_image("a.nii", tmp_path)
    assert np.allclose(np.unique(image.array), np.array(stored) * slope + intercept, atol=1e-5)
    assert info.dtype == str(image.array.dtype)


def test_palette_numbers_are_labels_with_their_colours(tmp_path: Path) -> None:
    indices = np.resize(np.array([0, 1, 2, 255], np.uint8), (6, 8))
    picture = Pillow.fromarray(indices, mode="P")
    picture.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0, *[0] * (252 * 3), 224, 224, 192])
    picture.save(tmp_path / "a.png")
    mask = read_labels("a.png", tmp_path)
    assert np.array_equal(mask.array, indices)
    assert mask.colours == {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 255: (224, 224, 192)}
    picture.convert("RGB").save(tmp_path / "b.png")
    painted = read_labels("b.png", tmp_path)
    assert set(painted.colours.values()) == set(mask.colours.values())
    assert [(note.code, dict(note.values)) for note in painted.notes] == [("labels_from_colours", {"count": 4})]
    index_of_colour = {colour: number for number, colour in mask.colours.items()}
    assert all(np.array_equal(painted.array == n, indices == index_of_colour[c]) for n, c in painted.colours.items())


def test_colours_have_the_same_number_in_every_file(tmp_path: Path) -> None:
    for name, colour in (("a", (0, 0, 200)), ("b", (200, 0, 0))):
        array = np.zeros((4, 5, 3), np.uint8)
        array[1:3, 1:3] = colour
        Pillow.fromarray(array).save(tmp_path / f"{name}.png")
    assert sorted(read_labels("a.png", tmp_path).colours) == [0, 200]
    assert sorted(read_labels("b.png", tmp_path).colours) == [0, 200 << 16]


def test_a_mask_painted_in_transparency(tmp_path: Path) -> None:
    array = np.zeros((4, 5, 4), np.uint8)
    array[1:3, 2:4, 3] = 255
    Pillow.fromarray(array).save(tmp_path / "a.png")
    mask = read_labels("a.png", tmp_path)
    assert np.array_equal(mask.array, array[..., 3])
    assert [note.code for note in mask.notes] == ["labels_in_transparency"]


def test_tiff_palettes(tmp_path: Path) -> None:
    indices = np.resize(np.array([0, 1, 3], np.uint8), (6, 8))
    colours = np.zeros((3, 256), np.uint16)
    colours[:, 1], colours[:, 3] = (0xFFFF, 0, 0), (0, 0xFFFF, 0)
    tifffile.imwrite(tmp_path / "a.tif", indices, colormap=colours)
    mask = read_labels("a.tif", tmp_path)
    assert np.array_equal(mask.array, indices)
    assert mask.colours == {0: (0, 0, 0), 1: (255, 0, 0), 3: (0, 255, 0)}
    assert read_image("a.tif", tmp_path).array[:, 0, 1].tolist() == [255, 0, 0]


@pytest.mark.parametrize("value", [0.5, np.nan, -1.0])
def test_what_is_no_label(tmp_path: Path, value: float) -> None:
    nib.save(nib.Nifti1Image(np.full((4, 5, 3), value, np.float32), np.eye(4)), tmp_path / "a.nii")
    with pytest.raises(DataError, match=r"a\.nii"):
        read_labels("a.nii", tmp_path)


def segmentation(file: Path, array: np.ndarray, layers: list[int], labels: list[int]) -> None:
    """As 3D Slicer writes it: layers first, each segment with its label and layer, cropped to its extent."""
    sizes, kinds = "4 3 2", "domain domain domain"
    directions = "(1,0,0) (0,1,0) (0,0,2)"
    if array.ndim == 4:
        sizes, kinds, directions = f"{len(array)} {sizes}", f"list {kinds}", f"none {directions}"
    header = f"NRRD0004\ntype: uint8\ndimension: {array.ndim}\nspace: left-posterior-superior\nsizes: {sizes}\n"
    header += f"space directions: {directions}\nkinds: {kinds}\nencoding: raw\nspace origin: (10,20,30)\n"
    for number, (layer, label) in enumerate(zip(layers, labels, strict=True)):
        header += (
            f"Segment{number}_ID:=s{number}\nSegment{number}_Name:=part {number}\nSegment{number}_Layer:={layer}\n"
        )
        header += f"Segment{number}_LabelValue:={label}\nSegment{number}_Color:=1 0.5 0\n"
    order = (3, 2, 1, 0) if array.ndim == 4 else (2, 1, 0)
    file.write_bytes((header + "\n").encode() + np.transpose(array, order).tobytes())


def test_segments_with_names(tmp_path: Path) -> None:
    array = np.resize(np.array([0, 3, 7], np.uint8), (4, 3, 2))
    segmentation(tmp_path / "a.seg.nrrd", array, [0, 0], [3, 7])
    mask = read_labels("a.seg.nrrd", tmp_path)
    assert np.array_equal(mask.array, array.transpose(1, 0, 2))
    assert mask.names == {3: "part 0", 7: "part 1"}
    assert mask.colours[3] == (255, 128, 0)
    assert mask.affine is not None
    assert mask.affine[:3, 3].tolist() == [10, 20, 30]


def test_overlapping_layers(tmp_path: Path) -> None:
    layers = np.zeros((2, 4, 3, 2), np.uint8)
    layers[0, :2], layers[1, 1:3] = 1, 1
    segmentation(tmp_path / "a.seg.nrrd", layers, [0, 1], [1, 1])
    mask = read_labels("a.seg.nrrd", tmp_path)
    assert mask.layers is not None
    assert (mask.layers != 0).sum(axis=(1, 2, 3)).tolist() == [12, 12]
    assert mask.notes[0].values == {"voxels": 6}
    assert mask.names == {1: "part 0", 2: "part 1"}


def test_a_cropped_segmentation_lies_on_its_image(tmp_path: Path) -> None:
    image = sitk.GetImageFromArray(np.zeros((6, 9, 12), np.int16))
    image.SetSpacing((1, 1, 2))
    image.SetOrigin((7, 18, 28))
    sitk.WriteImage(image, str(tmp_path / "image.nrrd"))
    segmentation(tmp_path / "a.seg.nrrd", np.ones((4, 3, 2), np.uint8), [0], [1])
    aligned = align_labels(read_labels("a.seg.nrrd", tmp_path), grid_of("image.nrrd", tmp_path))
    assert aligned.shape == (9, 12, 6)
    assert np.argwhere(aligned).min(axis=0).tolist() == [2, 3, 1]
    assert int(aligned.sum()) == 24


@pytest.mark.parametrize("table", [VOLUMES, PHOTOGRAPHS, FILMS], ids=["volumes", "photographs", "films"])
def test_masks_are_written_on_the_grid_of_their_image(tmp_path: Path, table: dict[str, Any]) -> None:
    fast = ["nii", "spm analyze", "mgz", ".mhd raw", ".nrrd raw", "dicom series", "npy", "h5", "ome tiff", "png", "explicit",
            "jpeg turned by exif"]  # fmt: skip
    for name in [name for name in fast if name in table]:
        folder = tmp_path / name.replace(" ", "_")
        folder.mkdir()
        image = str(table[name](folder).image)
        shape = read_image(image, folder).array.shape[1:]
        array = np.zeros(shape, np.uint8)
        array[1:5, 2:4] = 3
        file = write_labels(array, image, folder / "written", folder)
        mask = read_labels(str(file))
        assert np.array_equal(mask.array, array), name
        grid = grid_of(image, folder)
        if grid.affine is not None and mask.affine is not None:
            assert np.allclose(mask.affine, grid.affine, atol=1e-3), name


def test_boxes_go_both_ways(tmp_path: Path) -> None:
    values, _, affine = volume()
    nib.save(nib.Nifti1Image(values, affine), tmp_path / "a.nii.gz")
    box = (2.0, 3.0, 1.0, 7.0, 9.0, 5.0)
    box_mask = np.zeros(values.shape, np.uint8)
    box_mask[2:7, 3:9, 1:5] = 1
    nib.save(nib.Nifti1Image(box_mask, affine), tmp_path / "m.nii.gz")
    array_box = box_to_array(box, "a.nii.gz", tmp_path)
    marked = np.argwhere(read_labels("m.nii.gz", tmp_path).array)
    assert array_box == (*marked.min(axis=0), *(marked.max(axis=0) + 1))
    assert box_to_file(array_box, "a.nii.gz", tmp_path) == pytest.approx(box)
    Pillow.fromarray(film()).save(tmp_path / "p.png")
    assert box_to_array((1, 2, 3, 4), "p.png", tmp_path) == (2, 1, 4, 3)


def test_masks_of_classes(tmp_path: Path) -> None:
    array = np.resize(np.array([0, 1, 2], np.uint8), (6, 8))
    Pillow.fromarray(array).save(tmp_path / "ids.png")
    Pillow.fromarray((array == 2).astype(np.uint8) * 255).save(tmp_path / "b.png")
    masks = read_class_masks("ids.png", {"b": 2, "a": 1}, tmp_path)
    assert np.array_equal(masks, np.stack([array == 2, array == 1]))
    masks = read_class_masks({"b": "b.png"}, {"a": 1, "b": 2}, tmp_path)
    assert masks.sum(axis=(1, 2)).tolist() == [0, int((array == 2).sum())]
    assert read_class_masks(None, {"a": 1}, tmp_path, (6, 8)).sum() == 0


def test_a_mask_of_a_dicom_image(tmp_path: Path) -> None:
    dicom_file(film() // 200).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert np.array_equal(read_labels("a.dcm", tmp_path).array, film() // 200)
