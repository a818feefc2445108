"""The tool preview_dirs: the content of a data folder in a few hundred tokens. Runs in the reader process."""

from __future__ import annotations

import os
from pathlib import Path

from m3b.data.links import WHAT_TO_DO
from m3b.data.natural import natural
from m3b.data.patterns import PatternGroup, group_names
from m3b.errors import ToolError
from m3b.facts import FolderSummary, NamePattern
from m3b.tools.context import PreviewContext, ToolResult
from m3b.tools.files import missing_path_error
from m3b.tools.survey import FolderNode, FolderWalk, walk_folder
from m3b.tools.text import format_bytes, pluralize
from m3b.writing import to_one_line

_MAX_PATTERNS = 24
_MAX_CHILDREN = 10
_MAX_LINES = 40
MAX_NAME_TEMPLATES = 3
"""Maximum number of name templates that describe the folders that are not listed by name."""


def preview_dirs(ctx: PreviewContext, path: str, samples: int = 5) -> ToolResult:
    """Preview a folder; see `m3b.tools.preview_tools.preview_dirs`."""
    top = ctx.roots.resolve(path)
    if not top.exists():
        raise missing_path_error(ctx.roots, path, top)
    if not top.is_dir():
        raise ToolError(f"{path} is a file. Use preview_files.")
    display_path = ctx.roots.display_path(top)
    linked_names = [
        name for name, real in ctx.roots.read.items() if top == ctx.roots.work / name.split("/")[0] and real
    ]
    if linked_names:
        return ToolResult(f"{display_path} holds: {', '.join(linked_names)}. Preview one of them.")
    folder_walk = walk_folder(top, ctx.roots.readable_paths())
    return ToolResult(
        format_report(folder_walk, display_path, top, max(0, min(samples, 50))),
        data=summarise_folder(folder_walk, display_path).to_json(),
    )


def format_report(folder_walk: FolderWalk, display_path: str, top: Path, samples: int) -> str:
    """Return a folder walk as text."""
    size_qualifier = "" if folder_walk.is_exact else "about "
    total = sum(sizes.estimated_bytes for sizes in folder_walk.sizes.values())
    lines = [
        f"{display_path}: {pluralize(folder_walk.files, 'file')} in {pluralize(folder_walk.folders, 'sub-folder')}, "
        f"{size_qualifier}{format_bytes(total)}"
    ]
    if folder_walk.sizes:
        lines.append("by extension: " + _format_extensions(folder_walk, size_qualifier))
    if folder_walk.root.children:
        lines.append("folders (files below):")
        tree: list[str] = []
        _format_tree(folder_walk.root, "  ", 3, tree)
        lines += tree[:_MAX_LINES] + ([f"  ... {len(tree) - _MAX_LINES} more lines"] if len(tree) > _MAX_LINES else [])
    if folder_walk.groups:
        lines.append("patterns:")
        lines += _format_patterns(folder_walk)
        lines += _format_examples(folder_walk, top, samples)
    return "\n".join(map(to_one_line, lines + _format_oddities(folder_walk)))


def summarise_folder(folder_walk: FolderWalk, display_path: str) -> FolderSummary:
    """Return a folder walk as data: the same patterns that the text shows."""
    patterns = tuple(NamePattern(text=group.shown(), count=group.count) for group in _largest_groups(folder_walk))
    return FolderSummary(path=display_path, files=folder_walk.files, patterns=patterns)


def _format_extensions(folder_walk: FolderWalk, size_qualifier: str) -> str:
    largest = sorted(folder_walk.sizes.items(), key=lambda item: (-item[1].count, item[0]))
    text = ", ".join(
        f"{suffix or '(none)'} {sizes.count:,} ({size_qualifier}{format_bytes(sizes.estimated_bytes)})"
        for suffix, sizes in largest[:12]
    )
    return text + (f", and {len(largest) - 12} more" if len(largest) > 12 else "")


