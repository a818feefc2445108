"""Folders that no model can be made of as asked, each wrong in one way."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

XRAYS = "Tell pneumonia from normal on chest X-rays"
POLYPS = "Segment polyps in endoscopy images"


def picture(file: Path, seed: int, *, level: int = 90) -> None:
    """A grey picture of its own."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    Image.fromarray(rng.integers(level, level + 60, (32, 32), np.uint8)).save(file)


def _classes(root: Path, images_per_class: int, names: tuple[str, ...] = ("normal", "pneumonia")) -> None:
    for class_index, name in enumerate(names):
        for number in range(images_per_class):
            picture(
                root / name / f"s{class_index}{number:03d}.png",
                class_index * 1000 + number,
                level=40 + 50 * (class_index % 3),
            )


def _mask(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    top = int(np.random.default_rng(seed).integers(2, 16))
    mask = np.zeros((32, 32), np.uint8)
    mask[top : top + 10, 4:18] = 255
    Image.fromarray(mask).save(file)


def polyps(root: Path) -> None:
    """Sixteen images, each with a mask of its name: nothing is wrong with these."""
    for number in range(16):
        picture(root / "images" / f"p{number:02d}.png", number)
        _mask(root / "masks" / f"p{number:02d}.png", number)


def empty(root: Path) -> str:
    root.mkdir(parents=True)
    return XRAYS


def texts_only(root: Path) -> str:
    root.mkdir(parents=True)
    for number in range(12):
        (root / f"note_{number}.txt").write_text("Seen in the clinic; no images were taken.\n")
    return XRAYS


def unreadable(root: Path) -> str:
    for name in ("normal", "pneumonia"):
        (root / name).mkdir(parents=True)
        for number in range(12):
            (root / name / f"s{number:03d}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes([number] * 200))
    return XRAYS


def masks_alone(root: Path) -> str:
    for number in range(16):
        _mask(root / "masks" / f"p{number:02d}.png", number)
    return POLYPS


def images_alone(root: Path) -> str:
    for number in range(24):
        picture(root / "images" / f"s{number:03d}.png", number)
    return XRAYS


def table_of_others(root: Path) -> str:
    for number in range(24):
        picture(root / "images" / f"s{number:03d}.png", number)
    rows = [f"case-{number + 700}.jpg,{['normal', 'pneumonia'][number % 2]}" for number in range(24)]
    (root / "labels.csv").write_text("\n".join(["image,finding", *rows]))
    return XRAYS


def class_not_there(root: Path) -> str:
    _classes(root, 12)
    return "Tell tuberculosis from normal on chest X-rays"


def other_data(root: Path) -> str:
    _classes(root, 12)
    (root / "README.md").write_text("Chest X-rays of adults, normal and with pneumonia.")
    return "Grade diabetic retinopathy on fundus photographs"


def one_class(root: Path) -> str:
    _classes(root, 24, ("pneumonia",))
    return XRAYS


def one_image_a_class(root: Path) -> str:
    _classes(root, 1)
    return XRAYS


def wrong_modality(root: Path) -> str:
    _classes(root, 12)
    (root / "README.md").write_text("Chest X-rays of adults, normal and with pneumonia.")
    return "Segment the liver on abdominal CT"


def zips(root: Path) -> str:
    root.mkdir(parents=True)
    for number in range(3):
        with zipfile.ZipFile(root / f"part{number}.zip", "w") as pack:
            for member in range(8):
                file = root / "spare.png"
                picture(file, number * 10 + member)
                pack.write(file, f"{['normal', 'pneumonia'][member % 2]}/s{number}{member}.png")
                file.unlink()
    return XRAYS


def broken_tiff(root: Path) -> str:
    root.mkdir(parents=True)
    for number in range(4):
        with open(root / f"slide_{number}.tiff", "wb") as file:
            file.write(b"II*\x00\x08\x00\x00\x00")
            file.truncate(2**31)
    return "Tell tumour from normal on pathology images"


def dicom_without_pixels(root: Path) -> str:
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    for number in range(16):
        file = root / ["normal", "pneumonia"][number % 2] / f"s{number:03d}.dcm"
        file.parent.mkdir(parents=True, exist_ok=True)
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = pydicom.uid.DigitalXRayImageStorageForPresentation
        meta.MediaStorageSOPInstanceUID = generate_uid()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
        data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
        data.Modality, data.PatientID = "DX", f"P{number:03d}"
        data.save_as(file)
    return XRAYS


def no_permission(root: Path) -> str:
    _classes(root, 12)
    for folder in sorted(root.iterdir()):
        os.chmod(folder, 0)
    return XRAYS


WRONG: dict[str, Callable[[Path], str]] = {
    build.__name__: build
    for build in (
        empty, texts_only, unreadable, masks_alone, images_alone, table_of_others, class_not_there, other_data, one_class,
        one_image_a_class, wrong_modality, zips, broken_tiff, dicom_without_pixels, no_permission,
    )
}  # fmt: skip
"""Name -> what draws the folder and gives the request."""
