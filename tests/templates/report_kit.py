"""Puts the report template together as m3b does it, and imports its modules without disturbing other templates."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from m3b.resources import copy_template

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
FAST = ("--minutes", "0.5", "--set", "device=cpu", "network.image_width=8", "network.width=32", "network.layers=1")


def assemble_report(place: Path) -> Path:
    copy_template("report", place)
    return place


def plan_of(**overrides: Any) -> dict[str, Any]:
    """A small plan as `plan.py` writes it."""
    network = {"image_width": 8, "width": 32, "layers": 2, "heads": 4, "dropout": 0.0, "truth": 0.5, "hide_image": 0.2}
    network |= {"hide_findings": 0.1, "image_gradient": 0.5, "text_model": None, "image_model": None}
    decode = {"beams": 2, "length_penalty": 1.0, "min_tokens": 1, "no_repeat": 0}
    plan = {"classes": [], "findings": ["a", "b"], "shares": [0.5, 0.2], "sections": ["findings", "impression"]}
    plan |= {"vocabulary": 40, "unknown": 1, "pad": 0, "max_tokens": {"findings": 8, "impression": 4}, "views": 2}
    plan |= {"dims": 2, "channels": 1, "size": [32, 32], "network": network, "decode": decode, "word_dropout": 0.1}
    return {**plan, "label_smoothing": 0.0, "findings_weight": 1.0, "contrastive": 0.0, **overrides}


PACKAGES = ("example", "plan", "train", "export", "predict", "parts", "recipe", "m3b_runtime")


def forget() -> None:
    """Every template calls its packages alike: what one test imported must not serve another's."""
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


def load_project_module(project: Path, name: str) -> ModuleType:
    """A module of the assembled project; used inside the `report_modules` fixture."""
    if str(project) not in sys.path:
        sys.path.insert(0, str(project))
    return importlib.import_module(name)


Get = Callable[[str], ModuleType]
"""A module of an assembled project, by name."""


def modules_of_a_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Get]:
    """What the fixture `get` of a test module is made of."""
    project = assemble_report(tmp_path_factory.mktemp("report") / "work")
    before = list(sys.path)
    forget()
    yield lambda name: load_project_module(project, name)
    forget()
    sys.path[:] = before
