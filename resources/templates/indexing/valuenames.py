"""The names of the numbers in masks, from an option or a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from labelling import pairs, there

BACKGROUND = ("background", "bg", "0", "clear label", "unlabelled", "unlabeled", "unknown")


def value_names(text: str) -> dict[int, str]:
    """Names by value, from `1=a,2=b` or a file: a JSON list (from 1 on), a JSON object, or lines `1 name ...`.

    Raises:
        SystemExit: the file holds nothing of the kind.
    """
    if not text:
        return {}
    if "=" in text and not Path(text).exists():
        given = pairs(text)
        if bad := [value for value in given if not value.isdecimal()]:
            raise SystemExit(f"--values: {bad[0]!r} is no whole number; write 1=liver,2=spleen.")
        return {int(value): name for value, name in given.items() if int(value)}
    file = there(Path(text))
    raw = file.read_text(encoding="utf-8-sig", errors="replace")
    if file.suffix.lower() == ".json":
        try:
            found = _from_json(json.loads(raw))
        except (ValueError, RecursionError) as error:
            raise SystemExit(f"{file} is not valid JSON: {error}.") from None
    else:
        found = {
            int(m[1]): m[2] for line in raw.splitlines() if (m := re.match(r"\s*(\d+)[\s,;:=\t]+\"?([^\s,;\"]+)", line))
        }
    if not found:
        raise SystemExit(f"{file} names no values: it must hold a list of names, names by number, or lines `1 name`.")
    return {value: name for value, name in found.items() if value and name.lower() not in BACKGROUND}


def _from_json(value: Any) -> dict[int, str]:
    """A list of names, `{"1": name}`, `{name: 1}`, or an object that holds one of these as `labels` or `classes`."""
    if isinstance(value, list):
        names = [str(item.get("name", "")) if isinstance(item, dict) else str(item) for item in value]
        start = 0 if names and names[0].lower() in BACKGROUND else 1
        return dict(enumerate(names, start))
    if not isinstance(value, dict):
        return {}
    for key in ("labels", "label_dict", "classes", "names"):
        if isinstance(value.get(key), (list, dict)):
            return _from_json(value[key])
    if value and all(str(key).isdecimal() for key in value):
        return {int(key): str(name) for key, name in value.items()}
    return {int(number): str(name) for name, number in value.items() if isinstance(number, int) and number >= 0}
