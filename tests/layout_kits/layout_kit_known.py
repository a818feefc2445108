"""Layouts in which data sets are commonly published: BIDS, nnU-Net, YOLO, COCO, anomaly folders, one DICOM series a row."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

import nibabel as nib
import numpy as np
from layout_kit import SIZE, Layout, Names, Want, number
from picture_kit import mask, picture

GRID = (12, 14, 8)


def volume(file: Path, level: float = 100.0, shape: tuple[int, ...] = GRID) -> None:
    """A noisy volume, different for every name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(file.as_posix().encode())).normal(level, 20, shape)
    nib.save(nib.Nifti1Image(noise.astype(np.float32), np.eye(4)), file)


def marks(file: Path, values: tuple[int, ...] = (1,), shape: tuple[int, ...] = GRID) -> None:
    """A mask with a block a value, elsewhere for every name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(zlib.crc32(file.as_posix().encode()))
    array = np.zeros(shape, np.uint8)
    for value in values:
        at = rng.integers(0, [size // 2 for size in shape])
        array[tuple(slice(start, start + 4) for start in at)] = value
    for value in values:
        array[value, value, value % 3] = value
    nib.save(nib.Nifti1Image(array, np.eye(4)), file)


def bids(root: Path, names: Names, rng: random.Random) -> Want:
    top = root / names.top
    rows = ["participant_id\tage\tsex\tgroup"]
    for at in range(16):
        subject = f"sub-{number(names, at + 1)}"
        volume(top / subject / "anat" / f"{subject}_T1w.nii.gz")
        (top / subject / "anat" / f"{subject}_T1w.json").write_text(json.dumps({"EchoTime": 0.003, "Modality": "MR"}))
        rows.append(f"{subject}\t{30 + at}\t{'MF'[at % 2]}\t{('control', 'patient', 'patient')[at % 3]}")
    (top / "participants.tsv").write_text("\n".join(rows) + "\n")
    (top / "dataset_description.json").write_text(json.dumps({"Name": "made", "BIDSVersion": "1.8.0"}))
    return Want(
        "Tell patients from controls on brain MRI", "diagnosis", 16, frozenset({"control", "patient"}), patients=16
    )


def bids_masks(root: Path, names: Names, rng: random.Random) -> Want:
    top = root / names.top
    rows = ["participant_id\tage\tsex"]
    for at in range(12):
        subject = f"sub-{number(names, at + 1)}"
        volume(top / subject / "anat" / f"{subject}_FLAIR.nii.gz")
        marks(top / "derivatives" / "lesions" / subject / "anat" / f"{subject}_desc-lesion_mask.nii.gz")
        rows.append(f"{subject}\t{30 + at}\t{'MF'[at % 2]}")
    (top / "participants.tsv").write_text("\n".join(rows) + "\n")
    (top / "dataset_description.json").write_text(json.dumps({"Name": "made", "BIDSVersion": "1.8.0"}))
    return Want("Segment white matter lesions on FLAIR", "segmentation", 12, values=1, patients=12)


def seg_suffix(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(12):
        name = f"case{names.gap}{number(names, at)}"
        volume(root / names.top / f"{name}.nii.gz")
        marks(root / names.top / f"{name}_seg.nii.gz")
    return Want("Segment the spleen on CT", "segmentation", 12, values=1)


def sequences(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(10):
        name = f"BraTS20_Training_{number(names, at)}"
        for sequence in ("flair", "t1", "t1ce", "t2"):
            volume(root / names.top / name / f"{name}_{sequence}.nii.gz")
        marks(root / names.top / name / f"{name}_seg.nii.gz", (1, 2, 4))
    return Want("Segment brain tumours on multi-sequence MRI", "segmentation", 10, values=3)


def nnunet(root: Path, names: Names, rng: random.Random) -> Want:
    top = root / names.top
    for part, count in (("Tr", 10), ("Ts", 4)):
        for at in range(count):
            name = f"prostate{names.gap}{number(names, at + (30 if part == 'Ts' else 0))}"
            for channel in range(2):
                volume(top / f"images{part}" / f"{name}_{channel:04d}.nii.gz", 100 + 50 * channel)
            if part == "Tr":
                marks(top / f"labels{part}" / f"{name}.nii.gz", (1, 2))
    (top / "dataset.json").write_text(
        json.dumps({"channel_names": {"0": "T2", "1": "ADC"}, "labels": {"background": 0, "PZ": 1, "TZ": 2},
                    "numTraining": 10, "file_ending": ".nii.gz"})
    )  # fmt: skip
    return Want("Segment the zones of the prostate on MRI", "segmentation", 10, frozenset({"pz", "tz"}))


def yolo_yaml(root: Path, names: Names, rng: random.Random) -> Want:
    top = root / names.top
    for part, count in (("train", 12), ("val", 4), ("test", 5)):
        for at in range(count):
            name = f"{part[:2]}{names.gap}{number(names, at)}"
            picture(top / part / "images" / f"{name}{names.suffix}", 80, SIZE)
            file = top / part / "labels" / f"{name}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("" if at == 1 else f"{at % 2} 0.5 0.5 0.3 0.4\n")
    (top / "data.yaml").write_text(
        "train: ../train/images\nval: ../val/images\ntest: ../test/images\n\nnc: 2\nnames: ['crack', 'metal']\n"
    )
    return Want("Find cracks and metal on wrist X-rays, with boxes", "detection", 21, frozenset({"crack", "metal"}),
                tested="test/", boxes=True)  # fmt: skip


def coco_three(root: Path, names: Names, rng: random.Random) -> Want:
    top = root / names.top
    for part, count in (("train", 12), ("val", 4), ("test", 5)):
        images, boxes = [], []
        for at in range(count):
            name = f"{number(names, at + 100 * len(part) + ord(part[0]))}{names.suffix}"
            picture(top / f"{part}2017" / name, 80, SIZE)
            images.append({"id": at, "file_name": name, "width": SIZE[1], "height": SIZE[0]})
            boxes.append({"id": at, "image_id": at, "category_id": 1 + at % 2, "bbox": [2, 3, 6, 5], "area": 30})
        kinds = [{"id": 1, "name": "nodule"}, {"id": 2, "name": "mass"}]
        file = top / "annotations" / f"instances_{part}2017.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"info": {}, "images": images, "annotations": boxes, "categories": kinds}))
    return Want("Find nodules and masses on chest X-rays, with boxes", "detection", 21, frozenset({"nodule", "mass"}),
                tested="test2017/", boxes=True)  # fmt: skip


def anomalies(root: Path, names: Names, rng: random.Random) -> Want:
    top, at = root / names.top, 0
    for part, kind, count in (("train", "good", 14), ("valid", "good", 4), ("valid", "Ungood", 5), ("test", "good", 5),
                              ("test", "Ungood", 6)):  # fmt: skip
        for _ in range(count):
            at += 1
            folder = top / part / kind / ("" if part == "train" else "img")
            picture(folder / f"{number(names, at)}.png", 80, SIZE)
            if part != "train":
                box = (2, 3, 6 + at % 7, 12) if kind == "Ungood" else (0, 0, 0, 0)
                mask(top / part / kind / "label" / f"{number(names, at)}.png", box, size=SIZE)
    return Want(
        "Tell good from ungood brain MRI slices", "diagnosis", 34, frozenset({"good", "ungood"}), tested="test/"
    )


def musculoskeletal(root: Path, names: Names, rng: random.Random) -> Want:
    """Class in the name of a study's folder, several films a study, an own split."""
    count = 0
    for part, patients in (("train", 16), ("valid", 6)):
        for at in range(patients):
            patient = f"patient{number(names, at + (500 if part == 'valid' else 0))}"
            study = f"study1_{('positive', 'negative')[at % 2]}"
            for film in range(1, 3 + at % 2):
                count += 1
                picture(root / names.top / part / "XR_WRIST" / patient / study / f"image{film}{names.suffix}", 80, SIZE)
    return Want("Detect abnormal wrists: tell positive from negative studies on X-rays", "diagnosis", count,
                frozenset({"positive", "negative"}), patients=22, tested="valid/")  # fmt: skip


