"""Puts the detection template together as m3b does it, and imports its modules without disturbing other templates."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from m3b.resources import copy_template

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
PACKAGES = ("example", "plan", "train", "export", "predict", "parts", "recipe", "m3b_runtime")


def assemble_detection(place: Path) -> Path:
    copy_template("detection", place)
    return place


def forget() -> None:
    """Every template calls its packages alike: what one test imported must not serve another's."""
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


def load_project_module(project: Path, name: str) -> ModuleType:
    """A module of the assembled project; used inside a fixture that cleans up."""
    if str(project) not in sys.path:
        sys.path.insert(0, str(project))
    return importlib.import_module(name)


def box_plan(dims: int = 2, **overrides: Any) -> dict[str, Any]:
    """A small plan for boxes, as plan.py writes it."""
    network = {"name": "centers", "width": 8, "strides": [[2] * dims] * 3, "out_stage": 2}
    plan = {"task": "detection", "target": "boxes", "classes": ["disc", "square"], "labels": None, "overlap": True}
    plan |= {"points": "lesions", "dims": dims, "channels": 1, "intensity": {"mode": "percentile"}, "spacing": None}
    plan |= {"longest": None, "patch": [32] * dims, "network": network, "batch": 2, "foreground": 0.5, "patches": 8}
    return {**plan, "augment": {}, "device": "cpu", "validation_share": 0.25, "seed": 0, "workers": 1, **overrides}
