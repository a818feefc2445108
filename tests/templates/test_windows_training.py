"""A finding of a few Hounsfield units is learnt from a CT that is seen whole."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from template_kit import Run

SIDE, CASES, BLEEDING_HU = 40, 96, 25


def _draw_head(rng: np.random.Generator, *, bleeds: bool) -> np.ndarray:
    places = np.indices((SIDE,) * 3) - SIDE / 2
    radius = np.sqrt((places**2 * np.array([1.0, 0.75, 1.0])[:, None, None, None]).sum(axis=0))
    inner = 14 + rng.uniform(-1, 1)
    head = np.full((SIDE,) * 3, -1000.0)
    head[radius < inner + 2] = 900
    head[radius < inner] = rng.normal(35, 1)
    if bleeds:
        centre = rng.uniform(-6, 6, 3)[:, None, None, None]
        head[((places - centre) ** 2).sum(axis=0) < rng.uniform(4, 6) ** 2] += BLEEDING_HU
    head += rng.normal(0, 6, head.shape)
    return head.round().astype(np.int16)


@pytest.mark.slow
def test_bleedings_of_25_hounsfield_units_are_found(project: Path, run: Run) -> None:
    """With one window from air to bone, the area under the curve was 0.50."""
    rng = np.random.default_rng(3)
    (project / "data").mkdir()
    records = []
    for number in range(CASES):
        path, bleeds = f"data/{number}.nii.gz", number % 2 == 0
        nib.save(nib.Nifti1Image(_draw_head(rng, bleeds=bleeds), np.diag([4.0, 4.0, 4.0, 1.0])), project / path)
        records.append({"image_path": path, "labels": ["bleeding" if bleeds else "none"], "patient": str(number)})
    (project / "Datapath").mkdir(exist_ok=True)
    (project / "Datapath" / "train.json").write_text(json.dumps(records))
    (project / "Datapath" / "label_dict.json").write_text(json.dumps({"none": 0, "bleeding": 1}))
    run("plan.py", "--minutes", "5", "--set", "max_steps=120", "folds=1", "validation_share=0.4", "size=[40,40,40]")
    assert json.loads((project / "plan.json").read_text())["intensity"]["mode"] == "windows"
    run("train.py")
    assert json.loads((project / "Logout" / "metrics.json").read_text())["validation"]["auroc"] > 0.95
