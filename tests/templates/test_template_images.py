"""Every format written and read again, by the file that m3b itself loads by path."""

from __future__ import annotations

import contextlib
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

SHARED = Path(__file__).resolve().parents[2] / "resources" / "templates" / "shared"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("images_by_path", SHARED / "images.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


images = _load()
read, probe = images.read_image, images.probe
rng = np.random.default_rng(0)
SHAPES = st.tuples(st.integers(5, 20), st.integers(5, 20), st.integers(5, 12))


def test_loading_imports_no_heavy_library() -> None:
    code = f"import sys; sys.path.insert(0, {str(SHARED)!r}); import images; print([m for m in sys.modules if m in "
    code += "('torch', 'PIL', 'nibabel', 'SimpleITK', 'pydicom', 'h5py')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@settings(max_examples=15)
@given(SHAPES, st.sampled_from([".png", ".tif", ".bmp"]))
def test_grey_pictures(tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], suffix: str) -> None:
    array = rng.integers(0, 255, shape[:2]).astype(np.uint8)
    file = tmp_path_factory.mktemp("p") / f"a{suffix}"
    Pillow.fromarray(array).save(file)
    image = read(str(file))
    assert np.array_equal(image.array, array[None])
    assert (image.dims, image.spacing) == (2, None)
    assert probe(str(file)) == shape[:2]


def test_picture_modes(tmp_path: Path) -> None:
    deep = rng.integers(0, 65535, (9, 7)).astype(np.uint16)
    Pillow.fromarray(deep).save(tmp_path / "deep.png")
    Pillow.fromarray(deep).save(tmp_path / "deep.tif")
    assert np.array_equal(read("deep.png", tmp_path).array[0], deep)
    assert np.array_equal(read("deep.tif", tmp_path).array[0], deep)
    colour = rng.integers(0, 255, (9, 7, 4)).astype(np.uint8)
    Pillow.fromarray(colour, "RGBA").save(tmp_path / "rgba.png")
    assert np.array_equal(read("rgba.png", tmp_path).array, np.moveaxis(colour[..., :3], -1, 0))
    grey = np.repeat(colour[..., :1], 3, axis=2)
    Pillow.fromarray(grey).save(tmp_path / "equal.png")
    assert read("equal.png", tmp_path).array.shape == (1, 9, 7)
    Pillow.fromarray(colour[..., :3]).quantize(8).save(tmp_path / "palette.png")
    assert read("palette.png", tmp_path).array.shape == (3, 9, 7)
    Pillow.fromarray(colour[..., :3]).save(tmp_path / "a.jpg")
    assert read("a.jpg", tmp_path).array.shape == (3, 9, 7)
    pages = [Pillow.fromarray(colour[..., k]) for k in range(3)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    assert np.array_equal(read("pages.tif", tmp_path).array[0], colour[..., :3])


@settings(max_examples=15)
@given(
    SHAPES, st.sampled_from([".nii", ".nii.gz"]), st.permutations([0, 1, 2]), st.tuples(*[st.sampled_from([1, -1])] * 3)
)
def test_nifti_of_any_orientation_gives_one_volume(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    suffix: str,
    order: list[int],
    signs: tuple[int, ...],
) -> None:
    import nibabel as nib

    array = rng.integers(-20, 200, shape).astype(np.int16)
    plain = nib.Nifti1Image(array, np.diag([0.5, 0.7, 2.0, 1.0]))
    turned = plain.as_reoriented(np.array([[axis, sign] for axis, sign in zip(order, signs, strict=True)]))
    file = tmp_path_factory.mktemp("n") / f"a{suffix}"
    nib.save(turned, file)
    image = read(str(file))
    assert np.array_equal(image.array[0], array[::-1, ::-1].transpose(1, 0, 2))
    assert image.spacing == pytest.approx((0.7, 0.5, 2.0))
    assert probe(str(file)) == image.array.shape[1:]


@settings(max_examples=10)
@given(SHAPES, st.sampled_from([".nrrd", ".mha", ".nii.gz"]))
def test_simpleitk_and_nibabel_agree(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], suffix: str
) -> None:
    import SimpleITK as sitk

    array = rng.integers(-1000, 500, shape).astype(np.int16)
    array[0, 0, 0] = -1000
    volume = sitk.GetImageFromArray(array)  # slices, rows, columns; the identity is LPS
    volume.SetSpacing((0.5, 0.7, 2.0))
    file = tmp_path_factory.mktemp("i") / f"a{suffix}"
    sitk.WriteImage(volume, str(file))
    image = read(str(file))
    assert np.array_equal(image.array[0], array.transpose(1, 2, 0))
    assert image.spacing == pytest.approx((0.7, 0.5, 2.0))
    assert image.modality == "ct"


