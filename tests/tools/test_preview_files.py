from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pydicom
import pytest
import SimpleITK
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from m3b.tools.previews.records import closed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def dicom(path: Path, series: str, z: float, name: str = "DOE^JANE") -> None:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = CTImageStorage
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID, data.SeriesInstanceUID = CTImageStorage, generate_uid(), series
    data.PatientName, data.PatientID, data.PatientBirthDate, data.Modality = name, "12345", "19700101", "CT"
    data.ImagePositionPatient, data.ImageOrientationPatient = [0, 0, z], [1, 0, 0, 0, 1, 0]
    data.PixelSpacing, data.SliceThickness, data.SeriesDescription = [0.7, 0.7], 2.5, "Chest"
    data.Rows, data.Columns, data.BitsAllocated, data.BitsStored, data.HighBit = 4, 6, 16, 12, 11
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.PixelData = np.arange(24, dtype="<u2").tobytes()
    data.save_as(path, enforce_file_format=True)


def test_nifti(desk) -> None:
    data = np.zeros((10, 12, 5), np.int16)
    data[2, 2, 2] = 2
    image = nibabel.Nifti1Image(data, np.diag([-0.5, -0.5, 2, 1]))
    image.header.set_xyzt_units("mm")
    nibabel.save(image, desk.data / "a.nii.gz")
    text = desk.preview("data/chest/a.nii.gz")
    assert "10 x 12 x 5 voxels, spacing 0.5 x 0.5 x 2 mm, orientation LPS, int16" in text
    assert "range 0 to 2" in text
    assert "values 0 x 599, 2 x 1" in text


def test_values_of_huge_volumes_are_not_read(desk, monkeypatch) -> None:
    from m3b.dataset.formats import base
    from m3b.tools.previews import images

    monkeypatch.setattr(base, "MAX_DESCRIBED_BYTES", 1000)
    nibabel.save(nibabel.Nifti1Image(np.ones((20, 20, 30), np.float32), np.eye(4)), desk.data / "a.nii")
    assert "values not read: 48,000 bytes" in "\n".join(images.preview(desk.data / "a.nii", "mask"))


@pytest.mark.parametrize("name", ["a.nrrd", "a.mha"])
def test_itk(desk, name: str) -> None:
    image = SimpleITK.GetImageFromArray(np.arange(60, dtype=np.int16).reshape(3, 4, 5))
    image.SetSpacing((0.5, 0.6, 3.0))
    SimpleITK.WriteImage(image, str(desk.data / name))
    text = desk.preview(f"data/chest/{name}")
    assert (
        "5 x 4 x 3 voxels (x, y, z), spacing 0.5 x 0.6 x 3 mm, orientation LPS (DICOM axes), 16-bit signed integer"
        in text
    )
    assert "range 0 to 59" in text


def test_detached_voxels_outside_are_not_opened(desk) -> None:
    (desk.data / "a.mhd").write_text(
        "NDims = 3\nDimSize = 1 1 1\nElementType = MET_UCHAR\nElementDataFile = /etc/passwd\n"
    )
    assert "not in one plain file beside it; not opened" in desk.preview("data/chest/a.mhd")


def test_pictures(desk) -> None:
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8)).save(desk.data / "a.png")
    Image.fromarray((np.arange(48).reshape(6, 8) * 1000).astype(np.uint16)).save(desk.data / "b.tif")
    grey = np.repeat(np.arange(48, dtype=np.uint8).reshape(6, 8, 1), 3, 2)
    Image.fromarray(grey).save(desk.data / "c.png")
    mask = np.zeros((6, 8), np.uint8)
    mask[1:3] = 255
    Image.fromarray(mask).save(desk.data / "m.png")
    assert "PNG picture, width 8 x height 6 px, 8-bit grey\n  range 0 to 47" in desk.preview("data/chest/a.png")
    assert "TIFF picture, width 8 x height 6 px, 16-bit grey\n  range 0 to 47000" in desk.preview("data/chest/b.tif")
    assert "a grey picture stored as RGB" in desk.preview("data/chest/c.png")
    assert "values 0 x 32, 255 x 16" in desk.preview("data/chest/m.png")


