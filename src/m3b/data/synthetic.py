"""A small, realistic, raw data set to try m3b on: invented chest radiographs with a planted finding.

Nothing in it is a person's: lungs, ribs, heart and noise are drawn. Cases of class `opacity` carry one to three soft
patches inside the lungs, faint enough that a trained model can be good but not perfect. The faults of real archives
are there too: several images of a patient, a stray file, a row without an image.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIDE = 128


MOST = 100_000


def _possible(patients: int, seed: int) -> None:
    if not 2 <= patients <= MOST:
        raise UsageError(f"{patients} patients (--cases) cannot be made: at least 2, at most {MOST:,}.")
    if seed < 0:
        raise UsageError(f"The seed (--seed) must not be negative; it is {seed}.")


def make_chest(folder: Path, *, patients: int = 240, seed: int = 0) -> Path:
    """Write the data set and return its folder.

    Layout: `images/*.png` (8-bit grey, 128 x 128), `cases.csv` with `image,patient_id,age,view,finding`, `README.md`,
    and `unseen/` with four images that `cases.csv` does not name.

    Raises:
        UsageError: the folder exists and is not empty, or the number of patients or the seed cannot be.
    """
    import numpy as np

    _possible(patients, seed)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty. Name a folder that does not exist yet.")
    (folder / "images").mkdir(parents=True)
    random = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        sick = bool(random.random() < 0.4)
        for visit in range(int(random.choice([1, 1, 1, 2]))):
            name = f"cxr_{patient:04d}_{visit}.png"
            _save(radiograph(random, sick), folder / "images" / name)
            rows.append([name, f"PT{patient:04d}", int(random.integers(19, 92)), "PA", "opacity" if sick else "clear"])
    rows.append(["cxr_9999_0.png", "PT9999", 55, "PA", "clear"])  # named, but never exported
    random.shuffle(rows)
    with (folder / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "patient_id", "age", "view", "finding"])
        writer.writerows(rows)
    (folder / "images" / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")
    (folder / "README.md").write_text(README, encoding="utf-8")
    unseen = folder / "unseen"
    unseen.mkdir()
    for number, sick in enumerate((True, False, True, False)):
        _save(radiograph(random, sick), unseen / f"{'opacity' if sick else 'clear'}_{number}.png")
    return folder


README = """# Synthetic chest radiographs

Drawn by a program; no person is behind them. `cases.csv` has a row an image: `image` (in images/), `patient_id`, `age`,
`view`, `finding` (`clear` or `opacity`). A patient can have two images. One row names an image that was never exported.
"""


def radiograph(random: np.random.Generator, sick: bool) -> NDArray[np.uint8]:
    """One drawn frontal chest radiograph, `(128, 128)` uint8; `sick` adds soft patches inside the lungs."""
    import numpy as np

    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE - 0.5
    x = x + random.normal(0, 0.015)
    y = y + random.normal(0, 0.015)
    scale = random.uniform(0.9, 1.1)
    body = 0.62 + 0.12 * np.exp(-((x / 0.08) ** 2))
    lungs = np.zeros_like(x)
    for side in (-1, 1):
        lung = ((x - side * 0.2) / (0.145 * scale)) ** 2 + ((y + 0.02) / (0.33 * scale)) ** 2
        lungs += 1 / (1 + np.exp((lung - 1) * 9))
    image = body - 0.42 * lungs
    image += 0.045 * np.sin((y + 0.35 * np.abs(x)) * random.uniform(58, 70) + random.uniform(0, 6)) * lungs  # ribs
    image += 0.26 / (1 + np.exp((((x - 0.05) / 0.13) ** 2 + ((y - 0.13) / 0.15) ** 2 - 1) * 7))  # heart
    if sick:
        for _ in range(int(random.integers(1, 4))):
            image += _patch(random, x, y) * lungs
    image += _texture(random, 0.03) + random.normal(0, 0.035, image.shape)
    image = (image - 0.1) * random.uniform(0.9, 1.1) + random.normal(0, 0.02)
    return np.asarray(np.clip(image * 235, 0, 255), dtype=np.uint8)


def _patch(random: np.random.Generator, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    side = random.choice([-1, 1])
    at_x, at_y = side * random.uniform(0.13, 0.26), random.uniform(-0.22, 0.2)
    width, height = random.uniform(0.05, 0.1), random.uniform(0.05, 0.1)
    patch = np.exp(-(((x - at_x) / width) ** 2) - ((y - at_y) / height) ** 2)
    strength: float = random.uniform(0.1, 0.3)
    return np.asarray(strength * patch, dtype=np.float64)


def _texture(random: np.random.Generator, strength: float) -> NDArray[np.float64]:
    """Smooth noise: random numbers on a coarse grid, enlarged."""
    import numpy as np
    from PIL import Image

    coarse = random.normal(0, strength, (16, 16)).astype(np.float32)
    fine = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(fine, dtype=np.float64)


def _save(image: NDArray[np.uint8], file: Path) -> None:
    from PIL import Image

    Image.fromarray(image).save(file)


def make_volumes(folder: Path, *, patients: int = 40, side: int = 24, seed: int = 0) -> Path:
    """A 3D counterpart: class folders of NPY volumes, `{large,small}/scan_NNN.npy`, told apart by a bright ball.

    Raises:
        UsageError: the folder exists and is not empty, or the number of patients or the seed cannot be.
    """
    import numpy as np

    _possible(patients, seed)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty. Name a folder that does not exist yet.")
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij")).astype(np.float32)
    for number in range(patients):
        name = ("large", "small")[number % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        centre = random.uniform(side * 0.35, side * 0.65, 3)[:, None, None, None]
        distance = np.sqrt(((grid - centre) ** 2).sum(0))
        radius = side * (0.3 if name == "large" else 0.15)
        volume = 400 * (distance < radius) + random.normal(0, 60, (side,) * 3) + 100
        np.save(folder / name / f"scan_{number:03d}.npy", volume.astype(np.int16))
    (folder / "dataset_description.json").write_text(json.dumps({"about": "drawn balls, two sizes"}), encoding="utf-8")
    return folder
