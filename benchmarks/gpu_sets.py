"""Drawn data sets in the shapes of real ones, for the templates on a GPU: bright balls and boxes in noise, with their truth.

python benchmarks/gpu_sets.py            lists them
python benchmarks/gpu_sets.py SET FOLDER     assembles the template of SET in FOLDER, with its data
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("ball", "box")
LEFT_OUT_OF_TRAINING = 10
"""Every so-manieth pair of cases is for the test."""


@dataclass(frozen=True)
class DrawnSet:
    """A data set to draw.

    Args:
        template: diagnosis, segmentation or detection.
        shape: rows, columns[, slices]; each varies by `varies` of itself.
        colours: 3 for pictures in RGB.
        target: classes, grades, values, masks or boxes.
        share: of the shorter side that a shape's radius is.
    """

    template: str
    target: str
    shape: tuple[int, ...]
    cases: int
    colours: int = 1
    varies: float = 0.0
    share: float = 0.15


SETS = {
    "classes-28": DrawnSet("diagnosis", "classes", (28, 28), 4000),
    "classes-28-few": DrawnSet("diagnosis", "classes", (28, 28), 120),
    "classes-28-rgb": DrawnSet("diagnosis", "classes", (28, 28), 1000, colours=3),
    "classes-64": DrawnSet("diagnosis", "classes", (64, 64), 1000),
    "classes-224": DrawnSet("diagnosis", "classes", (224, 224), 1000, colours=3),
    "classes-512": DrawnSet("diagnosis", "classes", (512, 512), 300),
    "classes-28x28x28": DrawnSet("diagnosis", "classes", (28, 28, 28), 1100),
    "classes-64x64x24": DrawnSet("diagnosis", "classes", (64, 64, 24), 600),
    "classes-64x64x64": DrawnSet("diagnosis", "classes", (64, 64, 64), 200),
    "classes-128x128x16": DrawnSet("diagnosis", "classes", (128, 128, 16), 44),
    "grades-224": DrawnSet("diagnosis", "grades", (224, 224), 400),
    "values-96": DrawnSet("diagnosis", "values", (96, 128), 600),
    "masks-64": DrawnSet("segmentation", "masks", (64, 64), 200),
    "masks-256": DrawnSet("segmentation", "masks", (256, 256), 72, colours=3, varies=0.1),
    "masks-512": DrawnSet("segmentation", "masks", (512, 512), 150, colours=3, varies=0.1),
    "masks-960": DrawnSet("segmentation", "masks", (960, 999), 28, colours=3, share=0.02),
    "masks-28x28x28": DrawnSet("segmentation", "masks", (28, 28, 28), 100),
    "masks-35x50x35": DrawnSet("segmentation", "masks", (35, 50, 35), 160, varies=0.1),
    "masks-64x64x64": DrawnSet("segmentation", "masks", (64, 64, 64), 60),
    "masks-128x128x96": DrawnSet("segmentation", "masks", (128, 128, 96), 24, varies=0.05),
    "masks-256x256x12": DrawnSet("segmentation", "masks", (256, 256, 12), 40, varies=0.05),
    "boxes-64": DrawnSet("detection", "boxes", (64, 64), 300),
    "boxes-480x640": DrawnSet("detection", "boxes", (480, 640), 300, colours=3, share=0.08),
    "boxes-64x64x64": DrawnSet("detection", "boxes", (64, 64, 64), 80),
    "lesions-128": DrawnSet("detection", "masks", (128, 128), 200, share=0.06),
    "lesions-64x64x64": DrawnSet("detection", "masks", (64, 64, 64), 60, share=0.08),
}
"""Shapes of MedMNIST, of pictures of the skin, knees, chest, polyps and cells, of the hippocampus, the heart and the brain."""


def assemble_set(name: str, folder: Path) -> Path:
    """Assemble the template in the folder, and draw its cases there; the folder."""
    spec = SETS[name]
    sys.path.append(str(ROOT / "src"))  # a machine with a GPU may have no m3b installed
    from m3b.resources import copy_template

    copy_template(spec.template, folder)
    place = folder / "data" / "drawn"
    place.mkdir(parents=True)
    rng = np.random.default_rng(0)
    records = [_draw_case(rng, spec, number, folder, place) for number in range(spec.cases)]
    test = {number for number in range(spec.cases) if number // 2 % LEFT_OUT_OF_TRAINING == 0}
    parts = {
        "train": [record for number, record in enumerate(records) if number not in test],
        "test": [record for number, record in enumerate(records) if number in test],
    }
    for part, rows in parts.items():
        (folder / "Datapath" / f"{part}.json").write_text(json.dumps(rows))
    numbers: dict[str, int] = {
        "grades": {str(grade): grade for grade in range(4)},
        "values": {"brightness": 0},
        "masks": {"ball": 1, "box": 2},
    }.get(spec.target, {"ball": 0, "box": 1})
    (folder / "Datapath" / "label_dict.json").write_text(json.dumps(numbers))
    return folder


def _draw_case(rng: np.random.Generator, spec: DrawnSet, number: int, folder: Path, place: Path) -> dict[str, Any]:
    shape = tuple(round(side * (1 + spec.varies * rng.uniform(-1, 1))) for side in spec.shape)
    image = rng.normal(80, 12, shape).astype(np.float32)
    record: dict[str, Any] = {"patient": f"p{number // 2}"}
    if spec.target in ("masks", "boxes"):
        ids, boxes = np.zeros(shape, np.uint8), []
        for kind in range(int(rng.integers(1, 4))):
            region, mask = _shape(rng, shape, spec.share, NAMES[kind % 2])
            image[region][mask] += (80, 50)[kind % 2]
            ids[region][mask] = kind % 2 + 1
            corners = [[part.start for part in region], [part.stop for part in region]]
            order = (1, 0, *range(2, len(shape)))  # x lies along the columns
            boxes.append({"label": NAMES[kind % 2], "box": [int(ends[axis]) for ends in corners for axis in order]})
        if spec.target == "boxes":
            record["boxes"] = boxes
        else:
            record["mask_path"] = _save(ids, place / f"mask_{number:04d}", folder)
    else:
        kind = number // 2 % 2 if spec.target == "classes" else 0
        bright = {"classes": (80, 50)[kind], "grades": 40 * (number // 2 % 4)}.get(
            spec.target, int(rng.integers(20, 120))
        )
        region, mask = _shape(rng, shape, spec.share, NAMES[kind])
        image[region][mask] += bright
        record |= {
            "classes": {"labels": [NAMES[kind]]},
            "grades": {"grade": str(bright // 40)},
            "values": {"value": float(bright)},
        }[spec.target]
    image = np.clip(image, 0, 255).astype(np.uint8)
    if spec.colours == 3:
        image = np.repeat(image[..., None], 3, axis=-1)
    return {"image_path": _save(image, place / f"case_{number:04d}", folder), **record}


def _shape(
    rng: np.random.Generator, shape: tuple[int, ...], share: float, kind: str
) -> tuple[tuple[slice, ...], np.ndarray]:
    """A box of the image, and what lies inside of a ball or box there."""
    radii = [max(2, round(min(side, min(shape) * 4) * share * rng.uniform(0.8, 1.3))) for side in shape]
    region = tuple(
        slice(first := int(rng.integers(0, max(1, side - 2 * radius))), min(side, first + 2 * radius))
        for side, radius in zip(shape, radii, strict=True)
    )
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, part.stop - part.start) for part in region], indexing="ij"))
    return region, np.linalg.norm(grid, axis=0) < 1.05 if kind == "ball" else np.ones(grid.shape[1:], bool)


def _save(array: np.ndarray, stem: Path, folder: Path) -> str:
    """PNG for pictures, NIfTI for volumes (array axes are rows, columns, slices); the path relative to the folder."""
    if array.ndim == 2 or array.shape[-1] == 3:
        from PIL import Image

        file = stem.with_suffix(".png")
        Image.fromarray(array).save(file, compress_level=1)
    else:
        import nibabel

        file = stem.with_suffix(".nii")
        nibabel.save(nibabel.Nifti1Image(array.transpose(1, 0, 2), np.diag([-1.0, -1.0, 1.5, 1.0])), file)
    return str(file.relative_to(folder))


def main(arguments: list[str]) -> None:
    if len(arguments) == 2:
        print(assemble_set(arguments[0], Path(arguments[1])))
        return
    line: Callable[[str, DrawnSet], str] = lambda name, spec: f"{name:20} {spec.template:13} {spec.cases:5} cases"  # noqa: E731
    print("\n".join(line(name, spec) for name, spec in SETS.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
