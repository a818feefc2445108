"""Drawn raw data of every kind of target that the documentation names, in layouts that the rules read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, SegmentationStorage, generate_uid

SIDE = 64
DEPTH = 24
CELLS = {"round": 90, "square": 140}
"""The two shapes, and how much brighter they are than a point below the background."""
Shape = tuple[str, list[int]]
"""Class, and box as lower and upper corner along the array's axes."""


def draw(
    random: np.random.Generator, dims: int = 2, max_shapes: int = 3, min_shapes: int = 1
) -> tuple[NDArray[np.uint8], list[Shape], NDArray[np.uint8]]:
    """Noise of SIDE x SIDE (x DEPTH) with bright shapes; what they are; and a mask, 1 for round and 2 for square."""
    image = random.normal(60, 10, (SIDE, SIDE, DEPTH)[:dims])
    mask = np.zeros(image.shape, np.uint8)
    shapes = []
    for _ in range(int(random.integers(min_shapes, max_shapes + 1))):
        name = str(random.choice(list(CELLS)))
        size = 10 if name == "round" else 16
        low = [int(random.integers(1, extent - size - 1)) for extent in image.shape]
        place = tuple(slice(start, start + size) for start in low)
        grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, size)] * dims, indexing="ij"))
        shape_mask = np.linalg.norm(grid, axis=0) < 1 if name == "round" else np.ones(grid.shape[1:], bool)
        image[place][shape_mask] = CELLS[name] + 60
        mask[place][shape_mask] = 1 + list(CELLS).index(name)
        shapes.append((name, [*low, *(start + size for start in low)]))
    return np.clip(image, 0, 255).astype(np.uint8), shapes, mask


def draw_cases(
    cases: int, dims: int = 2, **shape_limits: int
) -> Iterator[tuple[int, NDArray[np.uint8], list[Shape], NDArray[np.uint8]]]:
    random = np.random.default_rng(0)
    for number in range(cases):
        yield number, *draw(random, dims, **shape_limits)


