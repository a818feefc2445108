"""Reading the preview of a folder with reports: tables with texts, XML files, text files."""

from __future__ import annotations

import re

from m3b.llm.rules.halves import halves
from m3b.llm.rules.preview import of_kind, patterns
from m3b.llm.rules.tables import Column, Table, image_column, patient_column, split_column, tables
from m3b.llm.rules.view import View
from m3b.llm.rules.words import rank

FINDINGS = (
    "findings",
    "finding",
    "findings_en",
    "report",
    "reports",
    "report_text",
    "text",
    "befund",
    "caption",
    "narrative",
)
IMPRESSION = (
    "impression",
    "impressions",
    "impressions_en",
    "conclusion",
    "conclusions",
    "summary",
    "beurteilung",
    "opinion",
)
STUDIES = ("study", "study_id", "studyid", "uid", "accession", "exam_id", "examid", "report_id")
NO_TEXT = ("Not given.", "not given")


def report_attempts(view: View, root: str) -> list[list[str]]:
    """Options for every reading of a layout with reports, most likely first."""
    listed = tables(view.briefing)
    by_path = {table.path: table for table in listed if text_columns(table)}
    found = []
    for train, test in halves(list(by_path)):
        found += _of_table(by_path[train], test, listed, root, view)
    places = patterns(view.preview)
    for option, ending in (("--xml", ".xml"), ("--texts", ".txt")):
        for place in of_kind(places, ending):
            found.append([option, f"{root}/{place}".rstrip("/"), "--images", root])
    return [*found, *[[*one, "--ignore-split"] for one in found]]


def text_columns(table: Table) -> dict[str, Column]:
    """Columns that hold findings and impressions: called so, and with more than a few different texts."""
    found: dict[str, Column] = {}
    for key, known in (("--findings", FINDINGS), ("--impression", IMPRESSION)):
        named = [
            (place, at)
            for at, one in enumerate(table.columns)
            if (place := rank(one.name, known)) is not None and _is_text(one)
        ]
        if named and (column := table.columns[min(named)[1]]) not in found.values():
            found[key] = column
    return found


def _is_text(column: Column) -> bool:
    """Whether its values are sentences rather than names."""
    shown = [*column.values, *column.samples]
    return column.kind == "text" and (column.distinct > 20 or any(len(text.split()) >= 4 for text in shown))


def _of_table(table: Table, test: str, listed: list[Table], root: str, view: View) -> list[list[str]]:
    texts = [part for key, column in text_columns(table).items() for part in (key, column.name)]
    empty = next((["--empty", text] for text in NO_TEXT[:1] if text in view.briefing.split("## Records of")[0]), [])
    image = _image_column(table)
    if image is None:
        return _joined(table, texts, listed, root, empty)
    options = ["--table", table.path, *(["--test-table", test] if test else []), "--image", image.name, *texts]
    options += ["--images", root, *empty, *_people(table, image)]
    study = _study(table)
    if study is None:
        return [[*options, "--study-regex", "auto"], options]
    return [[*options, "--study", study.name]]


def _image_column(table: Table) -> Column | None:
    texts = {column.name for column in text_columns(table).values()}
    rest = tuple(column for column in table.columns if column.name not in texts)
    return image_column(Table(table.path, table.rows, rest))


def _people(table: Table, image: Column) -> list[str]:
    patient, split = patient_column(table, image), split_column(table)
    options = ["--patient", patient.name] if patient else []
    return options + (["--split-column", split.name] if split else [])


def _study(table: Table) -> Column | None:
    ranked = [(place, at) for at, one in enumerate(table.columns) if (place := rank(one.name, STUDIES)) is not None]
    column = table.columns[min(ranked)[1]] if ranked else None
    return column if column is not None and column.distinct < table.rows else None


def _joined(table: Table, texts: list[str], listed: list[Table], root: str, empty: list[str]) -> list[list[str]]:
    """Reports in one table, images in another, with a column that both have."""
    found = []
    own = {column.name for column in table.columns}
    for other in listed:
        image = image_column(other)
        if other.path == table.path or image is None or not image.names_files:
            continue
        shared = [column for column in other.columns if column.name in own and column.name != image.name]
        keys = [column for column in shared if column.distinct >= 0.5 * table.rows]
        if keys:
            key = keys[0]
            options = ["--table", other.path, "--join", table.path, "--on", key.name, "--image", image.name, *texts]
            found.append([*options, "--images", root, "--study", key.name, "--patient", key.name, *empty])
    return found


def has_reports(text: str) -> bool:
    """Whether a preview shows anything that may hold reports."""
    if any(text_columns(table) for table in tables(text)):
        return True
    listed = patterns(text)
    names = re.search(r"report|findings|radiology_text|impression|befund", text, re.IGNORECASE)
    return any(of_kind(listed, ending) for ending in (".xml", ".txt")) or bool(
        names and re.search(r"\.(csv|jsonl?)\b", text)
    )
