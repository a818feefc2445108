"""A working directory with the assembled indexing scripts, and a raw data folder to fill."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.resources import copy_template
from warm.commands import run_python

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"


@dataclass
class Built:
    """What one run of build_index.py left and said."""

    code: int
    out: str
    err: str
    train: list[dict[str, Any]] = field(default_factory=list)
    test: list[dict[str, Any]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[dict[str, Any]]:
        return self.train + self.test

    @property
    def by_image(self) -> dict[str, dict[str, Any]]:
        return {str(record["image_path"]): record for record in self.all}

    def counts(self, part: str = "all") -> dict[str, int]:
        found = dict.fromkeys(self.labels, 0)
        for record in getattr(self, part):
            for label in record["labels"]:
                found[label] += 1
        return found


class Desk:
    """A working directory, its raw data below data/x, and build_index.py."""

    def __init__(self, top: Path) -> None:
        self.work, self.raw = top / "work", top / "raw"
        self.raw.mkdir(parents=True)
        (self.work / "data").mkdir(parents=True)
        (self.work / "data" / "x").symlink_to(self.raw)
        place = self.work / "resources" / "templates" / "indexing"
        copy_template("indexing", place)
        self.random = np.random.default_rng(1)

    def image(self, name: str, like: str = "") -> None:
        """A small random picture, or the pixels of another one."""
        file = self.raw / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if like:
            pixels = np.asarray(Image.open(self.raw / like))
        else:
            pixels = self.random.integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(file)

    def write(self, name: str, text: str, encoding: str = "utf-8") -> None:
        (self.raw / name).parent.mkdir(parents=True, exist_ok=True)
        (self.raw / name).write_bytes(text.encode(encoding))

    def run(self, *arguments: str) -> Built:
        done = run_python("resources/templates/indexing/build_index.py", *arguments, cwd=self.work)
        built = Built(done.returncode, done.stdout, done.stderr)
        place = self.work / "Datapath"
        if done.returncode == 0 and place.is_dir():
            built.train, built.test = (json.loads((place / f"{n}.json").read_bytes()) for n in ("train", "test"))
            labels = json.loads((place / "label_dict.json").read_bytes())
            built.labels = sorted(labels, key=labels.__getitem__)
        return built

    def build(self, *arguments: str) -> Built:
        built = self.run(*arguments)
        assert built.code == 0, built.out + built.err
        return built

    def fail(self, *arguments: str) -> str:
        """The one message of a run that has to end badly, without a traceback."""
        shutil.rmtree(self.work / "Datapath", ignore_errors=True)
        built = self.run(*arguments)
        assert built.code != 0, built.out
        assert "Traceback" not in built.err
        assert not (self.work / "Datapath").exists()
        return built.err.strip()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
