"""DICOM series that are no plain volume: localizers, doubles, gaps, tilt, phases, and enhanced multi-frame objects."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import generate_uid

from formats.store_kit import dicom_file, film, in_lps, volume, write_series
from m3b.dataset.formats import DataError, Image, probe_image, read_image
from m3b.dataset.formats.labels import align_labels, grid_of, read_numbered_labels, write_labels

AFFINE = np.diag([-1.0, -1.0, 2.0, 1.0])


def edit(file: Path, **fields: Any) -> None:
    data = pydicom.dcmread(file)
    for name, value in fields.items():
        setattr(data, name, value)
    data.save_as(file, enforce_file_format=True)


def values_of(count: int) -> np.ndarray:
    """(x, y, slices), each slice brighter by 10 than the one below."""
    return np.broadcast_to(np.arange(count, dtype=np.int16) * 10, (6, 5, count)).copy()


def codes(image: Image) -> dict[str, dict[str, Any]]:
    return {note.code: dict(note.values) for note in image.notes}


def read_both(folder: Path, item: str = "") -> Image:
    """The image; what its headers say is the same."""
    path = str(folder) + (f"#{item}" if item else "")
    image, info = read_image(path), probe_image(path)
    assert info.shape == image.array.shape[1:]
    assert info.spacing == pytest.approx(image.spacing)
    assert [note.code for note in info.notes] == [note.code for note in image.notes]
    assert np.dtype(info.dtype) == image.array.dtype
    return image


def test_localizers_are_left_out(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(8), AFFINE)
    scout = dicom_file(np.zeros((5, 6), np.int16), Modality="CT", ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"],
                       ImagePositionPatient=[0, 0, 0], ImageOrientationPatient=[1, 0, 0, 0, 0, -1], PixelSpacing=[1, 1],
                       SeriesInstanceUID=pydicom.dcmread(files[0]).SeriesInstanceUID)  # fmt: skip
    scout.save_as(tmp_path / "s/scout", enforce_file_format=True)
    image = read_both(tmp_path / "s")
    assert image.array.shape == (1, 5, 6, 8)
    assert codes(image) == {"localizer": {"left_out": 1}}
    assert [note.code for note in read_image(str(tmp_path / "s/scout")).notes] == ["localizer"]


def test_a_slice_twice_counts_once(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(8), AFFINE)
    (tmp_path / "s/copy").write_bytes(files[3].read_bytes())
    data = pydicom.dcmread(files[4])
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    data.save_as(tmp_path / "s/again", enforce_file_format=True)
    image = read_both(tmp_path / "s")
    assert image.array[0, 0, 0].tolist() == [0, 10, 20, 30, 40, 50, 60, 70]
    assert codes(image) == {"duplicate_slice": {"left_out": 2}}


def test_different_slices_at_one_place_are_an_error(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(8), AFFINE)
    data = pydicom.dcmread(files[4])
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    data.PixelData = bytes(len(data.PixelData))
    data.save_as(tmp_path / "s/other", enforce_file_format=True)
    with pytest.raises(DataError, match="2 different slices lie at 8 mm"):
        read_image(str(tmp_path / "s"))


def test_few_missing_slices_are_interpolated(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(30), AFFINE)
    files[10].unlink()
    files[20].unlink()
    files[21].unlink()
    image = read_both(tmp_path / "s")
    assert np.allclose(image.array[0, 0, 0], np.arange(30) * 10)
    assert image.spacing == pytest.approx((1, 1, 2))
    assert codes(image) == {"slice_gap": {"missing": 3, "step_mm": 2.0}}


def test_many_missing_slices_are_an_error(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(30), AFFINE)
    for file in files[10:20]:
        file.unlink()
    with pytest.raises(DataError, match="10 slices of 30 are missing"):
        read_image(str(tmp_path / "s"))


def test_two_regions_with_slice_distances_of_their_own(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(12), AFFINE)
    for number, file in enumerate(files):
        z = 2.5 * number if number < 6 else 2.5 * 5 + 5.0 * (number - 5)
        edit(file, ImagePositionPatient=[0, 0, z])
    image = read_both(tmp_path / "s")
    assert image.spacing == pytest.approx((1, 1, 2.5))
    assert image.array.shape[-1] == 18
    assert codes(image) == {"uneven_slices": {"smallest_mm": 2.5, "largest_mm": 5.0}}


def test_positions_rounded_by_the_scanner_are_even(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(12), AFFINE)
    for number, file in enumerate(files):
        edit(file, ImagePositionPatient=[0, 0, round(3.27 * number, 1)])
    image = read_both(tmp_path / "s")
    assert codes(image) == {}
    assert image.spacing[2] == pytest.approx(3.27, abs=0.01)


def test_gantry_tilt_is_said_and_kept_in_the_affine(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(8), AFFINE)
    for number, file in enumerate(files):
        edit(file, ImagePositionPatient=[0, -0.5 * number, 2.0 * number])
    image = read_both(tmp_path / "s")
    assert codes(image) == {"gantry_tilt": {"degrees": 14.0}}
    assert image.affine[:3, 2] == pytest.approx([0, -0.5, 2.0])


@pytest.mark.parametrize("field", ["AcquisitionNumber", "TemporalPositionIdentifier", "EchoNumbers"])
def test_phases_are_volumes_of_their_own(tmp_path: Path, field: str) -> None:
    first = write_series(tmp_path / "s", values_of(8), AFFINE)
    second = write_series(tmp_path / "t", values_of(8) + 500, AFFINE)
    uid = pydicom.dcmread(first[0]).SeriesInstanceUID
    for number, file in enumerate([*first, *second]):
        edit(file, SeriesInstanceUID=uid, **{field: 1 + number // 8})
    for file in second:
        file.rename(tmp_path / f"s/second_{file.name}")
    image = read_both(tmp_path / "s")
    assert image.array[0, 0, 0].tolist() == list(range(0, 80, 10))
    assert codes(image) == {"several_phases": {"count": 2, "field": field, "taken": 0}}
    assert read_both(tmp_path / "s", "phase=1").array[0, 0, 0].tolist() == list(range(500, 580, 10))
    with pytest.raises(DataError, match="2 phases"):
        read_image(f"{tmp_path / 's'}#phase=2")


def test_of_two_series_the_longer_one_is_read(tmp_path: Path) -> None:
    write_series(tmp_path / "s", values_of(8), AFFINE)
    for file in write_series(tmp_path / "t", values_of(5), AFFINE):
        file.rename(tmp_path / f"s/second_{file.name}")
    image = read_both(tmp_path / "s")
    assert image.array.shape[-1] == 8
    assert codes(image) == {"several_groups": {"count": 2, "series": 2, "left_out": 5}}


def test_rescale_of_each_slice(tmp_path: Path) -> None:
    files = write_series(tmp_path / "s", values_of(8) * 0 + 10, AFFINE)
    for number, file in enumerate(files):
        edit(file, RescaleSlope=str(number + 1), RescaleIntercept="-5", Modality="PT", Units="BQML")
    image = read_both(tmp_path / "s")
    assert image.array[0, 0, 0].tolist() == [10 * (number + 1) - 5 for number in range(8)]
    assert codes(image) == {"rescale_differs": {"count": 8}}
    assert (image.modality, image.unit) == ("pet", "BQML")


def test_a_diffusion_map_says_what_its_values_are(tmp_path: Path) -> None:
    for file in write_series(tmp_path / "s", values_of(8), AFFINE):
        edit(file, Modality="MR", ImageType=["DERIVED", "PRIMARY", "DIFFUSION", "ADC"], RescaleType="US")
    assert read_both(tmp_path / "s").unit == "ADC"


def enhanced(count: int) -> Dataset:
    """An enhanced CT whose frames run from the head down, each with its own rescale."""
    values, _, affine = volume()
    values, lps = values[..., :count], np.diag([-1, -1, 1, 1]) @ affine
    steps = np.linalg.norm(lps[:3, :3], axis=0)
    frames = np.stack([values[:, :, number].T for number in range(count)][::-1])
    data = dicom_file(frames, Modality="CT", NumberOfFrames=count)
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2.1"
    del data.PixelSpacing
    orientation, measures, shared = Dataset(), Dataset(), Dataset()
    orientation.ImageOrientationPatient = [
        f"{value:.10f}" for value in (*lps[:3, 0] / steps[0], *lps[:3, 1] / steps[1])
    ]
    measures.PixelSpacing, measures.SliceThickness = [steps[1], steps[0]], steps[2]
    shared.PlaneOrientationSequence, shared.PixelMeasuresSequence = Sequence([orientation]), Sequence([measures])
    data.SharedFunctionalGroupsSequence = Sequence([shared])
    groups = []
    for number in reversed(range(count)):
        position, rescale, group = Dataset(), Dataset(), Dataset()
        position.ImagePositionPatient = [f"{value:.6f}" for value in (lps @ [0, 0, number, 1])[:3]]
        rescale.RescaleSlope, rescale.RescaleIntercept, rescale.RescaleType = "2", str(-1024 + number), "HU"
        group.PlanePositionSequence = Sequence([position])
        group.PixelValueTransformationSequence = Sequence([rescale])
        groups.append(group)
    data.PerFrameFunctionalGroupsSequence = Sequence(groups)
    return data


def test_enhanced_multi_frame(tmp_path: Path) -> None:
    enhanced(9).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    values, _, affine = volume()
    expected, lps = in_lps(values.astype(float) * 2 - 1024 + np.arange(9), affine)
    image = read_both(tmp_path / "a.dcm")
    assert np.allclose(image.array[0], expected)
    assert image.affine == pytest.approx(lps, abs=1e-3)
    assert image.modality == "ct"


def test_a_mask_of_enhanced_frames_lies_on_them(tmp_path: Path) -> None:
    enhanced(9).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    image = str(tmp_path / "a.dcm")
    marked = (read_image(image).array[0] > 0).astype(np.uint8)
    mask_file = write_labels(marked, image, tmp_path / "mask")
    assert np.array_equal(align_labels(read_numbered_labels(str(mask_file)), grid_of(image), "mask"), marked)


def test_enhanced_frame_by_frame(tmp_path: Path) -> None:
    enhanced(4).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    values = volume()[0]
    image = read_image(f"{tmp_path / 'a.dcm'}#frame=0")
    assert np.allclose(image.array[0], values[:, :, 3].T * 2.0 - 1021)
    assert read_image(f"{tmp_path / 'a.dcm'}#frames=2").array.shape == (1, 26, 22, 2)
    with pytest.raises(DataError, match="4 frames"):
        read_image(f"{tmp_path / 'a.dcm'}#frame=4")


def test_a_cine_loop_keeps_its_order(tmp_path: Path) -> None:
    frames = np.stack([film() // (number + 1) for number in range(5)])
    dicom_file(frames, NumberOfFrames=5, Modality="US").save_as(tmp_path / "a.dcm", enforce_file_format=True)
    image = read_image(str(tmp_path / "a.dcm"))
    assert np.array_equal(image.array[0], np.moveaxis(frames, 0, -1))
    assert image.modality == "us"


def test_windows_and_stored_bits(tmp_path: Path) -> None:
    stored = film().astype(np.uint16) * 8
    fields = {"BitsStored": 12, "HighBit": 11, "WindowCenter": "1024", "WindowWidth": "2048"}
    dicom_file(stored, **fields).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    dicom_file(4095 - stored, PhotometricInterpretation="MONOCHROME1", **{**fields, "WindowCenter": "3072"}).save_as(
        tmp_path / "b.dcm", enforce_file_format=True
    )
    images = [read_image(str(tmp_path / f"{name}.dcm")) for name in "ab"]
    assert np.array_equal(images[0].array, images[1].array)
    assert images[0].stored_range == images[1].stored_range == (0, 4095)
    assert images[0].window == pytest.approx((0, 2047))
    assert images[1].window == pytest.approx((0, 2047))


def test_what_is_no_image_is_an_error(tmp_path: Path) -> None:
    data = copy.deepcopy(dicom_file(film()))
    del data.PixelData, data.Rows
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    for read in (read_image, probe_image):
        with pytest.raises(DataError, match="without pixels"):
            read(str(tmp_path / "a.dcm"))
    complete = dicom_file(film())
    complete.PixelData = complete.PixelData[:500]
    complete.save_as(tmp_path / "b.dcm", enforce_file_format=True)
    with pytest.raises(DataError, match=r"b\.dcm"):
        read_image(str(tmp_path / "b.dcm"))
