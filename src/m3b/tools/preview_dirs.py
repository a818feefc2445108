"""What a data folder holds, in a few hundred tokens. Runs in the reader process."""

from __future__ import annotations

import os
from pathlib import Path

from m3b.data.links import WHAT_TO_DO
from m3b.errors import ToolError
from m3b.summaries import FolderSummary, NamePattern
from m3b.tools.context import Looking, ToolResult
from m3b.tools.files import missing
from m3b.tools.natural import natural
from m3b.tools.patterns import PatternGroup, group_names
from m3b.tools.survey import FolderWalk, Node, survey
from m3b.tools.text import plural, size
from m3b.writing import one_line

_MAX_PATTERNS = 24
_MAX_CHILDREN = 10
_MAX_LINES = 40
MAX_LIKE = 3
"""Templates of names that are told of folders that are not shown by name."""


def preview_dirs(ctx: Looking, path: str, samples: int = 5) -> ToolResult:
    """See `m3b.tools.looking.preview_dirs`."""
    top = ctx.roots.resolve(path)
    if not top.exists():
        raise missing(ctx.roots, path, top)
    if not top.is_dir():
        raise ToolError(f"{path} is a file. Use preview_files.")
    shown = ctx.roots.show(top)
    linked = [name for name, real in ctx.roots.read.items() if top == ctx.roots.work / name.split("/")[0] and real]
    if linked:
        return ToolResult(f"{shown} holds: {', '.join(linked)}. Preview one of them.")
    found = survey(top, ctx.roots.inside())
    return ToolResult(report(found, shown, top, max(0, min(samples, 50))), data=summary(found, shown).plain())


def report(found: FolderWalk, shown: str, top: Path, samples: int) -> str:
    """A survey as text."""
    about = "" if found.exact else "about "
    total = sum(one.estimate for one in found.sizes.values())
    lines = [f"{shown}: {plural(found.files, 'file')} in {plural(found.folders, 'sub-folder')}, {about}{size(total)}"]
    if found.sizes:
        lines.append("by extension: " + _extensions(found, about))
    if found.root.children:
        lines.append("folders (files below):")
        tree: list[str] = []
        _tree(found.root, "  ", 3, tree)
        lines += tree[:_MAX_LINES] + ([f"  ... {len(tree) - _MAX_LINES} more lines"] if len(tree) > _MAX_LINES else [])
    if found.groups:
        lines.append("patterns:")
        lines += _patterns(found)
        lines += _samples(found, top, samples)
    return "\n".join(map(one_line, lines + _oddities(found)))


def summary(found: FolderWalk, shown: str) -> FolderSummary:
    """A survey as data: the patterns that the text shows too."""
    patterns = tuple(NamePattern(text=one.shown(), count=one.count) for one in _largest(found))
    return FolderSummary(path=shown, files=found.files, patterns=patterns)


def _extensions(found: FolderWalk, about: str) -> str:
    largest = sorted(found.sizes.items(), key=lambda item: (-item[1].count, item[0]))
    text = ", ".join(f"{end or '(none)'} {one.count:,} ({about}{size(one.estimate)})" for end, one in largest[:12])
    return text + (f", and {len(largest) - 12} more" if len(largest) > 12 else "")


def _tree(node: Node, indent: str, depth: int, lines: list[str]) -> None:
    largest = sorted(node.children, key=lambda one: (-one.files, natural(one.name)))[:_MAX_CHILDREN]
    chosen = {id(one) for one in largest}
    for child in sorted(largest, key=lambda one: natural(one.name)):
        inside = f" in {plural(child.folders, 'folder')}" if child.folders and depth == 1 else ""
        lines.append(f"{indent}{child.name}/ {child.files:,}{inside}")
        if depth > 1:
            _tree(child, indent + "  ", depth - 1, lines)
    rest = [one for one in node.children if id(one) not in chosen]
    if rest:
        counts = [one.files for one in rest]
        each = plural(counts[0], "file") if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,} files"
        like = _likeness([one.name for one in rest])
        lines.append(f"{indent}... {plural(len(rest), 'more folder')}{like} with {each} each, {sum(counts):,} in all")


def _likeness(names: list[str]) -> str:
    """What many folders are called: the templates of their names, where a few say it."""
    groups = sorted(group_names(names), key=lambda one: (-one.count, one.pattern))
    if len(groups) > MAX_LIKE or any(one.count == 1 and one.pattern == "*" for one in groups):
        return ""
    if any("*" in one.pattern for one in groups):
        return " of random names" if len(groups) == 1 else ""
    return f" like {', '.join(one.shown() for one in groups)}"


def _patterns(found: FolderWalk) -> list[str]:
    chosen = _largest(found)
    lines = [f"  {one.shown()}" + (f" x {one.count:,}" if one.count > 1 else "") for one in chosen]
    rest = sum(one.count for one in found.groups.values()) - sum(one.count for one in chosen) + found.ungrouped
    if rest:
        lines.append(f"  ... {rest:,} files of other patterns")
    return lines


def _largest(found: FolderWalk) -> list[PatternGroup]:
    """The patterns with most files, in natural order."""
    largest = sorted(found.groups.values(), key=lambda one: (-one.count, one.pattern))
    return sorted(largest[:_MAX_PATTERNS], key=lambda one: natural(one.shown()))


def _samples(found: FolderWalk, top: Path, samples: int) -> list[str]:
    """First paths of the largest patterns, in natural order; those whose pattern says it all are left out."""
    many: list[PatternGroup] = [one for one in found.groups.values() if one.count > 1]
    many.sort(key=lambda one: (-one.count, one.pattern))
    paths = sorted((os.path.relpath(one.example, top) for one in many[:samples]), key=natural)
    return ["examples: " + ", ".join(paths)] if paths else []


def _oddities(found: FolderWalk) -> list[str]:
    lines = []
    if found.empty:
        least = "" if found.exact else "at least "
        lines.append(f"empty files: {least}{found.empty:,}, such as {', '.join(found.empty_at)}")
    if found.stray:
        kinds = ", ".join(f"{name} x {count:,}" for name, count in found.stray.most_common(5))
        lines.append(f"hidden or stray files, no data, in no pattern above: {kinds}; such as {found.stray_at[0]}")
    if found.unreadable_count:
        lines.append(f"unreadable folders, not counted: {found.unreadable_count:,}: {', '.join(found.unreadable)}")
    if found.links:
        lines.append(f"links, not followed: {found.links:,}")
    if found.followed:
        lines.append(f"links to files within the data, counted as files: {found.followed:,}")
    if found.links_out:
        lines.append(
            f"links that lead out of the data, or nowhere, so that no script can open them: {found.links_out:,}, such "
            f"as {', '.join(found.links_out_at)}. Only the user can help: {WHAT_TO_DO}"
        )
    if found.special:
        lines.append(f"pipes, sockets or devices: {found.special:,}")
    return lines
