"""ADNI: three-way diagnosis from T1 brain MRI, as `.pt` tensors with a collection export in CSV.

Planted signal: the radius of the ventricles, which grows from group to group. Planted faults: groups that must be
excluded, several visits per subject, rows without a file, files without a row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from m3b.bench.datasets.class_signal import ClassSizeModel
from m3b.bench.datasets.definitions import (
    CARD,
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
    get_only_file,
    list_files,
    read_rows,
    relative_path,
    require_entries,
)
from m3b.bench.datasets.shapes import Blob, Floats, Random, noise, texture

GROUPS = ("CN", "MCI", "AD")
OTHER_GROUPS = ("LMCI", "EMCI", "SMC", "Patient")
HEADER = (
    "Image Data ID", "Subject", "Group", "Sex", "Age", "Visit", "Modality", "Description", "Type", "Acq Date", "Format",
    "Downloaded",
)  # fmt: skip
TABLE_FILE = "ADNI1_Complete_1Yr_1.5T.csv"
VISITS = ("sc", "m06", "m12")
SIZE_MODEL = ClassSizeModel((4.2, 5.9, 7.6), 0.85)
SHAPE = (48, 52, 44)


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: subjects with two visits each, and about a third as many scans of other groups."""
    random = np.random.default_rng(options.seed)
    numbers = random.permutation(900_000)[: 4 * options.patients + 20] + 100_000
    ids = iter(f"I{number}" for number in numbers)
    rows: list[list[object]] = []
    class_indices: list[int] = []
    sizes: list[float] = []
    for subject in range(options.patients):
        class_index = subject % 3
        size = SIZE_MODEL.draw(random, class_index)
        rows += _write_visits(options.folder, random, ids, GROUPS[class_index], size, subject, 2)
        class_indices += [class_index, class_index]
        sizes += [size, size]
    for extra in range(max(2, round(options.patients / 4.5))):
        size = random.uniform(4, 8)
        rows += _write_visits(
            options.folder, random, ids, OTHER_GROUPS[extra % 4], size, options.patients + extra, 1 + extra % 2
        )
    other_count = len(rows) - len(class_indices)
    for class_index in (0, 2):
        rows.append(
            _make_row(next(ids), random, _make_subject_id(random, 990 + class_index), GROUPS[class_index], "sc")
        )
    for _ in range(2):
        _save_volume(options.folder, next(ids), draw(random, random, 5.0))
    random.shuffle(rows)
    save_csv(options.folder / TABLE_FILE, HEADER, rows, quote_all=True)
    planted_faults = (
        f"{other_count} rows of other groups",
        "2 rows without a file",
        "2 files without a row",
        "2 visits a subject",
    )
    return GeneratedSet(len(class_indices), options.patients, SIZE_MODEL.ceiling(class_indices, sizes), planted_faults)


def _write_visits(
    folder: Path, random: Random, ids: object, group: str, size: float, subject: int, visits: int
) -> list[list[object]]:
    """Write the volumes of one subject. All visits show the same head, so that a leak between splits has an effect."""
    name = _make_subject_id(random, subject)
    head_seed = int(random.integers(1 << 31))
    rows = []
    for visit in VISITS[:visits]:
        image = str(next(ids))  # type: ignore[call-overload]
        _save_volume(folder, image, draw(np.random.default_rng(head_seed), random, size + random.normal(0, 0.05)))
        rows.append(_make_row(image, random, name, group, visit))
    return rows


def _make_subject_id(random: Random, number: int) -> str:
    return f"{int(random.integers(2, 137)):03d}_S_{number + 1001:04d}"


def _make_row(image: str, random: Random, subject: str, group: str, visit: str) -> list[object]:
    date = f"{random.integers(1, 13)}/{random.integers(1, 29)}/{random.integers(2005, 2016)}"
    return [image, subject, group, "MF"[int(random.integers(2))], int(random.integers(56, 91)), visit, "MRI", "MPRAGE",
            "Original", date, "DCM", "Yes"]  # fmt: skip


def draw(head: Random, scan: Random, ventricles: float) -> Floats:
    """Return a skull-stripped brain `(48, 52, 44)`, float32, background 0. `head` determines the subject."""
    image = np.zeros(SHAPE, dtype=np.float32)
    centre = [size / 2 + head.uniform(-1.5, 1.5) for size in SHAPE]
    brain = Blob(SHAPE, centre, [size * 0.45 * head.uniform(0.93, 1.02) for size in SHAPE], random=head, rough=0.04)
    brain.fill(image, 0.62)
    brain_mask = image > 0
    image += texture(head, SHAPE, 0.09, cells=9)
    for side in (-1, 1):
        position = [centre[0] + side * 4.6, centre[1], centre[2] + 2]
        Blob(SHAPE, position, [ventricles * 0.55, ventricles * 1.35, ventricles * 0.75]).add(image, -0.45)
    image = np.clip(image + noise(scan, SHAPE, 0.06), 0.01, None) * np.float32(scan.uniform(0.9, 1.1))
    return np.asarray(np.where(brain_mask, image, 0), dtype=np.float32)


def _save_volume(folder: Path, image: str, array: Floats) -> None:
    import torch

    (folder / "ADNI_PT").mkdir(exist_ok=True)
    torch.save(torch.from_numpy(array), folder / "ADNI_PT" / f"{image}.pt")


def read(folder: Path) -> RawDataset:
    """Read the rows of the groups CN, MCI and AD that have a file. Ids match with or without their leading I."""
    require_entries(folder, "ADNI_PT", description="ADNI (a folder ADNI_PT of .pt files and one CSV)")
    table = get_only_file(folder, ".csv", "the collection export")
    path_by_id = {
        file.stem.removeprefix("I"): relative_path(folder, file) for file in list_files(folder / "ADNI_PT", ".pt")
    }
    collector = CaseCollector(folder, "ADNI", CARD)
    used_ids = set()
    for row in read_rows(table, ("Image Data ID", "Subject", "Group")):
        image = row["Image Data ID"].removeprefix("I")
        used_ids.add(image)
        if row["Group"] not in GROUPS:
            collector.exclude("rows of other groups", f"{row['Image Data ID']} ({row['Group']})")
        elif not row["Subject"]:
            collector.exclude("rows without a subject", row["Image Data ID"])
        elif image not in path_by_id:
            collector.exclude("rows without a file", row["Image Data ID"], missing=True)
        else:
            collector.cases.append(RawCase(f"I{image}", (path_by_id[image],), row["Subject"], labels=(row["Group"],)))
    for image in sorted(set(path_by_id) - used_ids):
        collector.exclude("files without a row", path_by_id[image])
    return collector.finish()


SPEC = make_spec(
    "adni",
    stand_in=StandIn(patients=90, acceptable=(0.65, None), baseline=0.5, ceiling=0.97),
    generator=make,
    reader=read,
)
