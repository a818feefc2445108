"""Layouts in which further public sets of medical images are published: numbered parts, partitions, hidden tests, affixes."""

from __future__ import annotations

import csv
import random
import zlib
from collections.abc import Sequence
from pathlib import Path

from layout_kit import SIZE, Layout, Names, Want, table
from layout_kit_known import marks, volume
from picture_kit import mask, picture


def _rows(file: Path, header: Sequence[str], rows: Sequence[Sequence[object]], separator: str = ",") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=separator).writerows([header, *rows])


def numbered_parts(root: Path, names: Names, rng: random.Random) -> Want:
    """Parts with a letter before them, whose tables are lettered too, and images of the same names in each."""
    for letter, part, count in (("a", "Training", 20), ("b", "Testing", 10)):
        rows = []
        for at in range(1, count + 1):
            picture(root / f"1. Original Images/{letter}. {part} Set/IDRiD_{at:03d}.jpg", 90, SIZE)
            rows.append((f"IDRiD_{at:03d}", at % 5, at % 3))
        file = root / f"2. Groundtruths/{letter}. IDRiD_Disease Grading_{part} Labels.csv"
        _rows(file, ("Image name", "Retinopathy grade", "Risk of macular edema "), rows)
    return Want(
        "Grade diabetic retinopathy from 0 to 4 on fundus photographs", "grading", 30, values=5, tested="Testing"
    )


def hidden_part(root: Path, names: Names, rng: random.Random) -> Want:
    """A test part of which a table of its own names patients, and none names labels."""
    rows, hidden = [], []
    for at in range(40):
        name, patient = f"ISIC_{31 * at + 15719:07d}", f"IP_{at // 2 + 3000:07d}"
        part = "train" if at < 32 else "test"
        picture(root / part / f"{name}.jpg", 90, SIZE)
        labels = ("nevus", "melanoma")[at % 5 == 0], ("benign", "malignant")[at % 5 == 0], int(at % 5 == 0)
        if at < 32:
            rows.append((name, patient, "female", *labels))
        else:
            hidden.append((name, patient, "female"))
    _rows(root / "train.csv", ("image_name", "patient_id", "sex", "diagnosis", "benign_malignant", "target"), rows)
    _rows(root / "test.csv", ("image_name", "patient_id", "sex"), hidden)
    return Want(
        "Tell benign from malignant skin lesions", "diagnosis", 32, frozenset({"benign", "malignant"}), patients=16
    )


