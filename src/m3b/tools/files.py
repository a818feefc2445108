"""The tools list_files, copy_files, write_files and edit_files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from m3b.data.natural import natural
from m3b.errors import ToolError
from m3b.isolation import untrusted
from m3b.tools.context import ToolContext, ToolResult
from m3b.tools.paths import Roots, copy_file, list_entries, open_for_reading, walk, write_atomic
from m3b.tools.text import format_bytes, pluralize, shorten
from m3b.writing import to_one_line

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
    """Return the text after all replacements.

    Raises:
        ToolError: an `old` is empty, missing or not unique; the message says where, and that nothing was changed.
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
    """Return the positions of `old`, including overlapping ones, at most 100."""
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
    """Return as text which lines of the new text differ."""
    old, new = before.split("\n"), after.split("\n")
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    end = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
    end = min(end, len(old) - start, len(new) - start)
    last = len(new) - end
    line_range = f"line {start + 1}" if last <= start + 1 else f"lines {start + 1}-{last}"
    return f"{line_range}; {pluralize(len(new) - after.endswith(chr(10)), 'line')} now"


_MAX_LISTED_ENTRIES = 300


class NewFile(TypedDict):
    """One file to write."""

    path: str
    content: str


def list_files(ctx: ToolContext, path: str = ".", depth: int = 2) -> ToolResult:
    """List a folder: its files with sizes, and its sub-folders.

    For large data folders use preview_dirs, which counts and groups.

    Args:
        path: folder, relative to the working folder, or under data/ or resources/.
        depth: how many levels to show, 1 to 6.
    """
    folder = ctx.roots.resolve(path)
    if not folder.exists():
        raise missing_path_error(ctx.roots, path, folder)
    if not folder.is_dir():
        return ToolResult(
            f"{path}: a file, {format_bytes(folder.stat().st_size)}. Read it with read_files or preview_files."
        )
    lines: list[str] = []
    is_truncated = _list_into(ctx, folder, "", max(1, min(depth, 6)), lines)
    if is_truncated:
        lines.append(
            f"... the list stops at {_MAX_LISTED_ENTRIES} entries; use preview_dirs to count and group the rest"
        )
    return ToolResult(
        "\n".join([f"{ctx.roots.display_path(folder)}/", *map(to_one_line, lines)])
        if lines
        else f"{path}: empty folder"
    )


def _list_into(ctx: ToolContext, folder: Path, indent: str, depth: int, lines: list[str]) -> bool:
    """Add the entries of one folder to `lines`; return whether the list is full."""
    try:
        sorted_entries = sorted(list_entries(folder), key=lambda entry: natural(entry.name))
    except OSError as error:
        lines.append(f"{indent}  (unreadable: {error.strerror})")
        return False
    for entry in sorted_entries:
        if len(lines) >= _MAX_LISTED_ENTRIES:
            return True
        target = folder / entry.name
        if entry.kind == "link":
            lines.append(f"{indent}  {entry.name}{_describe_link(ctx, target)}")
        elif entry.kind == "folder":
            lines.append(f"{indent}  {entry.name}/" + (_count_contents(target) if depth <= 1 else ""))
            if depth > 1 and _list_into(ctx, target, indent + "  ", depth - 1, lines):
                return True
        else:
            lines.append(f"{indent}  {entry.name}  {format_bytes(entry.size)}")
    return False


def _count_contents(folder: Path) -> str:
    """Return the number of entries of a folder as text."""
    try:
        return f"  ({pluralize(len(list_entries(folder)), 'entry', 'entries')})"
    except OSError:
        return "  (unreadable)"


def _describe_link(ctx: ToolContext, path: Path) -> str:
    try:
        real = ctx.roots.resolve(str(path))
    except ToolError:
        return "  (a link that leads outside: cannot be used)"
    return "/  (read-only)" if real.is_dir() else "  (link)"


