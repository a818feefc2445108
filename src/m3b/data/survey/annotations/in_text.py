"""YOLO: a text file an image, a line a box (or outline): a class number and fractions of the image's sides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from m3b.data.survey.annotations.marks import Marks, numbers
from m3b.data.survey.annotations.outline import DrawnOutline, Point, rectangle
from m3b.data.survey.gathering import Gathered, Gathering

_SAMPLE = 12
_MOST = 50_000
_NAMES = re.compile(r"(?ms)^names\s*:\s*(\[[^\]]*\]|(?:\s*(?:-|\d+\s*:)\s*[^\n]+\n?)+)")


def find(found: Gathering) -> Iterator[Marks]:
    """Groups of text files whose lines are all class numbers with fractions."""
    for group in found.groups:
        if group.fact.kind == "text" and group.merged.count >= 2 and _is_yolo(found, group):
            yield _yolo(found, group)


def _is_yolo(found: Gathering, group: Gathered) -> bool:
    step = max(group.merged.count // _SAMPLE, 1)
    rows = [row for path in group.paths[::step][:_SAMPLE] for row in lines(found, path)]
    return bool(rows) and all(row is not None for row in rows)


def lines(found: Gathering, path: str) -> list[tuple[int, list[float]] | None]:
    """(class, fractions) of every line of one file; None for a line that is none such."""
    try:
        with (found.tree.root / path).open("rb") as file:
            text = file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return []
    return [_line(line) for line in text.splitlines() if line.strip()]


def _line(line: str) -> tuple[int, list[float]] | None:
    cells = line.split()
    values = numbers(cells)
    if values is None or len(values) < 5 or not cells[0].isdigit():
        return None
    return (int(cells[0]), values[1:]) if all(-0.01 <= value <= 1.01 for value in values[1:]) else None


def outlines(text: str, named: str, size: tuple[int, int]) -> Iterator[DrawnOutline]:
    """The marks of one image's file; classes are numbers.

    Args:
        size: rows and columns of the image.

    Raises:
        ValueError: a line is no class with fractions.
    """
    yield DrawnOutline(named)
    for line in text.splitlines():
        if not line.strip():
            continue
        if (row := _line(line)) is None:
            raise ValueError(f"a line holds no class and fractions of an image: {line[:60]!r}")
        number, values = row
        box = len(values) in (4, 5)  # a fifth is a score
        corners = _corners(values) if box else list(zip(values[::2], values[1::2], strict=False))
        yield DrawnOutline(named, str(number), tuple((x * size[1], y * size[0]) for x, y in corners), not box)


def _corners(values: Sequence[float]) -> Sequence[Point]:
    x, y, wide, high = values[:4]
    return rectangle((x - wide / 2, y - high / 2), (x + wide / 2, y + high / 2))


def _yolo(found: Gathering, group: Gathered) -> Marks:
    marks = Marks("yolo", group.paths[0], group.merged.count, group=group.id, exact=group.merged.count <= _MOST)
    names, marks.class_source = class_names(found)
    counts = Counter[int]()
    for path in group.paths[:_MOST]:
        if found.tree.late:
            marks.exact = False
            break
        rows = [row for row in lines(found, path) if row is not None]
        counts.update(number for number, _ in rows)
        marks.marked += bool(rows)
        for _, values in rows:
            marks.shapes.add("box" if len(values) in (4, 5) else "polygon")
            marks.faults["no_area"] += len(values) in (4, 5) and min(values[2:4]) <= 0
    for number, count in counts.items():
        marks.numbers[str(number)] = names[number] if number < len(names) else str(number)
        marks.classes[marks.numbers[str(number)]] += count
        marks.faults["unknown_class"] += count if names and number >= len(names) else 0
    marks.items = counts.total()
    marks.named = list(group.paths)
    return marks


def class_names(found: Gathering) -> tuple[list[str], str]:
    """The names of class numbers, from a list of classes or a data file with `names:`; and where they stand."""
    for group in found.groups:
        for path in group.paths[:200] if group.merged.count <= 200 else ():
            name = path.rpartition("/")[2].lower()
            if name.endswith((".yaml", ".yml")) or name in ("classes.txt", "obj.names", "names.txt", "classes.names"):
                text = _start(found, path)
                names = _in_yaml(text) if name.endswith(("yaml", "yml")) else text.split("\n")
                if names := [one.strip() for one in names if one.strip()]:
                    return names, path
    return [], ""


def _start(found: Gathering, path: str) -> str:
    try:
        with (found.tree.root / path).open("rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return ""


def _in_yaml(text: str) -> list[str]:
    match = _NAMES.search(text + "\n")
    if not match:
        return []
    listed = match[1].strip()
    if listed.startswith("["):
        return [one.strip().strip("'\"") for one in listed.strip("[]").split(",")]
    return [re.sub(r"^\s*(-|\d+\s*:)\s*", "", line).strip().strip("'\"") for line in listed.splitlines()]
