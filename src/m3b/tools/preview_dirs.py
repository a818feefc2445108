"""The tool preview_dirs: the content of a data folder in a few hundred tokens. Runs in the reader process."""

from __future__ import annotations

import errno
import gc
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from m3b.data.links import WHAT_TO_DO, Inside
from m3b.data.natural import natural
from m3b.data.patterns import MAX_SHAPES, PatternGroup, collapse, extension, group_names, shapes
from m3b.errors import ToolError
from m3b.facts import FolderSummary, NamePattern
from m3b.tools.context import PreviewContext, ToolResult
from m3b.tools.files import missing_path_error
from m3b.tools.paths import open_folder
from m3b.tools.text import format_bytes, pluralize
from m3b.writing import to_one_line

_MAX_FULLY_MEASURED_FILES = 20_000
_MEASURED_FILE_INTERVAL = 1024
MAX_DEPTH = 64
"""Maximum depth of folders that are walked."""
_MAX_NODE_DEPTH = 4
_MAX_NODES = 20_000
_MAX_TRACKED_PATTERNS = 4_000
_MAX_EXAMPLES = 5
_STRAY_NAMES = {"Thumbs.db", "desktop.ini", "ehthumbs.db"}


@dataclass(slots=True)
class FolderNode:
    """A folder that is shown by name; `files` counts all files below it."""

    name: str
    parent: FolderNode | None
    files: int = 0
    direct_files: int = 0
    folders: int = 0
    children: list[FolderNode] = field(default_factory=list)


@dataclass(slots=True)
class ExtensionSizes:
    """Number and size of the files of one extension; the size is measured on `n_measured` of the `count` files."""

    count: int = 0
    n_measured: int = 0
    total: int = 0

    @property
    def estimated_bytes(self) -> float:
        """Bytes of all files, extrapolated from the measured ones."""
        return self.total * self.count / self.n_measured if self.n_measured else 0.0


@dataclass
class FolderWalk:
    """Result of a walk over a folder tree."""

    root: FolderNode
    files: int = 0
    folders: int = 0
    groups: dict[str, PatternGroup] = field(default_factory=dict)
    sizes: dict[str, ExtensionSizes] = field(default_factory=dict)
    stray: Counter[str] = field(default_factory=Counter)
    stray_at: list[str] = field(default_factory=list)
    empty: int = 0
    empty_at: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unreadable_count: int = 0
    links: int = 0
    links_out: int = 0
    links_out_at: list[str] = field(default_factory=list)
    followed_links: int = 0
    special_files: int = 0
    ungrouped: int = 0
    max_depth: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether the size of every file was measured."""
        return all(extension_sizes.n_measured == extension_sizes.count for extension_sizes in self.sizes.values())


@dataclass(slots=True)
class _PendingFolder:
    path: str
    relative_path: str
    """The path below the top folder, empty or with a slash at its end."""
    pattern_path: str
    """The pattern of the path below the top folder, `p#/scans/`."""
    digit_ranges: list[tuple[str, str]]
    depth: int
    node: FolderNode


@contextmanager
def _pause_gc() -> Iterator[None]:
    """Pause the garbage collector: with hundreds of thousands of names it takes a third of the time for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def walk_folder(top: Path, link_targets: Inside | None = None) -> FolderWalk:
    """Walk a folder. Unreadable folders and those below `MAX_DEPTH` are recorded in the result, not raised.

    Args:
        top: a real path.
        link_targets: links to regular files in these folders count as files; no other link is followed.
    """
    with _pause_gc():
        return _walk_tree(top, link_targets or Inside(()))


