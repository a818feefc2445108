"""Output of result tables as text, CSV, LaTeX, charts, and one self-contained HTML page."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from m3b.bench.tables import ResultTable
from m3b.markup.html import replace_control_characters
from m3b.markup.latex import escape_latex
from m3b.writing import csv_cell, to_one_line, write_text_atomically

_MAX_UPRIGHT_COLUMNS = 5
"""Tables with more columns are rotated and scaled to the width of the page."""


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
        r"\documentclass{article}", r"\usepackage[T1]{fontenc}",
        r"\usepackage[a4paper, margin=2cm]{geometry}",
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


def to_text(tables: Sequence[ResultTable]) -> str:
    """Return aligned plain-text tables, for terminals and logs; control codes and line breaks in them are escaped."""
    parts = []
    for table in tables:
        all_rows = [tuple(map(to_one_line, row)) for row in (table.header, *table.rows)]
        widths = [max(len(row[column]) for row in all_rows) for column in range(len(table.header))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in all_rows
        ]
        parts.append("\n".join([table.title, *lines, *map(to_one_line, table.notes)]))
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
    write_text_atomically(folder / "bench.html", to_html(tables) + "\n")
    return [*written_files, folder / "bench.html"]


def write_report(tables: Sequence[ResultTable], folder: Path) -> list[Path]:
    """Write all files for a section of a paper: CSV, HTML, LaTeX tables, pgfplots and SVG figures, and `section.tex`.

    Returns the written files.
    """
    written_files = write_files(tables, folder)
    texts = {f"{table.name}.tex": to_latex(table) for table in tables}
    texts |= {f"{table.name}_figure.tex": to_pgfplots(table) for table in tables if table.bars}
    texts |= {f"{table.name}_figure.svg": f"{to_svg(table)}\n" for table in tables if table.bars}
    texts["section.tex"] = to_latex_document(tables)
    for name, text in texts.items():
        write_text_atomically(folder / name, text)
    return [*written_files, *(folder / name for name in texts)]


# --- HTML and SVG ------------------------------------------------------------------------------------------------

_SVG_STYLE = "text{font:13px sans-serif}.label,.tick{fill:#333}.fill0{fill:#3566a8}.grid{stroke:#ddd}.axis{stroke:#111}"
_CHART_WIDTH, _LABEL_WIDTH, _MAX_LABEL_CHARS = 640, 240, 36


def to_html(tables: Sequence[ResultTable]) -> str:
    """Return one HTML page without scripts and external resources."""
    css = resources.files("m3b.report").joinpath("static", "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return _load_template("bench.html").render(
        sections=[(table, lay_out_bars(table) if table.bars else None) for table in tables],
        css=css,
        style="",
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )


def to_svg(table: ResultTable) -> str:
    """Return the bars of a table as separate SVG file with the colours of the page."""
    return _load_template("bar_chart.svg").render(chart=lay_out_bars(table), style=_SVG_STYLE)


def _load_template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("m3b.bench"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: replace_control_characters(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, in pixels.

    Args:
        label: the name, shortened.
        percent: the proportion, as text.
        interval: the ends of its interval; None without one.
    """

    name: str
    label: str
    percent: str
    y: int
    width: str
    interval: tuple[str, str] | None


@dataclass(frozen=True)
class Tick:
    """A line of the grid at a proportion, with its label."""

    x: str
    label: str


@dataclass(frozen=True)
class BarChart:
    """A bar chart of proportions from 0 to 1 with their intervals, laid out in pixels."""

    title: str
    width: int
    height: int
    label_width: int
    ticks: tuple[Tick, ...]
    bars: tuple[Bar, ...]


def lay_out_bars(table: ResultTable) -> BarChart:
    """Return the bars of a table with their places in the chart."""
    scale = _CHART_WIDTH - _LABEL_WIDTH - 20

    def to_x(share: float) -> float:
        return _LABEL_WIDTH + scale * min(max(share, 0.0), 1.0)

    bars = [
        Bar(
            name=name,
            label=name if len(name) <= _MAX_LABEL_CHARS else f"{name[: _MAX_LABEL_CHARS - 1]}…",
            percent=f"{100 * share:.1f}",
            y=8 + 30 * row_number,
            width=f"{max(to_x(share) - _LABEL_WIDTH, 1):.1f}",
            interval=None if low is None or high is None else (f"{to_x(low):.1f}", f"{to_x(high):.1f}"),
        )
        for row_number, (name, share, low, high) in enumerate(table.bars)
    ]
    ticks = [Tick(f"{to_x(share):.1f}", f"{100 * share:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return BarChart(table.title, _CHART_WIDTH, 30 * len(bars) + 34, _LABEL_WIDTH, tuple(ticks), tuple(bars))
