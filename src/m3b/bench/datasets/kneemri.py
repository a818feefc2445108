"""KneeMRI: grade of the anterior cruciate ligament from pickled `(slices, H, W)` stacks and `metadata.csv`.

Planted signal: the size of a gap in a dark band, filled with fluid, inside the box that the table gives. Planted
faults: two volumes for some exams, different sizes, a row without a file. The official layout has the folders vol01 ...
and the real class frequencies (75, 19 and 6 %); the card layout has one folder and equally frequent classes.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.class_signal import ClassSizeModel
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
)
from m3b.bench.datasets.layout_reading import (
    CaseCollector,
    list_files,
    list_folders,
    read_rows,
    relative_path,
    require_entries,
)
from m3b.bench.datasets.shapes import Blob, Random, noise, texture
from m3b.errors import DataError

CLASSES = ("healthy", "partial tear", "complete rupture")
SHARES = (690, 172, 55)
HEADER = (
    "examId", "seriesNo", "aclDiagnosis", "kneeLR", "roiX", "roiY", "roiZ", "roiHeight", "roiWidth", "roiDepth",
    "volumeFilename",
)  # fmt: skip
SIZE_MODEL = ClassSizeModel((0.0, 0.5, 1.0), 0.2)
SIDE = 88
ROI = 36
PER_FOLDER = 92


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: one volume per exam, two for every thirtieth exam; a healthy knee has an intact band."""
    random = np.random.default_rng(options.seed)
    exams = random.permutation(800_000)[: options.patients + 1] + 100_000
    rows: list[list[object]] = []
    class_indices: list[int] = []
    sizes: list[float] = []
    for number, class_index in enumerate(_assign_grades(options)):
        size = SIZE_MODEL.draw(random, class_index)
        for series in (5, 6)[: 2 if number % 30 == 1 else 1]:
            class_indices.append(class_index)
            sizes.append(size)
            side = (SIDE, SIDE + 8) if number % 11 == 5 else (SIDE, SIDE)
            volume, roi = draw(random, size, side)
            name = f"{exams[number]}-{series}.pck"
            volume_folder = _choose_folder(options, len(rows))
            volume_folder.mkdir(parents=True, exist_ok=True)
            with (volume_folder / name).open("wb") as stream:
                pickle.dump(volume, stream, protocol=2)
            rows.append([exams[number], series, class_index, int(random.integers(2)), *roi, name])
    generated = GeneratedSet(len(rows), options.patients, SIZE_MODEL.ceiling(class_indices, sizes), (
        "a row without a file", "exams with two volumes", "a volume of another size", "the slice axis comes first",
    ))  # fmt: skip
    rows.append([exams[-1], 5, 0, 1, 30, 30, 9, ROI, ROI, 3, f"{exams[-1]}-5.pck"])
    save_csv(options.folder / "metadata.csv", HEADER, rows)
    return generated


def _assign_grades(options: GeneratorOptions) -> list[int]:
    if options.layout == CARD:
        return [number % 3 for number in range(options.patients)]
    counts = [max(2, round(options.patients * share / sum(SHARES))) for share in SHARES[1:]]
    return [0] * (options.patients - sum(counts)) + [1] * counts[0] + [2] * counts[1]


def _choose_folder(options: GeneratorOptions, number: int) -> Path:
    if options.layout == CARD:
        return options.folder / "volumetric_data"
    return options.folder / f"vol{min(number // min(PER_FOLDER, 1 + options.patients // 3), 9) + 1:02d}"


def draw(random: Random, tear_size: float, side: tuple[int, int]) -> tuple[NDArray[np.uint16], list[int]]:
    """Return a knee `(slices, H, W)`, 12-bit grey, and its roiX, roiY, roiZ, roiHeight, roiWidth, roiDepth."""
    height, width = side
    depth = int(random.integers(22, 33))
    shape = (depth, height, width)
    image = 420 + texture(random, shape, 60)
    x, y = int(width / 2 - ROI / 2 + random.integers(-4, 5)), int(height / 2 - ROI / 2 + random.integers(-4, 5))
    band_depth = int(random.integers(4, 7))
    z = int(depth / 2 - band_depth / 2 + random.integers(-2, 3))
    middle = (z + band_depth / 2, y + ROI / 2, x + ROI / 2)
    for direction in (-1, 1):  # the two bones
        bone = (middle[0], middle[1] + direction * 36, middle[2] + random.uniform(-3, 3))
        Blob(shape, bone, (depth * 0.6, 22, 34), random=random, rough=0.05).add(image, 330)
    for step in np.linspace(-1, 1, 13):  # a dark band from corner to corner
        position = (middle[0], middle[1] + step * ROI * 0.42, middle[2] - step * ROI * 0.36)
        Blob(shape, position, (band_depth * 0.75, 4.2, 4.2)).add(image, -70)
    gap_size = float(np.clip(tear_size, 0.02, 1.5))
    Blob(shape, middle, (band_depth * 0.8, 2 + 12 * gap_size, 2 + 12 * gap_size)).add(image, 760)  # fluid in the gap
    image = image + noise(random, shape, 55)
    return np.clip(image, 0, 1500).astype(np.uint16), [x, y, z, ROI, ROI, band_depth]


def read(folder: Path) -> RawDataset:
    """Read one case per row of `metadata.csv`; volumes may be in the folder of the table or one level below."""
    require_entries(folder, "metadata.csv", description="KneeMRI (metadata.csv and .pck volumes)")
    path_by_name: dict[str, str] = {}
    candidate_folders = [folder, *(subfolder for subfolder in list_folders(folder))]
    for subfolder in candidate_folders:
        for file in list_files(subfolder, ".pck"):
            path_by_name.setdefault(file.name, relative_path(folder, file))
    layout = OFFICIAL if any(path.startswith("vol0") for path in path_by_name.values()) else CARD
    collector = CaseCollector(folder, "KneeMRI", layout)
    for row in read_rows(folder / "metadata.csv", ("examId", "aclDiagnosis", "volumeFilename")):
        name = row["volumeFilename"]
        if row["aclDiagnosis"] not in ("0", "1", "2"):
            raise DataError(
                f"{folder / 'metadata.csv'}: aclDiagnosis of {name} is {row['aclDiagnosis']!r}, not 0, 1, 2."
            )
        if name not in path_by_name:
            collector.exclude("rows without a file", name, missing=True)
            continue
        label = CLASSES[int(row["aclDiagnosis"])]
        collector.cases.append(
            RawCase(name.removesuffix(".pck"), (path_by_name[name],), row["examId"], labels=(label,))
        )
    return collector.finish()


SPEC = make_spec(
    "kneemri",
    stand_in=StandIn(patients=90, acceptable=(0.7, None), baseline=0.5, ceiling=0.97),
    generator=make,
    reader=read,
    layouts=(CARD, OFFICIAL),
)
