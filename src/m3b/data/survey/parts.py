"""The pieces of a group's paths that vary, typed, with their values."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median

from m3b.data.phi import is_personal
from m3b.data.survey.facts import PathPart, Value
from m3b.data.survey.kinds import cut
from m3b.data.survey.templates import MAX_VALUES, Slot, Template, group_name

MAX_PATHS = 20_000
"""Of more paths in a group, so many spread evenly are looked at for their parts."""
FEW_PATHS = 2_000
"""The same for folders of more than `LARGE` files."""
LARGE = 100_000


def values_of(template: Template, paths: Sequence[str]) -> dict[str, list[str | None]]:
    """For each slot its value in every path, None where a path has none."""
    expression = re.compile(template.pattern())
    slots = [slot.name for slot in template.slots()]
    found: dict[str, list[str | None]] = {slot: [] for slot in slots}
    for path in paths:
        match = expression.fullmatch(path)
        for slot in slots:
            found[slot].append(match[group_name(slot)] if match else None)
    return found


def parts_of(template: Template, paths: Sequence[str], values: dict[str, list[str | None]]) -> tuple[PathPart, ...]:
    """The facts of every varying piece."""
    parts = []
    for slot in template.slots():
        texts = [text for text in values[slot.name] if text is not None]
        if len(set(texts)) > 1:
            parts.append(_part(slot, texts, paths, values))
    return tuple(parts)


def _part(slot: Slot, texts: list[str], paths: Sequence[str], values: dict[str, list[str | None]]) -> PathPart:
    counts = Counter(texts)
    few = len(counts) <= MAX_VALUES
    numbers = [int(text) for text in counts if text.isdigit() and len(text) < 19]
    widths = {len(text) for text in counts}
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: MAX_VALUES if few else 10]
    return PathPart(
        slot=slot.name,
        kind=slot.kind,
        before=slot.before,
        distinct=len(counts),
        values=tuple(Value(text=text, count=count) for text, count in sorted(shown)),
        width=widths.pop() if slot.kind == "number" and len(widths) == 1 else None,
        low=min(numbers) if slot.kind == "number" and numbers else None,
        high=max(numbers) if slot.kind == "number" and numbers else None,
        crossing=crossing(paths, values[slot.name], slot.name) if few and len(values) > 1 else None,
        sensitive="identity" if is_personal(slot.before, list(counts)[:50]) or _names_people(slot, counts) else "",
    )


def _names_people(slot: Slot, counts: Counter[str]) -> bool:
    """Whether free words could be persons' names: two or three capitalised words, and nothing else."""
    if slot.kind != "text":
        return False
    like = sum(1 for text in counts if re.fullmatch(r"[A-Z][a-z]+[ _^,-]+[A-Z][a-z]+([ _^-][A-Z][a-z]*)?", text))
    return 2 * like > len(counts)


def crossing(paths: Sequence[str], values: Sequence[str | None], slot: str) -> float:
    """The share of paths, with one piece taken out, that occur with more than one value of it."""
    rest: dict[str, set[str]] = defaultdict(set)
    level = int(slot[5:].split(".")[0]) if slot.startswith("level") else -1
    for path, value in zip(paths, values, strict=True):
        if value is None:
            continue
        pieces_of = path.split("/")
        pieces_of[level] = pieces_of[level].replace(value, "\0", 1)
        if level == -1:
            pieces_of[-1] = cut(pieces_of[-1])[0]
        elif len(value) >= 3:
            pieces_of[-1] = cut(pieces_of[-1].replace(value, "\0", 1))[0]
        else:
            pieces_of[-1] = cut(pieces_of[-1])[0]
        rest["/".join(pieces_of)].add(value)
    return round(sum(1 for some in rest.values() if len(some) > 1) / max(len(rest), 1), 3)


def sizes(counts: Sequence[int]) -> tuple[int, int, int]:
    """Least, median and most."""
    return min(counts), int(median(counts)), max(counts)
