"""Drawn images with a bright target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from interactive_kit import make_disk_image
from PIL import Image

from m3b.interactive.segmenter import ByteImage, Mask


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks gain nothing from threads, which wait for each other on a loaded machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def picture() -> tuple[ByteImage, Mask]:
    return make_disk_image()


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A working folder with 16 pictures: 12 to train, 4 to test, of one class."""
    work = tmp_path / "work"
    (work / "Datapath").mkdir(parents=True)
    rng, records = np.random.default_rng(1), []
    for number in range(16):
        centre, radius = (float(rng.uniform(20, 40)), float(rng.uniform(25, 65))), float(rng.uniform(8, 16))
        image, truth = make_disk_image(centre=centre, radius=radius)
        Image.fromarray(image).save(work / f"{number}.png")
        Image.fromarray(truth.astype(np.uint8)).save(work / f"{number}_mask.png")
        records.append({"image_path": f"{number}.png", "mask_path": f"{number}_mask.png", "patient": f"p{number}"})
    for name, part in (("train", records[:12]), ("test", records[12:])):
        (work / "Datapath" / f"{name}.json").write_text(json.dumps(part))
    (work / "Datapath" / "label_dict.json").write_text(json.dumps({"disk": 1}))
    return work
