"""Puts the diagnosis template together as m3b does it: its own files, and the shared ones in Utils/."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def assemble(place: Path) -> Path:
    shutil.copytree(TEMPLATES / "diagnosis", place)
    for file in (TEMPLATES / "shared").glob("*.py"):
        shutil.copy(file, place / "Utils")
    return place


def load(name: str) -> ModuleType:
    """A shared module by its path, in a package of its own, so that its neighbours are found."""
    package = "template_shared"
    if package not in sys.modules:
        spec = importlib.util.spec_from_loader(package, loader=None, is_package=True)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__path__ = [str(TEMPLATES / "shared")]
        sys.modules[package] = module
    return importlib.import_module(f"{package}.{name}")
