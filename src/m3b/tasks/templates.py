"""Which training projects serve a task: folders below `templates/`, each with a `plan.py` and a README for agents.

A template serves the task that it is called after, or the one that its `template.json` names: `{"task": "segmentation"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from m3b.data import kinds
from m3b.errors import DataError

from .base import TaskFamily

MANIFEST = "template.json"
NEEDED = ("README.md", "plan.py", "train.py", "export.py")
"""What has to be in a template before anybody copies it; the check of the project asks for more."""


def task_of(folder: Path) -> str:
    """The task that a template serves; empty where it is none that there is.

    Raises:
        DataError: its `template.json` cannot be read, or names a task that does not exist.
    """
    file = folder / MANIFEST
    if not file.is_file():
        return folder.name if folder.name in kinds.names() else ""
    try:
        task = json.loads(file.read_text(encoding="utf-8"))["task"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f'{file} must be JSON such as {{"task": "segmentation"}}; it is not: {error}.') from error
    return kinds.of(str(task)).name


def own_templates(place: Path) -> dict[str, Path]:
    """The templates in a user's folder by name: the folder itself where it is one, else those that it holds.

    Raises:
        DataError: there is none, one is not whole, or it does not say which task it serves.
    """
    place = place.expanduser().resolve()
    is_template = (place / "plan.py").is_file()
    folders = [place] if is_template else sorted(place.iterdir()) if place.is_dir() else []
    templates = {candidate.name: candidate for candidate in folders if (candidate / "plan.py").is_file()}
    if not templates:
        raise DataError(f"There is no template in {place}: neither it nor a folder in it has a plan.py.")
    for folder in templates.values():
        missing = [name for name in NEEDED if not (folder / name).is_file()]
        if missing:
            raise DataError(f"The template {folder} lacks {', '.join(missing)}.")
        if not task_of(folder):
            hint = f'give it a {MANIFEST} such as {{"task": "{kinds.names()[0]}"}}, or call it after its task'
            raise DataError(f"The template {folder} does not say which task it serves: {hint}.")
    return templates


def of_families(known: Mapping[str, TaskFamily]) -> dict[str, Path]:
    """The templates that families bring along, by the task's name."""
    return {name: task_family.template for name, task_family in known.items() if isinstance(task_family.template, Path)}


def serving(templates: Path, family: TaskFamily) -> list[str]:
    """The names of the templates that serve a family, those that a user added first.

    Raises:
        DataError: there is none.
    """
    default_template = family.template if isinstance(family.template, str) and family.template else family.name
    folders = sorted(candidate for candidate in templates.iterdir() if candidate.is_dir())
    names = [
        candidate.name
        for candidate in folders
        if candidate.name != default_template and task_of(candidate) == family.name
    ]
    names += [default_template] if (templates / default_template).is_dir() else []
    if not names:
        raise DataError(f"No template serves the task {family.name}: {templates} has none that says so.")
    return names
