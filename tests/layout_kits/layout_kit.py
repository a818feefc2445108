"""Small data folders of many kinds, each with the request it answers and what a right reading holds."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from picture_kit import mask, picture

from m3b.dataset.manifest.execute import Executed, execute
from m3b.dataset.manifest.model import Manifest, Task
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.proposals.decide import decide
from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.proposals.request import parse
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.survey import survey_inventory
from m3b.dataset.survey.walk import walk
from m3b.errors import DataError

SIZE = (16, 20)


@dataclass
class Names:
    """How a folder is called and written: what a mutation changes without changing what the data mean."""

    images: str = "images"
    masks: str = "masks"
    image_column: str = "image"
    label_column: str = "label"
    patient_column: str = "patient"
    width: int = 3
    suffix: str = ".png"
    separator: str = ","
    gap: str = "_"
    top: str = ""
    masks_with_images: bool = False
    order: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Want:
    """What a right reading holds.

    Args:
        classes: names in any order and case; None leaves names open and `values` counts them.
        groups: of an image's path, a group that must not be on both sides.
        marked: boxes on all cases together.
        tested: a text that every test image's path holds, of an own split; or several, of which it holds one.
    """

    request: str
    task: Task
    cases: int
    classes: frozenset[str] | None = None
    values: int | None = None
    patients: int | None = None
    tested: str | tuple[str, ...] = ""
    notes: str = ""
    groups: str = ""
    boxes: bool | None = None
    marked: int | None = None


@dataclass
class Layout:
    """A kind of folder."""

    name: str
    make: Callable[[Path, Names, random.Random], Want]
    fields: tuple[str, ...] = field(default=())


def number(names: Names, at: int) -> str:
    return f"{at:0{names.width}d}"


def table(file: Path, names: Names, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table with its first three columns in the mutation's order."""
    file.parent.mkdir(parents=True, exist_ok=True)
    column_order = [at for at in names.order if at < len(header)] + list(range(3, len(header)))
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=names.separator)
        writer.writerows([[row[at] for at in column_order] for row in (header, *rows)])


