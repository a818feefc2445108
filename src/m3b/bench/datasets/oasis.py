"""OASIS (Learn2Reg): 35 brain regions in aligned, skull-stripped T1 MRI.

Planted signal: mirrored regions of fixed position and brightness, so that a mean atlas reaches a Dice of about one
half, as with the real data set. Planted faults: labels have the suffix `_0000` as images do, both vessels are missing
in one case, and in the official layout a folder of brain masks that are not the labels.
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
from m3b.bench.datasets.shapes import Blob, Floats, Random, noise, texture
from m3b.errors import DataError

from .masks import NIFTI, Outline, mean_agreement, paint, pair_masks, parse_last_number, require_card_layout

SHAPE = (80, 112, 96)
OUTLINE_ERROR = 0.05
PAIRED_REGIONS: tuple[tuple[str, int, int, float, tuple[float, float, float], tuple[float, float, float]], ...] = (
    ("cortex", 2, 21, 0.42, (15, 0, 4), (20, 46, 36)),
    ("cerebral white matter", 1, 20, 0.66, (14, 0, 4), (14, 39, 29)),
    ("cerebellum cortex", 6, 25, 0.46, (11, -27, -29), (13, 15, 12)),
    ("cerebellum white matter", 5, 24, 0.7, (10, -27, -29), (7, 9, 6.5)),
    ("lateral ventricle", 3, 22, 0.14, (7, 2, 12), (4.2, 18, 5.5)),
    ("inferior lateral ventricle", 4, 23, 0.16, (21, -9, -8), (3, 7, 3)),
    ("thalamus", 7, 26, 0.58, (7.5, -7, 0.5), (5, 8, 5)),
    ("caudate", 8, 27, 0.5, (12, 14, 9), (3.4, 8, 4.4)),
    ("putamen", 9, 28, 0.54, (17.5, 6, 1), (3.6, 9.5, 5.4)),
    ("pallidum", 10, 29, 0.62, (12.2, 3.5, -1), (2.8, 5, 3.6)),
    ("hippocampus", 14, 30, 0.45, (17, -14, -12.5), (4.2, 9, 3.4)),
    ("amygdala", 15, 31, 0.47, (16, 3, -13), (4, 4.2, 3.8)),
    ("accumbens", 16, 32, 0.51, (7, 16, -2), (2.8, 3.6, 2.8)),
    ("ventral diencephalon", 17, 33, 0.6, (6.5, -5, -8), (4, 5, 3.6)),
    ("vessel", 18, 34, 0.3, (20, 4, -6.5), (1.6, 1.8, 1.6)),
    ("choroid plexus", 19, 35, 0.26, (10.2, -12, 11), (2.1, 4.2, 2.2)),
)
"""Name, left value, right value, brightness, offset of the right region from the centre, radii; in drawing order."""
MIDLINE_REGIONS = (
    ("third ventricle", 11, 0.15, (0, -4, 0), (2.2, 7, 5)),
    ("fourth ventricle", 12, 0.17, (0, -19, -23), (3.6, 3, 4)),
    ("brain stem", 13, 0.68, (0, -9, -23), (6, 5.5, 14)),
)
VALUES = dict(
    sorted(
        [(left, f"left {name}") for name, left, *_ in PAIRED_REGIONS]
        + [(right, f"right {name}") for name, _, right, *_ in PAIRED_REGIONS]
        + [(value, name) for name, value, *_ in MIDLINE_REGIONS]
    )
)


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: one scan per subject."""
    random = np.random.default_rng(options.seed)
    is_official = options.layout == OFFICIAL
    images, masks = ("imagesTr", "labelsTr") if is_official else ("images", "masks")
    agreements = []
    names = [f"OASIS_{number + 1:04d}_0000.nii.gz" for number in range(options.patients)]
    for number, name in enumerate(names):
        image, outline = draw(random, has_vessels=number != 2)
        save_nifti(options.folder / images / name, image)
        save_nifti(options.folder / masks / name, outline.mask)
        if is_official:
            save_nifti(options.folder / "masksTr" / name, (image > 0).astype(np.uint8))
        agreements.append(outline.dice_by_value())
    if is_official:
        records = [{"image": f"./imagesTr/{name}", "label": f"./labelsTr/{name}", "mask": f"./masksTr/{name}"}
                  for name in names]  # fmt: skip
        save_json(
            options.folder / "OASIS_dataset.json", {"name": "OASIS", "numTraining": len(names), "training": records}
        )
    else:
        save_json(options.folder / "labels.json", list(VALUES.values()))
    official_faults = ("brain masks that are not the labels",) if is_official else ()
    planted_faults = ("labels carry _0000 as images do", "vessels missing in one case", *official_faults)
    return GeneratedSet(len(names), len(names), mean_agreement(agreements), planted_faults)


