"""Masks and boxes in the axes of read_image, and back into the geometry of the image's own file."""

from __future__ import annotations

import itertools
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import pytest
import SimpleITK as sitk
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from m3b.dataset.formats import (
    DataError,
    Mask,
    align_labels,
    box_to_array,
    box_to_file,
    geometry,
    grid_of,
    read_class_masks,
    read_image,
    read_numbered_labels,
    write_labels,
)

ORIENTATIONS = [
    "".join(axes) for order in itertools.permutations(("RL", "AP", "SI")) for axes in itertools.product(*order)
]


def volume(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 200, shape).astype(np.int16)


def nifti(file: Path, array: np.ndarray, codes: str, zooms=(1.0, 2.0, 3.0), tilt: float = 0.0) -> np.ndarray:
    """Writes an array whose axes run as `codes` say, turned by `tilt` radians; returns the affine (RAS)."""
    affine = np.eye(4)
    affine[:3, :3] = 0
    for axis, code in enumerate(codes):
        world = ["RL", "AP", "SI"].index(next(pair for pair in ("RL", "AP", "SI") if code in pair))
        affine[world, axis] = zooms[axis] * (1 if code in "RAS" else -1)
    turn = np.array([[np.cos(tilt), -np.sin(tilt), 0], [np.sin(tilt), np.cos(tilt), 0], [0, 0, 1]])
    affine[:3, :3] = turn @ affine[:3, :3]
    affine[:3, 3] = (-20, 11, 5)
    nib.save(nib.Nifti1Image(array, affine), file)
    return affine


@given(st.sampled_from(ORIENTATIONS), st.tuples(*[st.integers(2, 7)] * 3), st.sampled_from([0.0, 0.2]))
def test_a_mask_written_like_a_nifti_lies_where_its_voxels_lie(tmp_path_factory, codes, shape, tilt) -> None:
    place = tmp_path_factory.mktemp("nifti")
    affine = nifti(place / "image.nii.gz", volume(shape), codes, tilt=tilt)
    array = read_image(str(place / "image.nii.gz")).array[0]
    marked = (array > 100).astype(np.uint8) * 7
    mask_file = write_labels(marked, str(place / "image.nii.gz"), place / "out")
    stored = nib.load(mask_file)
    assert np.allclose(stored.affine, affine, atol=1e-5)
    assert np.array_equal(np.asarray(stored.dataobj), (volume(shape) > 100) * 7)
    again = read_numbered_labels(str(mask_file))
    assert np.array_equal(again.array, marked)
    grid = grid_of(str(place / "image.nii.gz"))
    assert grid.shape == array.shape
    assert np.allclose(grid.spacing, read_image(str(place / "image.nii.gz")).spacing)


@settings(max_examples=30)
@given(st.sampled_from(ORIENTATIONS), st.tuples(*[st.integers(2, 6)] * 3), st.sampled_from([".nrrd", ".mha"]))
def test_a_mask_written_like_an_itk_image_lies_where_its_voxels_lie(tmp_path_factory, codes, shape, ending) -> None:
    place = tmp_path_factory.mktemp("itk")
    image = sitk.DICOMOrient(sitk.GetImageFromArray(volume(shape)), codes)
    image.SetSpacing((1.5, 0.5, 3.0))
    image.SetOrigin((4.0, -5.0, 6.0))
    sitk.WriteImage(image, str(place / f"image{ending}"))
    array = read_image(str(place / f"image{ending}")).array[0]
    mask_file = write_labels((array > 100).astype(np.uint8), str(place / f"image{ending}"), place / "out")
    stored = sitk.ReadImage(str(mask_file))
    assert mask_file.suffix == ending
    assert np.allclose(stored.GetDirection(), image.GetDirection())
    assert np.allclose(stored.GetOrigin(), image.GetOrigin())
    assert np.array_equal(sitk.GetArrayFromImage(stored), sitk.GetArrayFromImage(image) > 100)
    assert np.array_equal(read_numbered_labels(str(mask_file)).array, array > 100)


@given(st.sampled_from(ORIENTATIONS), st.lists(st.integers(0, 5), min_size=3, max_size=3), st.integers(1, 3))
def test_a_box_over_voxels_marks_the_same_voxels_in_the_array(tmp_path_factory, codes, low, side) -> None:
    place = tmp_path_factory.mktemp("boxes")
    stored = np.zeros((9, 10, 11), np.uint8)
    high = [start + side for start in low]
    stored[low[0] : high[0], low[1] : high[1], low[2] : high[2]] = 1
    nifti(place / "mask.nii.gz", stored, codes)
    box = box_to_array([*low, *high], str(place / "mask.nii.gz"))
    voxels = np.argwhere(read_numbered_labels(str(place / "mask.nii.gz")).array)
    assert np.allclose(box, [*voxels.min(axis=0), *(voxels.max(axis=0) + 1)])
    assert np.allclose(box_to_file(box, str(place / "mask.nii.gz")), [*low, *high])


