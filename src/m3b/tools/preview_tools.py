"""The preview tools: they run in the reader process, so that the main process of m3b opens no untrusted file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from m3b.data.phi import Phi
from m3b.errors import DataError, ToolError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.remote_errors import ReaderError
from m3b.tools.context import PreviewContext, ToolContext, ToolResult
from m3b.tools.paths import Roots

STALL_TIMEOUT_S = 300.0
PreviewToolName = Literal["read_files", "preview_dirs", "preview_files"]


@dataclass(frozen=True)
class PreviewCall:
    """A call of a preview tool, with the context that it needs from the run."""

    tool: PreviewToolName
    arguments: dict[str, Any]
    work: Path
    read: dict[str, Path]
    phi: Phi
    max_result_chars: int


PREVIEW_JOB = WorkerJob("m3b.tools.preview_tools:run_preview_tool", PreviewCall, ToolResult, STALL_TIMEOUT_S)


def read_files(ctx: ToolContext, paths: list[str], offset: int = 0, limit: int = 400) -> ToolResult:
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
    return _run_confined(ctx, "read_files", paths=paths, offset=offset, limit=limit)


def preview_dirs(ctx: ToolContext, path: str, samples: int = 5) -> ToolResult:
    """Count what a folder holds, however large: files by extension, name patterns, sub-folders, oddities.

    Args:
        path: folder, such as data/NAME.
        samples: how many example paths to show.
    """
    return _run_confined(ctx, "preview_dirs", path=path, samples=samples)


def preview_files(ctx: ToolContext, paths: list[str]) -> ToolResult:
    """Say what data files hold: columns, types and value counts of tables, structure of JSON, shape, spacing,
    intensities and labels of images and volumes, keys of archives, DICOM headers.

    Args:
        paths: files, or folders that hold one DICOM or image series each.
    """
    if not paths:
        raise ToolError("preview_files needs at least one path.")
    return _run_confined(ctx, "preview_files", paths=paths)


def _run_confined(ctx: ToolContext, tool: PreviewToolName, **arguments: Any) -> ToolResult:
    preview_call = PreviewCall(tool, arguments, ctx.roots.work, dict(ctx.roots.read), ctx.phi, ctx.max_result_chars)
    try:
        return ctx.reader.run_job(PREVIEW_JOB, preview_call)
    except ReaderError as error:
        raise ToolError(_display_paths(ctx, str(error))) from None


def _display_paths(ctx: ToolContext, text: str) -> str:
    from m3b.tools.preview_files import display_paths

    return display_paths(PreviewContext(ctx.roots, ctx.phi, ctx.max_result_chars), text)


def run_preview_tool(preview_call: PreviewCall) -> ToolResult:
    """Run a preview tool. Runs in the reader process.

    Raises:
        ToolError: as the tool.
        OSError: as the tool.
    """
    from m3b.tools import preview_dirs, preview_files, read_files  # the main process does not need them

    preview_context = PreviewContext(
        Roots(preview_call.work, preview_call.read), preview_call.phi, preview_call.max_result_chars
    )
    try:
        match preview_call.tool:
            case "read_files":
                return read_files.read_files(preview_context, **preview_call.arguments)
            case "preview_dirs":
                return preview_dirs.preview_dirs(preview_context, **preview_call.arguments)
            case "preview_files":
                return preview_files.preview_files(preview_context, **preview_call.arguments)
    except DataError as error:
        raise ToolError(str(error)) from error
