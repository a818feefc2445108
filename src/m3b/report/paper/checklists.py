"""The checklists of a paper kit: CLAIM 2024 and TRIPOD+AI.

The items stand in TOML files below `templates/`, in our own short wording. Each has `number`, `section`, `wording`, and
optionally `answer` (a jinja2 template of the facts), `where` (the part of the kit that says more) and `authors` (what only
the authors can say). An item whose answer is empty is left to the authors.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Checklist:
    """A checklist: the name of its files, its title and its source."""

    name: str
    title: str
    citation: str
    note: str


_NOTE = "The wording of the items is shortened; the publication has the full text."
CHECKLISTS = (
    Checklist(
        "claim2024",
        "CLAIM 2024 checklist",
        "Tejani AS, Klontzas ME, Gatti AA, et al. Checklist for Artificial Intelligence in Medical Imaging (CLAIM): 2024 "
        "Update. Radiology: Artificial Intelligence 2024;6(4):e240300. doi:10.1148/ryai.240300.",
        _NOTE,
    ),
    Checklist(
        "tripod-ai",
        "TRIPOD+AI checklist",
        "Collins GS, Moons KGM, Dhiman P, et al. TRIPOD+AI statement: updated guidance for reporting clinical prediction "
        "models that use regression or machine learning methods. BMJ 2024;385:e078378. doi:10.1136/bmj-2023-078378.",
        _NOTE,
    ),
)


@cache
def read_items(checklist: Checklist) -> list[dict[str, Any]]:
    """Return the items of a checklist in their order."""
    text = Path(__file__).with_name("templates").joinpath(f"{checklist.name}.toml").read_text(encoding="utf-8")
    items: list[dict[str, Any]] = tomllib.loads(text)["item"]
    return items