def _dicom(file: Path, pixels: np.ndarray, position: float, number: int, photometric: str = "MONOCHROME2") -> None:
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    item = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    item.SOPClassUID, item.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    item.Modality, item.SeriesInstanceUID, item.InstanceNumber = "CT", "1.2.3", number
    item.Rows, item.Columns = pixels.shape
    item.SamplesPerPixel, item.PhotometricInterpretation = 1, photometric
    item.BitsAllocated = item.BitsStored = 16
    item.HighBit, item.PixelRepresentation = 15, 0
    item.RescaleSlope, item.RescaleIntercept = 2, -1024
    item.PixelSpacing, item.ImageOrientationPatient = [0.6, 0.8], [1, 0, 0, 0, 1, 0]
    item.ImagePositionPatient = [0, 0, position]
    item.PixelData = pixels.astype(np.uint16).tobytes()
    item.save_as(file, enforce_file_format=True)


def test_dicom_files_and_series(tmp_path: Path) -> None:
    volume = rng.integers(0, 2000, (6, 8, 5))
    series = tmp_path / "series"
    series.mkdir()
    for k in range(5):  # file names and instance numbers run against the positions
        _dicom(series / f"{9 - k}", volume[..., k], 2.5 * k, 9 - k)
    image = read("series", tmp_path)
    assert np.array_equal(image.array[0], volume * 2.0 - 1024)
    assert image.spacing == pytest.approx((0.6, 0.8, 2.5))
    assert (image.modality, image.dims) == ("ct", 3)


@pytest.mark.parametrize(
    ("allocated", "stored", "signed"), [(8, 8, 0), (16, 12, 0), (16, 16, 0), (16, 12, 1), (16, 16, 1)]
)
@pytest.mark.parametrize("rescale", [None, (2.5, -1024)])
@pytest.mark.parametrize("packed", ["", "RLE", "JPEG 2000"])
def test_monochrome1_equals_its_monochrome2_twin(
    tmp_path: Path, allocated: int, stored: int, signed: int, rescale: tuple[float, float] | None, packed: str
) -> None:
    """Turned by the bits stored, whatever range the image's own values have, and whoever decodes them."""
    import pydicom

    low = -(1 << (stored - 1)) if signed else 0
    top = low + (1 << stored) - 1
    values = rng.integers(low + 3, low + 200, (12, 10))
    for name, photometric, pixels in (("two", "MONOCHROME2", values), ("one", "MONOCHROME1", low + top - values)):
        file = tmp_path / f"{name}.dcm"
        _dicom(file, pixels, 0, 1, photometric)
        item = pydicom.dcmread(file)
        item.BitsAllocated, item.BitsStored, item.HighBit, item.PixelRepresentation = (
            allocated,
            stored,
            stored - 1,
            signed,
        )
        kind = np.dtype(f"{'i' if signed else 'u'}{allocated // 8}")
        item.PixelData = pixels.astype(kind).tobytes()
        item["PixelData"].VR = "OW"
        item.WindowCenter, item.WindowWidth = 100, 50
        if rescale:
            item.RescaleSlope, item.RescaleIntercept = rescale
        else:
            del item.RescaleSlope, item.RescaleIntercept
        if packed == "RLE":
            item.compress(pydicom.uid.RLELossless, generate_instance_uid=False)
        if packed == "JPEG 2000":  # pydicom has no decoder for it here, so that GDCM reads it
            if signed:
                pytest.skip("the encoder takes no signed values")
            codecs = pytest.importorskip("imagecodecs")
            code = codecs.jpeg2k_encode(pixels.astype(kind), reversible=True, level=0, codecformat="j2k")
            item.PixelData = pydicom.encaps.encapsulate([code])
            item["PixelData"].VR, item["PixelData"].is_undefined_length = "OB", True
            item.file_meta.TransferSyntaxUID = pydicom.uid.JPEG2000Lossless
        item.save_as(file)
    first, second = read("two.dcm", tmp_path).array[0], read("one.dcm", tmp_path).array[0]
    slope, offset = rescale or (1, 0)
    assert np.array_equal(first, values * slope + offset)
    assert np.array_equal(first, second)


