"""Tables as text, as CSV, LaTeX and chart files, and as one self-contained HTML page."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from m3b.report.markup import Html, join, tag
from m3b.report.markup import table as html_table
from m3b.writing import csv_cell, replace_text

from .tables import ResultTable

Bar = tuple[str, float, float | None, float | None]


def as_text(tables: Sequence[ResultTable]) -> str:
    """Plain aligned tables, for terminals and logs."""
    parts = []
    for one in tables:
        whole = (one.head, *one.rows)
        widths = [max(len(row[at]) for row in whole) for at in range(len(one.head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in whole
        ]
        parts.append("\n".join([one.title, *lines, *one.notes]))
    return "\n\n".join(parts)


def as_csv(table: ResultTable) -> str:
    """One table as CSV with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([csv_cell(cell) for cell in row] for row in (table.head, *table.rows))
    return out.getvalue()


def write_files(tables: Sequence[ResultTable], folder: Path) -> list[Path]:
    """A CSV file a table, and `bench.html`; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in tables:
        replace_text(folder / f"{one.name}.csv", as_csv(one))
        written.append(folder / f"{one.name}.csv")
    replace_text(folder / "bench.html", as_html(tables))
    return [*written, folder / "bench.html"]


def write_report(tables: Sequence[ResultTable], folder: Path) -> list[Path]:
    """Everything that a paper's section needs: CSV, HTML, a LaTeX file a table, pgfplots and SVG figures, `section.tex`.

    Returns what was written.
    """
    from .latex import as_latex, as_pgfplots, section

    written = write_files(tables, folder)
    texts = {f"{one.name}.tex": as_latex(one) for one in tables}
    texts |= {f"{one.name}_figure.tex": as_pgfplots(one) for one in tables if one.bars}
    texts |= {f"{one.name}_figure.svg": _alone(bars(one.title, one.bars)) for one in tables if one.bars}
    texts["section.tex"] = section(tables)
    for name, text in texts.items():
        replace_text(folder / name, text)
    return [*written, *(folder / name for name in texts)]


def _alone(figure: Html) -> str:
    """A chart as an SVG file of its own, with the page's colours."""
    svg = str(figure).removeprefix("<figure>").removesuffix("</figure>")
    style = "text{font:13px sans-serif}.label,.tick{fill:#333}.fill0{fill:#3566a8}.grid{stroke:#ddd}.axis{stroke:#111}"
    start = svg.index(">") + 1
    head = svg[:start].replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{head}<style>{style}</style>{svg[start:]}\n"


def as_html(tables: Sequence[ResultTable]) -> str:
    """One page: no script, nothing loaded from elsewhere."""
    css = resources.files("m3b.report").joinpath("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", "M3Bench"),
        Html(f"<style>{css}</style>"),
    ]
    sections = [_section(one) for one in tables]
    body = tag("body", tag("header", tag("h1", "M3Bench")), tag("main", *sections))
    return f"<!doctype html>\n{tag('html', tag('head', *head), body, lang='en')}\n"


def _section(one: ResultTable) -> Html:
    notes = [tag("p", note, class_="quiet") for note in one.notes]
    chart = bars(one.title, one.bars) if one.bars else None
    inside = join(tag("h2", one.title, id=one.name), chart, html_table(one.head, one.rows), *notes)
    return tag("section", inside, aria_labelledby=one.name)


def bars(title: str, rows: Sequence[Bar]) -> Html:
    """Shares from 0 to 1 as bars with their intervals."""
    wide, high, left = 640, 30 * len(rows) + 34, 240
    scale = wide - left - 20

    def at(share: float) -> float:
        return left + scale * min(max(share, 0.0), 1.0)

    drawn: list[object] = [tag("title", f"{title}: {', '.join(name for name, *_ in rows)}")]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = f"{at(tick):.1f}"
        drawn.append(tag("line", x1=x, x2=x, y1=4, y2=high - 24, class_="grid"))
        drawn.append(tag("text", f"{100 * tick:.0f} %", x=x, y=high - 8, text_anchor="middle", class_="tick"))
    for place, (name, share, low, top) in enumerate(rows):
        y = 8 + 30 * place
        shown = name if len(name) <= 36 else f"{name[:35]}…"
        drawn.append(tag("text", shown, x=left - 8, y=y + 14, text_anchor="end", class_="label"))
        width = f"{max(at(share) - left, 1):.1f}"
        drawn.append(
            tag(
                "rect",
                tag("title", f"{name}: {100 * share:.1f} %"),
                x=left,
                y=y,
                width=width,
                height=18,
                class_="fill0",
            )
        )
        if low is not None and top is not None:
            middle = y + 9
            drawn.append(tag("line", x1=f"{at(low):.1f}", x2=f"{at(top):.1f}", y1=middle, y2=middle, class_="axis"))
    svg = tag("svg", *drawn, viewBox=f"0 0 {wide} {high}", role="img", aria_label=title, class_="chart")
    return tag("figure", svg)
