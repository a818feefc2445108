"""Further kinds of data folders: paths of another system, documents, masks named in tables, DICOM, copies."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

import numpy as np
from layout_kit import SIZE, Layout, Names, Want, number, table
from picture_kit import mask, picture


def windows_paths(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(24):
        name = f"{at + 1}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        rows.append((f"C:\\Users\\me\\study\\{names.images}\\{name}", ("cyst", "stone")[at // 2 % 2], f"N{at // 2}"))
    table(root / names.top / "list.csv", names, (names.image_column, names.label_column, names.patient_column), rows)
    return Want("Tell cysts from stones on CT slices", "diagnosis", 24, frozenset({"cyst", "stone"}), patients=12)


def unpadded(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(24):
        picture(root / names.top / names.images / f"{at + 1:04d}{names.suffix}", 80, SIZE)
        rows.append((at + 1, ("cyst", "stone")[at % 2], 40 + at))
    table(root / names.top / "list.csv", names, (names.image_column, names.label_column, "age"), rows)
    return Want("Tell cysts from stones on CT slices", "diagnosis", 24, frozenset({"cyst", "stone"}))


def records(root: Path, names: Names, rng: random.Random) -> Want:
    entries = []
    for at in range(24):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        entries.append(
            {
                names.image_column: name,
                names.label_column: ("ill", "well")[at // 2 % 2],
                names.patient_column: f"p{at // 2}",
            }
        )
    (root / names.top / "t.json").write_text(json.dumps(entries))
    return Want("Tell ill from well", "diagnosis", 24, frozenset({"ill", "well"}), patients=12)


def many_columns(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(40):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        rows.append((name, ("COVID-19", "SARS", "No Finding", "COVID-19, ARDS")[at % 4], f"p{at // 2}", "FM"[at % 2],
                     ("PA", "AP")[at % 3 == 0], ("north", "south")[at % 5 == 0], 40 + at % 30))  # fmt: skip
    header = (names.image_column, "finding", names.patient_column, "sex", "view", "site", "age")
    table(root / names.top / "t.csv", names, header, rows)
    return Want("Tell COVID-19 from all other findings on chest X-rays", "diagnosis", 40, frozenset({"covid-19", "other findings"}),
                patients=20)  # fmt: skip


def masks_by_table(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(10):
        image, mask_path = (
            f"{names.images}/a{number(names, at)}{names.suffix}",
            f"{names.masks}/a{number(names, at)}_gt.png",
        )
        picture(root / names.top / image, 80, SIZE)
        mask(root / names.top / mask_path, (at, at % 7, 4 + at, 8 + at), size=SIZE)
        rows.append({"image": image, "mask": mask_path})
    (root / names.top / "pairs.json").write_text(json.dumps(rows))
    return Want("Segment polyps in colonoscopy images", "segmentation", 10, values=1)


def dicom_table(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(12):
        patient = f"PAT{number(names, at)}"
        for part in range(2):
            dicom(root / names.top / names.images / patient / f"{part}.dcm", f"X{at}", f"1.2.{at}.{part}")
        rows.append((patient, ("healthy", "ill")[at % 2], 50 + at))
    table(root / names.top / "labels.csv", names, (names.patient_column, names.label_column, "age"), rows)
    return Want("Tell ill from healthy on chest X-rays", "diagnosis", 24, frozenset({"healthy", "ill"}), patients=12)


def dicom(file: Path, patient: str, uid: str) -> None:
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, "1.2.840.10008.5.1.4.1.1.1"
    meta.MediaStorageSOPInstanceUID = uid
    dataset = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.PatientID, dataset.SOPInstanceUID, dataset.Modality = patient, uid, "CR"
    dataset.SOPClassUID = meta.MediaStorageSOPClassUID
    dataset.SeriesInstanceUID, dataset.StudyInstanceUID = f"{uid}.1", f"{uid}.2"
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 16, 20, 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 8
    dataset.HighBit, dataset.PixelRepresentation = 7, 0
    dataset.PixelData = np.random.default_rng(zlib.crc32(uid.encode())).integers(0, 255, (16, 20), np.uint8).tobytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    pydicom.dcmwrite(file, dataset)


def xml_reports(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(14):
        name = f"CXR{at + 1}_1"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 80, SIZE)
        file = root / names.top / "reports" / f"{at + 1}.xml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"<report><id>{at + 1}</id><findings>The heart of {at} is of normal size and both of the lungs are clear.</findings>"
            f"<impression>No acute disease in film number {at} of this series.</impression>"
            f'<image id="{name}"/></report>'
        )
    return Want("Write reports for chest X-rays", "report", 14)


def per_class(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(10):
        name = f"c{names.gap}{number(names, at)}"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 80, SIZE)
        for shift, organ in enumerate(("cup", "disc")):
            box = (2 + at % 5, shift + at % 7, 6 + shift + at % 5, 6 + 4 * shift + at % 7)
            mask(root / names.top / names.masks / f"{name}_{organ}.png", box, size=SIZE)
    return Want("Segment the optic disc and cup on fundus photographs", "segmentation", 10, frozenset({"disc", "cup"}))


def augmented(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(14):
        for copy in ("", "_transformed_1", "_transformed_2"):
            picture(root / names.top / ("mel", "nv")[at % 2] / f"ISIC_{at + 2400:07d}{copy}{names.suffix}", 80, SIZE)
    return Want("Classify skin lesions on dermoscopy images", "diagnosis", 42, frozenset({"mel", "nv"}))


def split_tables(root: Path, names: Names, rng: random.Random) -> Want:
    for part, count in (("train", 18), ("val", 4), ("test", 6)):
        rows = []
        for at in range(count):
            name = f"{part[:2]}{names.gap}{number(names, at)}{names.suffix}"
            picture(root / names.top / names.images / name, 80, SIZE)
            rows.append((name, ("mass", "none")[at % 2], at))
        table(root / names.top / f"{part}.csv", names, (names.image_column, names.label_column, "nr"), rows)
    return Want("Detect a mass on mammograms", "diagnosis", 28, frozenset({"mass", "none"}), tested="te")


FURTHER_LAYOUTS = (
    Layout(
        "windows_paths",
        windows_paths,
        ("images", "label_column", "patient_column", "suffix", "separator", "top", "order"),
    ),
    Layout("unpadded", unpadded, ("images", "label_column", "suffix", "separator", "top", "order")),
    Layout(
        "records",
        records,
        ("images", "image_column", "label_column", "patient_column", "width", "suffix", "gap", "top"),
    ),
    Layout(
        "many_columns",
        many_columns,
        ("images", "image_column", "patient_column", "width", "suffix", "separator", "top"),
    ),
    Layout("masks_by_table", masks_by_table, ("images", "masks", "width", "suffix", "top")),
    Layout(
        "dicom_table", dicom_table, ("images", "label_column", "patient_column", "width", "separator", "top", "order")
    ),
    Layout("xml_reports", xml_reports, ("images", "suffix", "top")),
    Layout("per_class", per_class, ("images", "masks", "width", "suffix", "gap", "top")),
    Layout("augmented", augmented, ("suffix", "top")),
    Layout(
        "split_tables",
        split_tables,
        ("images", "image_column", "label_column", "width", "suffix", "separator", "top", "order"),
    ),
)
