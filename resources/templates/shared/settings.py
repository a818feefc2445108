"""`--set key=value` of every plan.py."""

from __future__ import annotations

import json
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