def test_boxes_of_pictures_and_arrays_swap_rows_and_columns(tmp_path) -> None:
    assert box_to_array([1, 2, 5, 9], "a.png") == (2, 1, 9, 5)
    np.save(tmp_path / "v.npy", volume((6, 7, 5)))
    box = box_to_array([1, 2, 3, 4, 5, 6], str(tmp_path / "v.npy"))
    assert box == (2, 1, 3, 5, 4, 6)
    assert box_to_file(box, str(tmp_path / "v.npy")) == (1, 2, 3, 4, 5, 6)


def series(folder: Path, array: np.ndarray, cosines: list[float], step: list[float]) -> None:
    folder.mkdir()
    uid = generate_uid()
    for number in range(array.shape[2]):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, "1.2.840.10008.5.1.4.1.1.4"
        meta.MediaStorageSOPInstanceUID = generate_uid()
        file = FileDataset(str(folder / f"{number}.dcm"), {}, file_meta=meta, preamble=b"\0" * 128)
        file.SOPClassUID, file.SOPInstanceUID, file.SeriesInstanceUID = (
            meta.MediaStorageSOPClassUID,
            generate_uid(),
            uid,
        )
        file.Modality, file.Rows, file.Columns, file.SamplesPerPixel = "MR", array.shape[0], array.shape[1], 1
        file.BitsAllocated, file.BitsStored, file.HighBit, file.PixelRepresentation = 16, 16, 15, 1
        file.PhotometricInterpretation, file.PixelSpacing = "MONOCHROME2", [2.0, 1.0]
        file.ImageOrientationPatient = cosines
        file.ImagePositionPatient = [10 + number * v for v in step]
        file.PixelData = np.ascontiguousarray(array[:, :, number]).astype("<i2").tobytes()
        file.save_as(folder / f"{number}.dcm", enforce_file_format=True)


@pytest.mark.parametrize(
    ("cosines", "step"),
    [([1, 0, 0, 0, 1, 0], [0, 0, 3]), ([0, 1, 0, 0, 0, -1], [4, 0, 0]), ([1, 0, 0, 0, 0, -1], [0, -2, 0])],
    ids=["axial", "sagittal", "coronal"],
)
def test_a_dicom_series_agrees_with_itk_and_takes_a_mask(tmp_path, cosines, step) -> None:
    array = volume((5, 6, 4))
    series(tmp_path / "series", array, cosines, step)
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(tmp_path / "series")))
    sitk.WriteImage(reader.Execute(), str(tmp_path / "itk.nrrd"))
    ours, itk_image = read_image(str(tmp_path / "series")), read_image(str(tmp_path / "itk.nrrd"))
    assert np.array_equal(ours.array, itk_image.array)
    assert np.allclose(ours.spacing, itk_image.spacing)
    grid, itk_grid = grid_of(str(tmp_path / "series")), grid_of(str(tmp_path / "itk.nrrd"))
    assert np.allclose(grid.affine, itk_grid.affine, atol=1e-4)
    marked = (ours.array[0] > 90).astype(np.uint8)
    mask_file = write_labels(marked, str(tmp_path / "series"), tmp_path / "out")
    again = read_numbered_labels(str(mask_file))
    assert mask_file.name == "out.nii.gz"
    assert np.array_equal(again.array, marked)
    assert np.allclose(again.affine, grid.affine, atol=1e-4)
    assert pydicom.dcmread(tmp_path / "series" / "0.dcm").Rows == 5


def test_masks_of_pictures_keep_palette_numbers_and_many_labels(tmp_path) -> None:
    picture = Pillow.fromarray(np.array([[0, 3], [5, 3]], np.uint8), mode="P")
    picture.putpalette([value for colour in range(256) for value in (colour, 255 - colour, 7)])
    picture.save(tmp_path / "mask.png")
    assert read_numbered_labels(str(tmp_path / "mask.png")).array.tolist() == [[0, 3], [5, 3]]
    Pillow.fromarray(np.zeros((4, 5), np.uint8)).save(tmp_path / "image.png")
    marked = np.arange(20).reshape(4, 5) * 100
    mask_file = write_labels(marked, str(tmp_path / "image.png"), tmp_path / "out")
    assert mask_file.suffix == ".png"
    assert np.array_equal(read_numbered_labels(str(mask_file)).array, marked)


