"""Puts the diagnosis template together as m3b does it: its own files, and the shared ones in Utils/."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import m3b.dataset.formats
from m3b.resources import copy_template
from warm.commands import run_python

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
PACKAGE_PATH = [str(TEMPLATES / "shared"), str(Path(m3b.dataset.formats.__file__).parents[1])]
"""Folders of the modules of `Utils`, as a package has them in `__path__`: the shared ones, and `formats`."""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def assemble(place: Path) -> Path:
    copy_template("diagnosis", place)
    return place


def call(project: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A script of the project, in its folder, in a process of its own."""
    return run_python(*command, cwd=project, check=check)


def load(name: str) -> ModuleType:
    """A shared module by its path, in a package of its own, so that its neighbours are found."""
    package = "template_shared"
    if package not in sys.modules:
        spec = importlib.util.spec_from_loader(package, loader=None, is_package=True)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__path__ = list(PACKAGE_PATH)
        sys.modules[package] = module
    return importlib.import_module(f"{package}.{name}")


def train_until_killed(project: Path) -> float:
    """A training that a SIGKILL ends right after its first checkpoint, after one step; seconds that it had spent by then.

    The process does it to itself, so that it is the same on any machine.
    """
    originals = {}
    for name, old, new in (
        ("by_clock.py", "return self.trainer.clock.spent() - self.last_save > pause", "return True"),
        (
            "training.py",
            '(folder / "complete.json").write_text(json.dumps(state))',
            '(folder / "complete.json").write_text(json.dumps(state))\n        os.kill(os.getpid(), 9)',
        ),
    ):
        file = project / "Utils" / name
        originals[file] = text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
    done = call(project, "train.py", check=False)
    for file, text in originals.items():
        file.write_text(text)
    assert done.returncode == -9, done.stdout[-2000:] + done.stderr[-2000:]
    assert not (project / "Logout/metrics.json").exists()
    (state,) = project.glob("Logout/*/checkpoint-1/complete.json")
    return float(json.loads(state.read_text())["spent"])
