"""Where a GPU is: a deliverable gives the same figures there as on the processor, and plans are tried by a real step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from template_kit import Run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TOLERANCE = 0.01


def answers(project: Path, cards: str) -> list[dict[str, float]]:
    """What the deliverable says of a few images with these GPUs."""
    images = sorted(str(file) for file in (project / "data").rglob("*.png"))[:8]
    command = [sys.executable, "Deliver/predict.py", *images, "-o", f"found{cards}.json"]
    subprocess.run(command, cwd=project, check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": cards})
    return [row["probabilities"] for row in json.loads((project / f"found{cards}.json").read_text())]


@pytest.mark.slow
def test_a_deliverable_says_the_same_on_gpu_and_processor(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "40")
    printed = run("plan.py", "--minutes", "1", "--gpus", "1", "--set", "max_steps=40", "folds=1").stdout
    assert "a real step held" in printed
    run("train.py")
    run("export.py", "--out", "Deliver")
    for gpu, cpu in zip(answers(project, "0"), answers(project, ""), strict=True):
        assert gpu == pytest.approx(cpu, abs=TOLERANCE)


def test_a_step_never_waits_for_the_gpu() -> None:
    """The losses of masks, with CUDA's own warning of what waits made an error."""
    from template_kit import load

    loss = load("losses").MaskLoss().cuda()
    logits = torch.randn(2, 3, 16, 16, device="cuda", requires_grad=True)
    masks = torch.zeros(2, 16, 16, dtype=torch.uint8, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(logits, masks).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
