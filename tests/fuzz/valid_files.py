"""A tiny valid file of every format that m3b reads: what the fuzzer mutates."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import h5py
import nibabel
import numpy as np
import openpyxl
import pydicom
import SimpleITK
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian
from scipy.io import savemat


def make_valid(folder: Path) -> list[Path]:
    """One of each, detached data files beside their headers; returns them in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, (12, 10), dtype=np.uint8)
    for end in ("png", "jpg", "tif", "bmp", "gif", "webp"):
        Image.fromarray(pixels).save(folder / f"a.{end}")
    voxels = random.normal(size=(6, 5, 4)).astype(np.float32)
    _volumes(folder, voxels)
    np.save(folder / "a.npy", voxels)
    np.savez(folder / "a.npz", image=voxels, label=3)
    savemat(folder / "a.mat", {"image": voxels})
    with h5py.File(folder / "a.h5", "w") as file:
        file["image"] = voxels
        file.create_dataset("packed", data=pixels, compression="gzip")
        file.attrs["note"] = "x"
    (folder / "a.pkl").write_bytes(pickle.dumps({"image": voxels, "label": [1, 2]}))
    _dicom(folder / "a.dcm", pixels)
    _texts(folder)
    _archives(folder)
    return sorted(path for path in folder.iterdir() if path.is_file())


def _volumes(folder: Path, voxels: np.ndarray) -> None:
    image = nibabel.Nifti1Image(voxels, np.eye(4))
    for name in ("a.nii", "b.nii.gz"):
        nibabel.save(image, folder / name)
    nibabel.save(nibabel.Nifti2Image(voxels, np.eye(4)), folder / "c.nii")
    nibabel.save(nibabel.Nifti1Pair(voxels, np.eye(4)), folder / "pair.hdr")
    nibabel.save(nibabel.MGHImage(voxels, np.eye(4)), folder / "a.mgz")
    itk = SimpleITK.GetImageFromArray(voxels)
    for name in ("a.nrrd", "a.mha", "d.mhd", "d.nhdr"):
        SimpleITK.WriteImage(itk, str(folder / name))


def _dicom(path: Path, pixels: np.ndarray) -> None:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID, data.SeriesInstanceUID = CTImageStorage, "1.2.3", "1.2"
    data.PatientName, data.Modality, data.PixelSpacing = "A^B", "CT", [0.7, 0.7]
    data.Rows, data.Columns = pixels.shape
    data.BitsAllocated, data.BitsStored, data.HighBit = 8, 8, 7
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.PixelData = pixels.tobytes()
    pydicom.dcmwrite(path, data, enforce_file_format=True)


def _texts(folder: Path) -> None:
    rows = [f"{n}.png,{n % 2},p{n},some text" for n in range(20)]
    (folder / "a.csv").write_text("\n".join(["image,label,patient,report", *rows]))
    (folder / "a.tsv").write_text("\n".join(["image,label", *rows]).replace(",", "\t"))
    items = [{"image": f"{n}.png", "box": [1, 2, n, 4], "label": {"name": "x"}} for n in range(5)]
    (folder / "a.json").write_text(json.dumps({"images": items, "annotations": []}))
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, items)))
    (folder / "a.xml").write_text(
        "<annotation><object><name>x</name><bndbox><xmin>1</xmin></bndbox></object></annotation>"
    )
    (folder / "a.txt").write_text("0 0.5 0.5 0.1 0.1\n1 0.2 0.2 0.1 0.1\n")
    book = openpyxl.Workbook()
    book.active.append(["image", "label"])
    book.active.append(["a.png", 1])
    book.save(folder / "a.xlsx")


def _archives(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/a.txt", "x" * 100)
    for name, mode in (("a.tar", "w"), ("b.tar.gz", "w:gz")):
        with tarfile.open(folder / name, mode) as archive:
            entry = tarfile.TarInfo("x/a.txt")
            entry.size = 5
            archive.addfile(entry, io.BytesIO(b"hello"))
