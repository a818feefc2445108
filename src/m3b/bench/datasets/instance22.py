"""INSTANCE22: intracranial haemorrhage in head CT with thick slices.

Planted signal: one haemorrhage of about 60 HU in brain of about 32 HU, from tiny to large. Planted faults: image and
mask have the same name, an anisotropy of 11 to 1, a wide border of air with a head rest in one case, evaluation cases
without labels in the official layout.
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
from m3b.bench.datasets.layout_reading import CaseCollector, describe_contents, list_files, relative_path
from m3b.bench.datasets.shapes import Blob, Random, noise, texture, to_hu
from m3b.errors import DataError

from .masks import NIFTI, Outline, mean_agreement, paint, pair_masks, parse_last_number, require_card_layout

VALUES = {1: "haemorrhage"}
SHAPE = (128, 128, 28)
SPACING = (0.45, 0.45, 5.0)
OUTLINE_ERROR = 0.06


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: one scan with a haemorrhage per patient; the official layout has two more without labels."""
    random = np.random.default_rng(options.seed)
    is_official = options.layout == OFFICIAL
    images, masks = ("train/data", "train/label") if is_official else ("images", "masks")
    agreements = []
    for number in range(options.patients):
        image, outline = draw(random, has_wide_border=number == 3)
        save_nifti(options.folder / images / f"{number + 1:03d}.nii.gz", image, SPACING)
        save_nifti(options.folder / masks / f"{number + 1:03d}.nii.gz", outline.mask, SPACING)
        agreements.append(outline.dice_by_value())
    if is_official:
        for number in (101, 102):
            save_nifti(
                options.folder / "evaluation" / f"{number}.nii.gz", draw(random, has_wide_border=False)[0], SPACING
            )
    else:
        save_json(options.folder / "labels.json", list(VALUES.values()))
    official_faults = ("2 evaluation cases without labels",) if is_official else ()
    planted_faults = (
        "image and mask share their name",
        "anisotropy of 11 to 1",
        "a wide border of air",
        *official_faults,
    )
    return GeneratedSet(options.patients, options.patients, mean_agreement(agreements), planted_faults)


def draw(random: Random, *, has_wide_border: bool) -> tuple[NDArray[np.int16], Outline]:
    """Return a head `(128, 128, 28)` in HU with one haemorrhage; `has_wide_border` adds air and a head rest."""
    outline = Outline(SHAPE, random, OUTLINE_ERROR)
    shrink = 0.75 if has_wide_border else 1.0
    centre = (64 + random.uniform(-2, 2), 64 + random.uniform(-2, 2), 14.0)
    body = np.full(SHAPE, -1000, dtype=np.float32)
    Blob(SHAPE, centre, (52 * shrink, 60 * shrink, 19)).fill(body, 950)
    Blob(SHAPE, centre, (47 * shrink, 55 * shrink, 17.5)).fill(body, 32)
    for side in (-1, 1):
        position = (centre[0] + side * 8 * shrink, centre[1] + 2, centre[2])
        Blob(SHAPE, position, (5 * shrink, 18 * shrink, 4)).fill(body, 8)
    if has_wide_border:
        body[20:108, 4:9, :] = 300
    size = float(np.exp(random.uniform(np.log(4.0), np.log(15)))) * shrink
    angle, offset = random.uniform(0, 2 * np.pi), random.uniform(14, 28) * shrink
    position = (centre[0] + offset * np.cos(angle), centre[1] + offset * np.sin(angle), 14 + random.uniform(-4, 4))
    outline.add(
        Blob(SHAPE, position, (size, size * random.uniform(0.8, 1.2), 1 + size / 4), random=random, rough=0.08), 1
    )
    image = paint(outline, {1: 60 + random.normal(0, 3)}, body) + texture(random, SHAPE, 2, cells=12)
    return to_hu(image + noise(random, SHAPE, 6)), outline


def read(folder: Path) -> RawDataset:
    """Read one case per labelled scan."""
    if (folder / "images").is_dir():
        require_card_layout(folder, "masks", "INSTANCE22", VALUES)
        collector = CaseCollector(folder, "INSTANCE22", CARD)
        pair_masks(collector, folder / "images", folder / "masks", patient=parse_last_number)
        return collector.finish()
    train = next((folder / name for name in ("train", "train_2") if (folder / name / "data").is_dir()), None)
    if train is None or not (train / "label").is_dir():
        raise DataError(
            f"{folder} is not INSTANCE22: neither images nor train/data and train/label; {describe_contents(folder)}."
        )
    collector = CaseCollector(folder, "INSTANCE22", OFFICIAL)
    pair_masks(collector, train / "data", train / "label", patient=parse_last_number)
    for image in list_files(folder / "evaluation", *NIFTI):
        collector.exclude("evaluation scans, which have no labels", relative_path(folder, image))
    return collector.finish()


SPEC = make_spec(
    "instance22",
    stand_in=StandIn(patients=30, acceptable=(0.3, None), baseline=0.03, ceiling=0.93, max_patients=100, minutes=2.0),
    generator=make,
    reader=read,
    values=VALUES,
    layouts=(CARD, OFFICIAL),
)
