"""Drawn copies of layouts in which well-known public sets are delivered, by their documented structure."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from layout_kit import SIZE, Layout, Names, Want, number, table
from layout_kit_known import marks, volume
from picture_kit import picture
from PIL import Image


def _random(file: Path) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32("/".join(file.parts[-3:]).encode()))


def _mask(file: Path, across: tuple[int, int] = (2, 9)) -> None:
    """A rectangle, elsewhere and of another size for every name; its first column lies in `across`."""
    draw, array = _random(file), np.zeros(SIZE, np.uint8)
    top, left = int(draw.integers(1, 6)), int(draw.integers(*across))
    array[top : top + int(draw.integers(4, 9)), left : left + int(draw.integers(4, 7))] = 255
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(file)


def _itk(file: Path, values: Sequence[int] = ()) -> None:
    """A picture in MetaImage's form, or a mask with a row a value."""
    draw = _random(file)
    array = draw.integers(0, 255, SIZE).astype(np.uint8) if not values else np.zeros(SIZE, np.uint8)
    start = int(draw.integers(1, 5))
    for place, value in enumerate(values):
        array[start + 3 * place : start + 3 * place + 3, start : start + 8 + place] = value
    file.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(sitk.GetImageFromArray(array), str(file))


def lesion_folders(root: Path, names: Names, rng: random.Random) -> Want:
    """Numbered folders with several words, a class each, below those of a split; short marks at the ends of names."""
    kinds = (("Microaneurysms", "MA"), ("Haemorrhages", "HE"), ("Hard Exudates", "EX"))
    for part, first, last in (("a. Training Set", 1, 13), ("b. Testing Set", 13, 19)):
        for at in range(first, last):
            picture(root / "1. Original Images" / part / f"IDRiD_{at:02d}.jpg", 90, SIZE)
            for place, (kind, short) in enumerate(kinds, 1):
                _mask(root / "2. Groundtruths" / part / f"{place}. {kind}" / f"IDRiD_{at:02d}_{short}.tif")
    return Want("Segment haemorrhages and hard exudates on fundus photographs", "segmentation", 18,
                frozenset(("haemorrhages", "hard exudates")), tested="Testing")  # fmt: skip