def picture(file: Path, pixels: NDArray[np.uint8]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


def volume(file: Path, voxels: NDArray[np.uint8]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(voxels, np.diag([1.5, 1.5, 3.0, 1.0])), file)


def table(file: Path, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([head, *rows])


# --- boxes -------------------------------------------------------------------------------------------------------


def voc(folder: Path, cases: int = 40) -> Path:
    """Pictures in `JPEGImages/` and a Pascal VOC file each in `Annotations/`."""
    for name in ("Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for number, image, shapes, _ in draw_cases(cases):
        picture(folder / "JPEGImages" / f"smear_{number:03d}.png", image)
        root = ElementTree.Element("annotation")
        ElementTree.SubElement(root, "filename").text = f"smear_{number:03d}.png"
        for name, (y_min, x_min, y_max, x_max) in shapes:
            item = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(item, "name").text = name
            box = ElementTree.SubElement(item, "bndbox")
            for edge, value in (("xmin", x_min + 1), ("ymin", y_min + 1), ("xmax", x_max), ("ymax", y_max)):
                ElementTree.SubElement(box, edge).text = str(value)
        ElementTree.ElementTree(root).write(folder / "Annotations" / f"smear_{number:03d}.xml")
    (folder / "ImageSets/Main/train.txt").write_text("\n".join(f"smear_{number:03d}" for number in range(cases)))
    return folder


def boxed_volumes(folder: Path, cases: int = 24) -> Path:
    """NIfTI files in `scans/`, and a JSON record each with boxes of six numbers (i, j, k of both corners)."""
    records = []
    for number, voxels, shapes, _ in draw_cases(cases, 3, max_shapes=2):
        volume(folder / "scans" / f"scan_{number:03d}.nii.gz", voxels)
        boxes = {"labels": [name for name, _ in shapes], "boxes": [box for _, box in shapes]}
        records.append({"file_name": f"scan_{number:03d}.nii.gz", **boxes})
    (folder / "boxes.json").write_text(json.dumps(records))
    return folder


# --- masks -------------------------------------------------------------------------------------------------------


def outlined(folder: Path, cases: int = 40) -> Path:
    """Pictures in `images/` and masks of 0 and 255 under the same names in `masks/`."""
    for number, image, _, mask in draw_cases(cases):
        picture(folder / "images" / f"slide_{number:03d}.png", image)
        picture(folder / "masks" / f"slide_{number:03d}.png", (mask > 0).astype(np.uint8) * 255)
    return folder


def decathlon(folder: Path, cases: int = 20) -> Path:
    """The Medical Segmentation Decathlon's layout: NIfTI files in `imagesTr/` and `labelsTr/`, and a dataset.json."""
    pairs = []
    for number, voxels, _, mask in draw_cases(cases, 3):
        image, label = f"imagesTr/scan_{number:03d}.nii.gz", f"labelsTr/scan_{number:03d}.nii.gz"
        volume(folder / image, voxels)
        volume(folder / label, mask)
        pairs.append({"image": f"./{image}", "label": f"./{label}"})
    labels = {"0": "background", "1": "round", "2": "square"}
    about = {"name": "Shapes", "modality": {"0": "MRI"}, "labels": labels, "training": pairs, "test": []}
    (folder / "dataset.json").write_text(json.dumps(about))
    return folder


def sequences(folder: Path, cases: int = 20) -> Path:
    """A folder a case: two sequences of MRI in different units, and label numbers."""
    for number, voxels, _, mask in draw_cases(cases, 3):
        place = folder / f"case_{number:03d}"
        volume(place / "flair.nii.gz", voxels)
        volume(place / "t1.nii.gz", 255 - voxels)
        volume(place / "seg.nii.gz", mask)
    (folder / "dataset.json").write_text(json.dumps({"labels": {"0": "background", "1": "round", "2": "square"}}))
    return folder


def polygons(folder: Path, cases: int = 40) -> Path:
    """Pictures and a LabelMe file each with the outline of every shape, as one draws them: polygons of pixel edges."""
    for number, image, cells, _ in draw_cases(cases):
        name = f"field_{number:03d}"
        picture(folder / f"{name}.png", image)
        shapes = []
        for kind, (y_min, x_min, y_max, x_max) in cells:
            turns = np.linspace(0, 2 * np.pi, 16, endpoint=False)
            middle, half = ((x_min + x_max) / 2, (y_min + y_max) / 2), (x_max - x_min) / 2
            around = [(middle[0] + half * np.cos(turn), middle[1] + half * np.sin(turn)) for turn in turns]
            corners = [(x_min, y_min), (x_max, y_min), (x_max, y_max), (x_min, y_max)]
            points = [[float(x), float(y)] for x, y in (around if kind == "round" else corners)]
            shapes.append({"label": kind, "points": points, "group_id": None, "shape_type": "polygon", "flags": {}})
        about = {
            "version": "5.2.1",
            "imagePath": f"{name}.png",
            "imageData": None,
            "imageHeight": SIDE,
            "imageWidth": SIDE,
        }
        (folder / f"{name}.json").write_text(json.dumps({**about, "shapes": shapes}))
    return folder


def nested(folder: Path, cases: int = 40) -> Path:
    """Pictures in `images/`, and a binary mask a class beside each other; the core lies in the tumour."""
    random = np.random.default_rng(3)
    for number in range(cases):
        image = random.normal(60, 10, (SIDE, SIDE))
        row, column, size = (*random.integers(4, SIDE - 32, 2), int(random.integers(18, 28)))
        masks = {}
        for name, margin, brightness in (("tumor", 0, 60), ("core", 5, 70)):
            mask = np.zeros((SIDE, SIDE), bool)
            mask[row + margin : row + size - margin, column + margin : column + size - margin] = True
            image[mask] += brightness
            masks[name] = mask
        picture(folder / "images" / f"slice_{number:03d}.png", np.clip(image, 0, 255).astype(np.uint8))
        for name, mask in masks.items():
            picture(folder / name / f"slice_{number:03d}.png", mask.astype(np.uint8) * 255)
    return folder


def lesions(folder: Path, cases: int = 24) -> Path:
    """A folder a patient with `flair.nii.gz` and `lesion_mask.nii.gz`; some have nothing marked."""
    for number, voxels, _, mask in draw_cases(cases, 3, min_shapes=0, max_shapes=2):
        volume(folder / f"patient_{number:03d}" / "flair.nii.gz", voxels)
        volume(folder / f"patient_{number:03d}" / "lesion_mask.nii.gz", (mask > 0).astype(np.uint8))
    return folder


# --- labels ------------------------------------------------------------------------------------------------------


def several_labels(folder: Path, cases: int = 80) -> Path:
    """Pictures in `images/`, and a table with a yes/no column for each of two findings."""
    rows = []
    for number, image, shapes, _ in draw_cases(cases, min_shapes=0):
        picture(folder / "images" / f"x{number:03d}.png", image)
        names = {name for name, _ in shapes}
        rows.append([f"x{number:03d}.png", f"p{number:03d}", *(int(name in names) for name in CELLS)])
    table(folder / "findings.csv", ["image", "patient_id", *CELLS], rows)
    return folder


def dicom_series(folder: Path, cases: int = 32, slices: int = 8) -> Path:
    """A DICOM series a patient in `series/PATIENT/`, slices named against their order, and a table of labels."""
    rows = []
    for number in range(cases):
        random = np.random.default_rng(number)
        sick = bool(number % 2)
        voxels = random.normal(40, 12, (slices, 48, 48))
        if sick:
            row, column = random.integers(6, 26, 2)
            voxels[2:6, row : row + 14, column : column + 14] += 90
        series = generate_uid(entropy_srcs=[f"series {number}"])
        for at, pixels in enumerate(voxels):
            file = folder / "series" / f"p{number:03d}" / f"IM{slices - at:04d}.dcm"
            file.parent.mkdir(parents=True, exist_ok=True)
            _slice(file, pixels.astype(np.int16), at, series)
        rows.append([f"p{number:03d}", "bleeding" if sick else "clear"])
    table(folder / "labels.csv", ["patient_id", "diagnosis"], rows)
    return folder


def _slice(file: Path, pixels: NDArray[np.int16], at: int, series: str) -> None:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[series, str(at)])
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.SeriesInstanceUID, data.StudyInstanceUID = series, generate_uid(entropy_srcs=[series])
    data.Modality, data.PatientID = "CT", file.parent.name
    data.InstanceNumber, data.ImagePositionPatient = at + 1, [0.0, 0.0, 5.0 * at]
    data.ImageOrientationPatient, data.PixelSpacing, data.SliceThickness = [1, 0, 0, 0, 1, 0], [2.0, 2.0], 5.0
    data.Rows, data.Columns = pixels.shape
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 16
    data.HighBit, data.PixelRepresentation = 15, 1
    data.RescaleSlope, data.RescaleIntercept = 1, 0
    data.PixelData = pixels.tobytes()
    data.save_as(file, enforce_file_format=True)


def clips(folder: Path, cases: int = 40) -> Path:
    """Animations in a folder a class, whose middle frames tell them apart; the first and last are alike."""
    for number, image, _, _ in draw_cases(cases, min_shapes=0, max_shapes=0):
        sick, frames = bool(number % 2), []
        for step in range(7):
            frame = np.roll(image, step, axis=1)
            if sick and 2 <= step <= 4:
                frame[16:40, 20:44] = 220
            frames.append(Image.fromarray(frame))
        file = folder / ("effusion" if sick else "clear") / f"clip_{number:03d}.gif"
        file.parent.mkdir(parents=True, exist_ok=True)
        frames[0].save(file, save_all=True, append_images=frames[1:])
    return folder


def mixed_dicom(folder: Path, cases: int = 16) -> Path:
    """Everything of a patient in one folder under running numbers: the slices of a CT series, and a DICOM SEG of its inserts."""
    for number, voxels, _, mask in draw_cases(cases, 3, max_shapes=2):
        series = generate_uid(entropy_srcs=[f"mixed {number}"])
        place = folder / f"p{number:03d}"
        place.mkdir(parents=True)
        for at in range(DEPTH):
            _slice(place / f"{at:04d}.dcm", voxels[..., at].astype(np.int16), at, series)
        _segments(place / f"{DEPTH:04d}.dcm", mask, series)
    return folder


def _segments(file: Path, mask: NDArray[np.uint8], series: str) -> None:
    """A binary DICOM SEG with a segment a shape, on the grid that `_slice` says."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = SegmentationStorage, ExplicitVRLittleEndian
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[series, "segments"])
    data = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.SeriesInstanceUID, data.StudyInstanceUID = f"{series}.1", generate_uid(entropy_srcs=[series])
    data.Modality, data.PatientID, data.SegmentationType = "SEG", file.parent.name, "BINARY"
    data.Rows, data.Columns = mask.shape[:2]
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.BitsAllocated = data.BitsStored = 1
    data.HighBit = 0
    data.ReferencedSeriesSequence = [_item(SeriesInstanceUID=series)]
    data.SegmentSequence = [_item(SegmentNumber=n, SegmentLabel=name) for n, name in enumerate(CELLS, 1)]
    data.SharedFunctionalGroupsSequence = [
        _item(PlaneOrientationSequence=[_item(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])],
              PixelMeasuresSequence=[_item(PixelSpacing=[2.0, 2.0])])
    ]  # fmt: skip
    marked = [(n, at) for n in (1, 2) for at in range(DEPTH) if (mask[..., at] == n).any()]
    data.PerFrameFunctionalGroupsSequence = [
        _item(PlanePositionSequence=[_item(ImagePositionPatient=[0.0, 0.0, 5.0 * at])],
              SegmentIdentificationSequence=[_item(ReferencedSegmentNumber=n)])
        for n, at in marked
    ]  # fmt: skip
    data.NumberOfFrames = len(marked)
    data.PixelData = np.packbits(
        np.array([mask[..., at] == n for n, at in marked]).ravel(), bitorder="little"
    ).tobytes()
    data.save_as(file, enforce_file_format=True)


def _item(**fields: object) -> Dataset:
    item = Dataset()
    for name, value in fields.items():
        setattr(item, name, value)
    return item


# --- reports -----------------------------------------------------------------------------------------------------

REPORT_TEXTS = {
    "round": ("A round nodule is seen in the field.", "Round nodule."),
    "square": ("There is a square opacity with sharp borders.", "Square opacity."),
    "": ("The field is clear without nodule or opacity.", "Normal study."),
}


def reports(folder: Path, cases: int = 60, views: int = 1) -> Path:
    """Pictures in `images/`, and a table with a row an image: study, findings, impression."""
    rows = []
    for number, image, shapes, _ in draw_cases(cases, min_shapes=0, max_shapes=2):
        names = list(dict.fromkeys(name for name, _ in shapes)) or [""]
        text = [" ".join(REPORT_TEXTS[name][part] for name in names) for part in (0, 1)]
        aside = f"Study of room {number}."
        for view in range(views):
            name = f"s{number:03d}_{'frontal' if view == 0 else 'lateral'}.png"
            picture(folder / "images" / name, image if view == 0 else np.ascontiguousarray(image[:, ::-1]))
            rows.append([name, f"s{number:03d}", f"{text[0]} {aside}", text[1]])
    table(folder / "reports.csv", ["image", "study_id", "findings", "impression"], rows)
    return folder


# --- grades and numbers -------------------------------------------------------------------------------------------


def brightened(folder: Path, cases: int = 90) -> Path:
    """Radiographs with a disc each, and a table with how bright it is: in grey levels, and as one of four grades."""
    random = np.random.default_rng(5)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    table_rows = []
    for number in range(cases):
        level = float(random.uniform(20, 140))
        image = random.normal(60, 10, (SIDE, SIDE))
        center_y, center_x = random.uniform(16, SIDE - 16, 2)
        image[(rows - center_y) ** 2 + (columns - center_x) ** 2 < 144] += level
        picture(folder / "films" / f"film{number:03d}.png", np.clip(image, 0, 255).astype(np.uint8))
        sex, patient = ("F", "M")[number % 2], f"p{number // 2:03d}"
        table_rows.append([f"film{number:03d}.png", patient, sex, round(level, 1), int(level // 35)])
    table(folder / "films.csv", ["file", "patient_id", "sex", "bone_density_g", "density_grade"], table_rows)
    return folder


def aged(folder: Path, cases: int = 120) -> Path:
    """Radiographs that are brighter in the ill, with noise; a table with the age, which is higher in the ill, and the sex."""
    random = np.random.default_rng(7)
    rows = []
    for number in range(cases):
        ill = number % 2
        image = random.normal(60 + 12 * ill + random.normal(0, 8), 10, (SIDE, SIDE))
        picture(folder / "films" / f"film{number:03d}.png", np.clip(image, 0, 255).astype(np.uint8))
        age = "" if number % 17 == 5 else round(55 + 8 * ill + random.normal(0, 9))
        rows.append(
            [f"film{number:03d}.png", f"p{number:03d}", age, "FM"[int(random.integers(2))], ("healthy", "ill")[ill]]
        )
    table(folder / "films.csv", ["file", "patient_id", "age", "sex", "finding"], rows)
    return folder


def followed(folder: Path, cases: int = 160) -> Path:
    """Scans with a disc each, and a table of months to death or the last visit: the brighter the sooner."""
    random = np.random.default_rng(11)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    table_rows = []
    for number in range(cases):
        level = float(random.uniform(20, 140))
        image = random.normal(60, 10, (SIDE, SIDE))
        center_y, center_x = random.uniform(16, SIDE - 16, 2)
        image[(rows - center_y) ** 2 + (columns - center_x) ** 2 < 144] += level
        picture(folder / "scans" / f"scan{number:03d}.png", np.clip(image, 0, 255).astype(np.uint8))
        time, end = random.exponential(40 * np.exp((80 - level) / 25)), random.uniform(10, 150)
        status = "1:DECEASED" if time <= end else "0:LIVING"
        table_rows.append([f"scan{number:03d}.png", f"p{number:03d}", round(float(min(time, end)), 1), status])
    table(folder / "clinical.csv", ["file", "patient_id", "os_months", "os_status"], table_rows)
    return folder


def two_views(folder: Path, cases: int = 80) -> Path:
    """Two views of each study in `films/`, in one of which the ill have a bright square; a table with a row a study."""
    random = np.random.default_rng(13)
    rows = []
    for number in range(cases):
        ill, lesion_view = number % 2, ("frontal", "lateral")[int(random.integers(2))]
        for view in ("frontal", "lateral"):
            image = random.normal(60, 10, (SIDE, SIDE))
            if ill and view == lesion_view:
                image[20:44, 20:44] += 90
            picture(folder / "films" / f"s{number:03d}_{view}.png", np.clip(image, 0, 255).astype(np.uint8))
        rows.append([f"s{number:03d}", f"p{number:03d}", ("healthy", "ill")[ill]])
    table(folder / "films.csv", ["study", "patient_id", "finding"], rows)
    return folder
