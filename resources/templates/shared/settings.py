"""plan.json: `--set key=value` of every plan.py, and how it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LATER = ("max_steps",)
"""Keys that training knows and that a plan may lack."""


def override(plan: dict[str, Any], setting: str) -> None:
    """`network.name=resnet18`: JSON where it parses, text where it does not. Ends the program for an unknown key."""
    key, sign, text = setting.partition("=")
    *path, last = key.split(".")
    place: Any = plan
    for part in path:
        place = place.get(part) if isinstance(place, dict) else None
    known = isinstance(place, dict) and (bool(path) or last in plan or last in LATER)
    if not sign or not known:
        raise SystemExit(f"--set {setting}: not KEY=VALUE with a key of plan.json ({', '.join(plan)})")
    try:
        place[last] = json.loads(text)
    except json.JSONDecodeError:
        place[last] = text


def save_plan(plan: Mapping[str, Any], file: Path = Path("plan.json")) -> None:
    """Writes the plan for people: a setting a line, lists of numbers on theirs."""
    text = json.dumps(plan, indent=2, ensure_ascii=False)
    numbers = re.compile(r"\[\n[^\[\]{}\"]*\]")
    file.write_text(numbers.sub(lambda found: f"[{' '.join(found[0][1:-1].split())}]", text) + "\n", encoding="utf-8")
