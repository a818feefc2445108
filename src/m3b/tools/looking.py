"""The tools that look into files: they ask the reader process, so that m3b's own opens none of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from m3b.errors import DataError, ToolError
from m3b.reader import Request
from m3b.reader.faults import ReaderFault
from m3b.tools.context import Context, Looking, ToolResult
from m3b.tools.paths import Roots
from m3b.tools.phi import Phi

PATIENCE_S = 300.0
Looks = Literal["read_files", "preview_dirs", "preview_files"]


@dataclass(frozen=True)
class PreviewCall:
    """A call of one of these tools, with all that it needs to know of the run."""

    tool: Looks
    arguments: dict[str, Any]
    work: Path
    read: dict[str, Path]
    phi: Phi
    max_result_chars: int


LOOK = Request("m3b.tools.looking:look", PreviewCall, ToolResult, PATIENCE_S)


def read_files(ctx: Context, paths: list[str], offset: int = 0, limit: int = 400) -> ToolResult:
    """Read text files exactly as they are.

    Long files come in pages: call again with a larger offset. For tables, images, volumes and other data use
    preview_files.

    Args:
        paths: the files to read.
        offset: how many lines to skip at the start of each file.
        limit: how many lines to read of each file, at most 2000.
    """
    if not paths:
        raise ToolError("read_files needs at least one path.")
    return _ask(ctx, "read_files", paths=paths, offset=offset, limit=limit)


def preview_dirs(ctx: Context, path: str, samples: int = 5) -> ToolResult:
    """Count what a folder holds, however large: files by extension, name patterns, sub-folders, oddities.

    Args:
        path: folder, such as data/NAME.
        samples: how many example paths to show.
    """
    return _ask(ctx, "preview_dirs", path=path, samples=samples)


def preview_files(ctx: Context, paths: list[str]) -> ToolResult:
    """Say what data files hold: columns, types and value counts of tables, structure of JSON, shape, spacing,
    intensities and labels of images and volumes, keys of archives, DICOM headers.

    Args:
        paths: files, or folders that hold one DICOM or image series each.
    """
    if not paths:
        raise ToolError("preview_files needs at least one path.")
    return _ask(ctx, "preview_files", paths=paths)


def _ask(ctx: Context, tool: Looks, **arguments: Any) -> ToolResult:
    preview_call = PreviewCall(tool, arguments, ctx.roots.work, dict(ctx.roots.read), ctx.phi, ctx.max_result_chars)
    try:
        return ctx.reader.ask(LOOK, preview_call)
    except ReaderFault as error:
        raise ToolError(_spelled(ctx, str(error))) from None


def _spelled(ctx: Context, text: str) -> str:
    from m3b.tools.preview_files import spelled

    return spelled(Looking(ctx.roots, ctx.phi, ctx.max_result_chars), text)


def look(asked: PreviewCall) -> ToolResult:
    """Inside the reader: run the tool.

    Raises:
        ToolError: as the tool.
        OSError: as the tool.
    """
    import importlib

    preview_context = Looking(Roots(asked.work, asked.read), asked.phi, asked.max_result_chars)
    tool = getattr(importlib.import_module(f"m3b.tools.{asked.tool}"), asked.tool)
    try:
        result: ToolResult = tool(preview_context, **asked.arguments)
    except DataError as error:
        raise ToolError(str(error)) from error
    return result