def partitions(root: Path, names: Names, rng: random.Random) -> Want:
    """Tables of a split, and beside them those of another division of its training part."""
    rows = []
    for at in range(30):
        name = f"16B{1851 + at:07d}_Region_{at % 5}.jpg"
        picture(root / "images" / name, 90, SIZE)
        rows.append((name, *(int(at // 2 % 3 == grade) for grade in range(3))))
    for part, part_rows in (("Test/Train", rows[:20]), ("Test/Test", rows[20:]), ("Validation/Val1/Train", rows[:14]),
                        ("Validation/Val1/Test", rows[14:20])):  # fmt: skip
        _rows(root / f"partition/{part}.csv", ("image_name", "NC", "G3", "G4"), part_rows)
    return Want("Classify prostate patches into NC, G3 and G4", "diagnosis", 30, frozenset({"nc", "g3", "g4"}),
                tested=tuple(row[0] for row in rows[20:]))  # fmt: skip


def split_of_folders(root: Path, names: Names, rng: random.Random) -> Want:
    """A table of cases that are folders, with the side of each."""
    rows = []
    for at in range(10):
        volume(root / f"s{11 * at:04d}/ct.nii.gz")
        for organ in ("liver", "spleen", "aorta"):
            marks(root / f"s{11 * at:04d}/segmentations/{organ}.nii.gz")
        rows.append((f"s{11 * at:04d}", 50 + at, ("train", "train", "val", "test", "train")[at % 5]))
    _rows(root / "meta.csv", ("image_id", "age", "split"), rows, ";")
    return Want("Segment liver and spleen on CT", "segmentation", 10, frozenset({"liver", "spleen"}),
                tested=("s0033", "s0088"))  # fmt: skip


def lists_in_cells(root: Path, names: Names, rng: random.Random) -> Want:
    """Cells that hold lists as a program prints them."""
    cells = ("['normal']", "['cardiomegaly', 'pleural effusion']", "['cardiomegaly']", '["pleural effusion", "nodule"]')
    rows = []
    for at in range(32):
        picture(root / f"{at % 3}/{7919 * at + 2168}_00-074-{at:03d}.png", 90, SIZE)
        rows.append(
            (f"{7919 * at + 2168}_00-074-{at:03d}.png", at % 3, f"8{at // 2:04d}", cells[at % 4], "['loc left']")
        )
    _rows(root / "labels.csv", ("ImageID", "ImageDir", "PatientID", "Labels", "Localizations"), rows)
    return Want("Detect cardiomegaly and pleural effusion on chest X-rays", "diagnosis", 32,
                frozenset({"cardiomegaly", "pleural effusion"}), patients=16)  # fmt: skip


def told_flag(root: Path, names: Names, rng: random.Random) -> Want:
    """A number at the end of names whose meaning the request alone says."""
    for at in range(1, 25):
        picture(root / "CXR_png" / f"CHNCXR_{at + 300:04d}_{at % 2}.png", 90, SIZE)
    return Want("Tell tuberculosis (1) from normal (0) on chest X-rays", "diagnosis", 24,
                frozenset({"tuberculosis", "normal"}))  # fmt: skip


def crossed_words(root: Path, names: Names, rng: random.Random) -> Want:
    """Names with a word for the hospital and one for the modality: the second tells channels of a case apart."""
    for at in range(1, 13):
        name = f"{('CHUM', 'MDA', 'HGJ')[at % 3]}-{at:03d}"
        for modality in ("CT", "PT"):
            volume(root / f"imagesTr/{name}__{modality}.nii.gz")
        marks(root / f"labelsTr/{name}.nii.gz", (1, 2))
    return Want("Segment the primary tumour (1) and lymph nodes (2) on PET and CT", "segmentation", 12,
                frozenset({"primary tumour", "lymph nodes"}))  # fmt: skip


def names_with_more(root: Path, names: Names, rng: random.Random) -> Want:
    """Files of many hospitals that are called as their rows are, and something more."""
    rows: list[Sequence[object]] = [("no_filename", 49999, 1, 21.5)]
    for at in range(28):
        name = f"{('Pitt', 'NYU', 'UM_1')[at % 3]}_{50003 + 7 * at:07d}"
        volume(root / f"anat/{name}_anat_thickness.nii.gz")
        rows.append((name, 50003 + 7 * at, 1 + at // 2 % 2, 20.5 + at))
    _rows(root / "phenotypic.csv", ("FILE_ID", "SUB_ID", "DX_GROUP", "AGE_AT_SCAN"), rows)
    return Want("Tell autism (1) from control (2) on brain MRI", "diagnosis", 28, frozenset({"autism", "control"}))


def age_beside_weight(root: Path, names: Names, rng: random.Random) -> Want:
    """A column of weights, which sequences that are weighted do not ask for."""
    rows = []
    for at in range(24):
        volume(root / f"T1/IXI{3 * at + 2:03d}-{17 * at + 700:04d}-T1.nii.gz")
        rows.append((3 * at + 2, 60 + zlib.crc32(bytes([at])) % 40, round(25 + 1.3 * at, 2)))
    table(root / "IXI.csv", names, ("IXI_ID", "WEIGHT", "AGE"), rows)
    return Want("Predict the age in years from T1-weighted brain MRI", "regression", 24, frozenset({"age (years)"}))


def nothing_found(root: Path, names: Names, rng: random.Random) -> Want:
    """Findings to be found, and images without any, of which the request does not speak."""
    rows = []
    for at in range(30):
        name = f"{at // 2 + 13:08d}_{at % 2:03d}.png"
        picture(root / "images" / name, 90, SIZE)
        rows.append((name, ("Atelectasis", "Effusion", "No Finding")[at % 3], at // 2 + 13))
    table(root / "Data_Entry_2017.csv", names, ("Image Index", "Finding Label", "Patient ID"), rows)
    return Want("Detect atelectasis and effusion on chest X-rays", "diagnosis", 30,
                frozenset({"atelectasis", "effusion", "no finding"}), patients=15)  # fmt: skip


def lists_of_classes(root: Path, names: Names, rng: random.Random) -> Want:
    """A list for each class and side, as one split."""
    tested = []
    for label in ("COVID", "NonCOVID"):
        every = [f"{13 * at + len(label)}.png" for at in range(14)]
        for name in every:
            picture(root / f"Images-processed/CT_{label}/{name}", 90, SIZE)
        for part, first, last in (("train", 0, 8), ("val", 8, 10), ("test", 10, 14)):
            file = root / f"Data-split/{label}/{part}CT_{label}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(every[first:last]))
        tested += [f"/CT_{label}/{name}" for name in every[10:]]
    return Want("Tell COVID from non-COVID on CT", "diagnosis", 28, frozenset({"covid", "noncovid"}),
                tested=tuple(tested))  # fmt: skip


def subjects_in_names(root: Path, names: Names, rng: random.Random) -> Want:
    """A column of subjects whose numbers begin the names, and of frames that end them; a test part without masks."""
    rows = []
    for subject in range(1, 9):
        for frame in range(1, 6):
            picture(root / f"train/{subject}_{frame}.png", 90, SIZE)
            mask(
                root / f"train/{subject}_{frame}_mask.png",
                (2 * frame - 1, 2 * subject, 2 * frame + 4, 2 * subject + 4),
                size=SIZE,
            )
            rows.append((subject, frame, "10 5 30 5"))
    for at in range(1, 8):
        picture(root / f"test/{at}.png", 90, SIZE)
    _rows(root / "train_masks.csv", ("subject", "img", "pixels"), rows)
    return Want("Segment the brachial plexus nerve on ultrasound", "segmentation", 40, values=1, groups=r"train/(\d+)_")


def thumbnails(root: Path, names: Names, rng: random.Random) -> Want:
    """Small copies whose names begin as those of the images do, which no row names."""
    rows = []
    for at in range(30):
        picture(root / f"train_images/{131 * at + 4}.png", 90, SIZE)
        if at % 4:
            picture(root / f"train_thumbnails/{131 * at + 4}_thumbnail.png", 90, (8, 10))
        rows.append((131 * at + 4, ("HGSC", "LGSC", "EC")[at % 3], 23785))
    table(root / "train.csv", names, ("image_id", "label", "image_width"), rows)
    return Want("Classify ovarian cancer into HGSC, LGSC and EC", "diagnosis", 30, frozenset({"hgsc", "lgsc", "ec"}))


def packed_in_parts(root: Path, names: Names, rng: random.Random) -> Want:
    """Folders numbered by the archives that they came in."""
    rows = []
    for at in range(30):
        picture(root / f"HAM10000_images_part_{1 + at % 2}/ISIC_{at + 24306:07d}.jpg", 90, SIZE)
        rows.append((f"HAM_{at // 2:07d}", f"ISIC_{at + 24306:07d}", ("mel", "nv", "bcc")[at // 2 % 3], "histo"))
    table(root / "HAM10000_metadata.csv", names, ("lesion_id", "image_id", "dx", "dx_type"), rows)
    return Want("Classify pigmented skin lesions", "diagnosis", 30, frozenset({"mel", "nv", "bcc"}))


def more_in_masks(root: Path, names: Names, rng: random.Random) -> Want:
    """Two sources of volumes in one folder, and masks of what is asked for beside masks of more."""
    for at in range(1, 9):
        for name in (f"coronacases_{at:03d}", f"radiopaedia_{at}_85902_0"):
            volume(root / f"Seg_20cases/{name}.nii.gz")
            marks(root / f"Lung_Mask/{name}.nii.gz", (1, 2))
            marks(root / f"Infection_Mask/{name}.nii.gz")
            marks(root / f"Lung_and_Infection_Mask/{name}.nii.gz", (1, 2, 3))
    return Want("Segment COVID-19 infection on CT", "segmentation", 16, values=1)


ARCHIVES = tuple(
    Layout(build.__name__, build, ("order",) if build in (age_beside_weight, nothing_found, thumbnails, packed_in_parts) else ())
    for build in (
        numbered_parts, hidden_part, partitions, split_of_folders, lists_in_cells, told_flag, crossed_words, names_with_more,
        age_beside_weight, nothing_found, lists_of_classes, subjects_in_names, thumbnails, packed_in_parts, more_in_masks,
    )
)  # fmt: skip
