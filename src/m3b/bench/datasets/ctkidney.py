"""CT-Kidney: normal, cyst, stone or tumour from single CT slices in four class folders.

Planted signal: a dark round spot (cyst), a small very bright spot (stone), a larger brighter spot (tumour), or none; a
few pictures show the signal of another class. Planted faults: runs of consecutive numbers from one patient who is not
recorded, three equal channels, a picture of another size; in the official layout the nested folder and a table with
outdated paths and a row without a file.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.class_signal import compute_swap_ceiling, swap_some_classes
from m3b.bench.datasets.definitions import (
    CARD,
    OFFICIAL,
    GeneratedSet,
    GeneratorOptions,
    RawCase,
    RawDataset,
    StandIn,
    make_spec,
    save_csv,
    save_picture,
)
from m3b.bench.datasets.layout_reading import (
    CaseCollector,
    describe_contents,
    list_files,
    read_rows,
    relative_path,
    require_entries,
)
from m3b.bench.datasets.shapes import Blob, Random, noise, texture, to_bytes
from m3b.errors import DataError

CLASSES = ("Normal", "Cyst", "Stone", "Tumor")
TARGETS = {"Cyst": 0, "Normal": 1, "Stone": 2, "Tumor": 3}
SHARES = {"Normal": 5077, "Cyst": 3709, "Stone": 1377, "Tumor": 2283}
OUTER_FOLDER = "CT-KIDNEY-DATASET-Normal-Cyst-Tumor-Stone"
TABLE_FILE = "kidneyData.csv"
MISTAKE_SHARE = 0.04
SIDE = 128
PICTURES_PER_PATIENT = 4
RUNS_PER_CLASS = 20
"""Number of runs of consecutive numbers per class; each run is treated as one patient."""


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: four consecutive numbers share a patient; `options.patients` is the number of pictures."""
    random = np.random.default_rng(options.seed)
    counts = {name: max(4, round(options.patients * share / sum(SHARES.values()))) for name, share in SHARES.items()}
    truth = [CLASSES.index(name) for name, count in counts.items() for _ in range(-(-count // PICTURES_PER_PATIENT))]
    shown_classes = swap_some_classes(random, truth, MISTAKE_SHARE, 4)
    root = options.folder if options.layout == CARD else options.folder / OUTER_FOLDER / OUTER_FOLDER
    rows: list[list[object]] = []
    shown_by_picture: list[int] = []
    patients = iter(shown_classes)
    for name, count in counts.items():
        for number in range(count):
            if number % PICTURES_PER_PATIENT == 0:
                kind, body = next(patients), int(random.integers(1 << 31))
            picture = draw(np.random.default_rng(body), random, CLASSES[kind])
            if name == "Cyst" and number == 2:
                picture = np.pad(picture, ((0, 0), (8, 8)))
            save_picture(root / name / f"{name}- ({number + 1}).jpg", np.stack([picture] * 3, axis=2))
            shown_by_picture.append(kind)
            rows.append(_make_row(len(rows), name, number + 1))
    if options.layout == OFFICIAL:
        rows.append(_make_row(len(rows), "Stone", counts["Stone"] + 1))
        save_csv(options.folder / TABLE_FILE, ("", "image_id", "path", "diag", "target", "Class"), rows)
    labels = [CLASSES.index(name) for name, count in counts.items() for _ in range(count)]
    planted_faults = ("neighbours from one patient", "three equal channels", "a picture of another size")
    official_faults = ("stale paths in the table", "a row without a file") if options.layout == OFFICIAL else ()
    return GeneratedSet(
        len(labels),
        0,
        compute_swap_ceiling(labels, shown_by_picture, 4, MISTAKE_SHARE),
        (*planted_faults, *official_faults),
    )


def _make_row(index: int, name: str, number: int) -> list[object]:
    stale = f"/content/data/{OUTER_FOLDER}/{OUTER_FOLDER}/{name.upper()}/{name}- ({number}).jpg"
    return [index, f"{name}- ({number})", stale, name, TARGETS[name], name]


def draw(body: Random, cut: Random, kind: str) -> NDArray[np.uint8]:
    """Return one axial slice `(128, 128)`; `body` determines what slices of a patient share, `cut` the rest."""
    shape = (SIDE, SIDE)
    image = np.full(shape, 0.03, dtype=np.float32)
    Blob(shape, (66, 64), (48 * body.uniform(0.93, 1.05), 60)).add(image, 0.34, sharp=20)
    kidneys = [(78 + body.uniform(-3, 3), 64 + side * body.uniform(29, 33)) for side in (-1, 1)]
    for position in kidneys:
        Blob(shape, position, (16, 11), random=body, rough=0.05).add(image, 0.22, sharp=8)
        Blob(shape, position, (6, 3)).add(image, -0.1)
    Blob(shape, (98, 64), (11, 10)).add(image, 0.35, sharp=8)
    y, x = kidneys[int(body.integers(2))]
    y, x = y + body.uniform(-6, 6), x + body.uniform(-3, 3)
    drift = cut.uniform(-1, 1, 2)
    position = (y + drift[0], x + drift[1])
    if kind == "Cyst":
        Blob(shape, position, (9, 9)).add(image, -0.3, sharp=8)
    elif kind == "Stone":
        Blob(shape, position, (3.4, 3.4)).add(image, 0.75, sharp=4)
    elif kind == "Tumor":
        Blob(shape, (position[0], position[1]), (15, 15), random=body, rough=0.12).add(image, 0.2, sharp=6)
    image += texture(body, shape, 0.025, cells=14) + noise(cut, shape, 0.03)
    return to_bytes(image)


def read(folder: Path) -> RawDataset:
    """Read one case per picture, with the class of its folder; `patient` is its run of consecutive numbers."""
    root, layout = _find_root(folder)
    collector = CaseCollector(folder, "CT-Kidney", layout)
    file_stems = set()
    for label in CLASSES:
        numbered = {}
        for file in list_files(root / label, ".jpg", ".jpeg", ".png"):
            bracket = re.search(r"\((\d+)\)", file.name)
            if bracket is None:
                raise DataError(f"The name of {file} has no number in brackets, as in `{label}- (12).jpg`.")
            numbered[int(bracket[1])] = file
        for rank, number in enumerate(sorted(numbered)):
            file = numbered[number]
            file_stems.add(file.stem)
            block = f"{label} run {rank * RUNS_PER_CLASS // len(numbered) + 1:02d}"
            collector.cases.append(RawCase(file.stem, (relative_path(folder, file),), block, labels=(label,)))
    for table in (root / TABLE_FILE, folder / TABLE_FILE):
        for row in read_rows(table, ("image_id", "Class")) if table.is_file() else ():
            if row["image_id"] not in file_stems:
                collector.exclude("rows without a file", row["image_id"], missing=True)
        if table.is_file():
            break
    return collector.finish()


def _find_root(folder: Path) -> tuple[Path, str]:
    """Return the folder with the four class folders (`folder` itself, or up to two levels below), and the layout."""
    for root, layout in (
        (folder, CARD),
        (folder / OUTER_FOLDER, OFFICIAL),
        (folder / OUTER_FOLDER / OUTER_FOLDER, OFFICIAL),
    ):
        if all((root / name).is_dir() for name in CLASSES):
            return root, layout
    if (folder / OUTER_FOLDER).is_dir():
        raise DataError(
            f"{folder / OUTER_FOLDER} has no class folders {', '.join(CLASSES)}; {describe_contents(folder / OUTER_FOLDER)}."
        )
    require_entries(folder, *CLASSES, description="CT-Kidney (the class folders Cyst, Normal, Stone and Tumor)")
    raise DataError(f"The class folders of {folder} are not folders.")


SPEC = make_spec(
    "ct-kidney",
    stand_in=StandIn(patients=400, acceptable=(0.7, None), baseline=0.5, ceiling=0.97, min_patients=12),
    generator=make,
    reader=read,
    layouts=(CARD, OFFICIAL),
)