def class_folders(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(24):
        picture(root / names.top / ("COVID", "Normal", "Viral Pneumonia")[at % 3] / f"x{names.gap}{number(names, at)}{names.suffix}",
                60 * (at % 3), SIZE)  # fmt: skip
    return Want("Sort chest X-rays into COVID, normal and viral pneumonia", "diagnosis", 24,
                frozenset({"covid", "normal", "viral pneumonia"}))  # fmt: skip


def restarting(root: Path, names: Names, rng: random.Random) -> Want:
    for name, count in (("glioma", 9), ("meningioma", 8), ("notumor", 10), ("pituitary", 7)):
        for at in range(count):
            picture(root / names.top / name / f"{number(names, at + 1)}{names.suffix}", 90, SIZE)
    return Want("Tell glioma, meningioma, pituitary tumours and no tumor apart on brain MRI slices", "diagnosis", 34,
                frozenset({"glioma", "meningioma", "notumor", "pituitary"}))  # fmt: skip


def own_split(root: Path, names: Names, rng: random.Random) -> Want:
    for part, count in (("train", 14), ("test", 6)):
        for at in range(count):
            name = ("NORMAL", "PNEUMONIA")[at % 2]
            picture(
                root / names.top / part / name / f"{part[:2]}{names.gap}{number(names, at)}{names.suffix}",
                70 * (at % 2),
                SIZE,
            )
    return Want("Detect pneumonia on chest X-rays", "diagnosis", 20, frozenset({"normal", "pneumonia"}), tested="test/")


def labelled_table(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(30):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        rows.append((name, ("benign", "malignant", "malignant")[at // 2 % 3], f"S{100 + at // 2}"))
    table(root / names.top / "cases.csv", names, (names.image_column, names.label_column, names.patient_column), rows)
    return Want("Is the skin lesion malignant? Tell benign from malignant lesions", "diagnosis", 30,
                frozenset({"benign", "malignant"}), patients=15)  # fmt: skip


def numbered_labels(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(30):
        picture(root / names.top / names.images / f"eye{names.gap}{number(names, at)}{names.suffix}", 80, SIZE)
        rows.append((f"eye{names.gap}{number(names, at)}", at % 3, f"p{at // 3}"))
    table(root / names.top / "grades.csv", names, (names.image_column, names.label_column, names.patient_column), rows)
    return Want("Grade diabetic retinopathy on fundus photographs", "diagnosis", 30, frozenset({"none", "mild", "severe"}),
                notes="Retina images. Labels: 0 none, 1 mild, 2 severe.")  # fmt: skip


def patient_table(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(12):
        patient = f"PAT{number(names, at)}"
        for part in range(3):
            picture(
                root / names.top / names.images / patient / f"{number(names, at * 3 + part)}{names.suffix}", 80, SIZE
            )
        rows.append((patient, ("healthy", "ill")[at % 2], 50 + at))
    table(root / names.top / "labels.csv", names, (names.patient_column, names.label_column, "age"), rows)
    return Want("Tell ill from healthy on chest X-rays", "diagnosis", 36, frozenset({"healthy", "ill"}), patients=12)


def one_hot(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(40):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        rows.append((name, at % 2, f"p{at // 2}", int(at % 3 == 0), int(at % 5 == 0)))
    table(
        root / names.top / "t.csv", names, (names.image_column, "Edema", names.patient_column, "Mass", "Effusion"), rows
    )
    return Want(
        "Classify chest X-rays by all findings", "diagnosis", 40, frozenset({"edema", "mass", "effusion"}), patients=20
    )


def multi_label(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(40):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        rows.append((name, ("Edema", "Edema|Mass", "Mass", "No Finding")[at % 4], f"p{at // 2}"))
    table(root / names.top / "t.csv", names, (names.image_column, names.label_column, names.patient_column), rows)
    return Want("Find what is wrong on chest X-rays", "diagnosis", 40, frozenset({"edema", "mass"}), patients=20)


def slices(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(12):
        for slice_ in range(8):
            name = ("covid", "healthy")[at % 2]
            picture(
                root / names.top / name / f"scan{names.gap}{number(names, at)}" / f"{slice_:04d}{names.suffix}",
                80,
                SIZE,
            )
    return Want("Tell COVID from healthy lungs on 3D chest CT", "diagnosis", 12, frozenset({"covid", "healthy"}))


def masks_apart(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(10):
        name = f"case{names.gap}{number(names, at)}"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 80, SIZE)
        mask_folder = names.images if names.masks_with_images else names.masks
        mask_name = f"{name}_mask.png" if names.masks_with_images else f"{name}.png"
        mask(root / names.top / mask_folder / mask_name, (at, at % 7, 4 + at, 8 + at), size=SIZE)
    return Want("Segment polyps in colonoscopy images", "segmentation", 10, values=1)


def masks_in_classes(root: Path, names: Names, rng: random.Random) -> Want:
    for name, count in (("benign", 8), ("malignant", 9), ("normal", 7)):
        for at in range(count):
            stem = f"{name} ({at + 1})"
            picture(root / names.top / name / f"{stem}.png", 80, SIZE)
            box = (2, 2, 2, 2) if name == "normal" else (1 + at % 4, 2, 7, 6 + at % 9)
            mask(root / names.top / name / f"{stem}_mask.png", box, size=SIZE)
    return Want("Tell benign, malignant and normal breast ultrasound images apart", "diagnosis", 24,
                frozenset({"benign", "malignant", "normal"}))  # fmt: skip


def masks_in_classes_segmented(root: Path, names: Names, rng: random.Random) -> Want:
    masks_in_classes(root, names, rng)
    return Want("Segment lesions on breast ultrasound images", "segmentation", 24, values=1)


def hidden_test(root: Path, names: Names, rng: random.Random) -> Want:
    import nibabel as nib

    for part, count in (("imagesTr", 8), ("imagesTs", 3)):
        for at in range(count):
            name = f"liver{names.gap}{number(names, at + (50 if part == 'imagesTs' else 0))}.nii.gz"
            array = np.random.default_rng(at).integers(-200, 300, (10, 10, 6)).astype(np.int16)
            for folder, values in ((part, array), *([("labelsTr", _organ(at))] if part == "imagesTr" else [])):
                file = root / names.top / folder / name
                file.parent.mkdir(parents=True, exist_ok=True)
                nib.save(nib.Nifti1Image(values, np.eye(4)), file)
    (root / names.top / "dataset.json").write_text(
        json.dumps({"labels": {"0": "background", "1": "liver", "2": "tumour"}})
    )
    return Want("Segment the liver and its tumours on CT", "segmentation", 8, frozenset({"liver", "tumour"}))


def _organ(at: int) -> np.ndarray:
    array = np.zeros((10, 10, 6), np.uint8)
    array[1 + at % 3 : 7, 2:8, 1:5] = 1
    array[3:5, 3 + at % 2 : 5, 2:4] = 2
    return array


def coco_parts(root: Path, names: Names, rng: random.Random) -> Want:
    for part, count in (("train", 10), ("test", 4)):
        images, boxes = [], []
        for at in range(count):
            name = f"{part}{names.gap}{number(names, at)}{names.suffix}"
            picture(root / names.top / part / name, 80, SIZE)
            images.append({"id": at, "file_name": name, "width": SIZE[1], "height": SIZE[0]})
            boxes.append({"id": at, "image_id": at, "category_id": 1 + at % 2, "bbox": [2, 3, 6, 5]})
        kinds = [{"id": 1, "name": "nodule"}, {"id": 2, "name": "mass"}]
        (root / names.top / f"{part}.json").write_text(
            json.dumps({"images": images, "annotations": boxes, "categories": kinds})
        )
    return Want("Find nodules and masses on chest X-rays, with boxes", "detection", 14, frozenset({"nodule", "mass"}),
                tested="test/", boxes=True, marked=14)  # fmt: skip


def yolo(root: Path, names: Names, rng: random.Random) -> Want:
    for at in range(12):
        name = f"im{names.gap}{number(names, at)}"
        picture(root / names.top / names.images / f"{name}{names.suffix}", 80, SIZE)
        file = root / names.top / "labels" / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{at % 2} 0.5 0.5 0.3 0.4\n")
    (root / names.top / "classes.txt").write_text("crack\nmetal\n")
    return Want(
        "Find cracks and metal on wrist X-rays, with boxes",
        "detection",
        12,
        frozenset({"crack", "metal"}),
        boxes=True,
        marked=12,
    )


def report_table(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(12):
        name = f"film{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        text = f"The heart is of size {at} and the lungs are clear on both sides, without any effusion at all."
        rows.append((name, text, f"Nothing acute in study number {at}, follow up if symptoms persist for long."))
    table(root / names.top / "reports.csv", names, (names.image_column, "findings", "impression"), rows)
    return Want("Write reports for chest X-rays", "report", 12)


def report_parts(root: Path, names: Names, rng: random.Random) -> Want:
    for part, count in (("train", 9), ("test", 4)):
        records = []
        for at in range(count):
            name = f"{part[:2]}{names.gap}{number(names, at)}{names.suffix}"
            picture(root / names.top / names.images / name, 80, SIZE)
            text = f"The heart is of size {at} and the lungs of {part} are clear on both sides, without any effusion."
            records.append({"image_path": name, "finding": text, "impression": f"No acute disease in {part} {at}."})
        (root / names.top / f"reports_{part}.json").write_text(json.dumps(records))
    return Want("Write the findings and impression of chest X-rays", "report", 13, tested="te")


LAYOUTS = (
    Layout("class_folders", class_folders, ("width", "suffix", "gap", "top")),
    Layout("restarting", restarting, ("width", "suffix", "top")),
    Layout("own_split", own_split, ("width", "suffix", "gap", "top")),
    Layout(
        "labelled_table",
        labelled_table,
        (
            "images",
            "image_column",
            "label_column",
            "patient_column",
            "width",
            "suffix",
            "separator",
            "gap",
            "top",
            "order",
        ),
    ),
    Layout(
        "numbered_labels",
        numbered_labels,
        ("images", "image_column", "label_column", "width", "suffix", "separator", "gap", "top", "order"),
    ),
    Layout(
        "patient_table",
        patient_table,
        ("images", "label_column", "patient_column", "width", "suffix", "separator", "top", "order"),
    ),
    Layout("one_hot", one_hot, ("images", "image_column", "width", "suffix", "separator", "gap", "top", "order")),
    Layout(
        "multi_label", multi_label, ("images", "image_column", "label_column", "width", "suffix", "gap", "top", "order")
    ),
    Layout("slices", slices, ("width", "suffix", "gap", "top")),
    Layout("masks_apart", masks_apart, ("images", "masks", "width", "suffix", "gap", "top", "masks_with_images")),
    Layout("masks_in_classes", masks_in_classes, ("top",)),
    Layout("masks_in_classes_segmented", masks_in_classes_segmented, ("top",)),
    Layout("hidden_test", hidden_test, ("width", "gap", "top")),
    Layout("coco_parts", coco_parts, ("width", "suffix", "gap", "top")),
    Layout("yolo", yolo, ("images", "width", "suffix", "gap", "top")),
    Layout(
        "report_table", report_table, ("images", "image_column", "width", "suffix", "separator", "gap", "top", "order")
    ),
    Layout("report_parts", report_parts, ("images", "width", "suffix", "gap", "top")),
)
CHOICES: dict[str, Sequence[object]] = {
    "images": ("images", "imgs", "Bilder", "data", "JPEGs", "scans", "fotos"),
    "masks": ("masks", "annotations", "ground_truth", "Masken", "gt", "labels", "segmentation"),
    "image_column": ("image", "filename", "image_id", "Bild", "file_name", "img"),
    "label_column": ("label", "diagnosis", "class", "Diagnose", "target", "category", "diagnostico"),
    "patient_column": ("patient", "patient_id", "subject", "PatientID", "pid", "Patient"),
    "width": (1, 2, 3, 5),
    "suffix": (".png", ".PNG", ".jpg", ".JPG"),
    "separator": (",", ";", "\t"),
    "gap": ("_", "-", ""),
    "top": ("", "archive", "data/v1"),
    "masks_with_images": (False, True),
    "order": ((0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)),
}


def mutated(layout: Layout, rng: random.Random, max_changes: int = 4) -> Names:
    """Names with some of what the layout has changed."""
    names = Names()
    for field_name in rng.sample(layout.fields, min(max_changes, len(layout.fields))):
        setattr(names, field_name, rng.choice(CHOICES[field_name]))
    return names


@dataclass(frozen=True)
class Verdict:
    """What became of a folder.

    Args:
        wrong: what is not as wanted; empty for a right index.
        kind: of the outcome: proposed, ask or refuse.
        text: the question or the refusal.
    """

    wrong: str
    kind: str
    text: str
    outcome: Outcome
    executed: Executed | None = None


def read(root: Path, want: Want, work: Path) -> Verdict:
    """Survey, decide, execute the best manifest and compare the index with what is wanted."""
    inventory = walk(root)
    readers = FolderReaders(inventory)
    survey = survey_inventory(inventory, SurveyLimits())
    notes = "\n".join([want.notes, *(document.text for document in survey.documents)])
    outcome = decide(survey, inventory, parse(want.request, notes), readers=readers, tasks=(want.task,))
    text = outcome.question.text if outcome.question else outcome.refusal.message if outcome.refusal else ""
    if not outcome.proposals:
        return Verdict("no manifest", outcome.kind, text, outcome)
    manifest = Manifest.model_validate_json(outcome.proposals[0].manifest.model_dump_json(exclude_defaults=True))
    try:
        executed = execute(manifest, inventory, name="set", work=work, readers=readers)
    except DataError as error:
        return Verdict(f"{type(error).__name__}: {error}", outcome.kind, text, outcome)
    return Verdict(differs(executed, want), outcome.kind, text, outcome, executed)


def differs(executed: Executed, want: Want) -> str:
    """What is not as wanted."""
    records = [*executed.train, *executed.test]
    if len(records) != want.cases:
        return f"{len(records)} cases, not {want.cases}"
    if want.groups:
        sides = [
            {m[1] for record in part if (m := re.search(want.groups, str(record.image)))}
            for part in (executed.train, executed.test)
        ]
        if sides[0] & sides[1]:
            return f"groups on both sides: {sorted(sides[0] & sides[1])[:3]}"
    if want.classes is not None and {name.casefold() for name in executed.values} != want.classes:
        return f"classes {list(executed.values)}"
    if want.values is not None and len(executed.values) != want.values:
        return f"{len(executed.values)} classes, not {want.values}"
    if want.patients is not None and (
        not executed.patients_known or len({record.patient for record in records}) != want.patients
    ):
        return f"{len({record.patient for record in records})} patients, known: {executed.patients_known}"
    if want.marked is not None and (n_boxes := sum(len(record.boxes or ()) for record in records)) != want.marked:
        return f"{n_boxes} boxes, not {want.marked}"
    texts = (want.tested,) if isinstance(want.tested, str) else want.tested
    paths = [str(record.image).rsplit("data/set/", 1)[-1] for record in executed.test]
    if any(texts) and not (paths and all(any(text in path for text in texts) for path in paths)):
        return "the data set's own split is not kept"
    return ""
