"""Text helpers for tool results: counts and sizes as text, shortening, and parsing of script output."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_PROGRESS_BAR = re.compile(r"^[^\n]{0,80}?\d{1,3}%\s*\|.*|^\s*\d+it \[.*", re.ASCII)
_NONFINITE_LOSS = re.compile(
    r"\bloss\b[^\n\w]{0,12}(?:tensor\()?[+-]?(?:nan|inf)\b|\b\w+_loss\b[^\n\w]{0,12}[+-]?(?:nan|inf)\b", re.I
)
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED_MESSAGES = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


def pluralize(count: int, singular: str, plural_form: str = "") -> str:
    """Return a count with its noun: `1 file`, `1,200 files`."""
    return f"{count:,} {singular if count == 1 else plural_form or singular + 's'}"


def format_bytes(count: float) -> str:
    """Return a number of bytes as text: `812 B`, `5.2 MiB`."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def shorten(text: str, limit: int) -> str:
    """Return the text as one line of at most `limit` characters."""
    text = " ".join(text.split()) if "\n" in text or "\r" in text else text
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def clip(text: str, limit: int, note: str = "") -> str:
    """Return head and tail of a long text, cut at line ends if those are near; `note` says where the full text is."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 5], text[-(limit * 3 // 5) :]
    if (end := head.rfind("\n")) > len(head) // 2:
        head = head[:end]
    if 0 <= (start := tail.find("\n")) < len(tail) // 2:
        tail = tail[start + 1 :]
    n_omitted = len(text) - len(head) - len(tail)
    return f"{head}\n[... {n_omitted:,} characters left out{'; ' + note if note else ''} ...]\n{tail}"


def clean_terminal_output(text: str) -> str:
    """Return output as a terminal would show it in the end: no escape codes, only the last state of progress bars."""
    text = _ANSI.sub("", text.replace("\r\n", "\n")).replace("\0", "")
    lines: list[str] = []
    bars = 0
    for raw in text.split("\n"):
        line = raw
        if "\r" in raw:
            line = next((part for part in reversed(raw.split("\r")) if part.strip()), "")
        if _PROGRESS_BAR.match(line):
            if bars:
                lines[-1] = line
            else:
                lines.append(line)
            bars += 1
            continue
        bars = 0
        lines.append(line)
    return "\n".join(lines)


def last_traceback(text: str) -> str:
    """Return the last Python traceback in a text with the exceptions that it chains from; empty if there is none."""
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(_TRACEBACK)]
    if not starts:
        return ""
    end = _traceback_end(lines, starts[-1])
    first = starts[-1]
    for start in reversed(starts[:-1]):
        between = [line.strip() for line in lines[_traceback_end(lines, start) : first] if line.strip()]
        if len(between) != 1 or between[0] not in _CHAINED_MESSAGES:
            break
        first = start
    return "\n".join(lines[first:end]).rstrip()


def _traceback_end(lines: list[str], start: int) -> int:
    """Return the index behind the line that names the exception, and behind the further lines of a long message."""
    indent = len(lines[start]) - len(lines[start].lstrip())
    index = start + 1
    while index < len(lines) and (not lines[index].strip() or lines[index].startswith(" " * (indent + 1))):
        index += 1
    index += 1
    while index < len(lines) and lines[index].startswith((" " * (indent + 1), "\t")):
        index += 1
    return min(index, len(lines))


def find_nonfinite_loss(text: str) -> str:
    """Return the first line that reports a loss of NaN or infinity; empty if there is none."""
    for line in text.split("\n"):
        if _NONFINITE_LOSS.search(line):
            return line.strip()
    return ""
