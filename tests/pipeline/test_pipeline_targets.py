"""Whole runs of the shipped templates on the rules, from a folder of raw data to a model that answers new images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from m3b import Pipeline, load_model
from m3b.result import Result

SIDE = 64
MINUTES = 0.1
CELLS = {"round": 90, "square": 140}


def draw(random: np.random.Generator, dims: int = 2) -> tuple[NDArray[np.uint8], list[tuple[str, list[int]]]]:
    """(SIDE,) * dims with one to three bright shapes on noise, and the class and box (lower, upper corner; array axes)."""
    image = random.normal(60, 10, (SIDE,) * 2 if dims == 2 else (SIDE, SIDE, 24))
    found = []
    for _ in range(int(random.integers(1, 4))):
        name = str(random.choice(list(CELLS)))
        size = 10 if name == "round" else 16
        low = [int(random.integers(1, extent - size - 1)) for extent in image.shape]
        place = tuple(slice(start, start + size) for start in low)
        grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, size)] * dims, indexing="ij"))
        inside = np.linalg.norm(grid, axis=0) < 1 if name == "round" else np.ones(grid.shape[1:], bool)
        image[place][inside] = CELLS[name] + 60
        found.append((name, [*low, *(start + size for start in low)]))
    return np.clip(image, 0, 255).astype(np.uint8), found


def voc(folder: Path, cases: int = 40) -> Path:
    """Pictures in `JPEGImages/` and a Pascal VOC file each in `Annotations/`."""
    random = np.random.default_rng(0)
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for number in range(cases):
        image, found = draw(random)
        Image.fromarray(image).save(folder / "JPEGImages" / f"smear_{number:03d}.png")
        root = ElementTree.Element("annotation")
        ElementTree.SubElement(root, "filename").text = f"smear_{number:03d}.png"
        for name, (top, left, bottom, right) in found:
            item = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(item, "name").text = name
            box = ElementTree.SubElement(item, "bndbox")
            for edge, value in (("xmin", left + 1), ("ymin", top + 1), ("xmax", right), ("ymax", bottom)):
                ElementTree.SubElement(box, edge).text = str(value)
        ElementTree.ElementTree(root).write(folder / "Annotations" / f"smear_{number:03d}.xml")
    (folder / "ImageSets/Main/train.txt").write_text("\n".join(f"smear_{number:03d}" for number in range(cases)))
    return folder


def whole_run(data: Path, request: str, out: Path, minutes: float = MINUTES) -> Result:
    result = Pipeline("rules", data=[data], out=out, train_minutes=minutes).run(request)
    assert result.status in ("completed", "below_range"), result.reason
    assert result.integrity == "clean"
    assert result.model_dir is not None
    return result


def answers(result: Result, *images: Path) -> list[Any]:
    """What the delivered model says of images, from a process of its own."""
    return list(load_model(str(result.model_dir)).predict(list(images)))


def test_boxes_in_2d_from_voc_files(tmp_path: Path) -> None:
    data = voc(tmp_path / "smears")
    result = whole_run(data, "Find round and square cells in blood smears, with boxes", tmp_path / "run")
    assert result.task == "detection"
    assert set(json.loads((tmp_path / "run/work/Datapath/label_dict.json").read_text())) == set(CELLS)
    assert result.primary is not None
    assert result.primary["name"] == "map_50"
    assert result.metrics.keys() >= {"map_50", "map", "froc"}
    [answer] = answers(result, data / "JPEGImages/smear_000.png")
    assert answer.boxes is not None
    assert all(box.label in CELLS and len(box.box) == 4 for box in answer.boxes)