def copy_files(ctx: ToolContext, source: str, destination: str) -> ToolResult:
    """Copy a file or a whole folder into the working folder; copies of read-only material can be changed.

    Args:
        source: file or folder to copy, such as resources/templates/NAME.
        destination: new path. A folder's content is added to a folder that exists; files of the same name are
            replaced.
    """
    start = ctx.roots.resolve(source)
    if not start.exists():
        raise missing_path_error(ctx.roots, source, start)
    target = ctx.roots.resolve(destination, write=True)
    if start.is_file() and (target.is_dir() or destination.endswith("/")):
        target = ctx.roots.resolve(f"{destination.rstrip('/') or '.'}/{start.name}", write=True)
    if target == start or target.is_relative_to(start):
        raise ToolError(f"{destination} lies inside {source}; copy to another place.")
    if start.is_dir() and target.is_file():
        raise ToolError(f"{destination} is a file; a folder cannot be copied over it.")
    count, total, skipped = 0, 0, 0
    for source_file, target_file, is_regular in _copy_pairs(start, target):
        if is_regular:
            count, total = count + 1, total + _copy_single(ctx, source_file, target_file)
        else:
            skipped += 1
    note = f"; {pluralize(skipped, 'link or special file', 'links or special files')} left out" if skipped else ""
    return ToolResult(
        f"Copied {pluralize(count, 'file')} ({format_bytes(total)}) to {ctx.roots.display_path(target)}{note}"
    )


def _copy_pairs(start: Path, target: Path) -> Iterator[tuple[Path, Path, bool]]:
    """Yield source and target of every file, and whether it is a regular file."""
    if not start.is_dir():
        yield start, target, True
        return
    try:
        for entry in walk(start, skip=("__pycache__",)):
            if entry.kind != "folder":
                yield start / entry.name, target / entry.name, entry.kind == "file"
    except untrusted.UnsafePathError as error:
        raise ToolError(f"{start.name}: {error.strerror}; copy a part of it.") from None


def _copy_single(ctx: ToolContext, source: Path, target: Path) -> int:
    """Copy one file block by block, so that its size does not matter; return its size in bytes."""
    resolved_target = ctx.roots.resolve(str(target), write=True)
    try:
        return copy_file(source, ctx.roots.work, resolved_target)
    except untrusted.UnsafePathError as error:
        raise ToolError(
            f"{ctx.roots.display_path(source)} cannot be copied to {ctx.roots.display_path(resolved_target)}: {error.strerror}."
        ) from None


def write_files(ctx: ToolContext, files: list[NewFile]) -> ToolResult:
    """Write one or more new text files; folders are made as needed, existing files are replaced.

    Args:
        files: each with "path" (relative to the working folder) and "content" (the whole text).
    """
    if not files:
        raise ToolError("write_files needs at least one file.")
    targets = [ctx.roots.resolve(new_file["path"], write=True) for new_file in files]
    for new_file, target in zip(files, targets, strict=True):
        if target.is_dir():
            raise ToolError(f"{new_file['path']} is a folder; name a file. Nothing was written.")
    lines = []
    for new_file, target in zip(files, targets, strict=True):
        existed = target.exists()
        write_atomic(target, new_file["content"].encode("utf-8", "replace"))
        count = new_file["content"].count("\n") + (not new_file["content"].endswith("\n") and bool(new_file["content"]))
        lines.append(
            f"{'Replaced' if existed else 'Wrote'} {ctx.roots.display_path(target)} ({pluralize(count, 'line')})"
        )
    return ToolResult("\n".join(lines))


def missing_path_error(roots: Roots, path: str, real: Path) -> ToolError:
    """Return the error for a path that does not exist, with similar names or the content of the nearest folder."""
    folder = real.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        names = sorted((entry.name for entry in list_entries(roots.resolve(str(folder)))[:5000]), key=natural)
    except (OSError, ToolError):
        names = []
    similar_names = difflib.get_close_matches(real.name, names, 3, 0.75) if folder == real.parent else []
    folder_text = roots.display_path(folder)
    if similar_names:
        return ToolError(to_one_line(f"{path} does not exist. Close: {', '.join(similar_names)} (in {folder_text})."))
    names_text = ", ".join(names[:15]) + (f" and {len(names) - 15} more" if len(names) > 15 else "")
    return ToolError(to_one_line(f"{path} does not exist. {folder_text} holds: {names_text or 'nothing'}."))
