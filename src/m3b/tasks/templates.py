"""Training templates: folders below `templates/`, each with a `plan.py` and a README for agents.

A template serves the task that its `template.json` names (`{"task": "segmentation"}`), or else the task of its folder
name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from m3b.data import kinds
from m3b.errors import DataError

from .base import TaskFamily

TEMPLATE_FILE = "template.json"
REQUIRED_FILES = ("README.md", "plan.py", "train.py", "export.py")
"""Files that a template must have before anybody copies it; the check of the project requires more."""


def read_template_task(folder: Path) -> str:
    """Return the task that a template serves; empty if neither `template.json` nor the folder name says so.

    Raises:
        DataError: its `template.json` cannot be read, or names a task that does not exist.
    """
    file = folder / TEMPLATE_FILE
    if not file.is_file():
        return folder.name if folder.name in kinds.names() else ""
    try:
        task = json.loads(file.read_text(encoding="utf-8"))["task"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f'{file} must be JSON such as {{"task": "segmentation"}}; it is not: {error}.') from error
    return kinds.of(str(task)).name


def find_user_templates(root: Path) -> dict[str, Path]:
    """Return the templates in a user's folder by name: the folder itself if it is a template, else its subfolders.

    Raises:
        DataError: there is no template, one is incomplete, or one does not say which task it serves.
    """
    root = root.expanduser().resolve()
    is_template = (root / "plan.py").is_file()
    folders = [root] if is_template else sorted(root.iterdir()) if root.is_dir() else []
    templates = {candidate.name: candidate for candidate in folders if (candidate / "plan.py").is_file()}
    if not templates:
        raise DataError(f"There is no template in {root}: neither it nor a folder in it has a plan.py.")
    for folder in templates.values():
        missing = [name for name in REQUIRED_FILES if not (folder / name).is_file()]
        if missing:
            raise DataError(f"The template {folder} lacks {', '.join(missing)}.")
        if not read_template_task(folder):
            hint = f'give it a {TEMPLATE_FILE} such as {{"task": "{kinds.names()[0]}"}}, or call it after its task'
            raise DataError(f"The template {folder} does not say which task it serves: {hint}.")
    return templates


def collect_family_templates(families_by_name: Mapping[str, TaskFamily]) -> dict[str, Path]:
    """Return the template folders that families bring along, by task name."""
    return {
        name: task_family.template
        for name, task_family in families_by_name.items()
        if isinstance(task_family.template, Path)
    }


def list_templates_for(templates: Path, task_family: TaskFamily) -> list[str]:
    """Return the names of the templates that serve a family, those of the user first.

    Raises:
        DataError: no template serves it.
    """
    default_template = (
        task_family.template if isinstance(task_family.template, str) and task_family.template else task_family.name
    )
    folders = sorted(candidate for candidate in templates.iterdir() if candidate.is_dir())
    names = [
        candidate.name
        for candidate in folders
        if candidate.name != default_template and read_template_task(candidate) == task_family.name
    ]
    names += [default_template] if (templates / default_template).is_dir() else []
    if not names:
        raise DataError(f"No template serves the task {task_family.name}: {templates} has none that says so.")
    return names
