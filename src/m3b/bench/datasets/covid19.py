"""COVID19 (Ma et al.): both lungs and the infection in twenty chest CTs with their real names.

Planted signal: soft dense areas inside dark lungs. Planted faults: half of the scans are in HU, the other half is
windowed from -1250..250 to 0..255 with fewer slices and a placeholder spacing; two pairs of scans share a patient.
"""

from __future__ import annotations

import re
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
from m3b.bench.datasets.layout_reading import CaseCollector, describe_contents, require_entries
from m3b.bench.datasets.shapes import Blob, Random, noise, texture, to_hu
from m3b.errors import DataError

from .masks import Outline, mean_agreement, paint, pair_masks, require_card_layout

VALUES = {1: "left lung", 2: "right lung", 3: "infection"}
SCANS = ("4_85506_1", "7_85703_0", "10_85902_1", "10_85902_3", "14_85914_0", "27_86410_0", "29_86490_1", "29_86491_1",
         "36_86526_0", "40_86625_0")  # fmt: skip
NAMES = tuple(
    name for number, scan in enumerate(SCANS, 1) for name in (f"coronacases_{number:03d}", f"radiopaedia_{scan}")
)
"""All twenty scans, alternating between the two halves."""
IMAGES_FOLDER, MASKS_FOLDER = "COVID-19-CT-Seg_20cases", "Lung_and_Infection_Mask"
WINDOW = (-1250.0, 250.0)
SIDE = 128
OUTLINE_ERROR = 0.05


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: the first `options.patients` of the twenty scans."""
    random = np.random.default_rng(options.seed)
    names = NAMES[: options.patients]
    agreements = []
    for name in names:
        is_windowed = name.startswith("radiopaedia")
        hu, outline = draw(random, 20 if is_windowed else 40)
        low, high = WINDOW
        image = np.clip((hu - low) / (high - low) * 255, 0, 255).astype(np.uint8) if is_windowed else hu
        spacing = (1.0, 1.0, 1.0) if is_windowed else (2.8, 2.8, 7.5)
        _save_case(options, f"{name}.nii.gz", image, outline.mask, spacing)
        agreements.append(outline.dice_by_value())
    if options.layout == CARD:
        save_json(options.folder / "labels.json", list(VALUES.values()))
    planted_faults = ("two intensity scales", "placeholder spacing", "two scans of one patient under different names")
    return GeneratedSet(
        len(names), len({patient_of(name) for name in names}), mean_agreement(agreements, (3,)), planted_faults
    )


def _save_case(options: GeneratorOptions, name: str, image: NDArray[np.int16 | np.uint8], mask: NDArray[np.uint8],
          spacing: tuple[float, float, float]) -> None:  # fmt: skip
    if options.layout == CARD:
        save_nifti(options.folder / "images" / name, image, spacing)
        save_nifti(options.folder / "segmentation_masks" / name, mask, spacing)
        return
    lungs = np.where(mask == 3, _nearest_lung(mask), mask).astype(np.uint8)
    save_nifti(options.folder / IMAGES_FOLDER / name, image, spacing)
    save_nifti(options.folder / MASKS_FOLDER / name, mask, spacing)
    save_nifti(options.folder / "Lung_Mask" / name, lungs, spacing)
    save_nifti(options.folder / "Infection_Mask" / name, (mask == 3).astype(np.uint8), spacing)


def _nearest_lung(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return for each voxel the lung on its side: left at small x."""
    x = np.arange(mask.shape[0])[:, None, None]
    return np.broadcast_to(np.where(x < mask.shape[0] / 2, 1, 2), mask.shape).astype(np.uint8)


def draw(random: Random, depth: int) -> tuple[NDArray[np.int16], Outline]:
    """Return a chest CT `(128, 128, depth)` in HU with one to four infected areas per lung."""
    shape = (SIDE, SIDE, depth)
    outline = Outline(shape, random, OUTLINE_ERROR)
    body = np.full(shape, -1000, dtype=np.float32)
    Blob(shape, (64, 64, depth / 2), (60, 46, depth * 2)).fill(body, 35)
    Blob(shape, (64, 28, depth / 2), (8, 8, depth * 2)).fill(body, 280)
    for value, side in ((1, -1), (2, 1)):
        position = (64 + side * 26 + random.uniform(-2, 2), 64 + random.uniform(-2, 2), depth / 2)
        radii = (20 * random.uniform(0.95, 1.05), 33 * random.uniform(0.95, 1.05), depth * 0.52)
        outline.add(Blob(shape, position, radii, random=random, rough=0.02), value)
        for _ in range(int(random.integers(1, 5))):
            lesion_position = (
                position[0] + random.uniform(-13, 13),
                position[1] + random.uniform(-24, 24),
                depth * random.uniform(0.15, 0.85),
            )
            size = (random.uniform(5, 9.5), random.uniform(5, 9.5), depth * random.uniform(0.09, 0.17))
            outline.add(Blob(shape, lesion_position, size, random=random, rough=0.08), 3, within=value)
    brightness = {1: -830.0, 2: -830.0, 3: random.uniform(-420, -250)}
    image = paint(outline, brightness, body) + texture(random, shape, 35, cells=12) + noise(random, shape, 45)
    return to_hu(image), outline


def patient_of(name: str) -> str:
    """Return the patient of a case: `radiopaedia_10` for `radiopaedia_10_85902_3`, or `coronacases_001` unchanged.

    Raises:
        DataError: it is neither kind of name.
    """
    match = re.match(r"(coronacases|radiopaedia)(?:_org)?_(?:covid-19-pneumonia-)?(\d+)", name)
    if match is None:
        raise DataError(f"{name!r} is not a name of the COVID19 set; expected coronacases_NNN or radiopaedia_N_....")
    return f"{match[1]}_{match[2]}"


def read(folder: Path) -> RawDataset:
    """Read one case per scan with a mask of lungs and infection."""
    if (folder / "images").is_dir():
        require_card_layout(folder, "segmentation_masks", "COVID19", VALUES)
        collector = CaseCollector(folder, "COVID19", CARD)
        pair_masks(collector, folder / "images", folder / "segmentation_masks", patient=patient_of)
        return collector.finish()
    if not (folder / IMAGES_FOLDER).is_dir():
        raise DataError(
            f"{folder} is not COVID19: neither images nor {IMAGES_FOLDER} is there; {describe_contents(folder)}."
        )
    require_entries(
        folder, MASKS_FOLDER, description="COVID19 as published (the archive of lungs and infection together is used)"
    )
    collector = CaseCollector(folder, "COVID19", OFFICIAL)
    pair_masks(collector, folder / IMAGES_FOLDER, folder / MASKS_FOLDER, patient=patient_of)
    return collector.finish()


SPEC = make_spec(
    "covid19",
    stand_in=StandIn(
        patients=20, acceptable=(0.35, None), baseline=0.07, ceiling=0.94, min_patients=6, max_patients=20, minutes=2.0
    ),
    generator=make,
    reader=read,
    values=VALUES,
    layouts=(CARD, OFFICIAL),
)
