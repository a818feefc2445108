"""The tool read_files: text files, page by page. Runs in the reader process."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

from m3b.errors import DataError, ToolError
from m3b.tools.context import PreviewContext, ToolResult
from m3b.tools.files import missing_path_error
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.masking import masked_lines
from m3b.tools.text import format_bytes, pluralize
from m3b.writing import to_one_line

_MAX_LINE_CHARS = 2000
_MAX_COUNTED_BYTES = 64 * 2**20


def read_files(ctx: PreviewContext, paths: list[str], offset: int = 0, limit: int = 400) -> ToolResult:
    """Read text files; see `m3b.tools.preview_tools.read_files`."""
    chars_left = 3 * ctx.max_result_chars
    parts: list[str] = []
    failed = 0
    for path in paths:
        try:
            part = _read_file(ctx, path, max(offset, 0), max(1, min(limit, 2000)), chars_left)
        except OSError as error:
            part, failed = f"{path}: {error.strerror}", failed + 1
        except (ToolError, DataError) as error:
            part, failed = str(error), failed + 1
        parts.append(part)
        chars_left -= len(part)
        if chars_left < 200 and len(parts) < len(paths):
            parts.append(f"No room for more in one result. Not read: {', '.join(paths[len(parts) :])[:2000]}")
            break
    return ToolResult("\n\n".join(parts), is_error=failed == len(paths))


def _read_file(ctx: PreviewContext, path: str, offset: int, limit: int, chars_left: int) -> str:
    real = ctx.roots.resolve(path)
    if not real.exists():
        raise missing_path_error(ctx.roots, path, real)
    if real.is_dir():
        raise ToolError(f"{path} is a folder. Use list_files or preview_dirs.")
    with open_for_reading(real, path) as file:
        length = os.fstat(file.fileno()).st_size
        head = file.read(4096)
        if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ToolError(f"{path}: a binary file of {format_bytes(length)}. Use preview_files.")
        file.seek(0)
        lines, n_cut, is_at_end = _read_page(file, offset, limit, chars_left)
        last = offset + len(lines)
        total = last if is_at_end else _count_lines(file, length)
    if not length:
        return f"== {to_one_line(path)}: empty file =="
    if not lines:
        return (
            f"== {to_one_line(path)}: offset {offset} is past the end; the file has {pluralize(total or 0, 'line')} =="
        )
    lines, masked = masked_lines(real, lines, ctx, offset)
    range_text = (
        f"lines {offset + 1}-{last} of {total:,}"
        if total
        else f"lines {offset + 1}-{last}, {format_bytes(length)} in all"
    )
    notes = [f"{pluralize(n_cut, 'long line')} cut"] if n_cut else []
    notes += [masked] if masked else []
    notes += [] if is_at_end else [f"go on with offset={last}"]
    return f"== {to_one_line(path)} ({'; '.join([range_text, *notes])}) ==\n" + "\n".join(lines)


def _read_page(file: io.FileIO, offset: int, limit: int, chars_left: int) -> tuple[list[str], int, bool]:
    """Return the lines of one page, how many of them were cut, and whether the file ends there."""
    lines: list[str] = []
    n_cut = 0
    source = _iterate_lines(file)
    for number, raw in enumerate(source):
        if number < offset:
            continue
        text = raw.decode("utf-8", "replace").rstrip("\r\n").lstrip("\ufeff" if number == 0 else "")
        if len(text) > _MAX_LINE_CHARS:
            text, n_cut = text[:_MAX_LINE_CHARS] + "…", n_cut + 1
        lines.append(text)
        chars_left -= len(text) + 1
        if len(lines) >= limit or chars_left <= 0:
            return lines, n_cut, next(source, None) is None
    return lines, n_cut, True


def _iterate_lines(file: io.FileIO) -> Iterator[bytes]:
    """Yield lines of at most 64 KiB; the rest of a longer line is skipped."""
    buffered = io.BufferedReader(file, 1 << 20)
    try:
        while line := buffered.readline(1 << 16):
            yield line
            while line and not line.endswith(b"\n"):
                line = buffered.readline(1 << 16)
    finally:
        buffered.detach()


def _count_lines(file: io.FileIO, length: int) -> int | None:
    if length > _MAX_COUNTED_BYTES:
        return None
    file.seek(0)
    total, last = 0, b"\n"
    while block := file.read(1 << 20):
        total += block.count(b"\n")
        last = block[-1:]
    return total + (last != b"\n")
