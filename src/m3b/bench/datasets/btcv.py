"""BTCV: thirteen abdominal organs in CT, `Training/{img,label}` and `Testing/img`.

Planted signal: each organ has its own position, size and HU. Planted faults: names of image and label differ by prefix,
gaps in the numbers, Testing without labels, no gallbladder in one case. The official layout is in `RawData` and has no
list of names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.definitions import (
    CARD,
    OFFICIAL,
    GeneratedSet,
    GeneratorOptions,
    RawDataset,
    StandIn,
    make_spec,
    save_json,
    save_nifti,
)
from m3b.bench.datasets.layout_reading import CaseCollector, get_only_file, list_files, relative_path, require_entries
from m3b.bench.datasets.shapes import Blob, Random, noise, texture, to_hu

from .masks import NIFTI, Outline, check_labels, mean_agreement, paint, pair_masks, parse_last_number

SHAPE = (96, 96, 48)
SPACING = (1.5, 1.5, 5.0)
OUTLINE_ERROR = 0.05
ORGANS: tuple[tuple[str, float, tuple[float, float, float], tuple[float, float, float]], ...] = (
    ("spleen", 125, (21, 34, 33), (9, 11, 8)),
    ("right kidney", 185, (69, 30, 20), (8, 8, 9)),
    ("left kidney", 190, (28, 30, 22), (8, 8, 9)),
    ("gallbladder", 8, (66, 62, 24), (5, 6, 4)),
    ("esophagus", 45, (45, 38, 43), (4, 4, 4)),
    ("liver", 105, (67, 55, 35), (21, 21, 9)),
    ("stomach", 28, (33, 62, 33), (12, 11, 7)),
    ("aorta", 160, (46, 33, 22), (4, 4, 21)),
    ("inferior vena cava", 135, (56, 35, 22), (4.5, 4, 19)),
    ("portal and splenic vein", 150, (52, 47, 27), (9, 3.2, 2.6)),
    ("pancreas", 82, (43, 50, 23), (13, 5, 3.4)),
    ("right adrenal gland", 60, (63, 36, 31), (3.4, 3.4, 2.6)),
    ("left adrenal gland", 62, (36, 36, 32), (3.4, 3.4, 2.6)),
)
"""Name, HU, centre and radii in voxels (small x is the patient's left; y increases to the front, z to the head)."""
VALUES = {number: organ[0] for number, organ in enumerate(ORGANS, 1)}
DRAWING_ORDER = (6, 7, 1, 2, 3, 4, 5, 9, 8, 11, 10, 12, 13)
IDS = (*range(1, 11), *range(21, 41), *range(81, 1000))


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: three quarters of the patients with labels, a quarter without."""
    random = np.random.default_rng(options.seed)
    root = options.folder if options.layout == CARD else options.folder / "RawData"
    labelled_count = options.patients - options.patients // 4
    agreements = []
    for number in range(options.patients):
        image, outline = draw(random, gallbladder=number != 1)
        if number < labelled_count:
            name = f"{IDS[number]:04d}"
            save_nifti(root / "Training" / "img" / f"img{name}.nii.gz", image, SPACING)
            save_nifti(root / "Training" / "label" / f"label{name}.nii.gz", outline.mask, SPACING)
            agreements.append(outline.dice_by_value())
        else:
            save_nifti(root / "Testing" / "img" / f"img{61 + number - labelled_count:04d}.nii.gz", image, SPACING)
    if options.layout == CARD:
        save_json(options.folder / "labels.json", list(VALUES.values()))
    planted_faults = ("image and label names differ by prefix", "Testing has no labels", "no gallbladder in one case")
    return GeneratedSet(labelled_count, labelled_count, mean_agreement(agreements), planted_faults)


def draw(random: Random, *, gallbladder: bool) -> tuple[NDArray[np.int16], Outline]:
    """Return a portal-venous abdomen `(96, 96, 48)` in HU; the patient's right, with the liver, is at large x."""
    outline = Outline(SHAPE, random, OUTLINE_ERROR)
    shift, scale = random.uniform(-8, 8, 3) * (0.6, 1, 0.45), random.uniform(0.85, 1.02)
    brightness = {}
    for value in DRAWING_ORDER:
        _, hu, centre, radii = ORGANS[value - 1]
        if value == 4 and not gallbladder:
            continue
        scaled = np.array([48 + (centre[0] - 48) * scale, 44 + (centre[1] - 44) * scale, centre[2]])
        position = scaled + shift + random.uniform(-1.5, 1.5, 3) * (1, 1, 0.6)
        size = [radius * scale * random.uniform(0.92, 1.08) for radius in radii]
        outline.add(Blob(SHAPE, position, size, random=random, rough=0.03), value)
        brightness[value] = hu + random.normal(0, 5)
    body = np.full(SHAPE, -1000, dtype=np.float32)
    Blob(SHAPE, (48, 46, 24), (44, 38, 70)).fill(body, -90)
    spine = Blob(SHAPE, (50, 17, 24), (8, 8, 60))
    spine.fill(body, 260)
    image = paint(outline, brightness, body) + texture(random, SHAPE, 6) + noise(random, SHAPE, 16)
    return to_hu(image), outline


def read(folder: Path) -> RawDataset:
    """Read the labelled cases of Training; Testing has no labels and cannot be scored."""
    root, layout = (folder / "RawData", OFFICIAL) if (folder / "RawData").is_dir() else (folder, CARD)
    require_entries(root, "Training", description="BTCV (Training/img, Training/label and Testing/img)")
    require_entries(root / "Training", "img", "label", description="BTCV's Training (img and label)")
    if list_files(root, ".json"):
        check_labels(get_only_file(root, ".json", "the label names in order"), VALUES)
    collector = CaseCollector(folder, "BTCV", layout)
    pair_masks(
        collector,
        root / "Training" / "img",
        root / "Training" / "label",
        patient=parse_last_number,
        key=parse_last_number,
    )
    for image in list_files(root / "Testing" / "img", *NIFTI):
        collector.exclude("images of Testing, which has no labels", relative_path(folder, image))
    return collector.finish()


SPEC = make_spec(
    "btcv",
    stand_in=StandIn(
        patients=30, acceptable=(0.5, None), baseline=0.38, ceiling=0.94, min_patients=8, max_patients=900, minutes=2.0
    ),
    generator=make,
    reader=read,
    values=VALUES,
    layouts=(CARD, OFFICIAL),
)
