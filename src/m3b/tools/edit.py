"""Change a file by exact replacements."""

from __future__ import annotations

import difflib
from typing import TypedDict

from m3b.errors import ToolError
from m3b.tools.context import ToolContext, ToolResult
from m3b.tools.files import missing_path_error
from m3b.tools.paths import open_for_reading, write_atomic
from m3b.tools.text import pluralize, shorten

MAX_EDITED_BYTES = 16 * 2**20


class Edit(TypedDict):
    """One replacement."""

    old: str
    new: str


def edit_files(ctx: ToolContext, path: str, content: str | None = None, edits: list[Edit] | None = None) -> ToolResult:
    """Change one text file: give either its full new content, or a list of replacements.

    Each "old" must occur exactly once, white space included. If any does not, nothing is changed.

    Args:
        path: the file to change, relative to the working folder.
        content: the whole new text.
        edits: replacements, applied in order, each with "old" and "new".
    """
    if (content is None) == (not edits):
        raise ToolError("edit_files needs either content or edits (a list of {old, new}), not both.")
    target = ctx.roots.resolve(path, write=True)
    if target.is_dir():
        raise ToolError(f"{path} is a folder.")
    if not target.exists():
        raise missing_path_error(ctx.roots, path, target)
    with open_for_reading(target, path) as file:
        data = file.read(MAX_EDITED_BYTES + 1)
    if len(data) > MAX_EDITED_BYTES:
        raise ToolError(f"{path} is larger than 16 MiB; change it with a script.")
    try:
        before = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not a UTF-8 text; it cannot be edited. Write it anew or use a script.") from None
    after = content if content is not None else apply_edits(before, edits or [], path)
    if after == before:
        return ToolResult(f"{path} already reads like that; nothing changed.")
    write_atomic(target, after.encode("utf-8", "replace"))
    return ToolResult(f"Changed {ctx.roots.display_path(target)}: {_describe_changed_lines(before, after)}")


def apply_edits(text: str, edits: list[Edit], path: str) -> str:
    """The text after all replacements.

    Raises:
        ToolError: an `old` that is empty, missing or not unique; says where, and that nothing was changed.
    """
    has_crlf = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    for number, edit in enumerate(edits, 1):
        old, new = edit["old"], edit["new"]
        if has_crlf and "\r" not in old:
            old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        edit_label = f"edit {number} of {len(edits)}" if len(edits) > 1 else "the edit"
        if not old:
            raise ToolError(f"{path}: 'old' of {edit_label} is empty. Nothing was changed.")
        positions = _find_occurrences(text, old)
        if len(positions) != 1:
            raise ToolError(f"{path}: {_explain_mismatch(text, old, positions, edit_label)} Nothing was changed.")
        text = text[: positions[0]] + new + text[positions[0] + len(old) :]
    return text


def _find_occurrences(text: str, old: str) -> list[int]:
    """Where `old` begins, overlapping occurrences too."""
    positions: list[int] = []
    position = text.find(old)
    while position >= 0 and len(positions) < 100:
        positions.append(position)
        position = text.find(old, position + 1)
    return positions


def _explain_mismatch(text: str, old: str, positions: list[int], edit_label: str) -> str:
    if positions:
        numbers = ", ".join(str(text.count("\n", 0, position) + 1) for position in positions[:8])
        count_text = "100 or more" if len(positions) >= 100 else str(len(positions))
        return f"'old' of {edit_label} occurs {count_text} times (lines {numbers}). Add surrounding lines to make it unique."
    longest_line = max(old.strip("\n").split("\n"), key=lambda line: len(line.strip()))
    lines = text.split("\n")
    similar_lines = difflib.get_close_matches(longest_line, lines[:20000], 1, 0.5)
    if not similar_lines:
        return f"'old' of {edit_label} does not occur, and no line is like it. Read the file again."
    number = lines.index(similar_lines[0]) + 1
    hint = (
        "differs in white space only"
        if similar_lines[0].split() == longest_line.split() and similar_lines[0] != longest_line
        else "is nearest"
    )
    same_line_note = "; that line fits, so another line of 'old' differs" if similar_lines[0] == longest_line else ""
    return f"'old' of {edit_label} does not occur. Line {number} {hint}: {shorten(similar_lines[0], 200)!r}{same_line_note}."


def _describe_changed_lines(before: str, after: str) -> str:
    """Which lines of the new text differ."""
    old, new = before.split("\n"), after.split("\n")
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    end = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
    end = min(end, len(old) - start, len(new) - start)
    last = len(new) - end
    line_range = f"line {start + 1}" if last <= start + 1 else f"lines {start + 1}-{last}"
    return f"{line_range}; {pluralize(len(new) - after.endswith(chr(10)), 'line')} now"