def both_lungs(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(16):
        name = f"MCUCXR_{at:04d}_{at % 2}.png"
        picture(root / "CXR_png" / name, 90, SIZE)
        _mask(root / "ManualMask/leftMask" / name, (0, 3))
        _mask(root / "ManualMask/rightMask" / name, (10, 13))
    return Want("Segment left and right lung on chest X-rays", "segmentation", 16, frozenset(("left", "right")))


def organ_files(root: Path, names: Names, rng: random.Random) -> Want:
    """A mask file an organ, of which a request wants two."""
    for at in range(12):
        volume(root / f"s{at:04d}/ct.nii.gz")
        for organ in ("liver", "spleen", "kidney_left", "aorta"):
            marks(root / f"s{at:04d}/segmentations/{organ}.nii.gz")
    return Want("Segment liver and spleen on CT", "segmentation", 12, frozenset(("liver", "spleen")))


def values_in_parentheses(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(12):
        for sequence in ("flair", "t1", "t1ce", "t2"):
            volume(root / f"BraTS20_{at:03d}/BraTS20_{at:03d}_{sequence}.nii.gz")
        marks(root / f"BraTS20_{at:03d}/BraTS20_{at:03d}_seg.nii.gz", (1, 2, 4))
    return Want("Segment necrotic core (1), edema (2) and enhancing tumour (4) on multi-sequence brain MRI", "segmentation", 12,
                frozenset(("necrotic core", "edema", "enhancing tumour")))  # fmt: skip


def two_phases(root: Path, names: Names, rng: random.Random) -> Want:
    """Two frames of a case with a mask each: cases of their own, not channels."""
    for at in range(1, 11):
        for view in ("2CH", "4CH"):
            for phase in ("ED", "ES"):
                stem = root / f"patient{at:04d}/patient{at:04d}_{view}_{phase}"
                _itk(Path(f"{stem}.mhd"))
                _itk(Path(f"{stem}_gt.mhd"), (1, 2, 3))
    return Want("Segment left ventricle (1), myocardium (2) and left atrium (3) on echocardiography", "segmentation", 40,
                frozenset(("left ventricle", "myocardium", "left atrium")), patients=10, groups=r"(patient\d+)/")  # fmt: skip


def two_formats(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(1, 21):
        picture(root / "PNG" / "Original" / f"{at}.png", 90, SIZE)
        _mask(root / "PNG" / "Ground Truth" / f"{at}.png")
        for folder in ("Original", "Ground Truth"):
            (root / "TIF" / folder).mkdir(parents=True, exist_ok=True)
            Image.open(root / "PNG" / folder / f"{at}.png").save(root / "TIF" / folder / f"{at}.tif")
    return Want("Segment polyps on colonoscopy images", "segmentation", 20)


def masks_beside_classes(root: Path, names: Names, rng: random.Random) -> Want:
    """Class folders of equal size whose numbers begin anew, with masks beside; those of the last class are empty."""
    for kind in ("benign", "malignant", "normal"):
        for at in range(1, 11):
            picture(root / kind / f"{kind} ({at}).png", 90, SIZE)
            if kind == "normal":
                Image.fromarray(np.zeros(SIZE, np.uint8)).save(root / kind / f"{kind} ({at})_mask.png")
            else:
                _mask(root / kind / f"{kind} ({at})_mask.png")
    _mask(root / "benign" / "benign (3)_mask_1.png")
    return Want("Segment breast tumours on ultrasound", "segmentation", 30)


def slides(root: Path, names: Names, rng: random.Random) -> Want:
    """Slides below class folders, with folders of two magnifications, which are no sources."""
    for kind, short, disease in (("benign", "B_A", "adenosis"), ("malignant", "M_DC", "ductal_carcinoma")):
        for slide in range(6):
            for zoom in (40, 100):
                folder = root / "breast" / kind / "SOB" / disease / f"SOB_{short}_14-{22549 + slide}AB" / f"{zoom}X"
                for at in range(1, 4):
                    picture(folder / f"SOB_{short}-14-{22549 + slide}AB-{zoom}-{at:03d}.png", 90, SIZE)
    return Want("Tell benign from malignant breast histology", "diagnosis", 72, frozenset(("benign", "malignant")),
                groups=r"/(SOB_\w+-\d+AB)/")  # fmt: skip


def several_labels(root: Path, names: Names, rng: random.Random) -> Want:
    """Labels with bars between, of which three are asked for, and lists of training with validation and of testing."""
    rows = []
    for at in range(30):
        name = f"{at // 2 + 1:08d}_{at % 2:03d}.png"
        picture(root / f"images_{at // 15 + 1:03d}/images" / name, 90, SIZE)
        rows.append(
            (name, ("No Finding", "Effusion|Infiltration", "Cardiomegaly", "Infiltration")[at % 4], at // 2 + 1)
        )
    table(root / "Data_Entry.csv", names, ("Image Index", "Finding Labels", "Patient ID"), rows)
    (root / "train_val_list.txt").write_text("\n".join(row[0] for row in rows[:20]))
    (root / "test_list.txt").write_text("\n".join(row[0] for row in rows[20:]))
    return Want("Detect effusion, infiltration and cardiomegaly on chest X-rays", "diagnosis", 30,
                frozenset(("effusion", "infiltration", "cardiomegaly")), patients=15,
                tested=tuple(row[0] for row in rows[20:]))  # fmt: skip


def uncertain_findings(root: Path, names: Names, rng: random.Random) -> Want:
    """Yes, no, blank and -1, and names of columns with a slash; two labels are unknown."""
    rows = []
    for at in range(30):
        path = f"small/train/patient{at // 2 + 1:05d}/study{at % 2 + 1}/view1_frontal.jpg"
        picture(root / path, 90, SIZE)
        cells = [("1.0", "", "0.0", "1.0", "", "0.0", "0.0", "")[(3 * at + 5 * column) % 8] for column in range(5)]
        rows.append((path, "Frontal", "AP", *cells[:2], "-1.0" if at in (3, 17) else cells[2], *cells[3:]))
    columns = ("No Finding", "Cardiomegaly", "Edema", "Pleural Effusion", "Support Devices")
    table(root / "small/train.csv", names, ("Path", "Frontal/Lateral", "AP/PA", *columns), rows)
    return Want("Detect cardiomegaly, edema and pleural effusion on chest X-rays", "diagnosis", 30,
                frozenset(("cardiomegaly", "edema", "pleural effusion")), patients=15)  # fmt: skip


def hidden_grades(root: Path, names: Names, rng: random.Random) -> Want:
    """Grades of the training images alone, and a request that says from where to where they go."""
    codes = [f"{zlib.crc32(str(at).encode()):08x}{at:04x}" for at in range(50)]
    for at, code in enumerate(codes):
        picture(root / ("train_images" if at < 40 else "test_images") / f"{code}.png", 90, SIZE)
    table(root / "train.csv", names, ("id_code", "diagnosis"), [(code, at % 5) for at, code in enumerate(codes[:40])])
    table(root / "test.csv", names, ("id_code",), [(code,) for code in codes[40:]])
    return Want(
        "Grade diabetic retinopathy from 0 (none) to 4 (proliferative) on fundus photographs", "grading", 40, values=5
    )


def explained_codes(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(30):
        name = f"PAT_{at // 2 + 8}_{at // 2 + 15}_{31 * at}.png"
        picture(root / f"imgs_part_{at % 3 + 1}" / name, 90, SIZE)
        rows.append((f"PAT_{at // 2 + 8}", at // 2 + 15, ("BCC", "ACK", "NEV")[at // 2 % 3], name))
    table(root / "metadata.csv", names, ("patient_id", "lesion_id", "diagnostic", "img_id"), rows)
    return Want("Tell basal cell carcinoma (BCC), actinic keratosis (ACK) and nevus (NEV) apart on photographs of skin",
                "diagnosis", 30, frozenset(("bcc", "ack", "nev")), patients=15)  # fmt: skip


def boxes_in_a_cell(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(24):
        name = f"{at // 2 + 1:06d}_01_01_{100 + at:03d}.png"
        picture(root / "Images_png" / name, 90, SIZE)
        rows.append((name, at // 2 + 1, f"{8 + at % 3}.0, 4.0, {16 + at % 3}.0, 14.0"))
    table(root / "DL_info.csv", names, ("File_name", "Patient_index", "Bounding_boxes"), rows)
    return Want("Find lesions with boxes on CT slices", "detection", 24, frozenset(("lesions",)), boxes=True)


def planes_and_tables(root: Path, names: Names, rng: random.Random) -> Want:
    """Volumes of three planes, and tables without a header whose names say the side of the split and the finding."""
    for part, first, last in (("train", 0, 20), ("valid", 20, 26)):
        for plane in ("axial", "coronal", "sagittal"):
            for at in range(first, last):
                file = root / part / plane / f"{at:04d}.npy"
                file.parent.mkdir(parents=True, exist_ok=True)
                np.save(file, _random(file).integers(0, 255, (6, 24, 24)).astype(np.uint8))
        for finding in ("abnormal", "acl", "meniscus"):
            rows = [f"{at:04d},{(at + len(finding)) % 2}" for at in range(first, last)]
            (root / f"{part}-{finding}.csv").write_text("\n".join(rows))
    return Want(
        "Tell ACL tears on sagittal knee MRI", "diagnosis", 26, frozenset(("no acl", "acl")), tested="valid/sagittal"
    )


def text_reports(root: Path, names: Names, rng: random.Random) -> Want:
    """A text file a report, called like its image."""
    heads = rng.choice((("FINDINGS", "IMPRESSION"), ("Findings", "Impression"), ("BEFUND", "BEURTEILUNG")))
    for at in range(24):
        picture(root / names.top / names.images / f"p{names.gap}{number(names, at)}{names.suffix}", 90, SIZE)
        file = root / names.top / "reports" / f"p{names.gap}{number(names, at)}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        findings = f"The lungs are clear with {at} markings. No effusion."
        file.write_text(f"{heads[0]}: {findings}\n\n{heads[1]}: Normal study {at}.\n")
    return Want("Write the findings of chest X-rays", "report", 24)


def study_reports(root: Path, names: Names, rng: random.Random) -> Want:
    """A folder of views a study, and the study's text beside that folder, below patients."""
    studies = 0
    for at in range(20):
        patient = 10000032 + at * 377
        for visit in range(1 + at % 2):
            study, studies = 50414267 + at * 1111 + visit * 37, studies + 1
            folder = root / names.top / f"p{patient}"
            for _ in range(1 + at % 3 // 2):
                picture(folder / f"s{study}" / f"{rng.getrandbits(32):08x}-{rng.getrandbits(32):08x}.jpg", 80, SIZE)
            report = f" FINAL REPORT\n EXAMINATION:  CHEST (PA AND LAT)\n \n FINDINGS: \n \n There is no effusion, a nodule of {at}"
            (folder / f"s{study}.txt").write_text(f"{report} mm.\n\n IMPRESSION: \n \n No acute process {at}.\n")
    return Want("Write the findings of chest X-rays", "report", studies, patients=20)


def text_fields(root: Path, names: Names, rng: random.Random) -> Want:
    """A text file of fields with values an image."""
    for at in range(24):
        stem = f"case{names.gap}{number(names, at)}"
        picture(root / names.top / names.images / f"{stem}{names.suffix}", 90, SIZE)
        file = root / names.top / "info" / f"{stem}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"Age: {40 + at}\nSex: {'FM'[at // 2 % 2]}\nDiagnosis: {('benign', 'malignant')[at % 2]}\n")
    return Want("Tell benign from malignant lesions on mammograms", "diagnosis", 24, frozenset(("benign", "malignant")))


def two_readers(root: Path, names: Names, rng: random.Random) -> Want:
    """Masks of one reader for all images, of a second one for the test part alone, and fields of view, in folders side by side."""
    for part, first, last in (("training", 21, 41), ("test", 1, 21)):
        for at in range(first, last):
            folder = root / names.top / part
            picture(folder / "images" / f"{at:02d}_{part}.tif", 90, SIZE)
            _mask(folder / "1st_manual" / f"{at:02d}_manual1.gif")
            if part == "test":
                _mask(folder / "2nd_manual" / f"{at:02d}_manual2.gif")
            field = np.zeros(SIZE, np.uint8)
            field[1:-1, 1:-1] = 255
            (folder / "mask").mkdir(exist_ok=True)
            Image.fromarray(field).save(folder / "mask" / f"{at:02d}_{part}_mask.gif")
    return Want(
        "Segment the vessels on retinal fundus photographs", "segmentation", 40, frozenset(("vessels",)), tested="test/"
    )


VARIED = {"text_reports": ("images", "width", "suffix", "gap", "top"), "study_reports": ("top",), "two_readers": ("top",),
          "text_fields": ("images", "width", "suffix", "gap", "top")}  # fmt: skip

PUBLIC = tuple(
    Layout(build.__name__, build, VARIED.get(build.__name__, ()))
    for build in (
        lesion_folders, both_lungs, organ_files, values_in_parentheses, two_phases, two_formats, masks_beside_classes, slides,
        several_labels, uncertain_findings, hidden_grades, explained_codes, boxes_in_a_cell, planes_and_tables, text_reports,
        study_reports, text_fields, two_readers,
    )
)  # fmt: skip