def draw(random: Random, *, has_vessels: bool) -> tuple[Floats, Outline]:
    """Return an aligned brain `(80, 112, 96)`, float32 in 0..1 with steps of 1/1000, background 0."""
    outline = Outline(SHAPE, random, OUTLINE_ERROR)
    brightness: dict[int, float] = {}
    centre = np.array([39.5, 58.0, 47.0]) + random.uniform(-3.5, 3.5, 3)
    scale = random.uniform(0.88, 1.0)
    for name, left_value, right_value, level, offset, radii in PAIRED_REGIONS:
        for value, side in ((left_value, -1), (right_value, 1)):
            if name == "vessel" and not has_vessels:
                continue
            position = (
                centre + np.array([side * offset[0], offset[1], offset[2]]) * scale + random.uniform(-1.0, 1.0, 3)
            )
            size = [radius * scale * random.uniform(0.95, 1.05) for radius in radii]
            outline.add(Blob(SHAPE, position, size, random=random, rough=0.02), value)
            brightness[value] = level
        if name == "lateral ventricle":
            _draw_midline(outline, random, centre, scale, brightness)
    image = paint(outline, brightness, 0.0) + texture(random, SHAPE, 0.015) + noise(random, SHAPE, 0.035)
    image = np.where((outline.true_mask > 0) | (outline.mask > 0), np.clip(image, 0.01, 1), 0)
    return np.asarray(np.rint(image * 1000) / 1000, dtype=np.float32), outline


def _draw_midline(
    outline: Outline, random: Random, centre: NDArray[np.float64], scale: float, brightness: dict[int, float]
) -> None:
    for _, value, level, offset, radii in MIDLINE_REGIONS:
        position = centre + np.array(offset) * scale + random.uniform(-0.4, 0.4, 3)
        outline.add(Blob(SHAPE, position, [radius * scale for radius in radii]), value)
        brightness[value] = level


def parse_subject(name: str) -> str:
    """Return the subject of a case: `0001` for `OASIS_0001_0000`."""
    return parse_last_number(name.removesuffix("_0000"))


def read(folder: Path) -> RawDataset:
    """Read one case per image with a label file; brain masks are not labels."""
    if (folder / "images").is_dir():
        require_card_layout(folder, "masks", "OASIS", VALUES)
        collector = CaseCollector(folder, "OASIS", CARD)
        pair_masks(collector, folder / "images", folder / "masks", patient=parse_subject)
        return collector.finish()
    if not (folder / "imagesTr").is_dir() or not (folder / "labelsTr").is_dir():
        raise DataError(
            f"{folder} is not OASIS: neither images and masks, nor imagesTr and labelsTr; {describe_contents(folder)}."
        )
    collector = CaseCollector(folder, "OASIS", OFFICIAL)
    pair_masks(collector, folder / "imagesTr", folder / "labelsTr", patient=parse_subject)
    for image in list_files(folder / "imagesTs", *NIFTI):
        collector.exclude("images of imagesTs, which has no labels", relative_path(folder, image))
    return collector.finish()


SPEC = make_spec(
    "oasis",
    stand_in=StandIn(patients=30, acceptable=(0.55, None), baseline=0.43, ceiling=0.94, max_patients=414, minutes=2.0),
    generator=make,
    reader=read,
    values=VALUES,
    layouts=(CARD, OFFICIAL),
)
