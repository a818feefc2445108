"""A strict check of the structure of LaTeX, and a compilation if pdflatex is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

PDFLATEX = shutil.which("pdflatex")
_COMMANDS = frozenset(
    re.findall(
        r"\w+",
        """section subsection begin end caption toprule midrule bottomrule endfirsthead endhead endfoot linewidth quad
        textbf draw node small centering documentclass usepackage input sloppy IfFileExists textbackslash
        textasciitilde textasciicircum textless textgreater textbar textquotedbl textasciigrave textendash textemdash
        ldots leq geq pm times mu circ""",
    )
)
"""Every command that the kit writes; any other one comes from data that was not escaped."""


def check_structure(text: str) -> None:
    """Check that braces and environments are closed, that commands are known, and that rows have as many cells."""
    depth, environments, columns = 0, [], 0
    for line in text.splitlines():
        if line.startswith("%"):
            continue
        for token in re.findall(r"\\[a-zA-Z]+|\\.|[{}%#^_$&]", line):
            if re.fullmatch(r"\\[a-zA-Z]+", token):
                assert token[1:] in _COMMANDS, token
            elif token[0] == "\\":
                assert token[1] in "&%$#_{}\\", token
            elif token in "{}":
                depth += 1 if token == "{" else -1
                assert depth >= 0, line
            else:
                assert token in "$^&", (token, line)
        assert len(re.findall(r"(?<!\\)\$", line)) % 2 == 0, line
        assert re.sub(r"(?<!\\)\$.*?(?<!\\)\$", "", line).replace(r"\^", "").count("^") == 0, line
        for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", line):
            if kind == "begin":
                environments.append(name)
            else:
                assert environments.pop() == name
        if line.startswith(r"\begin{longtable}"):
            columns = len(
                re.findall(r"p\{[^}]*\}|r", line.removeprefix(r"\begin{longtable}").replace(r"\linewidth", ""))
            )
        if "longtable" in environments and line.endswith(r" \\") and not line.startswith(r"\caption"):
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
    assert depth == 0
    assert environments == []


def compile_latex(folder: Path) -> None:
    """Compile paper.tex; do nothing without pdflatex."""
    if PDFLATEX is None:
        return
    command = [PDFLATEX, "-draftmode", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:].decode(errors="replace")
