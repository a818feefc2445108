"""Layouts whose labels stand in lists, workbooks, names, nested documents or colours, also in other languages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from layout_kit import SIZE, Layout, Names, Want, number, table
from picture_kit import mask, picture
from PIL import Image


def workbook(root: Path, names: Names, rng: random.Random) -> Want:
    """Two sheets: images with their patients, patients with their labels."""
    from openpyxl import Workbook

    book = Workbook()
    images, patients = book.active, book.create_sheet("Patients")
    images.title = "Images"
    images.append([names.image_column, names.patient_column])
    patients.append([names.patient_column, names.label_column, "age"])
    for at in range(24):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        images.append([name, f"PT{at // 2:03d}"])
    for at in range(12):
        patients.append([f"PT{at:03d}", ("benign", "malignant")[at % 2], 40 + at])
    book.save(root / names.top / "study.xlsx")
    return Want("Tell benign from malignant lesions on mammograms", "diagnosis", 24, frozenset({"benign", "malignant"}),
                patients=12)  # fmt: skip


def listed_parts(root: Path, names: Names, rng: random.Random) -> Want:
    """Class folders, and a list of paths for each part."""
    parts: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for at in range(30):
        name = f"{('COVID', 'NonCOVID')[at % 2]}/x{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / "images" / name, 60, SIZE)
        parts["train" if at < 18 else "val" if at < 23 else "test"].append(f"images/{name}")
    for part, lines in parts.items():
        (root / names.top / f"{part}.txt").write_text("\n".join(lines) + "\n")
    tested = tuple(parts["test"])
    return Want(
        "Tell COVID from non-COVID on CT slices", "diagnosis", 30, frozenset({"covid", "noncovid"}), tested=tested
    )


def listed_labels(root: Path, names: Names, rng: random.Random) -> Want:
    """Lines of patient, file and class, without a header, in a list for each part."""
    for part, count in (("train", 20), ("test", 8)):
        lines = []
        for at in range(count):
            name = f"{part[:2]}{names.gap}{number(names, at)}{names.suffix}"
            picture(root / names.top / part / name, 60, SIZE)
            lines.append(
                f"{part[0]}p{at // 2} {name} {('positive', 'negative')[at // 2 % 2]} {('rsna', 'sirm')[at % 3 == 0]}"
            )
        (root / names.top / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return Want("Tell COVID-19 positive from negative chest X-rays", "diagnosis", 28, frozenset({"covid-19 positive", "negative"}),
                tested="test/")  # fmt: skip


def patient_groups(root: Path, names: Names, rng: random.Random) -> Want:
    """One HDF5 file with a group a patient, each with an image and its mask."""
    import h5py

    (root / names.top).mkdir(parents=True, exist_ok=True)
    with h5py.File(root / names.top / "data.h5", "w") as out:
        for at in range(12):
            group = out.create_group(f"patient_{number(names, at)}")
            noise = np.random.default_rng(at)
            group["image"] = noise.normal(100, 20, (10, 16, 20)).astype(np.float32)
            atrium = np.zeros((10, 16, 20), np.uint8)
            atrium[2:8, 3 + at % 5 : 9 + at % 5, 4 + at % 7 : 12 + at % 7] = 1
            group["mask"] = atrium
    return Want("Segment the left atrium on 3D cardiac MRI", "segmentation", 12, values=1)


def both_eyes(root: Path, names: Names, rng: random.Random) -> Want:
    """A row a patient with the files of both eyes."""
    rows = []
    for at in range(20):
        files = [f"{number(names, at)}_{side}{names.suffix}" for side in ("left", "right")]
        for name in files:
            picture(root / names.top / names.images / name, 60, SIZE)
        rows.append((number(names, at + 1), *files, ("glaucoma", "normal")[at % 2], 50 + at))
    table(
        root / names.top / "patients.csv", names, ("ID", "Left-Fundus", "Right-Fundus", names.label_column, "age"), rows
    )
    return Want("Tell glaucoma from normal on fundus photographs", "diagnosis", 40, frozenset({"glaucoma", "normal"}),
                groups=r"(\d+)_(?:left|right)")  # fmt: skip


def class_in_name(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(36):
        name = f"P{number(names, at // 3)}_{('benign', 'malignant')[at // 3 % 2]}_{at % 3 + 1}{names.suffix}"
        picture(root / names.top / names.images / name, 60, SIZE)
    return Want("Tell benign from malignant lesions on ultrasound images", "diagnosis", 36, frozenset({"benign", "malignant"}),
                patients=12)  # fmt: skip


def german(root: Path, names: Names, rng: random.Random) -> Want:
    columns = ("Dateiname", "Befund", "Patientennummer", "Geschlecht", "Alter")
    classes = ("gutartig", "bösartig")
    told_patients(root / names.top, names, "Bilder/bild", "Befunde.csv", columns, classes)
    return Want("Gutartige von bösartigen Läsionen auf Ultraschallbildern unterscheiden", "diagnosis", 30, frozenset(classes),
                patients=15)  # fmt: skip


def french(root: Path, names: Names, rng: random.Random) -> Want:
    columns = ("fichier", "diagnostic", "numéro_patient", "sexe", "âge")
    classes = ("pneumonie", "normal")
    told_patients(root / names.top, names, "clichés/cliche", "données.csv", columns, classes)
    return Want("Detect pneumonia on chest X-rays", "diagnosis", 30, frozenset(classes), patients=15)


def told_patients(
    top: Path, names: Names, images: str, file: str, columns: Sequence[str], classes: tuple[str, str]
) -> None:
    """30 images of 15 patients, and a table of image, class, patient, sex and age under these headings."""
    rows = []
    for at in range(30):
        image = top / f"{images}{names.gap}{number(names, at)}{names.suffix}"
        picture(image, 60, SIZE)
        rows.append((image.name, classes[at // 2 % 2], f"{1000 + at // 2}", "MF"[at % 2], 40 + at // 2))
    table(top / file, names, columns, rows)


def exclusive_columns(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(40):
        name = f"ISIC_{at + 24306:07d}"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 80, SIZE)
        rows.append((name, *(f"{float(at % 4 == column):.1f}" for column in range(4))))
    table(root / names.top / "GroundTruth.csv", names, (names.image_column, "MEL", "NV", "BCC", "AKIEC"), rows)
    return Want("Classify skin lesions on dermoscopy images", "diagnosis", 40, frozenset({"mel", "nv", "bcc", "akiec"}))


COLOURS = {"background": (0, 0, 0), "disc": (255, 0, 0), "cup": (0, 255, 0)}


def coloured_masks(root: Path, names: Names, rng: random.Random) -> Want:
    top = root / names.top
    for at in range(12):
        name = f"eye{names.gap}{number(names, at)}"
        picture(top / names.images / f"{name}{names.suffix}", 80, SIZE)
        coloured_mask = np.zeros((*SIZE, 3), np.uint8)
        coloured_mask[2 + at % 4 : 12, 3 : 13 + at % 5] = COLOURS["disc"]
        coloured_mask[5:9, 5 + at % 4 : 9 + at % 4] = COLOURS["cup"]
        file = top / names.masks / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coloured_mask).save(file)
    rows = ["name,r,g,b", *(f"{name},{','.join(map(str, rgb))}" for name, rgb in COLOURS.items())]
    (top / "class_dict.csv").write_text("\n".join(rows) + "\n")
    return Want("Segment the optic disc and cup on fundus photographs", "segmentation", 12, frozenset({"disc", "cup"}))


def folder_a_class(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(12):
        name = f"c{names.gap}{number(names, at)}"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 80, SIZE)
        for shift, organ in enumerate(("cup", "disc")):
            box = (2 + at % 5, shift + at % 7, 6 + shift + at % 5, 6 + 4 * shift + at % 7)
            mask(root / names.top / names.masks / organ / f"{name}.png", box, size=SIZE)
    return Want("Segment the optic disc and cup on fundus photographs", "segmentation", 12, frozenset({"disc", "cup"}))


def nested_lines(root: Path, names: Names, rng: random.Random) -> Want:
    lines = []
    for at in range(24):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        lines.append({"image": {"path": f"{names.images}/{name}", "height": SIZE[0], "width": SIZE[1]},
                      "patient": {"id": f"p{at // 2}", "age": 50 + at},
                      "annotations": [{"label": ("benign", "malignant")[at // 2 % 2], "reader": 1 + at % 2}]})  # fmt: skip
    (root / names.top / "annotations.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return Want("Tell benign from malignant lesions", "diagnosis", 24, frozenset({"benign", "malignant"}), patients=12)


def sidecars(root: Path, names: Names, rng: random.Random) -> Want:
    """A JSON beside each image."""
    for at in range(24):
        name = f"ISIC_{number(names, at)}"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 80, SIZE)
        meta = {"name": name, "meta": {"clinical": {"age_approx": 30 + at, "benign_malignant": ("benign", "malignant")[at % 2]},
                                       "acquisition": {"pixelsX": SIZE[1], "pixelsY": SIZE[0]}}}  # fmt: skip
        file = root / names.top / "descriptions" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(meta))
    return Want("Tell benign from malignant lesions", "diagnosis", 24, frozenset({"benign", "malignant"}))


def unlabelled_test(root: Path, names: Names, rng: random.Random) -> Want:
    """Images of a contest: a table for those of training, none for those of testing, and a form to hand in."""
    rows, form = [], []
    for at in range(30):
        name = f"{number(names, at + 1)}"
        part = "train" if at < 22 else "test"
        picture(root / names.top / part / f"{name}{names.suffix}", 80, SIZE)
        (rows if at < 22 else form).append((name, ("no_tumor", "tumor")[at % 2] if at < 22 else "tumor"))
    table(root / names.top / "train.csv", names, ("id", names.label_column), rows)
    table(root / names.top / "sample_submission.csv", names, ("id", names.label_column), form)
    return Want("Tell tumor from no tumor on histology tiles", "diagnosis", 22, frozenset({"no_tumor", "tumor"}))


LABEL_LAYOUTS = (
    Layout(
        "workbook",
        workbook,
        ("images", "image_column", "label_column", "patient_column", "width", "suffix", "gap", "top"),
    ),
    Layout("listed_parts", listed_parts, ("width", "suffix", "gap", "top")),
    Layout("listed_labels", listed_labels, ("width", "suffix", "gap", "top")),
    Layout("patient_groups", patient_groups, ("width", "top")),
    Layout("both_eyes", both_eyes, ("images", "label_column", "width", "suffix", "separator", "top")),
    Layout("class_in_name", class_in_name, ("images", "width", "suffix", "top")),
    Layout("german", german, ("width", "suffix", "separator", "gap", "top", "order")),
    Layout("french", french, ("width", "suffix", "separator", "gap", "top", "order")),
    Layout("exclusive_columns", exclusive_columns, ("images", "image_column", "suffix", "separator", "top")),
    Layout("coloured_masks", coloured_masks, ("images", "masks", "width", "suffix", "gap", "top")),
    Layout("folder_a_class", folder_a_class, ("images", "masks", "width", "suffix", "gap", "top")),
    Layout("nested_lines", nested_lines, ("images", "width", "suffix", "gap", "top")),
    Layout("sidecars", sidecars, ("images", "width", "suffix", "top")),
    Layout("unlabelled_test", unlabelled_test, ("label_column", "width", "suffix", "separator", "top")),
)
