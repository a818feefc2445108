"""Slices of one stack and frames of one clip stay on one side, whatever the split draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from m3b.data.spec.execute import execute
from m3b.data.spec.model import IndexSpec

SPEC = {
    "task": "diagnosis",
    "images": {"files": {"pattern": "{cls}/*.png"}},
    "labels": {"sources": ["{cls}"], "classes": {"a": [], "b": []}},
}


def make(root: Path, stacks: int = 12, slices: int = 5) -> None:
    """Stacks of slices that change little from one to the next, numbered through; no name says where one ends."""
    for at in range(stacks):
        random = np.random.default_rng(at)
        base = random.uniform(40, 200, (12, 12)).repeat(4, 0).repeat(4, 1)
        folder = root / "ab"[at % 2]
        folder.mkdir(parents=True, exist_ok=True)
        for step in range(slices):
            number = (at // 2) * slices + step + 1
            array = np.clip(base + random.normal(0, 2, base.shape), 0, 255).astype(np.uint8)
            Image.fromarray(array).save(folder / f"img-({number}).png")


def test_slices_of_a_stack_stay_together(tmp_path: Path) -> None:
    make(tmp_path / "data")
    made = execute(IndexSpec.model_validate(SPEC), tmp_path / "data", name="x", work=tmp_path / "work")

    def stacks(records: tuple) -> set[tuple[str, int]]:
        return {(r.image.split("/")[2], (int(r.image.split("(")[1].split(")")[0]) - 1) // 5) for r in records}

    assert not stacks(made.train) & stacks(made.test)
    assert len(made.train) + len(made.test) == 60
    assert any("neighbours in series" in note for note in made.notes)
    assert not made.patients


def test_pictures_that_differ_are_no_series(tmp_path: Path) -> None:
    for at in range(20):
        folder = tmp_path / "data" / "ab"[at % 2]
        folder.mkdir(parents=True, exist_ok=True)
        array = np.random.default_rng(at).integers(0, 255, (32, 32), dtype=np.uint8)
        Image.fromarray(array).save(folder / f"{at}.png")
    made = execute(IndexSpec.model_validate(SPEC), tmp_path / "data", name="x", work=tmp_path / "work")
    assert made.notes == ()
