"""Output of result tables as text, CSV, LaTeX, charts, and one self-contained HTML page."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from m3b.bench.tables import ResultTable
from m3b.markup.html import Html, join_html, tag
from m3b.markup.html import table as html_table
from m3b.writing import csv_cell, write_text_atomically

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_MAX_UPRIGHT_COLUMNS = 5
"""Tables with more columns are rotated and scaled to the width of the page."""


def escape_latex(text: str) -> str:
    """Return text with LaTeX's special characters escaped; characters without a glyph in pdfLaTeX become `?`."""
    escaped_text = "".join(_ESCAPES.get(character, character) for character in text)
    return "".join(character if character.isascii() and character.isprintable() else "?" for character in escaped_text)


def to_latex(table: ResultTable) -> str:
    """Return a table as LaTeX float with its notes below. Needs booktabs, graphicx and, for wide tables, rotating."""
    columns = "l" + "r" * (len(table.header) - 1)
    lines = [" & ".join(map(escape_latex, row)) + r" \\" for row in (table.header, *table.rows)]
    tabular = "\n".join(
        [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule",
         r"\end{tabular}"]
    )  # fmt: skip
    is_wide = len(table.header) > _MAX_UPRIGHT_COLUMNS
    environment = "sidewaystable" if is_wide else "table"
    body = f"\\resizebox{{\\linewidth}}{{!}}{{%\n{tabular}}}" if is_wide else tabular
    notes = [rf"\par\smallskip\footnotesize {escape_latex(note)}" for note in table.notes]
    preamble = [
        rf"\begin{{{environment}}}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
    ]
    return "\n".join([*preamble, body, *notes, rf"\end{{{environment}}}", ""])


def to_pgfplots(table: ResultTable) -> str:
    """Return the bars of a table with their intervals as LaTeX figure. Needs pgfplots."""
    labels = ",".join(f"{{{escape_latex(name)}}}" for name, *_ in table.bars)
    points = []
    for row_number, (_, share, low, high) in enumerate(table.bars):
        minus, plus = (0.0, 0.0) if low is None or high is None else (share - low, high - share)
        points.append(f"({100 * share:.2f},{row_number}) +- ({100 * plus:.2f},0) -= ({100 * minus:.2f},0)")
    height = 2 + 0.6 * len(table.bars)
    options = (
        f"xbar, xmin=0, xmax=100, y dir=reverse, width=0.7\\linewidth, height={height:.1f}cm, bar width=6pt, "
        f"xlabel={{completed runs (\\%)}}, ytick={{0,...,{len(table.bars) - 1}}}, yticklabels={{{labels}}}, "
        "yticklabel style={font=\\footnotesize}"
    )
    plot = "\\addplot+[error bars/.cd, x dir=both, x explicit] coordinates {\n" + "\n".join(points) + "\n};"
    return "\n".join(
        [r"\begin{figure}", r"\centering", r"\begin{tikzpicture}", rf"\begin{{axis}}[{options}]", plot, r"\end{axis}",
         r"\end{tikzpicture}", rf"\caption{{{escape_latex(table.title)}, with 95\% intervals}}",
         rf"\label{{fig:{table.name}}}", r"\end{figure}", ""]
    )  # fmt: skip


def to_latex_document(tables: Sequence[ResultTable]) -> str:
    """Return a LaTeX document that inputs all tables and figures; its body can be copied into a paper."""
    preamble = [
        r"\documentclass{article}", r"\usepackage[a4paper, margin=2cm]{geometry}",
        r"\usepackage{booktabs, graphicx, rotating, pgfplots}", r"\pgfplotsset{compat=1.17}", r"\begin{document}",
        r"\section{M3Bench}",
    ]  # fmt: skip
    body = []
    for table in tables:
        body.append(rf"\input{{{table.name}.tex}}")
        if table.bars:
            body.append(rf"\input{{{table.name}_figure.tex}}")
        body.append(r"\clearpage")
    return "\n".join([*preamble, *body, r"\end{document}", ""])


Bar = tuple[str, float, float | None, float | None]


def to_text(tables: Sequence[ResultTable]) -> str:
    """Return aligned plain-text tables, for terminals and logs."""
    parts = []
    for table in tables:
        all_rows = (table.header, *table.rows)
        widths = [max(len(row[column]) for row in all_rows) for column in range(len(table.header))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in all_rows
        ]
        parts.append("\n".join([table.title, *lines, *table.notes]))
    return "\n\n".join(parts)


