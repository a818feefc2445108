"""A project of the diagnosis template, and its scripts in processes of their own."""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

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
    """Return a module of `m3b.training`, or `formats`."""
    return importlib.import_module("m3b.dataset.formats" if name == "formats" else f"m3b.training.{name}")


KILLED_AFTER_ONE_STEP = """
from m3b.training.trainer import ClockTrainer
from m3b.training.trainer_callbacks import ByTheClock

def save_and_die(trainer, *rest, save=ClockTrainer._save_checkpoint, **more):
    save(trainer, *rest, **more)
    os.kill(os.getpid(), 9)

ByTheClock.save_is_due = lambda callback: True
ClockTrainer._save_checkpoint = save_and_die
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
