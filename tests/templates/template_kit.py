"""A project of the diagnosis template, and its scripts in processes of their own."""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from m3b.resources import copy_template
from warm.commands import run_python

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def assemble(place: Path) -> Path:
    copy_template("diagnosis", place)
    return place


def call(project: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A script of the project, in its folder, in a process of its own."""
    return run_python(*command, cwd=project, check=check)


def load(name: str) -> ModuleType:
    """Return a module of `m3b.training`, or the module of this absolute name."""
    return importlib.import_module(name if name.startswith("m3b.") else f"m3b.training.{name}")


def build_loop(model: Any, folder: Path, **plan: Any) -> Any:
    """Return the loop that would train a model on eight images, a batch of four in two parts."""
    loop = load("loop")
    values = {
        "workers": 0,
        "batch": 8,
        "accumulate": 2,
        "lr": 0.1,
        "weight_decay": 0.0,
        "max_epochs": 1,
        "dims": 2,
        "seed": 0,
    }
    plan = {"device": "cpu", "precision": "fp32", **values, **plan}
    parts = loop.TrainingParts(model, [{"pixel_values": torch.ones(1, 8, 8)}] * 8, None)
    return loop.TrainingLoop(plan, folder, load("clock").Clock(60.0, 1), parts, "x", seed=0)


NO_MEMORY = """

class Recipe(Recipe):
    def build_network(self, plan, load=True):
        network = super().build_network(plan, load)
        network.register_forward_pre_hook(refuse_training)
        return network


def refuse_training(network, inputs):
    if network.training:
        raise MemoryError("out of memory")
"""
"""Added to a recipe.py: every training step runs out of memory."""

KILLED_AFTER_ONE_STEP = """
from m3b.training.loop import TrainingLoop

def save_and_die(loop, save=TrainingLoop.save_checkpoint):
    save(loop)
    os.kill(os.getpid(), 9)

TrainingLoop.is_checkpoint_due = lambda loop: True
TrainingLoop.save_checkpoint = save_and_die
"""


def train_until_killed(project: Path) -> float:
    """A training that a SIGKILL ends right after its first checkpoint, after one step; seconds that it had spent by then.

    The process does it to itself, so that it is the same on any machine.
    """
    script = project / "train.py"
    text = script.read_text()
    script.write_text(text.replace("\nif __name__", KILLED_AFTER_ONE_STEP + "\nif __name__", 1))
    done = call(project, "train.py", check=False)
    script.write_text(text)
    assert done.returncode == -9, done.stdout[-2000:] + done.stderr[-2000:]
    assert not (project / "Logout/metrics.json").exists()
    (state,) = project.glob("Logout/*/checkpoint-1/complete.json")
    return float(json.loads(state.read_text())["spent"])
