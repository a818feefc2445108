"""What the values in masks are called: from a file of names, from the card's words, and which of them are wanted."""

from __future__ import annotations

import re

from m3b.llm.rules.view import View
from m3b.llm.rules.words import EVERYTHING, LESIONS, STOP, folded, words

_NAME = r"[A-Za-z][A-Za-z0-9 _&/-]*?"
_END = r"(?=\s*[,;.()\n]|\s+and\s+\d|$)"


def value_options(view: View) -> list[str]:
    """`--values` and `--classes`, as far as files and card tell."""
    file, names = listed_names(view)
    card = view.part(r"## Data card\n(.*?)(?:\n\n## Preview of |\Z)")
    told = told_names(card)
    if names:
        values = dict(enumerate(names, 1))
        wrong = {value: name for value, name in told.items() if name in names and values.get(value) != name}
        if wrong:
            moved = set(wrong.values())
            told = {value: name for value, name in values.items() if name not in moved} | wrong
            return ["--values", _written(told), *_chosen(list(told.values()), view)]
        return ["--values", file, *_chosen(names, view)]
    if file:
        return ["--values", file]
    if told:
        return ["--values", _written(told), *_chosen(list(told.values()), view)]
    return ["--values", f"1={found}"] if (found := _sought(view)) else []


def _sought(view: View) -> str:
    """What a request wants found, in one word, where the masks shown have one value only."""
    values = re.findall(r"^  range .*; values (.+)$", view.briefing, re.MULTILINE)
    if any(line.count(" x ") > 2 for line in values):
        return ""
    known = [word for word in sorted(words(view.request)) if folded(word) in LESIONS]
    return folded(known[0]) if len(known) == 1 else ""


def _written(values: dict[int, str]) -> str:
    return ",".join(f"{value}={name}" for value, name in sorted(values.items()))


def listed_names(view: View) -> tuple[str, list[str]]:
    """A JSON file that is a list of names, with the names; or a file that is called like one."""
    for head in re.finditer(
        r"^(data/\S.*?\.json): .*JSON: list of [\d,]+ items?\n((?:  .*\n?)+)", view.briefing, re.MULTILINE
    ):
        items = re.search(r"^    all items, in order: (.+)$", head.group(2), re.MULTILINE)
        if items:
            return head.group(1), [name.strip() for name in items.group(1).split(", ")]
    named = re.search(
        r"^(data/\S.*?/(?:labels?|classes|label_names|label_map)\.(?:json|txt|csv)): ", view.briefing, re.MULTILINE
    )
    return (named.group(1), []) if named else ("", [])


def told_names(card: str) -> dict[int, str]:
    """Values named in words: `1 liver, 2 spleen`, `0: background; 1: anterior`, `28 is T13`, `1-7 are C1-C7`."""
    text = card.replace("`", "")
    found: dict[int, str] = {}
    for low, high, stem, first, last in re.findall(r"\b(\d+)-(\d+) (?:are )?([A-Za-z]+)(\d+)-\3?(\d+)\b", text):
        if int(high) - int(low) == int(last) - int(first):
            found |= {int(low) + at: f"{stem}{int(first) + at}" for at in range(int(high) - int(low) + 1)}
    found |= {int(value): name for value, name in re.findall(r"\b(\d{1,3}) is ([A-Z][A-Za-z0-9]+)\b", text)}
    runs = [run for run in _runs(text) if len(run) > 1]
    longest = max(runs, key=len, default={})
    return found | {value: name for value, name in longest.items() if value and value not in found}


def _runs(text: str) -> list[dict[int, str]]:
    """Every enumeration `n name, n+1 name, ...` of a text."""
    runs: list[dict[int, str]] = []
    end = -1
    for item in re.finditer(rf"\b(\d{{1,3}})\s*(?:[:=]|=>)?\s*({_NAME}){_END}", text):
        value, name = int(item.group(1)), item.group(2).strip()
        between = text[end : item.start()] if end >= 0 else "x"
        follows = bool(runs) and value == max(runs[-1]) + 1 and re.fullmatch(r"[\s,;.()]*(?:and )?", between)
        if follows:
            runs[-1][value] = name
            end = item.end()
        elif value in (0, 1):
            runs.append({value: name})
            end = item.end()
    return [{v: n for v, n in run.items() if n.lower() != "background"} for run in runs]


def _chosen(names: list[str], view: View) -> list[str]:
    """`--classes` where a request for a segmentation names some of many classes, and nothing that means all of them."""
    asked = words(view.request) - STOP
    if view.task != "segmentation" or len(names) < 4 or words(view.request) & EVERYTHING:
        return []
    hits = [name for name in names if _speaks_of(asked, name)]
    return ["--classes", "|".join(hits)] if 0 < len(hits) < len(names) else []


def _speaks_of(asked: set[str], name: str) -> bool:
    """Whether the words that matter of a name are in a request, in the singular or the plural."""
    sides = {"left", "right", "upper", "lower", "and", "of"}
    parts = words(name) - sides
    return bool(parts) and {folded(part) for part in parts} <= {folded(word) for word in asked}
