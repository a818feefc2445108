"""CC-CCII: COVID-19, other pneumonia or normal from chest CT; each scan is a folder of slices.

Planted signal: one large dense area (CP), many small peripheral areas on both sides (NCP), or none; a few patients show
the signal of another class. Planted faults: several scans of a patient, names without leading zeros, a scan in JPEG,
RGB slices, a duplicate slice, an empty scan folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.bench.datasets.class_signal import compute_swap_ceiling, swap_some_classes
from m3b.bench.datasets.definitions import (
    CARD,
    GeneratedSet,
    GeneratorOptions,
    RawCase,
    RawDataset,
    StandIn,
    make_spec,
    save_csv,
    save_picture,
)
from m3b.bench.datasets.layout_reading import CaseCollector, list_files, list_folders, relative_path, require_entries
from m3b.bench.datasets.shapes import Blob, Floats, Random, noise, texture, to_bytes
from m3b.errors import DataError

CLASSES = ("Normal", "CP", "NCP")
SIDE = 128
MISTAKE_SHARE = 0.06
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg")


def make(options: GeneratorOptions) -> GeneratedSet:
    """Write the stand-in: two thirds of the patients have one scan, the others up to three."""
    random = np.random.default_rng(options.seed)
    truth = [number % 3 for number in range(options.patients)]
    shown_classes = swap_some_classes(random, truth, MISTAKE_SHARE, 3)
    patients = random.permutation(3000)[: options.patients] + 1
    scan_patients: list[int] = []
    rows = []
    for number, patient in enumerate(patients):
        disease = int(random.integers(1 << 31))
        for _ in range(int(random.choice([1, 1, 1, 1, 2, 3]))):
            scan = 1001 + len(scan_patients)
            scan_folder = options.folder / CLASSES[truth[number]] / str(patient) / str(scan)
            volume = draw(np.random.default_rng(disease), random, CLASSES[shown_classes[number]])
            _save_scan(scan_folder, volume, len(scan_patients))
            scan_patients.append(number)
        rows.append([patient, scan, int(random.integers(20, 85)), int(random.integers(1, 3)), "", "", "", ""])
    (options.folder / "NCP" / "3101" / "4801").mkdir(parents=True)
    save_csv(options.folder / "metadata.csv", ("patient_id", "scan_id", "Age", "Sex(Male1/Female2)", "Critical_illness",
             "Liver_function", "Lung_function", "Progression (Days)"), rows[: len(rows) // 3])  # fmt: skip
    ceiling = compute_swap_ceiling(
        [truth[n] for n in scan_patients], [shown_classes[n] for n in scan_patients], 3, MISTAKE_SHARE
    )
    planted_faults = ("patients with several scans", "slice names without zeros (2.png after 10.png as text)", "a scan in JPEG",
           "a scan in RGB", "a doubled slice", "an empty scan folder")  # fmt: skip
    return GeneratedSet(len(scan_patients), options.patients, ceiling, planted_faults)


def _save_scan(scan_folder: Path, volume: NDArray[np.uint8], scan: int) -> None:
    suffix = ".jpg" if scan == 1 else ".png"
    for number, picture in enumerate(volume):
        name = str(number + 1) if scan == 0 else f"{number:04d}"
        save_picture(scan_folder / f"{name}{suffix}", np.stack([picture] * 3, axis=2) if scan == 2 else picture)
    if scan == 3:
        save_picture(scan_folder / f"{len(volume):04d}.png", volume[-1])


def draw(patient: Random, scan: Random, kind: str) -> NDArray[np.uint8]:
    """Return a windowed chest CT `(slices, 128, 128)`. `patient` determines the disease, `scan` the reconstruction."""
    depth = int(scan.integers(16, 41))
    shape = (24, SIDE, SIDE)
    image = np.full(shape, 0.05, dtype=np.float32)
    Blob(shape, (12, 64, 64), (60, 46, 58)).add(image, 0.6, sharp=20)
    lungs = [_lung(patient, shape, side) for side in (-1, 1)]
    for lung in lungs:
        lung.add(image, -0.5, sharp=12)
    change = np.zeros(shape, dtype=np.float32)
    for blob in _lesions(patient, shape, kind):
        blob.add(change, 0.42, sharp=5)
    lung_mask = np.zeros(shape, dtype=np.float32)
    for lung in lungs:
        lung_mask[lung.box] = np.maximum(lung_mask[lung.box], lung.soft_mask(12))
    image += change * lung_mask + texture(patient, shape, 0.035, cells=12)
    slice_indices = np.linspace(0, 23, depth).round().astype(int)
    slices: Floats = image[slice_indices] + noise(scan, (depth, SIDE, SIDE), 0.03)
    return to_bytes(slices)


def _lung(random: Random, shape: tuple[int, int, int], side: int) -> Blob:
    return Blob(shape, (12, 62, 64 + side * 25), (13, 33 * random.uniform(0.92, 1.05), 20), random=random, rough=0.03)


def _lesions(random: Random, shape: tuple[int, int, int], kind: str) -> list[Blob]:
    if kind == "CP":
        side = int(random.choice([-1, 1]))
        position = (random.uniform(9, 15), random.uniform(52, 76), 64 + side * random.uniform(20, 27))
        return [Blob(shape, position, (7, 17, 15), random=random, rough=0.08)]
    if kind == "NCP":
        spots = []
        for number in range(int(random.integers(9, 14))):
            side, turn = (-1, 1)[number % 2], random.uniform(-1.2, 1.2)
            position = (random.uniform(4, 20), 62 + 28 * np.sin(turn), 64 + side * (25 + 15 * np.cos(turn)))
            spots.append(Blob(shape, position, (3, 6.5, 6.5), random=random, rough=0.1))
        return spots
    return []


def read(folder: Path) -> RawDataset:
    """Read one case per scan folder, with its slices in the order of their numbers."""
    require_entries(folder, *CLASSES, description="CC-CCII (the class folders CP, NCP and Normal)")
    collector = CaseCollector(folder, "CC-CCII", CARD)
    label_by_patient: dict[str, str] = {}
    for label in CLASSES:
        for patient in list_folders(folder / label):
            if label_by_patient.setdefault(patient.name, label) != label:
                raise DataError(
                    f"Patient {patient.name} is in {label_by_patient[patient.name]} and in {label} of {folder}."
                )
            for scan in list_folders(patient):
                slices = tuple(relative_path(folder, file) for file in list_files(scan, *PICTURE_SUFFIXES))
                if slices:
                    name = f"{label}/{patient.name}/{scan.name}"
                    collector.cases.append(RawCase(name, slices, patient.name, labels=(label,)))
                else:
                    collector.exclude("scan folders without a slice", relative_path(folder, scan), missing=True)
    return collector.finish()


SPEC = make_spec(
    "cc-ccii",
    stand_in=StandIn(patients=60, acceptable=(0.65, None), baseline=0.5, ceiling=0.95),
    generator=make,
    reader=read,
)
