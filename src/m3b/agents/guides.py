"""What briefings quote of the READMEs of templates: as much as a role has use for."""

from __future__ import annotations

import re
from pathlib import Path

from m3b.agents.reading_lines import INDEXING_TEMPLATE
from m3b.tasks import get_family
from m3b.tasks.templates import list_templates_for

SETTINGS_HEADING = "## Settings of plan.json"
INDEX_HEADING = "## What it expects"
"""The part of a template's README that is about index files, which m3b has written by then."""


def read_indexing_guide(resources: Path, task: str) -> str:
    """The indexing script's README without what serves other tasks only."""
    text = (resources / INDEXING_TEMPLATE / "README.md").read_text(encoding="utf-8").strip()
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join(part for part in parts if _is_for_task(part.split("\n", 1)[0], task)).strip()


def _is_for_task(heading: str, task: str) -> bool:
    """Whether a part is for a task: its heading names tasks in brackets, or none."""
    match = re.search(r"^## .*\((.+)\)$", heading)
    return match is None or task in match.group(1).split(", ")


def read_template_guide(resources: Path, template: str) -> str:
    """The README of a training template for those who set it up."""
    readme = (resources / template / "README.md").read_text(encoding="utf-8")
    parts = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    return "".join(part for part in parts if not part.startswith(INDEX_HEADING)).strip()


def read_settings_guide(resources: Path | None, task: str) -> list[str]:
    """The part of the template's README on what plan.json may be given."""
    if resources is None:
        return []
    readme = resources / "templates" / list_templates_for(resources / "templates", get_family(task))[0] / "README.md"
    parts = re.split(r"^(?=## )", readme.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [part.strip() for part in parts if part.startswith(SETTINGS_HEADING)]
