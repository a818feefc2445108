"""The documents of a paper kit, as blocks, and their text as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined

from m3b.markup.latex import escape_latex
from m3b.models.model_card import escape_markdown
from m3b.report.paper.characteristics import COLUMNS
from m3b.report.paper.checklists import CHECKLISTS, Checklist, read_items
from m3b.report.paper.facts import MetricRow, PaperFacts

UNKNOWN = "–"
AUTHORS_PREFIX = "to be filled by the authors"
_PACKAGE_TITLES = {"python": "Python", "torch": "PyTorch", "monai": "MONAI", "numpy": "NumPy",
                   "transformers": "Transformers", "accelerate": "Accelerate"}  # fmt: skip
_COLUMN_TITLES = {"train": "Training", "test": "Testing", "all": "All"}


@dataclass(frozen=True)
class Heading:
    """A heading within a document."""

    text: str
    kind: str = "heading"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str
    kind: str = "paragraph"


@dataclass(frozen=True)
class Table:
    """A table; `columns` is its LaTeX column specification."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    columns: str
    kind: str = "table"


Block = Heading | Paragraph | Table


@dataclass(frozen=True)
class Document:
    """One document of the kit, which is written as Markdown and as LaTeX."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


@dataclass(frozen=True)
class ItemAnswer:
    """An item of a checklist with what the run says about it.

    Args:
        answer: text from facts; empty if the run says nothing.
        request: what the authors have to add; empty if nothing.
    """

    number: str
    section: str
    wording: str
    location: str
    answer: str
    request: str


def format_request(text: str) -> str:
    """Return the placeholder for something that only the authors know."""
    return f"[{AUTHORS_PREFIX}: {text}]"


# --- content -------------------------------------------------------------------------------------------------------


def build_documents(facts: PaperFacts) -> dict[str, Document]:
    """Return the documents by file name without suffix."""
    documents = {
        "methods": Document("Methods", (*_render_prose("methods", facts), *_build_settings(facts))),
        "table1": Document("Characteristics", (_build_table1(facts),)),
        "results": Document("Results", (*_render_prose("results", facts), *_build_result_tables(facts))),
    }
    for checklist in CHECKLISTS:
        documents[checklist.name] = _build_checklist(checklist, answer_items(checklist, facts))
    return documents


def _render_prose(name: str, facts: PaperFacts) -> list[Block]:
    """Return the paragraphs of a prose template; lines that begin with `# ` are headings."""
    # here a line that holds only a block of jinja2 still separates two paragraphs
    environment = _make_environment().overlay(trim_blocks=False, lstrip_blocks=False)
    text = environment.get_template(f"{name}.txt.j2").render(**_make_context(facts))
    blocks: list[Block] = []
    for part in re.split(r"\n\s*\n", text):
        line = " ".join(part.split())
        if line.startswith("# "):
            blocks.append(Heading(line.removeprefix("# ")))
        elif line:
            blocks.append(Paragraph(line))
    return blocks


def _make_context(facts: PaperFacts) -> dict[str, object]:
    grouped_units = "the groups of cases that were kept together" if "data.grouped_by" in facts else "cases"
    return {
        "resampled_units": "patients" if "patients.all" in facts else grouped_units,
        "primary_name": facts.facts["selection.metric"].value,
        "f": facts.text_of,
        "has": facts.__contains__,
        "below": facts.names_below,
        "ask": format_request,
        "packages": _PACKAGE_TITLES,
        "metric_rows": facts.metric_rows,
        "subgroup_rows": facts.subgroup_rows,
        "external_rows": facts.external_rows,
    }


def _build_settings(facts: PaperFacts) -> list[Block]:
    rows = [(name.removeprefix("plan."), facts.text_of(name)) for name in facts.setting_names]
    caption = "Settings of the training (plan of the training project)"
    return [Table(caption, ("Setting", "Value"), rows, r"p{0.4\linewidth}p{0.5\linewidth}")] if rows else []


def _build_table1(facts: PaperFacts) -> Table:
    rows = []
    for row in facts.characteristics:
        cells = [
            facts.facts[f"{row.name}.{column}"].text if f"{row.name}.{column}" in facts else "" for column in COLUMNS
        ]
        rows.append((row.title, *([cell or UNKNOWN for cell in cells] if row.cells else cells)))
    header = ("Characteristic", *(_COLUMN_TITLES[column] for column in COLUMNS))
    return Table("Characteristics of the cases by partition", header, rows, r"p{0.34\linewidth}rrr")


def _build_result_tables(facts: PaperFacts) -> list[Block]:
    tables: list[Block] = []
    for caption, first_title, rows in (
        ("Metrics on the test cases", "", facts.metric_rows),
        ("Metrics by class", "Class", facts.class_rows),
        ("Primary metric by subgroup", "Subgroup", facts.subgroup_rows),
        ("Metrics on external data", "Data", facts.external_rows),
    ):
        if rows:
            tables.append(_build_metric_table(caption, first_title, rows, facts))
    if confusion := _build_confusion_table(facts):
        tables.append(confusion)
    return tables


def _build_metric_table(caption: str, first_title: str, rows: Sequence[MetricRow], facts: PaperFacts) -> Table:
    def get(name: str) -> str:
        return facts.text_of(name) if name in facts else UNKNOWN

    header = ["Metric", "Value", f"{facts.text_of('statistics.interval')}% CI", "Cases", "Baseline"]
    body = [
        [row.title, *(get(f"{row.prefix}.{key}") for key in ("value", "interval", "n", "baseline"))] for row in rows
    ]
    if not first_title:
        return Table(caption, header, body, r"p{0.34\linewidth}rrrr")
    grouped_body = [[get(f"{row.prefix}.group"), *cells] for row, cells in zip(rows, body, strict=True)]
    return Table(caption, [first_title, *header], grouped_body, r"p{0.2\linewidth}p{0.24\linewidth}rrrr")


def _build_confusion_table(facts: PaperFacts) -> Table | None:
    """Return the confusion matrix if the classes are exclusive."""
    names = facts.facts["data.classes"].value if "data.classes" in facts else []
    if "confusion.0.0" not in facts or f"confusion.{len(names) - 1}.{len(names) - 1}" not in facts:
        return None
    rows = [
        [f"Reference {name}", *(facts.text_of(f"confusion.{row}.{column}") for column in range(len(names)))]
        for row, name in enumerate(names)
    ]
    header = ["", *(f"Predicted {name}" for name in names)]
    width = f"p{{{0.7 / len(header):.2f}\\linewidth}}"
    return Table("Confusion matrix of the test cases", header, rows, width * len(header))


# --- checklists ----------------------------------------------------------------------------------------------------


def answer_items(checklist: Checklist, facts: PaperFacts) -> list[ItemAnswer]:
    """Return every item of a checklist with its answer from the facts, and what the authors have to add."""
    context = _make_context(facts)
    answers = []
    for item in read_items(checklist):
        answer = " ".join(_make_environment().from_string(item.get("answer", "")).render(**context).split())
        answers.append(
            ItemAnswer(
                item["number"], item["section"], item["wording"], item.get("where", "") if answer else "", answer,
                item.get("authors", "") or ("" if answer else item["wording"]),
            )
        )  # fmt: skip
    return answers


def _build_checklist(checklist: Checklist, answers: Sequence[ItemAnswer]) -> Document:
    rows = []
    for item in answers:
        text = " ".join(filter(None, [item.answer, format_request(item.request) if item.request else ""]))
        rows.append((item.number, f"{item.section}: {item.wording}", item.location or UNKNOWN, text))
    columns = r"p{0.06\linewidth}p{0.24\linewidth}p{0.14\linewidth}p{0.42\linewidth}"
    table = Table(checklist.title, ("Item", "Subject", "Where", "Text"), rows, columns)
    return Document(checklist.title, (Paragraph(f"{checklist.citation} {checklist.note}"), table))


# --- rendering -----------------------------------------------------------------------------------------------------


@cache
def _make_environment() -> Environment:
    environment = Environment(  # nosec B701  # Markdown and LaTeX: each value passes the filter of its format below
        loader=PackageLoader("m3b.report.paper", "templates"), undefined=StrictUndefined, autoescape=False,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters.update(
        md=escape_markdown, tex=escape_latex,
        md_cell=partial(_render_cell, escape_markdown, "&emsp;"),
        tex_cell=partial(_render_cell, escape_latex, r"\quad "),
    )  # fmt: skip
    return environment


def _render_cell(escape: Callable[[str], str], indent: str, text: str) -> str:
    """Return a table cell; two leading spaces become an indent."""
    return (indent if text.startswith("  ") else "") + escape(text.strip())


def render_markdown(document: Document) -> str:
    text = _make_environment().get_template("document.md.j2").render(document=document)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def render_latex(document: Document) -> str:
    text = _make_environment().get_template("document.tex.j2").render(document=document)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def render_main_latex(parts: Sequence[str]) -> str:
    """Return a LaTeX document that inputs the parts."""
    return _make_environment().get_template("paper.tex.j2").render(parts=parts)