def to_csv(table: ResultTable) -> str:
    """Return a table as CSV with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([csv_cell(cell) for cell in row] for row in (table.header, *table.rows))
    return out.getvalue()


def write_files(tables: Sequence[ResultTable], folder: Path) -> list[Path]:
    """Write a CSV file for each table, and `bench.html`; return the written files."""
    folder.mkdir(parents=True, exist_ok=True)
    written_files = []
    for table in tables:
        write_text_atomically(folder / f"{table.name}.csv", to_csv(table))
        written_files.append(folder / f"{table.name}.csv")
    write_text_atomically(folder / "bench.html", to_html(tables))
    return [*written_files, folder / "bench.html"]


def write_report(tables: Sequence[ResultTable], folder: Path) -> list[Path]:
    """Write all files for a section of a paper: CSV, HTML, LaTeX tables, pgfplots and SVG figures, and `section.tex`.

    Returns the written files.
    """
    written_files = write_files(tables, folder)
    texts = {f"{table.name}.tex": to_latex(table) for table in tables}
    texts |= {f"{table.name}_figure.tex": to_pgfplots(table) for table in tables if table.bars}
    texts |= {
        f"{table.name}_figure.svg": _to_standalone_svg(draw_bars(table.title, table.bars))
        for table in tables
        if table.bars
    }
    texts["section.tex"] = to_latex_document(tables)
    for name, text in texts.items():
        write_text_atomically(folder / name, text)
    return [*written_files, *(folder / name for name in texts)]


def _to_standalone_svg(figure: Html) -> str:
    """Return a chart as separate SVG file with the colours of the page."""
    svg = str(figure).removeprefix("<figure>").removesuffix("</figure>")
    style = "text{font:13px sans-serif}.label,.tick{fill:#333}.fill0{fill:#3566a8}.grid{stroke:#ddd}.axis{stroke:#111}"
    start = svg.index(">") + 1
    opening_tag = svg[:start].replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{opening_tag}<style>{style}</style>{svg[start:]}\n"


def to_html(tables: Sequence[ResultTable]) -> str:
    """Return one HTML page without scripts and external resources."""
    css = resources.files("m3b.report").joinpath("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head_tags = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", "M3Bench"),
        Html(f"<style>{css}</style>"),
    ]
    sections = [_section(table) for table in tables]
    body = tag("body", tag("header", tag("h1", "M3Bench")), tag("main", *sections))
    return f"<!doctype html>\n{tag('html', tag('head', *head_tags), body, lang='en')}\n"


def _section(table: ResultTable) -> Html:
    notes = [tag("p", note, class_="quiet") for note in table.notes]
    chart = draw_bars(table.title, table.bars) if table.bars else None
    content = join_html(tag("h2", table.title, id=table.name), chart, html_table(table.header, table.rows), *notes)
    return tag("section", content, aria_labelledby=table.name)


def draw_bars(title: str, rows: Sequence[Bar]) -> Html:
    """Return a bar chart of proportions from 0 to 1 with their intervals."""
    chart_width, chart_height, label_width = 640, 30 * len(rows) + 34, 240
    scale = chart_width - label_width - 20

    def to_x(share: float) -> float:
        return label_width + scale * min(max(share, 0.0), 1.0)

    elements: list[object] = [tag("title", f"{title}: {', '.join(name for name, *_ in rows)}")]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = f"{to_x(tick):.1f}"
        elements.append(tag("line", x1=x, x2=x, y1=4, y2=chart_height - 24, class_="grid"))
        elements.append(
            tag("text", f"{100 * tick:.0f} %", x=x, y=chart_height - 8, text_anchor="middle", class_="tick")
        )
    for row_number, (name, share, low_bound, high_bound) in enumerate(rows):
        y = 8 + 30 * row_number
        label = name if len(name) <= 36 else f"{name[:35]}…"
        elements.append(tag("text", label, x=label_width - 8, y=y + 14, text_anchor="end", class_="label"))
        width = f"{max(to_x(share) - label_width, 1):.1f}"
        elements.append(
            tag(
                "rect",
                tag("title", f"{name}: {100 * share:.1f} %"),
                x=label_width,
                y=y,
                width=width,
                height=18,
                class_="fill0",
            )
        )
        if low_bound is not None and high_bound is not None:
            middle = y + 9
            elements.append(
                tag(
                    "line",
                    x1=f"{to_x(low_bound):.1f}",
                    x2=f"{to_x(high_bound):.1f}",
                    y1=middle,
                    y2=middle,
                    class_="axis",
                )
            )
    svg = tag(
        "svg", *elements, viewBox=f"0 0 {chart_width} {chart_height}", role="img", aria_label=title, class_="chart"
    )
    return tag("figure", svg)