@settings(max_examples=15)
@given(SHAPES, st.integers(0, 4))
def test_array_references(tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], index: int) -> None:
    import h5py
    import torch

    folder = tmp_path_factory.mktemp("a")
    array = rng.normal(size=(5, *shape[:2])).astype(np.float32)
    np.save(folder / "a.npy", array)
    np.savez(folder / "a.npz", train_images=array, train_labels=np.zeros(5))
    np.savez_compressed(folder / "b.npz", array)
    with h5py.File(folder / "a.h5", "w") as file:
        file["group/images"] = array
    (folder / "a.pkl").write_bytes(pickle.dumps({"images": array, "names": ["a"]}))
    (folder / "a.pck").write_bytes(pickle.dumps(array, protocol=2))
    torch.save({"images": torch.from_numpy(array)}, folder / "a.pt")
    names = ["a.npy#", "a.npz#train_images", "b.npz#", "a.h5#group/images", "a.pkl#images", "a.pck#", "a.pt#images"]
    for name in names:
        path = f"{name}[{index}]"
        assert np.array_equal(read(path, folder).array, array[index][None]), path
        assert probe(path, folder) == shape[:2]


def test_axes_of_bare_arrays(tmp_path: Path) -> None:
    for shape, expected in {
        (12, 10): (1, 12, 10),
        (12, 10, 3): (3, 12, 10),
        (3, 12, 10): (3, 12, 10),
        (7, 12, 12): (1, 12, 12, 7),
        (12, 12, 7): (1, 12, 12, 7),
        (2, 9, 9, 9): (2, 9, 9, 9),
    }.items():
        np.save(tmp_path / "a.npy", np.zeros(shape, np.float32))
        assert read("a.npy", tmp_path).array.shape == expected


def test_slices_in_natural_order(tmp_path: Path) -> None:
    for k in (1, 2, 10):
        Pillow.fromarray(np.full((4, 6), k, np.uint8)).save(tmp_path / f"slice{k}.png")
    (tmp_path / "notes.txt").write_text("x")
    assert read(str(tmp_path)).array[0, 0, 0].tolist() == [1, 2, 10]
    assert read(["slice10.png", "slice1.png"], tmp_path).array[0, 0, 0].tolist() == [10, 1]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("touch executed",)


def test_a_pickle_is_never_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(images.ImageError, match=r"evil\.pkl.*system"):
        read("evil.pkl")
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    "name", ["a.png", "a.dcm", "a.nii.gz", "a.mha", "a.npz", "a.h5", "a.pt", "a.pkl", "a.xyz", "gone.png"]
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    if not name.startswith("gone"):
        (tmp_path / name).write_bytes(b"this is no image at all" * 20)
    with pytest.raises(images.ImageError, match=name.replace(".", r"\.")):
        read(name, tmp_path)


@given(st.text(max_size=40))
def test_any_path_reads_or_raises_image_error(path: str) -> None:
    with contextlib.suppress(images.ImageError):
        read(path.replace("/", "_"), "/nonexistent")


@pytest.mark.parametrize(("name", "content"), [("bad.png", b"no picture"), ("empty.png", b""), ("fake.nii.gz", b"x")])
def test_a_damaged_file_is_named_once_and_without_classes_of_python(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(images.ImageError) as caught:
        images.read_image(str(tmp_path / name))
    assert str(caught.value).count(name) == 1
    assert "Error" not in str(caught.value)
