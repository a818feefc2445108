"""The segmentation template in a folder of its own, and its own modules without any folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from template_kit import call

from m3b.resources import copy_template


def assemble_segmentation(place: Path) -> Path:
    copy_template("segmentation", place)
    return place


def small_plan(project: Path, **changes: Any) -> dict[str, Any]:
    """plan.py, then the smallest network and a number of steps instead of minutes."""
    patch = ["patch=[16,16,16]"] if (project / "data/example/case_000.nii.gz").exists() else []
    call(project, "plan.py", "--minutes", "5", "--set", "device=cpu", "precision=fp32", "channels_last=false", *patch)
    file = project / "plan.json"
    plan: dict[str, Any] = json.loads(file.read_text())
    plan["network"]["filters"] = [4 * 2**k for k in range(len(plan["network"]["filters"]))]
    plan |= {"max_steps": 40, "batch": 4, "epoch_patches": 40, "lr": 0.01, "threads": 1, "ema": 0.9, **changes}
    file.write_text(json.dumps(plan))
    return plan


def nifti(file: Path, array: np.ndarray, affine: np.ndarray | None = None) -> str:
    import nibabel as nib

    nib.save(nib.Nifti1Image(array, np.eye(4) if affine is None else affine), file)
    return file.name
