"""Tables as LaTeX (booktabs) and their charts as pgfplots, ready to be put into a paper."""

from __future__ import annotations

from collections.abc import Sequence

from .tables import ResultTable

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_MAX_UPRIGHT_COLUMNS = 5
"""Tables of more columns than this are turned and shrunk to the page's width."""


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it stands; what pdfLaTeX has no glyph for becomes a question mark."""
    escaped_text = "".join(_ESCAPES.get(character, character) for character in text)
    return "".join(character if character.isascii() and character.isprintable() else "?" for character in escaped_text)


def to_latex(table: ResultTable) -> str:
    """One table as a float with its notes below; needs booktabs, graphicx and, for wide ones, rotating."""
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
    """A table's bars with their intervals as a figure; needs pgfplots."""
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
    """A document that inputs every table and figure: compiles as it stands, or its middle is copied into a paper."""
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
