"""KneeMRI: grade of the anterior cruciate ligament from pickled `(slices, H, W)` stacks and `metadata.csv`.

Planted signal: how much of a dark band is gone and filled with fluid, inside the box that the table gives. Planted
faults: two volumes of some exams, sizes that differ, a row without a file. The official layout has the folders vol01
... and the real shares of the classes (75, 19 and 6 %); the card layout has one folder and equal classes.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.errors import DataError

from .checking import Collected, files, folders, need, read_rows, relative
from .doubt import Ladder
from .drawing import Blob, Random, noise, texture
from .spec import CARD, OFFICIAL, GeneratedSet, Order, RawCase, RawReading, StandIn, describe
from .writing import save_csv

CLASSES = ("healthy", "partial tear", "complete rupture")
SHARES = (690, 172, 55)
HEAD = (
    "examId", "seriesNo", "aclDiagnosis", "kneeLR", "roiX", "roiY", "roiZ", "roiHeight", "roiWidth", "roiDepth",
    "volumeFilename",
)  # fmt: skip
LADDER = Ladder((0.0, 0.5, 1.0), 0.2)
SIDE = 88
ROI = 36
PER_FOLDER = 92


def make(order: Order) -> GeneratedSet:
    """One volume an exam, two for every thirtieth; a healthy knee has a whole band."""
    random = np.random.default_rng(order.seed)
    exams = random.permutation(800_000)[: order.patients + 1] + 100_000
    rows: list[list[object]] = []
    rungs: list[int] = []
    sizes: list[float] = []
    for number, rung in enumerate(_grades(order)):
        size = LADDER.draw(random, rung)
        for series in (5, 6)[: 2 if number % 30 == 1 else 1]:
            rungs.append(rung)
            sizes.append(size)
            side = (SIDE, SIDE + 8) if number % 11 == 5 else (SIDE, SIDE)
            volume, roi = draw(random, size, side)
            name = f"{exams[number]}-{series}.pck"
            place = _place(order, len(rows))
            place.mkdir(parents=True, exist_ok=True)
            with (place / name).open("wb") as stream:
                pickle.dump(volume, stream, protocol=2)
            rows.append([exams[number], series, rung, int(random.integers(2)), *roi, name])
    made = GeneratedSet(len(rows), order.patients, LADDER.ceiling(rungs, sizes), (
        "a row without a file", "exams with two volumes", "a volume of another size", "the slice axis comes first",
    ))  # fmt: skip
    rows.append([exams[-1], 5, 0, 1, 30, 30, 9, ROI, ROI, 3, f"{exams[-1]}-5.pck"])
    save_csv(order.folder / "metadata.csv", HEAD, rows)
    return made


def _grades(order: Order) -> list[int]:
    if order.layout == CARD:
        return [number % 3 for number in range(order.patients)]
    counts = [max(2, round(order.patients * share / sum(SHARES))) for share in SHARES[1:]]
    return [0] * (order.patients - sum(counts)) + [1] * counts[0] + [2] * counts[1]


def _place(order: Order, number: int) -> Path:
    if order.layout == CARD:
        return order.folder / "volumetric_data"
    return order.folder / f"vol{min(number // min(PER_FOLDER, 1 + order.patients // 3), 9) + 1:02d}"


def draw(random: Random, torn: float, side: tuple[int, int]) -> tuple[NDArray[np.uint16], list[int]]:
    """A knee `(slices, H, W)`, 12-bit grey, and its roiX, roiY, roiZ, roiHeight, roiWidth, roiDepth."""
    height, width = side
    depth = int(random.integers(22, 33))
    shape = (depth, height, width)
    image = 420 + texture(random, shape, 60)
    x, y = int(width / 2 - ROI / 2 + random.integers(-4, 5)), int(height / 2 - ROI / 2 + random.integers(-4, 5))
    thick = int(random.integers(4, 7))
    z = int(depth / 2 - thick / 2 + random.integers(-2, 3))
    middle = (z + thick / 2, y + ROI / 2, x + ROI / 2)
    for up in (-1, 1):  # the two bones
        bone = (middle[0], middle[1] + up * 36, middle[2] + random.uniform(-3, 3))
        Blob(shape, bone, (depth * 0.6, 22, 34), random=random, rough=0.05).add(image, 330)
    for step in np.linspace(-1, 1, 13):  # a dark band from corner to corner
        at = (middle[0], middle[1] + step * ROI * 0.42, middle[2] - step * ROI * 0.36)
        Blob(shape, at, (thick * 0.75, 4.2, 4.2)).add(image, -70)
    reach = float(np.clip(torn, 0.02, 1.5))
    Blob(shape, middle, (thick * 0.8, 2 + 12 * reach, 2 + 12 * reach)).add(image, 760)  # fluid in the gap
    image = image + noise(random, shape, 55)
    return np.clip(image, 0, 1500).astype(np.uint16), [x, y, z, ROI, ROI, thick]


def read(folder: Path) -> RawReading:
    """A case per row of `metadata.csv`; the volume is looked for beside the table and one folder down."""
    need(folder, "metadata.csv", what="KneeMRI (metadata.csv and .pck volumes)")
    there: dict[str, str] = {}
    inner = [folder, *(place for place in folders(folder))]
    for place in inner:
        for file in files(place, ".pck"):
            there.setdefault(file.name, relative(folder, file))
    layout = OFFICIAL if any(path.startswith("vol0") for path in there.values()) else CARD
    got = Collected(folder, "KneeMRI", layout)
    for row in read_rows(folder / "metadata.csv", ("examId", "aclDiagnosis", "volumeFilename")):
        name = row["volumeFilename"]
        if row["aclDiagnosis"] not in ("0", "1", "2"):
            raise DataError(
                f"{folder / 'metadata.csv'}: aclDiagnosis of {name} is {row['aclDiagnosis']!r}, not 0, 1, 2."
            )
        if name not in there:
            got.drop("rows without a file", name, missing=True)
            continue
        label = CLASSES[int(row["aclDiagnosis"])]
        got.cases.append(RawCase(name.removesuffix(".pck"), (there[name],), row["examId"], labels=(label,)))
    return got.close()


SPEC = describe(
    "kneemri",
    stand_in=StandIn(patients=90, acceptable=(0.7, None), baseline=0.5, ceiling=0.97),
    maker=make,
    reader=read,
    layouts=(CARD, OFFICIAL),
)
