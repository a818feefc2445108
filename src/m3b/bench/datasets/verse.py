"""VerSe: every visible vertebra of a spine CT, with the publisher's numbering and its gap.

Planted signal: a chain of vertebrae that become larger and less dense downwards; the thoracic ones have ribs. Planted
faults: mixed orientations, float64 masks, a T13 with value 28, an L6, two scans of one subject, and vertebrae at the
border that are visible but not labelled. The official layout is BIDS: `rawdata`, `derivatives` with centroids, one
archive folder per split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.definitions import (
    CARD,
    OFFICIAL,
    GeneratedSet,
    GeneratorOptions,
    RawCase,
    RawDataset,
    StandIn,
    make_spec,
    save_json,
    save_nifti,
)
from m3b.bench.datasets.layout_reading import CaseCollector, describe_contents, list_files, list_folders, relative_path
from m3b.bench.datasets.shapes import Blob, Floats, Random, noise, texture, to_hu
from m3b.errors import DataError

from .masks import NIFTI, Outline, mean_agreement, paint, pair_masks, require_card_layout, strip_suffix

VERTEBRA_NAMES = (
    *(f"C{number}" for number in range(1, 8)),
    *(f"T{number}" for number in range(1, 13)),
    *(f"L{number}" for number in range(1, 7)),
)
VALUES = {**dict(enumerate(VERTEBRA_NAMES, 1)), 28: "T13"}
SHAPE = (64, 64, 128)
SPACING = (1.8, 1.8, 2.6)
OUTLINE_ERROR = 0.05
ORIENTATIONS = ("RAS", "LPS", "PIR", "ASL")
SPLITS = ("training", "training", "training", "validation", "test")


@dataclass(frozen=True)
class Scan:
    """One scan: stem of its file name, patient, split, mask values of the spine downwards, first visible level."""

    name: str
    patient: str
    split: str
    spine: tuple[int, ...]
    top: int


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: one scan per subject, two for one subject."""
    random = np.random.default_rng(options.seed)
    scans = list(_plan_scans(random, options.patients))
    agreements = []
    for number, scan in enumerate(scans):
        image, outline, centres = draw(random, scan)
        mask = outline.mask.astype(np.float64) if number % 2 == 0 else outline.mask
        orientation = ORIENTATIONS[number % 4]
        if options.layout == CARD:
            save_nifti(options.folder / "images" / f"{scan.name}.nii.gz", image, SPACING, orientation)
            save_nifti(options.folder / "masks" / f"{scan.name}.nii.gz", mask, SPACING, orientation)
        else:
            root = options.folder / f"dataset-verse19{scan.split}"
            raw, derivatives = root / "rawdata" / scan.patient, root / "derivatives" / scan.patient
            save_nifti(raw / f"{scan.name}_ct.nii.gz", image, SPACING, orientation)
            save_nifti(derivatives / f"{scan.name}_seg-vert_msk.nii.gz", mask, SPACING, orientation)
            points = [{"label": v, "X": x, "Y": y, "Z": z} for v, (x, y, z) in centres.items()]
            save_json(derivatives / f"{scan.name}_seg-subreg_ctd.json", [{"direction": ["R", "A", "S"]}, *points])
        agreements.append(outline.dice_by_value())
    if options.layout == CARD:
        save_json(options.folder / "labels.json", list(VALUES.values()))
    planted_faults = ("mixed orientations", "masks as float64", "a T13 with the value 28", "an L6", "two scans of one subject",
           "cut vertebrae without a label")  # fmt: skip
    return GeneratedSet(len(scans), options.patients, mean_agreement(agreements), planted_faults)


def _plan_scans(random: Random, patients: int) -> list[Scan]:
    usual_spine = tuple(range(1, 25))
    with_t13 = (*range(1, 20), 28, *range(20, 25))
    scans = []
    for number in range(patients):
        patient, split = f"sub-verse{4 + 7 * number:03d}", SPLITS[number % 5]
        spine = {0: with_t13, 1: (*range(1, 26),)}.get(number, usual_spine)
        top = (14, 18)[number] if number < 2 else int(random.integers(0, 17))  # so that T13 and L6 are in view
        if number == 2:
            names = [f"{patient}_split-verse{201 + part}" for part in (0, 1)]
            scans += [Scan(name, patient, split, spine, top) for name, top in zip(names, (2, 13), strict=True)]
        else:
            scans.append(Scan(patient, patient, split, spine, top))
    return scans


