"""Escape text for LaTeX."""

from __future__ import annotations

import re
import unicodedata

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}",
    "–": r"\textendash{}", "—": r"\textemdash{}", "…": r"\ldots{}", "≤": r"$\leq$", "≥": r"$\geq$", "±": r"$\pm$",
    "×": r"$\times$", "µ": r"$\mu$", "μ": r"$\mu$", "°": r"$^{\circ}$", "²": r"$^{2}$", "³": r"$^{3}$",
    "\u00a0": "~",
}  # fmt: skip
_FIRST_ACCENTED, _LAST_ACCENTED = "\u00c0", "\u017f"
"""Letters with accents that pdfLaTeX prints with T1 fonts (Latin-1 and Latin Extended-A)."""


def escape_latex(text: str) -> str:
    """Return text as LaTeX prints it literally; characters that pdfLaTeX has no glyph for become `?`.

    Letters with accents stay as they are and need `\\usepackage[T1]{fontenc}`.
    """
    escaped_text = "".join(map(_escape_character, unicodedata.normalize("NFC", text)))
    return re.sub("-(?=-)", "-{}", escaped_text)  # LaTeX makes one dash of two hyphens


def _escape_character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii():
        return character if character.isprintable() else " "
    if _FIRST_ACCENTED <= character <= _LAST_ACCENTED and character.isalpha():
        return character
    return "?"
