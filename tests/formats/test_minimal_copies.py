"""Minimal copies: the same pixels and geometry, and none of the texts of the original."""

from __future__ import annotations

import bz2
import gzip
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
import pytest
import SimpleITK as sitk
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence

from m3b.dataset.formats import probe_image, read_image
from m3b.dataset.minimal import write_minimal_copy

PLANTED = "MalignantMelanoma"
RANDOM = np.random.default_rng(0)
GREY = RANDOM.integers(0, 256, (20, 30), dtype=np.uint8)
COLOUR = RANDOM.integers(0, 256, (20, 30, 3), dtype=np.uint8)
VOLUME = RANDOM.integers(-1000, 3000, (6, 7, 8)).astype(np.int16)
FIELDS = (
    "shape",
    "channels",
    "spacing",
    "affine",
    "modality",
    "bits_stored",
    "window",
    "photometric",
    "frames",
    "orientation",
    "unit",
)


def holds_planted(content: bytes) -> bool:
    forms = [PLANTED.encode(), PLANTED.encode("utf-16-le"), PLANTED.encode("utf-16-be"), PLANTED.upper().encode()]
    return any(form in content for form in forms)


def unpacked(file: Path) -> bytes:
    content = file.read_bytes()
    if content[:2] == b"\x1f\x8b":
        return content + gzip.decompress(content)
    return content + bz2.decompress(content) if content[:3] == b"BZh" else content


def check_copy(source: Path, item: str = "") -> Path:
    target = source.with_name(f"copy{''.join(source.suffixes)}")
    assert holds_planted(unpacked(source))
    assert write_minimal_copy(source, target)
    assert not holds_planted(unpacked(target))
    first, second = read_image(f"{source}{item}"), read_image(f"{target}{item}")
    assert first.array.dtype == second.array.dtype
    np.testing.assert_array_equal(first.array, second.array)
    infos = probe_image(f"{source}{item}"), probe_image(f"{target}{item}")
    for name in FIELDS:
        np.testing.assert_array_equal(*(np.asarray(getattr(info, name)) for info in infos))
    return target


def exif(orientation: int) -> Image.Exif:
    values = Image.Exif()
    values[0x0112], values[0x010E], values[0x013B] = orientation, PLANTED, PLANTED
    return values


def append(file: Path, content: bytes = PLANTED.encode()) -> Path:
    with file.open("ab") as stream:
        stream.write(content)
    return file


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "I;16", "1", "LA"])
def test_png_keeps_pixels_of_every_mode(tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(GREY.astype(np.uint16) * 250) if mode == "I;16" else Image.fromarray(COLOUR).convert(mode)
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Description", PLANTED)
    texts.add_itxt("Label", PLANTED)
    texts.add_text("Packed", PLANTED * 9, zip=True)
    image.save(tmp_path / "a.png", pnginfo=texts, exif=exif(6), icc_profile=PLANTED.encode())
    target = check_copy(append(tmp_path / "a.png"))
    assert target.stat().st_size.bit_count() == 1


@pytest.mark.parametrize("options", [{"quality": 70}, {"quality": 95, "subsampling": 0, "progressive": True}])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpeg_is_not_encoded_again(tmp_path: Path, options: dict[str, Any], orientation: int) -> None:
    Image.fromarray(COLOUR).save(
        tmp_path / "a.jpg", comment=PLANTED, exif=exif(orientation), icc_profile=PLANTED.encode(), **options
    )
    target = check_copy(append(tmp_path / "a.jpg"))
    with Image.open(tmp_path / "a.jpg") as first, Image.open(target) as second:
        assert first.tobytes() == second.tobytes()
        assert second.getexif().get(0x0112, 1) == orientation
    assert target.stat().st_size.bit_count() == 1


def test_jpeg_in_grey_cmyk_and_with_restarts(tmp_path: Path) -> None:
    for mode in ("L", "CMYK"):
        Image.fromarray(COLOUR).convert(mode).save(tmp_path / f"{mode}.jpg", comment=PLANTED, restart_marker_blocks=2)
        check_copy(tmp_path / f"{mode}.jpg")


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("orientation", [1, 8])
def test_webp(tmp_path: Path, lossless: bool, orientation: int) -> None:
    Image.fromarray(COLOUR).save(tmp_path / "a.webp", lossless=lossless, exif=exif(orientation), xmp=PLANTED.encode())
    check_copy(append(tmp_path / "a.webp"))


def test_gif_bmp_and_jpeg2000(tmp_path: Path) -> None:
    frames = [Image.fromarray(RANDOM.integers(0, 256, (9, 11), dtype=np.uint8)) for _ in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:], comment=PLANTED.encode(), loop=0)
    check_copy(append(tmp_path / "a.gif"))
    Image.fromarray(COLOUR).save(tmp_path / "a.bmp")
    check_copy(append(tmp_path / "a.bmp"))
    for name, options in (("a.jp2", {}), ("b.j2k", {"no_jp2": True})):
        Image.fromarray(COLOUR).save(tmp_path / name, comment=PLANTED, **options)
        check_copy(append(tmp_path / name))


