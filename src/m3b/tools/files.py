"""List, copy and write files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from m3b import untrusted
from m3b.errors import ToolError
from m3b.tools.context import ToolContext, ToolResult
from m3b.tools.natural import natural
from m3b.tools.paths import Roots, copy_file, list_entries, walk, write_atomic
from m3b.tools.text import format_bytes, pluralize
from m3b.writing import to_one_line

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
    """Add one folder's entries; whether the list is full."""
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
    """How much a folder holds that is not shown itself."""
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
    """Source and target of every file, and whether it is a regular one."""
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
    """Copy one file; returns its size in bytes. Blocks go from file to file, so that size does not matter."""
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
    """The error for a path that leads nowhere, with what lies where it should be."""
    import difflib

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
