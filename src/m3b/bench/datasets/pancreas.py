"""MSD-Pancreas (Task07): the pancreas and the tumour inside it, in abdominal CT.

Planted signal: a long organ of about 100 HU in fat, with a darker lesion inside it. Planted faults: numbers with gaps,
`._` files of macOS, and in the official layout a `dataset.json` with `./` paths and a misspelt key, and test scans
without labels.
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
    RawCase,
    RawDataset,
    StandIn,
    make_spec,
    save_json,
    save_nifti,
    write_apple_double,
)
from m3b.bench.datasets.layout_reading import CaseCollector, describe_contents, read_json, resolve_inside
from m3b.bench.datasets.shapes import Blob, Random, noise, texture, to_hu
from m3b.errors import DataError

from .masks import Outline, mean_agreement, paint, pair_masks, parse_last_number, require_card_layout, strip_suffix

VALUES = {1: "pancreas", 2: "cancer"}
SHAPE = (128, 128, 40)
SPACING = (0.8, 0.8, 2.5)
OUTLINE_ERROR = 0.05


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: one scan per patient, each with a tumour; the official layout has two more without labels."""
    random = np.random.default_rng(options.seed)
    is_official = options.layout == OFFICIAL
    images, masks = ("imagesTr", "labelsTr") if is_official else ("images", "masks")
    agreements: list[dict[int, float]] = []
    numbers = np.sort(random.permutation(421)[: options.patients + 2] + 1)
    numbers = np.concatenate([numbers[-1:], numbers[:-1]])
    for number in numbers[: options.patients]:
        image, outline = draw(random)
        for folder_name, array in ((images, image), (masks, outline.mask)):
            file = options.folder / folder_name / f"pancreas_{number:03d}.nii.gz"
            save_nifti(file, array, SPACING)
            if len(agreements) < 3:
                write_apple_double(file)
        agreements.append(outline.dice_by_value())
    if is_official:
        for number in numbers[options.patients :]:
            save_nifti(options.folder / "imagesTs" / f"pancreas_{number:03d}.nii.gz", draw(random)[0], SPACING)
        _write_dataset_json(options, [f"pancreas_{number:03d}.nii.gz" for number in numbers])
    else:
        save_json(options.folder / "labels.json", list(VALUES.values()))
    official_faults = (
        ("paths that begin with ./", "the key `relase`", "2 test scans without labels") if is_official else ()
    )
    planted_faults = ("numbers with gaps", "6 files ._* that macOS left", *official_faults)
    return GeneratedSet(options.patients, options.patients, mean_agreement(agreements), planted_faults)


def _write_dataset_json(options: GeneratorOptions, names: list[str]) -> None:
    train, test = names[: options.patients], names[options.patients :]
    save_json(options.folder / "dataset.json", {
        "name": "Pancreas", "description": "Synthetic stand-in: pancreas and cancer", "reference": "none",
        "licence": "CC0 1.0", "relase": "1.0", "tensorImageSize": "3D", "modality": {"0": "CT"},
        "labels": {"0": "background", "1": "pancreas", "2": "cancer"}, "numTraining": len(train), "numTest": len(test),
        "training": [{"image": f"./imagesTr/{name}", "label": f"./labelsTr/{name}"} for name in train],
        "test": [f"./imagesTs/{name}" for name in test],
    })  # fmt: skip


def draw(random: Random) -> tuple[NDArray[np.int16], Outline]:
    """Return a portal-venous upper abdomen `(128, 128, 40)` in HU."""
    outline = Outline(SHAPE, random, OUTLINE_ERROR)
    body = np.full(SHAPE, -1000, dtype=np.float32)
    Blob(SHAPE, (64, 62, 20), (60, 50, 80)).fill(body, -90)
    Blob(SHAPE, (96, 76, 26), (24, 26, 18), random=random, rough=0.04).fill(body, 110)  # liver
    Blob(SHAPE, (32, 76, 26), (15, 14, 13), random=random, rough=0.04).fill(body, 35)  # stomach
    Blob(SHAPE, (64, 22, 20), (10, 10, 90)).fill(body, 260)
    Blob(SHAPE, (58, 40, 20), (5, 5, 90)).fill(body, 170)
    shift = random.uniform(-9, 9, 3) * (1, 1, 0.5)
    thickness, curvature = random.uniform(8.0, 9.5), random.uniform(-3, 3)
    course = [np.array([84 - 40 * t, 52 + 8 * t + curvature * np.sin(3 * t), 17 + 7 * t]) + shift
              for t in np.linspace(0, 1, 7)]  # fmt: skip
    for number, position in enumerate(course):
        half_width = thickness * (1.1 - 0.06 * number)
        outline.add(
            Blob(SHAPE, position, (half_width, half_width * 0.85, half_width * 0.5), random=random, rough=0.03), 1
        )
    position = course[int(random.integers(0, 5))] + random.uniform(-1, 1, 3)
    size = float(random.uniform(4.5, 8.5))
    outline.add(Blob(SHAPE, position, (size, size, size * 0.55), random=random, rough=0.05), 2, within=1)
    image = paint(outline, {1: 105 + random.normal(0, 4), 2: 45 + random.normal(0, 4)}, body)
    return to_hu(image + texture(random, SHAPE, 5) + noise(random, SHAPE, 13)), outline


def read(folder: Path) -> RawDataset:
    """Read one case per labelled scan; in the official layout, those in the training list of `dataset.json`."""
    task_folder = folder / "Task07_Pancreas"
    root = task_folder if task_folder.is_dir() else folder
    if (root / "images").is_dir():
        require_card_layout(root, "masks", "MSD-Pancreas", VALUES)
        collector = CaseCollector(folder, "MSD-Pancreas", CARD)
        pair_masks(collector, root / "images", root / "masks", patient=parse_last_number)
        return collector.finish()
    if not (root / "dataset.json").is_file():
        raise DataError(
            f"{root} is not MSD-Pancreas: neither images and masks, nor dataset.json; {describe_contents(root)}."
        )
    collector = CaseCollector(folder, "MSD-Pancreas", OFFICIAL)
    _read_list(collector, root)
    return collector.finish()


def _read_list(collector: CaseCollector, root: Path) -> None:
    file = root / "dataset.json"
    dataset_json = read_json(file, dict)
    prefix = "" if root == collector.folder else f"{root.name}/"
    pairs = dataset_json.get("training")
    if not isinstance(pairs, list) or not all(
        isinstance(entry, dict) and {"image", "label"} <= set(entry) for entry in pairs
    ):
        raise DataError(f"`training` of {file} must be a list of objects with `image` and `label`.")
    for entry in pairs:
        image, mask = (resolve_inside(root, str(entry[key]), file) for key in ("image", "label"))
        name = strip_suffix(Path(image))
        if (root / image).is_file() and (root / mask).is_file():
            collector.cases.append(RawCase(name, (prefix + image,), parse_last_number(name), mask=prefix + mask))
        else:
            collector.exclude("listed scans without image or label", image, missing=True)
    for image in dataset_json.get("test", []):
        collector.exclude("test scans, which have no labels", str(image))


SPEC = make_spec(
    "msd-pancreas",
    stand_in=StandIn(patients=30, acceptable=(0.4, None), baseline=0.28, ceiling=0.94, max_patients=281, minutes=2.0),
    generator=make,
    reader=read,
    values=VALUES,
    layouts=(CARD, OFFICIAL),
)
