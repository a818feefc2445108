"""Reading the preview of a folder with boxes: COCO and other JSON, tables, YOLO and Pascal VOC files."""

from __future__ import annotations

import re

from m3b.llm.rules.halves import halves
from m3b.llm.rules.preview import Pattern, of_kind, patterns
from m3b.llm.rules.tables import tables
from m3b.llm.rules.view import View
from m3b.llm.rules.words import PATIENT_COLUMNS, rank

CORNERS = ({"x1", "y1", "x2", "y2"}, {"xmin", "ymin", "xmax", "ymax"}, {"x_min", "y_min", "x_max", "y_max"},
           {"x0", "y0", "x1", "y1"}, {"x", "y", "width", "height"}, {"x", "y", "w", "h"})  # fmt: skip
FIELD = re.compile(r"^( +)([^\s:][^:]*): (list|object|text|integer|number|boolean)\b", re.MULTILINE)


def box_attempts(view: View, root: str) -> list[list[str]]:
    """Options for every reading of a layout with boxes, most likely first."""
    found = []
    files = _json_files(view) + _table_files(view)
    for train, test in halves(files):
        options = ["--boxes", train, *(["--test-table", test] if test else []), "--images", root]
        patient = _patient(view, train)
        found.append([*options, *(["--patient", patient] if patient else [])])
    listed = patterns(view.preview)
    for ending in (".txt", ".xml"):
        places = of_kind(listed, ending)
        if places:
            place = _common(list(places))
            found.append(["--boxes", f"{root}/{place}".rstrip("/"), "--images", root])
    return [*found, *[[*one, "--ignore-split"] for one in found]]


def has_boxes(text: str, listed: list[Pattern]) -> bool:
    """Whether a preview shows anything that may hold boxes."""
    coco = re.search(r"^  COCO: .*\bbbox\b", text, re.MULTILINE)
    fields = re.search(r"^ +(?:boxes|bboxes|bbox|bounding_boxes): list", text, re.MULTILINE)
    texts = any(of_kind(listed, ending) for ending in (".txt", ".xml"))
    return bool(coco or fields or texts or _corner_tables(text))


def _json_files(view: View) -> list[str]:
    found = []
    for head, body in _files(view.briefing):
        if re.search(r"^  COCO: .*\bbbox\b", body, re.MULTILINE) or any(
            name in ("boxes", "bboxes", "bbox", "box", "bounding_boxes") for _, name, _ in FIELD.findall(body)
        ):
            found.append(head)
    return found


def _table_files(view: View) -> list[str]:
    return _corner_tables(view.briefing)


def _corner_tables(text: str) -> list[str]:
    return [
        table.path
        for table in tables(text)
        if any(corners <= {column.name.lower() for column in table.columns} for corners in CORNERS)
    ]


def _files(briefing: str) -> list[tuple[str, str]]:
    """Previewed JSON files with what is said of each."""
    heads = list(re.finditer(r"^(data/\S.*?\.json): .*JSON.*$", briefing, re.MULTILINE))
    return [(head.group(1), briefing[head.end() : _end(briefing, head.end())]) for head in heads]


def _end(text: str, start: int) -> int:
    stop = re.compile(r"^(?:data/|## )", re.MULTILINE).search(text, start)
    return stop.start() if stop else len(text)


def _patient(view: View, file: str) -> str:
    """The field of an image's record that names the patient, `a.b` for a field inside another."""
    body = next((text for head, text in _files(view.briefing) if head == file), "")
    above: list[tuple[int, str]] = []
    for indent, name, kind in FIELD.findall(body):
        above = [(depth, outer) for depth, outer in above if depth < len(indent)]
        path = [outer for _, outer in above if outer not in ("each item", "structure")]
        inner = path[1:] if path[:1] == ["images"] else path
        if kind in ("text", "integer") and path[:1] != ["annotations"] and _is_patient(name):
            return ".".join([*inner, name])
        above.append((len(indent), name))
    return ""


def _is_patient(name: str) -> bool:
    place = rank(name, PATIENT_COLUMNS)
    return place is not None and PATIENT_COLUMNS[place % len(PATIENT_COLUMNS)] not in ("uid", "study_id")


def _common(places: list[str]) -> str:
    parts = [place.split("/") for place in places]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "/".join(shared)