def test_float_masks_of_whole_numbers_pass_and_others_are_named(tmp_path) -> None:
    nifti(tmp_path / "whole.nii.gz", np.full((3, 4, 5), 2.0, np.float32), "LPS")
    assert read_numbered_labels(str(tmp_path / "whole.nii.gz")).array.dtype == np.uint8
    nifti(tmp_path / "soft.nii.gz", np.full((3, 4, 5), 0.5, np.float32), "LPS")
    with pytest.raises(DataError, match=r"soft.nii.gz: holds fractions"):
        read_numbered_labels(str(tmp_path / "soft.nii.gz"))
    nifti(tmp_path / "minus.nii.gz", np.full((3, 4, 5), -1, np.int16), "LPS")
    with pytest.raises(DataError, match="negative"):
        read_numbered_labels(str(tmp_path / "minus.nii.gz"))
    Pillow.fromarray(np.random.default_rng(0).integers(0, 9, (4, 4, 3), np.uint8)).save(tmp_path / "rgb.png")
    with pytest.raises(DataError, match="one channel"):
        read_numbered_labels(str(tmp_path / "rgb.png"))


def test_channels_from_one_file_several_files_or_none(tmp_path) -> None:
    stored = volume((4, 5, 6)) % 3
    nifti(tmp_path / "m.nii.gz", stored, "LPS")
    channels = read_class_masks(str(tmp_path / "m.nii.gz"), {"a": 1, "b": 2})
    assert channels.shape[0] == 2
    assert channels[1].sum() == (stored == 2).sum()
    nifti(tmp_path / "n.nii.gz", (stored > 0).astype(np.int16) * 255, "LPS")
    both = read_class_masks(
        {"a": str(tmp_path / "m.nii.gz"), "b": str(tmp_path / "n.nii.gz")}, {"a": 1, "b": 2, "c": 3}
    )
    assert both[0].sum() == both[1].sum() > 0
    assert not both[2].any()
    assert read_class_masks(None, {"a": 1}, shape=(3, 4)).shape == (1, 3, 4)


def test_a_mask_on_another_grid_is_brought_onto_the_images(tmp_path) -> None:
    fine = np.zeros((12, 12, 12), np.uint8)
    fine[4:8, 2:6, 4:10] = 1
    nifti(tmp_path / "fine.nii.gz", fine, "LPS", zooms=(1, 1, 1))
    affine = nifti(tmp_path / "coarse.nii.gz", volume((6, 6, 6)), "RAS", zooms=(2, 2, 2))
    shifted = affine.copy()
    shifted[:3, :3] = np.diag([-2, -2, 2])
    shifted[:3, 3] = np.add([-20, 11, 5], [-0.5, -0.5, 0.5])
    nib.save(nib.Nifti1Image(volume((6, 6, 6)), shifted), tmp_path / "coarse.nii.gz")
    mask, grid = read_numbered_labels(str(tmp_path / "fine.nii.gz")), grid_of(str(tmp_path / "coarse.nii.gz"))
    moved = align_labels(mask, grid)
    assert moved.shape == (6, 6, 6)
    assert moved.sum() * 8 == fine.sum()
    far = grid.affine.copy()
    far[:3, 3] += 500
    with pytest.raises(DataError, match="another case"):
        align_labels(mask, geometry.Geometry((6, 6, 6), (2.0, 2.0, 2.0), far), "m.nii.gz")
    with pytest.raises(DataError, match="nothing says"):
        align_labels(Mask(fine, None, None), grid)


@given(st.tuples(*[st.integers(1, 6)] * 3))
def test_masks_of_arrays_and_stacks_read_back_whatever_their_shape(tmp_path_factory, shape) -> None:
    place = tmp_path_factory.mktemp("arrays")
    np.save(place / "v.npy", volume(shape))
    array = read_image(str(place / "v.npy")).array
    marked = (array[0] > 80).astype(np.uint8)
    mask_file = write_labels(marked, str(place / "v.npy"), place / "out")
    assert np.array_equal(read_numbered_labels(str(mask_file)).array, marked)
    slices = []
    for number in range(shape[2]):
        Pillow.fromarray(volume(shape)[:, :, number].astype(np.uint8)).save(place / f"{number}.png")
        slices.append(str(place / f"{number}.png"))
    stack = read_image(slices).array[0]
    mask_file = write_labels((stack > 80).astype(np.uint8), slices, place / "stack")
    assert np.array_equal(read_numbered_labels(str(mask_file)).array, stack > 80)