def test_npz_and_npy(desk) -> None:
    labels = np.array([[0], [1], [1]], np.uint8)
    np.savez_compressed(desk.data / "a.npz", train_images=np.zeros((3, 28, 28), np.uint8), train_labels=labels)
    np.save(desk.data / "b.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(desk.data / "c.npy", np.array([0.5, np.nan, 1.5]))
    text = desk.preview("data/chest/a.npz")
    assert "npz file, 2 arrays" in text
    assert "train_images: 3 x 28 x 28, uint8; range 0 to 0" in text
    assert "train_labels: 3 x 1, uint8; range 0 to 1; values 0 x 1, 1 x 2" in text
    assert "cannot be read" in desk.preview("data/chest/b.npy")
    assert "range 0.5 to 1.5, mean 1, 1 NaN or infinite" in desk.preview("data/chest/c.npy")


def test_cut_off_array(desk) -> None:
    np.save(desk.data / "a.npy", np.arange(1000))
    data = (desk.data / "a.npy").read_bytes()
    (desk.data / "a.npy").write_bytes(data[:2000])
    assert "cannot be read" in desk.preview("data/chest/a.npy")


def test_hdf5(desk) -> None:
    with h5py.File(desk.data / "a.h5", "w") as file:
        file["x/images"] = np.zeros((4, 8, 8), np.float32)
        file["y"] = np.array([0, 1, 1, 2])
        file["patient_name"] = ["DOE^JANE", "ROE^JIM"]
        file["out"] = h5py.ExternalLink("/etc/passwd", "/x")
    text = desk.preview("data/chest/a.h5")
    assert "hdf5 file, 3 arrays" in text
    assert "x/images: 4 x 8 x 8, float32" in text
    assert "y: 4, int64; range 0 to 2; values 0 x 1, 1 x 2, 2 x 1" in text
    assert "JANE" not in text


def test_dicom_file(desk) -> None:
    dicom(desk.data / "a.dcm", "1.2.3", 0)
    text = desk.preview("data/chest/a.dcm")
    assert "DICOM, CT Image Storage\n" in text
    assert "4 x 6 (rows, columns), 1 channel, uint16, 12 bits stored, spacing 0.7 x 0.7 mm" in text
    assert "range 0 to 23" in text
    for secret in ("JANE", "12345", "1970"):
        assert secret not in text
    assert "masked: PatientID=[masked " in text


def test_dicom_series(make_desk) -> None:
    desk = make_desk()
    (desk.data / "scan").mkdir()
    for index in range(5):
        dicom(desk.data / f"scan/{index}.dcm", "1.2.3", index * 2.5)
    dicom(desk.data / "scan/x.dcm", "1.2.4", 0)
    text = desk.preview("data/chest/scan")
    assert "DICOM folder, 6 files, 2 series, 1 patient" in text
    assert "series of 5 files: CT, 'Chest'" in text
    assert "4 x 6 x 5 (rows, columns, slices)" in text
    assert "spacing 0.7 x 0.7 x 2.5 mm" in text
    assert "12345" not in text
    (desk.data / "scan/2.dcm").unlink()
    assert "1 slices of 5 are missing" in desk.preview("data/chest/scan")


def test_dicom_is_shown_when_allowed(make_desk) -> None:
    desk = make_desk(phi="allow")
    dicom(desk.data / "a.dcm", "1.2.3", 0)
    assert "DOE^JANE" in desk.preview("data/chest/a.dcm")
    assert pydicom.dcmread(desk.data / "a.dcm").PatientID == "12345"


def test_json_records_and_lines(desk) -> None:
    records = [
        {"image": f"{i}.png", "label": "ab"[i % 2], "patient_name": "Jane Doe", "boxes": [[1, 2, 3, 4]]}
        for i in range(10)
    ]
    (desk.data / "a.json").write_text(json.dumps(records))
    (desk.data / "b.jsonl").write_text("\n".join(map(json.dumps, records)) + "\nbroken\n")
    text = desk.preview("data/chest/a.json")
    assert "JSON: list of 10 items" in text
    assert "label: text: a x 5, b x 5" in text
    assert "patient_name: text; looks like personal data: masked" in text
    lines = desk.preview("data/chest/b.jsonl")
    assert "JSON lines: 11 records" in lines
    assert "1 line not valid JSON" in lines
    assert "Jane" not in text + lines


def test_what_is_counted_of_json_is_said(desk) -> None:
    """Counts added up to 2,000 of 2,050 items without a word."""
    (desk.data / "a.json").write_text(json.dumps([{"kind": "ab"[i % 2]} for i in range(2050)]))
    assert "kind: text: a x 1,025, b x 1,025" in desk.preview("data/chest/a.json")
    (desk.data / "b.json").write_text(json.dumps([{"kind": "ab"[i % 2]} for i in range(12_000)]))
    text = desk.preview("data/chest/b.json")
    assert "list of 12,000 items" in text
    assert "each item (of the first 10,000 of 12,000): object" in text
    assert "a x 5,000, b x 5,000" in text


def test_values_of_masks_in_colour_and_in_hdf5_are_counted(desk) -> None:
    pixels = np.zeros((8, 10, 3), np.uint8)
    pixels[2:4, 3:7] = (255, 0, 0)
    Image.fromarray(pixels).save(desk.data / "painted.png")
    assert "few colours, as of a painted mask: (0, 0, 0) x 72, (255, 0, 0) x 8" in desk.preview(
        "data/chest/painted.png"
    )
    pixels[2:4, 3:7] = 255
    Image.fromarray(pixels).save(desk.data / "grey.png")
    assert "values 0 x 72, 255 x 8" in desk.preview("data/chest/grey.png")
    noise = np.random.default_rng(0).integers(0, 255, (8, 10, 3), dtype=np.uint8)
    Image.fromarray(noise).save(desk.data / "photo.png")
    assert "few colours" not in desk.preview("data/chest/photo.png")
    with h5py.File(desk.data / "a.h5", "w") as file:
        file["label"] = np.repeat(pixels[None, :, :, 0] // 255, 90, axis=0)
    assert "values 0 x 6,480, 1 x 720" in desk.preview("data/chest/a.h5")


def test_coco(desk) -> None:
    value = {
        "images": [{"id": i, "file_name": f"{i}.png", "width": 10, "height": 20} for i in range(3)],
        "annotations": [{"id": 1, "image_id": 0, "category_id": 7, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 7, "name": "Nodule"}, {"id": 8, "name": "Mass"}],
    }
    (desk.data / "a.json").write_text(json.dumps(value))
    text = desk.preview("data/chest/a.json")
    assert "COCO: 3 images, 1 of them annotated; 1 annotation (bbox); 2 categories" in text
    assert "Nodule x 1, Mass x 0" in text
    assert "10 x 20 px (3)" in text


def test_a_small_archive_takes_little_memory(tmp_path: Path) -> None:
    from m3b.tools.previews.archives import open_zip

    np.savez(tmp_path / "a.npz", image=np.zeros((4, 4)))
    tracemalloc.start()
    try:
        with (tmp_path / "a.npz").open("rb") as file, open_zip(file) as archive:
            assert archive.namelist() == ["image.npy"]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_large_json_is_judged_by_its_beginning(desk, monkeypatch) -> None:
    from m3b.tools.previews import records

    monkeypatch.setattr(records, "_WHOLE_UP_TO", 1000)
    monkeypatch.setattr(records, "_PREFIX", 2000)
    (desk.data / "a.json").write_text(json.dumps([{"image": f"{i}.png", "label": i % 2} for i in range(1000)]))
    text = "\n".join(records.preview(desk.data / "a.json", "mask"))
    assert "only)" in text
    assert "label: integer" in text
    assert ": 0 to 1" in text


@given(value=JSON, data=st.data())
def test_any_beginning_of_json_can_be_closed(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(0, len(text)))]
    json.loads(closed(cut))


def test_text_unknown_broken_and_missing(desk) -> None:
    (desk.data / "README.md").write_text("# Title\ncall +1 555 123 4567\n")
    (desk.data / "list.txt").write_text("a.png 1\nb.png 2\n")
    (desk.data / "split.txt").write_text("image,label\na,1\nb,2\nc,1\n")
    (desk.data / "x.bin").write_bytes(b"\0\1\2\3")
    (desk.data / "broken.png").write_bytes(b"\x89PNG nothing")
    (desk.data / "broken.nii.gz").write_bytes(b"\x1f\x8b nothing")
    (desk.data / "zero.nii").touch()
    assert "# Title" in desk.preview("data/chest/README.md")
    assert "555 123" not in desk.preview("data/chest/README.md")
    assert "text, utf-8, 2 lines" in desk.preview("data/chest/list.txt")
    assert "table, comma-separated" in desk.preview("data/chest/split.txt")
    assert "unknown kind; begins with 00 01 02 03" in desk.preview("data/chest/x.bin")
    assert "cannot be read as .png" in desk.preview("data/chest/broken.png")
    assert "cannot be read as .nii.gz" in desk.preview("data/chest/broken.nii.gz")
    assert "empty file" in desk.preview("data/chest/zero.nii")
    assert "Close: README.md" in desk.preview("data/chest/REDME.md")


def test_some_broken_some_not(desk) -> None:
    (desk.data / "a.csv").write_text("a,b\n1,2\n")
    assert not desk.use("preview_files", paths=["data/chest/a.csv", "data/chest/no.csv"]).is_error
    assert desk.use("preview_files", paths=["data/chest/no.csv"]).is_error


def test_read_files_masks_raw_tables(make_desk) -> None:
    desk = make_desk()
    content = "patient,Patient Name,label\nP1,Jane Doe,1\nP2,Joe Roe,0\n"
    (desk.data / "a.csv").write_text(content)
    (desk.data / "a.json").write_text('[{"patient_name": "Jane Doe", "label": 1}]')
    text = desk.use("read_files", paths=["data/chest/a.csv", "data/chest/a.json"]).text
    assert "Jane" not in text
    assert "personal data masked" in text
    assert "P2,[masked" in text
    open_desk = make_desk(phi="allow")
    (open_desk.data / "a.csv").write_text(content)
    assert "Jane Doe" in open_desk.use("read_files", paths=["data/chest/a.csv"]).text


def test_workbooks_are_shown_as_tables(desk) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Info"
    book.active.append(["Sheet Grades is current"])
    sheet = book.create_sheet("Grades")
    sheet.append(["id", "grade", "Patient Name"])
    for index in range(40):
        sheet.append([f"case {index}", index % 2, "Jane Doe"])
    book.save(desk.data / "labels.xlsx")
    result = desk.use("preview_files", paths=["data/chest/labels.xlsx"])
    assert "2 sheets; sheet 'Grades': table, 40 rows x 3 columns" in result.text
    assert "grade: integer, 0 to 1, 2 distinct: 0 x 20, 1 x 20" in result.text
    assert "sheet 'Info': table, 1 row x 1 column" in result.text
    assert "Jane" not in result.text
    assert [column["name"] for column in result.data["files"][0]["columns"]] == ["id", "grade", "Patient Name"]
    (desk.data / "broken.xlsx").write_bytes(b"PK\3\4 no workbook")
    assert "broken.xlsx" in desk.preview("data/chest/broken.xlsx")


@pytest.mark.parametrize("suffix", [".xml", ".yaml", ".lst", ".mat", ".parquet", ".psv"])
def test_every_form_of_table_has_its_columns(desk, suffix: str) -> None:
    import polars
    import scipy.io

    path, grades = desk.data / f"a{suffix}", [index % 2 for index in range(40)]
    match suffix:
        case ".xml":
            records = "".join(f"<case><id>p{at}</id><grade>{grade}</grade></case>" for at, grade in enumerate(grades))
            path.write_text(f"<cases>{records}</cases>")
        case ".yaml":
            path.write_text("".join(f"- id: p{at}\n  grade: {grade}\n" for at, grade in enumerate(grades)))
        case ".lst":
            path.write_text("".join(f"a/p{at}.png {grade}\n" for at, grade in enumerate(grades)))
        case ".psv":
            path.write_text("id|grade\n" + "".join(f"p{at}|{grade}\n" for at, grade in enumerate(grades)))
        case ".mat":
            scipy.io.savemat(path, {"id": np.array([f"p{at}" for at in range(40)], object), "grade": grades})
        case ".parquet":
            polars.DataFrame({"id": [f"p{at}" for at in range(40)], "grade": grades}).write_parquet(path)
    text = desk.preview(path)
    assert "40 rows x 2 columns" in text
    assert "integer, 0 to 1, 2 distinct: 0 x 20, 1 x 20" in text


def test_archives(desk) -> None:
    import zipfile

    with zipfile.ZipFile(desk.data / "a.zip", "w") as archive:
        for index in range(30):
            archive.writestr(f"images/case_{index:02d}.png", b"x")
    assert "images/case_{00..29}.png x 30" in desk.preview("data/chest/a.zip")


def test_a_file_that_asks_for_all_memory_costs_its_own_part(desk) -> None:
    header = np.lib.format.magic(1, 0)
    for name, shape in (("huge.npy", f"({2**50},)"), ("small.npy", "(1,)")):
        text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        (desk.data / name).write_bytes(header + len(text).to_bytes(2, "little") + text.encode() + b"\0" * 8)
    image = nibabel.Nifti1Image(np.zeros((4, 4, 4), np.float32), np.eye(4))
    nibabel.save(image, desk.data / "a.nii")
    content = bytearray((desk.data / "a.nii").read_bytes())
    content[40:56] = np.array([5, 32767, 32767, 1, 1, 32767, 1, 1], "<i2").tobytes()
    (desk.data / "a.nii").write_bytes(content)
    result = desk.use("preview_files", paths=["data/chest/huge.npy", "data/chest/a.nii", "data/chest/small.npy"])
    assert not result.is_error
    assert "small.npy: 136 B" in result.text


def test_a_one_bit_mask_holds_what_the_reader_gives(desk) -> None:
    from m3b.dataset.reading import read_mask

    marks = np.zeros((16, 16), bool)
    marks[2:5, 3:9] = True
    Image.fromarray(marks).save(desk.data / "m.png")
    values = sorted(int(value) for value in np.unique(read_mask(str(desk.data / "m.png")).array))
    assert f"values {values[0]} x 238, {values[1]} x 18" in desk.preview("data/chest/m.png")


def test_pickles_are_read_without_running_them(desk) -> None:
    value = {"x": np.zeros((4, 8, 8)), "y": np.array([0, 1, 1, 1]), "names": ["DOE^JANE", "ROE^JIM"]}
    (desk.data / "a.pkl").write_bytes(pickle.dumps(value))
    (desk.data / "b.pkl").write_bytes(pickle.dumps(Path("x")))
    text = desk.preview("data/chest/a.pkl")
    assert "x: 4 x 8 x 8, float64" in text
    assert "y: 4, int64; range 0 to 1; values 0 x 1, 1 x 3" in text
    assert "JANE" not in text
    assert "only NumPy arrays are loaded" in desk.preview("data/chest/b.pkl")


def test_torch_files(desk) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"state": {"w": torch.ones(3, 4), "n": torch.tensor([0, 1, 1])}}, desk.data / "a.pt")
    assert "state/n: 3, int64; range 0 to 1; values 0 x 1, 1 x 2" in desk.preview("data/chest/a.pt")