def with_comment(stream: bytes) -> bytes:
    """Plant a comment and application data at the start of a JPEG stream, or behind the SIZ marker of a JPEG 2000 stream."""
    text = PLANTED.encode()
    if stream.startswith(b"\xff\xd8"):
        segments = [bytes((0xFF, kind)) + struct.pack(">H", len(text) + 2) + text for kind in (0xFE, 0xED)]
        return stream[:2] + b"".join(segments) + stream[2:]
    end = 4 + struct.unpack_from(">H", stream, 4)[0]
    return stream[:end] + b"\xff\x64" + struct.pack(">HH", len(text) + 4, 1) + text + stream[end:]


def encode_picture(kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(GREY).save(buffer, kind, **options)
    return with_comment(buffer.getvalue())


@pytest.mark.parametrize(("compression", "kind"), [(7, "JPEG"), (34712, "JPEG2000")])
def test_comments_in_streams_of_tiff(tmp_path: Path, compression: int, kind: str) -> None:
    stream = encode_picture(kind, **({"no_jp2": True} if kind == "JPEG2000" else {}))
    height = len(GREY)
    tifffile.imwrite(tmp_path / "a.tif", iter([stream]), shape=GREY.shape, dtype=GREY.dtype, rowsperstrip=height,
                     compression=compression, photometric="minisblack", metadata=None)  # fmt: skip
    check_copy(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("kind", "syntax"), [("JPEG", "1.2.840.10008.1.2.4.50"), ("JPEG2000", "1.2.840.10008.1.2.4.90")]
)
def test_comments_in_streams_of_dicom(tmp_path: Path, kind: str, syntax: str) -> None:
    data = make_dicom(frames=2)
    streams = [encode_picture(kind, **({"no_jp2": True} if kind == "JPEG2000" else {}))] * 2
    data.Rows, data.Columns, data.BitsAllocated, data.BitsStored, data.HighBit = *GREY.shape, 8, 8, 7
    data.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    data.PixelData = pydicom.encaps.encapsulate(streams)
    data["PixelData"].VR = "OB"
    check_copy(save_dicom(data, tmp_path / "a.dcm"))


def test_bytes_behind_the_pixels_of_png(tmp_path: Path) -> None:
    Image.fromarray(RANDOM.integers(0, 256, (300, 400), dtype=np.uint8)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    last = content.rindex(b"IDAT") - 4
    (length,) = struct.unpack_from(">I", content, last)
    data = content[last + 8 : last + 8 + length] + PLANTED.encode()
    chunk = struct.pack(">I", len(data)) + b"IDAT" + data + struct.pack(">I", zlib.crc32(b"IDAT" + data))
    (tmp_path / "a.png").write_bytes(content[:last] + chunk + content[last + 12 + length :])
    check_copy(tmp_path / "a.png")


def test_boxes_in_the_header_of_jpeg2000(tmp_path: Path) -> None:
    Image.fromarray(COLOUR).save(tmp_path / "a.jp2")
    content = (tmp_path / "a.jp2").read_bytes()
    start = content.index(b"jp2h") - 4
    (length,) = struct.unpack_from(">I", content, start)
    box = struct.pack(">I4s", 8 + len(PLANTED), b"xml ") + PLANTED.encode()
    grown = struct.pack(">I", length + len(box)) + content[start + 4 : start + length] + box
    (tmp_path / "a.jp2").write_bytes(content[:start] + grown + content[start + length :])
    check_copy(tmp_path / "a.jp2")


def test_tiff_keeps_stacks_and_sizes(tmp_path: Path) -> None:
    tags = [(315, "s", 0, PLANTED, True), (65000, "s", 0, PLANTED, True), (34665, "I", 1, 8, True)]
    planted: dict[str, Any] = {"software": PLANTED, "datetime": "2020:01:01 00:00:00", "extratags": tags}
    write = tifffile.imwrite
    stack = RANDOM.integers(0, 60000, (5, 33, 44)).astype(np.uint16)
    write(
        tmp_path / "plain.tif",
        GREY,
        description=PLANTED,
        metadata=None,
        resolution=(100, 50),
        resolutionunit=3,
        **planted,
    )
    write(tmp_path / "tiles.tif", stack, tile=(16, 16), compression="zlib", metadata={"Name": PLANTED}, **planted)
    write(tmp_path / "big.tif", stack, bigtiff=True, byteorder=">", metadata={"Name": PLANTED}, **planted)
    write(
        tmp_path / "float.tif", stack.astype(np.float32), metadata={"Name": PLANTED}, compression="lzw", predictor=True
    )
    write(tmp_path / "stack.tif", stack, imagej=True, resolution=(2, 2),
          metadata={"spacing": 3.0, "unit": "um", "axes": "ZYX", "Info": PLANTED, "Labels": [PLANTED] * 5})  # fmt: skip
    write(tmp_path / "jpeg.tif", COLOUR, compression="jpeg", photometric="rgb", description=PLANTED, metadata=None)
    write(tmp_path / "image.ome.tif", stack, ome=True, metadata={"axes": "ZYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5,
          "PhysicalSizeXUnit": "µm", "PhysicalSizeYUnit": "µm", "Name": PLANTED, "Description": PLANTED})  # fmt: skip
    for file in sorted(tmp_path.glob("*.tif")):
        check_copy(append(file)).unlink()


def test_tiff_keeps_exif_out(tmp_path: Path) -> None:
    values = exif(6)
    values.get_ifd(0x8769)[0x9286] = b"ASCII\0\0\0" + PLANTED.encode()
    Image.fromarray(COLOUR).save(tmp_path / "a.tif", exif=values)
    check_copy(tmp_path / "a.tif")


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nii.bz2"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_nifti(tmp_path: Path, suffix: str, kind: Any) -> None:
    affine = np.diag([-0.7, 0.8, 2.5, 1.0])
    affine[:3, 3] = 11, -22, 33
    image = kind(VOLUME, affine)
    image.header["descrip"], image.header["aux_file"], image.header["intent_name"] = PLANTED, PLANTED, PLANTED[:15]
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", PLANTED.encode() * 20))
    image.header.set_slope_inter(2.0, -5.0)
    nibabel.save(image, tmp_path / f"plain{suffix}")
    target = check_copy(tmp_path / f"plain{suffix}")
    assert nibabel.load(target).header["intent_name"] == b""
    if suffix == ".nii":
        check_copy(append(tmp_path / "plain.nii"))


@pytest.mark.parametrize("suffix", [".mgh", ".mgz"])
def test_mgh(tmp_path: Path, suffix: str) -> None:
    nibabel.save(nibabel.MGHImage(VOLUME.astype(np.float32), np.diag([-1, 1, 2, 1.0])), tmp_path / f"a{suffix}")
    tag = struct.pack(">iq", 3, len(PLANTED)) + PLANTED.encode()
    append(tmp_path / f"a{suffix}", tag if suffix == ".mgh" else gzip.compress(tag))
    check_copy(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("name", ["a.nrrd", "b.mha"])
@pytest.mark.parametrize("compressed", [True, False])
def test_nrrd_and_metaimage(tmp_path: Path, name: str, compressed: bool) -> None:
    image = sitk.GetImageFromArray(VOLUME)
    image.SetSpacing((0.5, 0.6, 3.0))
    image.SetOrigin((1.0, 2.0, 3.0))
    image.SetDirection((0, 1, 0, 1, 0, 0, 0, 0, -1))
    image.SetMetaData("Comment", PLANTED)
    sitk.WriteImage(image, str(tmp_path / name), useCompression=compressed)
    target = check_copy(append(tmp_path / name))
    first, second = (sitk.ReadImage(str(file)) for file in (tmp_path / name, target))
    for read in ("GetSpacing", "GetOrigin", "GetDirection"):
        assert getattr(first, read)() == getattr(second, read)()


def make_frame(position: int) -> Dataset:
    frame, place = Dataset(), Dataset()
    place.ImagePositionPatient, frame.FrameComments = [1, 2, 2.5 * position], PLANTED
    frame.PlanePositionSequence = Sequence([place])
    return frame


def make_dicom(modality: str = "CT", frames: int = 1) -> Dataset:
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = "1.2.3.4.5"
    data.SeriesInstanceUID, data.StudyInstanceUID, data.InstanceNumber = "1.2.3.4", "1.2.3", 7
    data.Modality, data.ImageType = modality, ["ORIGINAL", "PRIMARY", PLANTED.upper()[:16]]
    for keyword in (
        "PatientName",
        "StudyDescription",
        "SeriesDescription",
        "ImageComments",
        "PatientID",
        "BodyPartExamined",
    ):
        setattr(data, keyword, PLANTED[:16] if keyword == "BodyPartExamined" else PLANTED)
    data.private_block(0x0029, "SITE", create=True).add_new(1, "LO", PLANTED)
    data.Rows, data.Columns, data.BitsAllocated, data.BitsStored, data.HighBit = 6, 8, 16, 12, 11
    data.PixelRepresentation, data.SamplesPerPixel, data.PhotometricInterpretation = 0, 1, "MONOCHROME2"
    data.PixelSpacing, data.ImageOrientationPatient = [0.5, 0.7], [1, 0, 0, 0, 1, 0]
    data.ImagePositionPatient, data.SliceThickness = [1, 2, 3], 2.5
    data.RescaleSlope, data.RescaleIntercept, data.RescaleType, data.WindowCenter, data.WindowWidth = (
        2,
        -1024,
        "HU",
        40,
        400,
    )
    if frames > 1:
        data.NumberOfFrames = frames
        data.PerFrameFunctionalGroupsSequence = Sequence([make_frame(position) for position in range(frames)])
    data.PixelData = RANDOM.integers(0, 4000, (frames, 6, 8)).astype(np.uint16).tobytes()
    return data


def save_dicom(data: Dataset, file: Path) -> Path:
    data.save_as(file, enforce_file_format=True)
    return file


@pytest.mark.parametrize("frames", [1, 4])
def test_dicom(tmp_path: Path, frames: int) -> None:
    target = check_copy(save_dicom(make_dicom(frames=frames), tmp_path / "a.dcm"))
    copy = pydicom.dcmread(target)
    assert not {str(copy[key].value) for key in ("SOPInstanceUID", "SeriesInstanceUID")} & {"1.2.3.4.5", "1.2.3.4"}
    assert PLANTED.lower()[:12] not in str(copy).lower()
    assert target.stat().st_size.bit_count() == 1


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.5"])
def test_dicom_of_other_encodings(tmp_path: Path, syntax: str) -> None:
    data = make_dicom()
    if syntax.endswith(".2.5"):
        data.compress(syntax)
    else:
        data.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    if syntax.endswith("2.2"):
        data.PixelData = np.frombuffer(data.PixelData, "<u2").astype(">u2").tobytes()
    check_copy(save_dicom(data, tmp_path / "a.dcm"))


def test_dicom_with_a_palette(tmp_path: Path) -> None:
    data = make_dicom()
    data.PhotometricInterpretation, data.BitsAllocated, data.BitsStored, data.HighBit = "PALETTE COLOR", 8, 8, 7
    data.PixelData = RANDOM.integers(0, 256, (6, 8), dtype=np.uint8).tobytes()
    for colour in ("Red", "Green", "Blue"):
        setattr(data, f"{colour}PaletteColorLookupTableDescriptor", [256, 0, 16])
        setattr(
            data, f"{colour}PaletteColorLookupTableData", RANDOM.integers(0, 65536, 256).astype(np.uint16).tobytes()
        )
    check_copy(save_dicom(data, tmp_path / "a.dcm"))


def test_dicom_keeps_what_uptake_needs(tmp_path: Path) -> None:
    data = make_dicom("PT")
    data.Units, data.PatientWeight, data.DecayCorrection, data.SeriesDate, data.SeriesTime = (
        "BQML",
        70.5,
        "START",
        "20210304",
        "101112",
    )
    data.AcquisitionDate, data.AcquisitionTime, data.CorrectedImage = "20210305", "001500", ["ATTN", "DECY"]
    dose = Dataset()
    dose.RadionuclideTotalDose, dose.RadionuclideHalfLife, dose.Radiopharmaceutical = 3.7e8, 6586.2, PLANTED
    dose.RadiopharmaceuticalStartDateTime, dose.RadiopharmaceuticalStartTime = "20210304091000", "091000"
    data.RadiopharmaceuticalInformationSequence = Sequence([dose])
    copy = pydicom.dcmread(check_copy(save_dicom(data, tmp_path / "a.dcm")))
    uptake = copy.RadiopharmaceuticalInformationSequence[0]
    assert (copy.PatientWeight, uptake.RadionuclideTotalDose, uptake.RadionuclideHalfLife) == (70.5, 3.7e8, 6586.2)
    assert (copy.Units, copy.DecayCorrection, list(copy.CorrectedImage)) == ("BQML", "START", ["ATTN", "DECY"])
    assert (copy.SeriesDate, copy.SeriesTime, copy.AcquisitionDate) == ("20000101", "101112", "20000102")
    assert uptake.RadiopharmaceuticalStartDateTime == "20000101091000"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["PNG", "JPEG", "GIF", "TIFF", "WEBP"]),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["L", "RGB", "P"]),
    st.binary(max_size=40),
)
def test_any_picture_reads_the_same(tmp_path: Path, kind: str, width: int, height: int, mode: str, tail: bytes) -> None:
    pixels = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    source, target = tmp_path / f"a.{kind.lower()}", tmp_path / f"b.{kind.lower()}"
    Image.fromarray(pixels).convert("RGB" if mode == "P" and kind == "JPEG" else mode).save(source, format=kind)
    append(source, tail)
    assert write_minimal_copy(source, target)
    np.testing.assert_array_equal(read_image(str(source)).array, read_image(str(target)).array)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["png", "jpeg", "gif", "webp", "bmp", "tiff", "jp2"]), st.data())
def test_damaged_pictures_are_refused_or_read_the_same(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    stream = io.BytesIO()
    Image.fromarray(COLOUR).save(stream, format={"jp2": "JPEG2000"}.get(kind, kind))
    content = bytearray(stream.getvalue())
    content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))
    source, target = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    source.write_bytes(content[: data.draw(st.integers(30, len(content)))])
    assert write_minimal_copy(source, target) == target.exists()


def test_what_cannot_be_made_minimal_says_so(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "a.pgm")
    (tmp_path / "scan.nii.gz").write_bytes(b"damaged")
    for name in ("a.pgm", "scan.nii.gz"):
        assert not write_minimal_copy(tmp_path / name, tmp_path / f"copy_{name}")
        assert not (tmp_path / f"copy_{name}").exists()