def _walk_tree(top: Path, link_targets: Inside) -> FolderWalk:
    result = FolderWalk(FolderNode(top.name, None))
    pending = [_PendingFolder(str(top), "", "", [], 0, result.root)]
    sampler = _SizeSampler(result)
    nodes = 1
    while pending:
        folder = pending.pop()
        result.max_depth = max(result.max_depth, folder.depth)
        try:
            names, subfolders = _scan_folder(folder, result, link_targets)
        except OSError as error:
            result.unreadable_count += 1
            if len(result.unreadable) < _MAX_EXAMPLES:
                result.unreadable.append(f"{folder.relative_path[:200] or '.'} ({error.strerror})")
            continue
        if names:
            sampler.add(folder, _add_files(result, folder, names))
        result.folders += len(subfolders)
        folder.node.folders += len(subfolders)
        patterns = _folder_patterns(subfolders)
        for name in subfolders:
            node = folder.node
            if folder.depth < _MAX_NODE_DEPTH and nodes < _MAX_NODES:
                node = FolderNode(name, folder.node)
                folder.node.children.append(node)
                nodes += 1
            pattern, digit_ranges = patterns[name]
            path, relative_path = f"{folder.path}/{name}", f"{folder.relative_path}{name}/"
            pattern_path = f"{folder.pattern_path}{pattern}/"
            pending.append(
                _PendingFolder(
                    path, relative_path, pattern_path, folder.digit_ranges + digit_ranges, folder.depth + 1, node
                )
            )
    sampler.close()
    _sum_files(result.root)
    return result


def _scan_folder(folder: _PendingFolder, result: FolderWalk, link_targets: Inside) -> tuple[list[str], list[str]]:
    """Return the names of the files and of the sub-folders."""
    subfolders: list[str] = []
    if folder.depth > MAX_DEPTH:
        raise OSError(errno.ELOOP, f"nested deeper than {MAX_DEPTH} levels")

    def count_other(entry: os.DirEntry[str]) -> bool:
        if entry.is_dir(follow_symlinks=False):
            subfolders.append(entry.name)
        elif entry.is_symlink():
            return _count_link(folder, entry.name, result, link_targets)
        else:
            result.special_files += 1
        return False

    # One comprehension: a loop would make the walk 50 % slower.
    with open_folder(folder.path) as descriptor, os.scandir(descriptor) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False) or count_other(entry)]
    return names, subfolders


def _count_link(folder: _PendingFolder, name: str, result: FolderWalk, link_targets: Inside) -> bool:
    """Count a link; return whether it counts as a file."""
    path = f"{folder.path}/{name}"
    if path not in link_targets:
        result.links_out += 1
        if len(result.links_out_at) < _MAX_EXAMPLES:
            result.links_out_at.append(folder.relative_path + name)
        return False
    if os.path.isfile(path):
        result.followed_links += 1
        return True
    result.links += 1
    return False


def _add_files(result: FolderWalk, folder: _PendingFolder, names: list[str]) -> list[str]:
    """Count and group the files of one folder; return the names of those that are data, not hidden or stray files."""
    result.files += len(names)
    folder.node.direct_files += len(names)
    is_macos_metadata = folder.pattern_path.startswith("__MACOSX") or "/__MACOSX" in folder.pattern_path
    joined_names = "\n".join(names)
    stray = names if is_macos_metadata else _find_stray_names(names, joined_names)
    if stray:
        for name in stray:
            result.stray["__MACOSX/" if is_macos_metadata else "._*" if name.startswith("._") else name] += 1
        if len(result.stray_at) < _MAX_EXAMPLES:
            result.stray_at.append(folder.relative_path + stray[0])
        stray_names = set(stray)
        names = [name for name in names if name not in stray_names]
        joined_names = ""
    for group in group_names(names, joined_names):
        result.sizes.setdefault(extension(group.example), ExtensionSizes()).count += group.count
        _merge_group(result, folder, group)
    return names


def _find_stray_names(names: list[str], joined_names: str) -> list[str]:
    if (
        not joined_names.startswith(".")
        and "\n." not in joined_names
        and not any(word in joined_names for word in _STRAY_NAMES)
    ):
        return []
    return [name for name in names if name.startswith(".") or name in _STRAY_NAMES]