def _format_tree(node: FolderNode, indent: str, depth: int, lines: list[str]) -> None:
    largest = sorted(node.children, key=lambda folder: (-folder.files, natural(folder.name)))[:_MAX_CHILDREN]
    shown_ids = {id(folder) for folder in largest}
    for child in sorted(largest, key=lambda folder: natural(folder.name)):
        nested_note = f" in {pluralize(child.folders, 'folder')}" if child.folders and depth == 1 else ""
        lines.append(f"{indent}{child.name}/ {child.files:,}{nested_note}")
        if depth > 1:
            _format_tree(child, indent + "  ", depth - 1, lines)
    remaining = [folder for folder in node.children if id(folder) not in shown_ids]
    if remaining:
        counts = [folder.files for folder in remaining]
        count_text = (
            pluralize(counts[0], "file") if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,} files"
        )
        name_note = _describe_common_names([folder.name for folder in remaining])
        lines.append(
            f"{indent}... {pluralize(len(remaining), 'more folder')}{name_note} with {count_text} each, {sum(counts):,} in all"
        )


def _describe_common_names(names: list[str]) -> str:
    """Return the name templates of many folders as text, or an empty text if a few templates do not describe them."""
    groups = sorted(group_names(names), key=lambda group: (-group.count, group.pattern))
    if len(groups) > MAX_NAME_TEMPLATES or any(group.count == 1 and group.pattern == "*" for group in groups):
        return ""
    if any("*" in group.pattern for group in groups):
        return " of random names" if len(groups) == 1 else ""
    return f" like {', '.join(group.shown() for group in groups)}"


def _format_patterns(folder_walk: FolderWalk) -> list[str]:
    largest = _largest_groups(folder_walk)
    lines = [f"  {group.shown()}" + (f" x {group.count:,}" if group.count > 1 else "") for group in largest]
    n_other = (
        sum(group.count for group in folder_walk.groups.values())
        - sum(group.count for group in largest)
        + folder_walk.ungrouped
    )
    if n_other:
        lines.append(f"  ... {n_other:,} files of other patterns")
    return lines


def _largest_groups(folder_walk: FolderWalk) -> list[PatternGroup]:
    """Return the patterns with the most files, in natural order."""
    largest = sorted(folder_walk.groups.values(), key=lambda group: (-group.count, group.pattern))
    return sorted(largest[:_MAX_PATTERNS], key=lambda group: natural(group.shown()))


def _format_examples(folder_walk: FolderWalk, top: Path, samples: int) -> list[str]:
    """Return example paths of the largest patterns, in natural order; patterns of a single file need none."""
    repeated: list[PatternGroup] = [group for group in folder_walk.groups.values() if group.count > 1]
    repeated.sort(key=lambda group: (-group.count, group.pattern))
    paths = sorted((os.path.relpath(group.example, top) for group in repeated[:samples]), key=natural)
    return ["examples: " + ", ".join(paths)] if paths else []


def _format_oddities(folder_walk: FolderWalk) -> list[str]:
    lines = []
    if folder_walk.empty:
        count_qualifier = "" if folder_walk.is_exact else "at least "
        lines.append(f"empty files: {count_qualifier}{folder_walk.empty:,}, such as {', '.join(folder_walk.empty_at)}")
    if folder_walk.stray:
        kinds = ", ".join(f"{name} x {count:,}" for name, count in folder_walk.stray.most_common(5))
        lines.append(f"hidden or stray files, no data, in no pattern above: {kinds}; such as {folder_walk.stray_at[0]}")
    if folder_walk.unreadable_count:
        lines.append(
            f"unreadable folders, not counted: {folder_walk.unreadable_count:,}: {', '.join(folder_walk.unreadable)}"
        )
    if folder_walk.links:
        lines.append(f"links, not followed: {folder_walk.links:,}")
    if folder_walk.followed_links:
        lines.append(f"links to files within the data, counted as files: {folder_walk.followed_links:,}")
    if folder_walk.links_out:
        lines.append(
            f"links that lead out of the data, or nowhere, so that no script can open them: {folder_walk.links_out:,}, such "
            f"as {', '.join(folder_walk.links_out_at)}. Only the user can help: {WHAT_TO_DO}"
        )
    if folder_walk.special_files:
        lines.append(f"pipes, sockets or devices: {folder_walk.special_files:,}")
    return lines