def series_table(root: Path, names: Names, rng: random.Random) -> Want:
    """Series of slices under random names, with a table that names each by its UID."""
    rows = ["PatientID,SeriesInstanceUID,Diagnosis"]
    for at in range(12):
        place = root / names.top / "dicom" / f"{rng.randrange(16**8):08x}"
        uid = f"1.2.826.0.1.{7000 + 13 * at}"
        for number_ in range(6):
            dicom_slice(place / f"{rng.randrange(16**8):08x}.dcm", f"P{at // 2:03d}", uid, number_)
        rows.append(f"P{at // 2:03d},{uid},{('stroke', 'normal')[at // 2 % 2]}")
    (root / names.top / "series.csv").write_text("\n".join(rows) + "\n")
    return Want("Tell stroke from normal on head CT", "diagnosis", 12, frozenset({"stroke", "normal"}), patients=6)


def dicom_slice(file: Path, patient: str, series: str, at: int) -> None:
    """A slice of a CT series."""
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, "1.2.840.10008.5.1.4.1.1.2"
    meta.MediaStorageSOPInstanceUID = f"{series}.{at + 1}"
    dataset = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.PatientID, dataset.SOPInstanceUID, dataset.Modality = patient, meta.MediaStorageSOPInstanceUID, "CT"
    dataset.SOPClassUID = meta.MediaStorageSOPClassUID
    dataset.SeriesInstanceUID, dataset.StudyInstanceUID, dataset.InstanceNumber = series, f"{series}.99", at + 1
    dataset.ImagePositionPatient, dataset.ImageOrientationPatient = [0, 0, 3.0 * at], [1, 0, 0, 0, 1, 0]
    dataset.PixelSpacing, dataset.SliceThickness, dataset.RescaleIntercept, dataset.RescaleSlope = [1, 1], 3, -1024, 1
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 16, 20, 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    seed = zlib.crc32(f"{series}.{at}".encode())
    dataset.PixelData = np.random.default_rng(seed).integers(900, 1200, (16, 20)).astype(np.uint16).tobytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    pydicom.dcmwrite(file, dataset)


STANDARD_LAYOUTS = (
    Layout("bids", bids, ("width", "top")),
    Layout("bids_masks", bids_masks, ("width", "top")),
    Layout("seg_suffix", seg_suffix, ("width", "gap", "top")),
    Layout("sequences", sequences, ("width", "top")),
    Layout("nnunet", nnunet, ("width", "gap", "top")),
    Layout("yolo_yaml", yolo_yaml, ("width", "suffix", "gap", "top")),
    Layout("coco_three", coco_three, ("width", "suffix", "top")),
    Layout("anomalies", anomalies, ("width", "top")),
    Layout("musculoskeletal", musculoskeletal, ("width", "suffix", "top")),
    Layout("series_table", series_table, ("top",)),
)