def draw(random: Random, scan: Scan) -> tuple[NDArray[np.int16], Outline, dict[int, tuple[float, float, float]]]:
    """Return a spine CT `(64, 64, 128)` in HU, its masks, and the centres of the labelled vertebrae in voxels."""
    outline = Outline(SHAPE, random, OUTLINE_ERROR)
    body = np.full(SHAPE, -1000, dtype=np.float32)
    Blob(SHAPE, (32, 34, 64), (30, 27, 200)).fill(body, 25)
    upper_edge = SHAPE[2] + random.uniform(-2, 5)
    sway_amplitude, phase = random.uniform(1, 4), random.uniform(0, 6)
    centres: dict[int, tuple[float, float, float]] = {}
    for level in range(scan.top, len(scan.spine)):
        value = scan.spine[level]
        vertebra_height = 6.5 + 6.0 * level / 24
        middle = upper_edge - vertebra_height / 2
        upper_edge -= vertebra_height + 1.6
        position = (32 + random.uniform(-0.5, 0.5), 24 + sway_amplitude * np.sin(middle / 25 + phase), middle)
        if middle < -vertebra_height / 2:
            break
        _draw_vertebra(
            outline,
            body,
            value,
            level,
            position,
            vertebra_height,
            is_labelled=vertebra_height / 2 < middle < SHAPE[2] - vertebra_height / 2,
        )
        if vertebra_height / 2 < middle < SHAPE[2] - vertebra_height / 2:
            centres[value] = (round(position[0], 1), round(float(position[1]), 1), round(middle, 1))
    brightness = {value: _density(level) for level, value in enumerate(scan.spine)}
    image = paint(outline, brightness, body) + texture(random, SHAPE, 12) + noise(random, SHAPE, 25)
    return to_hu(image), outline, centres


def _draw_vertebra(
    outline: Outline,
    body: Floats,
    value: int,
    level: int,
    position: Sequence[float],
    height: float,
    *,
    is_labelled: bool,
) -> None:
    """Draw a vertebra with body and spinous process, and ribs at thoracic levels, which are in no mask.

    From top to bottom, vertebrae grow to two and a half times the width and twice the height, and become less dense, as
    in real spines.
    """
    half_width = 5.0 + 8.0 * level / 24
    parts = [
        Blob(SHAPE, position, (half_width, half_width * 0.75, height * 0.53), random=outline.random, rough=0.03),
        Blob(
            SHAPE,
            (position[0], position[1] - half_width * 1.1, position[2] - 1),
            (half_width * 0.35, half_width * 0.7, height * 0.36),
        ),
    ]
    for part in parts:
        if is_labelled:
            outline.add(part, value)
        else:
            part.fill(body, _density(level))
    if 8 <= value <= 19 or value == 28:
        for side in (-1, 1):
            Blob(SHAPE, (position[0] + side * (half_width + 7), position[1] - 3, position[2]), (8, 3.2, 2.6)).fill(
                body, 270
            )


def _density(level: int) -> float:
    """Return the HU of a vertebra by its level, counted from the top."""
    return 450.0 - 270.0 * level / 24


def patient_of(name: str) -> str:
    """Return the patient of a scan: `sub-verse401` for `sub-verse401_split-verse253_ct`.

    Raises:
        DataError: the name does not begin with `sub-`.
    """
    match = re.match(r"sub-[A-Za-z0-9]+", name)
    if match is None:
        raise DataError(f"The VerSe file {name!r} does not begin with `sub-<id>`, which names the patient.")
    return match[0]


def read(folder: Path) -> RawDataset:
    """Read one case per scan with a mask; the split is in the names of the official archives."""
    if (folder / "images").is_dir():
        require_card_layout(folder, "masks", "VerSe", VALUES)
        collector = CaseCollector(folder, "VerSe", CARD)
        pair_masks(collector, folder / "images", folder / "masks", patient=patient_of, key=_strip_entities)
        return collector.finish()
    roots = [root for root in (folder, *list_folders(folder)) if (root / "rawdata").is_dir()]
    if not roots:
        raise DataError(
            f"{folder} is not VerSe: neither images and masks, nor archives with rawdata; {describe_contents(folder)}."
        )
    collector = CaseCollector(folder, "VerSe", OFFICIAL)
    for root in roots:
        _read_archive(collector, root)
    return collector.finish()


def _read_archive(collector: CaseCollector, root: Path) -> None:
    split = "test" if "test" in root.name else "train" if "training" in root.name else "validation"
    for subject in list_folders(root / "rawdata"):
        masks = {
            _strip_entities(strip_suffix(file)): file
            for file in list_files(root / "derivatives" / subject.name, *NIFTI)
        }
        for image in list_files(subject, *NIFTI):
            name = _strip_entities(strip_suffix(image))
            if name not in masks:
                collector.exclude(
                    "scans without a mask in derivatives", relative_path(collector.folder, image), missing=True
                )
                continue
            path, mask = relative_path(collector.folder, image), relative_path(collector.folder, masks[name])
            case = f"{root.name}/{name}" if len(root.relative_to(collector.folder).parts) else name
            collector.cases.append(RawCase(case, (path,), patient_of(name), split, mask=mask))


def _strip_entities(name: str) -> str:
    """Return the common part of the names of a scan and its mask."""
    return re.sub(r"(_dir-[a-z]+)?(_ct|_seg-vert_msk|_seg-vert)?$", "", name)


SPEC = make_spec(
    "verse",
    stand_in=StandIn(patients=60, acceptable=(0.2, None), baseline=0.02, ceiling=0.94, max_patients=140, minutes=2.5),
    generator=make,
    reader=read,
    values=VALUES,
    layouts=(CARD, OFFICIAL),
)
