"""Layouts whose targets are found in several steps: lists within records, chains of tables, numbered masks."""

from __future__ import annotations

import json
import random
from pathlib import Path

from layout_kit import SIZE, Layout, Names, Want, number, table
from picture_kit import mask, picture

BOXES = (("Effusion", [1, 2, 7, 8]), ("Nodule", [9, 3, 12, 9]), ("Effusion", [14, 4, 19, 12]))


def lists_in_records(root: Path, names: Names, rng: random.Random) -> Want:
    for part, count in (("train", 14), ("test", 6)):
        records = []
        for at in range(count):
            name = f"{number(names, at + (600 if part == 'test' else 100))}{names.suffix}"
            picture(root / names.top / f"{part}_data" / name, 80, SIZE)
            boxes = BOXES[: at % 4]
            records.append(
                {"file_name": name, "syms": [label for label, _ in boxes], "boxes": [box for _, box in boxes]}
            )
        (root / names.top / f"{part}.json").write_text(json.dumps(records))
    return Want("Detect effusion and nodules on chest X-rays, with boxes", "detection", 20,
                frozenset({"effusion", "nodule"}), tested="test_data/", boxes=True)  # fmt: skip


def rare_pairs(root: Path, names: Names, rng: random.Random) -> Want:
    rows = []
    for at in range(60):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        label = "Edema|Mass" if at == 17 else ("Edema", "Mass", "No Finding")[at % 3]
        rows.append((name, label, f"p{at // 2}"))
    table(root / names.top / "t.csv", names, (names.image_column, names.label_column, names.patient_column), rows)
    return Want("Find what is wrong on chest X-rays", "diagnosis", 60, frozenset({"edema", "mass"}),
                patients=30)  # fmt: skip


def chained_tables(root: Path, names: Names, rng: random.Random) -> Want:
    images, studies = [], []
    for at in range(30):
        name = f"im{names.gap}{number(names, at)}{names.suffix}"
        picture(root / names.top / names.images / name, 80, SIZE)
        images.append((name, f"ST{500 + at}"))
        studies.append((f"ST{500 + at}", f"PT{at // 2:03d}", ("PA", "AP")[at % 2]))
    labels = [(f"PT{at:03d}", ("benign", "malignant")[at % 2], 40 + at) for at in range(15)]
    table(root / names.top / "images.csv", names, (names.image_column, "study"), images)
    table(root / names.top / "studies.csv", names, ("study", "patient", "view"), studies)
    table(root / names.top / "labels.csv", names, ("patient", names.label_column, "age"), labels)
    return Want("Tell benign from malignant lesions on mammograms", "diagnosis", 30, frozenset({"benign", "malignant"}),
                patients=15)  # fmt: skip


def numbered_masks(root: Path, names: Names, rng: random.Random) -> Want:
    for name, count in (("benign", 12), ("malignant", 13), ("normal", 7)):
        for at in range(count):
            stem = f"{name} ({at + 1})"
            picture(root / names.top / name / f"{stem}.png", 80, SIZE)
            box = (2, 2, 2, 2) if name == "normal" else (1 + at % 4, 2, 7, 6 + at % 9)
            mask(root / names.top / name / f"{stem}_mask.png", box, size=SIZE)
            if name != "normal" and at % 5 == 2:
                mask(root / names.top / name / f"{stem}_mask_1.png", (10, 12, 14, 17), size=SIZE)
    return Want("Segment lesions on breast ultrasound images", "segmentation", 32, values=1)


STEPS = (
    Layout("lists_in_records", lists_in_records, ("width", "suffix", "top")),
    Layout(
        "rare_pairs",
        rare_pairs,
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
        "chained_tables",
        chained_tables,
        ("images", "image_column", "label_column", "width", "suffix", "separator", "top"),
    ),
    Layout("numbered_masks", numbered_masks, ("top",)),
)