def _merge_group(result: FolderWalk, folder: _PendingFolder, group: PatternGroup) -> None:
    key = folder.pattern_path + group.pattern
    merged = result.groups.get(key)
    if merged is None:
        if len(result.groups) >= _MAX_TRACKED_PATTERNS:
            result.ungrouped += group.count
            return
        merged = result.groups[key] = PatternGroup(key)
    merged.add(group.count, [*folder.digit_ranges, *group.ranges], f"{folder.path}/{group.example}")


class _SizeSampler:
    """Measures the size of every file, or in large trees of every 1,024th file."""

    def __init__(self, result: FolderWalk) -> None:
        self.result = result
        self.pending: list[tuple[_PendingFolder, list[str]]] = []
        self.n_seen = 0

    def add(self, folder: _PendingFolder, names: list[str]) -> None:
        """Remember the files of a folder; once the tree is known to be large, measure a sample at once."""
        n_before = self.n_seen
        self.n_seen += len(names)
        if n_before > _MAX_FULLY_MEASURED_FILES:
            if sample := names[-n_before % _MEASURED_FILE_INTERVAL :: _MEASURED_FILE_INTERVAL]:
                self._measure(folder, sample)
            return
        self.pending.append((folder, names))
        if self.n_seen > _MAX_FULLY_MEASURED_FILES:
            self._measure_pending(_MEASURED_FILE_INTERVAL)

    def close(self) -> None:
        """Measure all remembered files."""
        self._measure_pending(1)

    def _measure_pending(self, step: int) -> None:
        for folder, names in self.pending:
            self._measure(folder, names[::step])
        self.pending.clear()

    def _measure(self, folder: _PendingFolder, names: list[str]) -> None:
        result = self.result
        for name, length in _file_lengths(folder, names):
            sizes = result.sizes.setdefault(extension(name), ExtensionSizes())
            sizes.n_measured += 1
            sizes.total += length
            if not length:
                result.empty += 1
                if len(result.empty_at) < _MAX_EXAMPLES:
                    result.empty_at.append(folder.relative_path + name)


def _file_lengths(folder: _PendingFolder, names: list[str]) -> Iterator[tuple[str, int]]:
    with suppress(OSError), open_folder(folder.path) as descriptor:
        for name in names:
            with suppress(OSError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                is_link = stat.S_ISLNK(status.st_mode)  # `_count_link` has checked that it stays inside
                yield name, (os.stat(name, dir_fd=descriptor) if is_link else status).st_size


def _folder_patterns(names: list[str]) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Return the name pattern and the digits of each sub-folder: `p012` gives `p#` and [("012", "012")]."""
    if not names:
        return {}
    collapsed = [collapse(shape) for shape in shapes(names)]
    if len(set(collapsed)) > MAX_SHAPES:
        return {name: ("*", []) for name in names}
    return {name: (pattern, _digit_runs(name)) for name, pattern in zip(names, collapsed, strict=True)}


def _digit_runs(name: str) -> list[tuple[str, str]]:
    runs = "".join(ch if "0" <= ch <= "9" else " " for ch in name).split()
    return [(run, run) for run in runs]


def _sum_files(node: FolderNode) -> int:
    """Set and return the number of files below a node. The recursion is at most `_MAX_NODE_DEPTH` deep."""
    node.files = node.direct_files + sum(_sum_files(child) for child in node.children)
    return node.files


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
    patterns = tuple(
        NamePattern(text=group.format_ranges(), count=group.count) for group in _largest_groups(folder_walk)
    )
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
    return f" like {', '.join(group.format_ranges() for group in groups)}"


def _format_patterns(folder_walk: FolderWalk) -> list[str]:
    largest = _largest_groups(folder_walk)
    lines = [f"  {group.format_ranges()}" + (f" x {group.count:,}" if group.count > 1 else "") for group in largest]
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
    return sorted(largest[:_MAX_PATTERNS], key=lambda group: natural(group.format_ranges()))


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
