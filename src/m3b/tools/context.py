"""The input and the result of a tool: `ToolContext`, `PreviewContext` and `ToolResult`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from m3b.data.phi import Phi
from m3b.isolation.reader import Reader
from m3b.messages import ImageContent
from m3b.tools.jobs import JobManager, LogStore
from m3b.tools.paths import Roots


@dataclass(frozen=True)
class ToolResult:
    """Result of a tool call: a text for the model, facts for programs, and images.

    Args:
        data: the same facts for programs (`exit_code`, `job`, `running`, `full`, `malformed`); `done` ends the agent's
            work as if the agent had said so.
        images: shown to models that accept images; the journal does not keep them (`view_image` keeps them as files).
    """

    text: str
    is_error: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    images: tuple[ImageContent, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class PreviewContext:
    """Context of a preview tool: the folders it may read, what is masked, and the maximum length of a result."""

    roots: Roots
    phi: Phi
    max_result_chars: int


@dataclass(frozen=True)
class ToolContext:
    """Context of a tool call, the same for all calls of a run. `Toolbox` documents the fields."""

    roots: Roots
    jobs: JobManager
    logs: LogStore
    phi: Phi
    approve: Callable[[str], bool] | None
    on_output: Callable[[int, str], None] | None
    is_cancelled: Callable[[], bool]
    max_result_chars: int
    reader: Reader
    """The confined process that opens files for the preview tools."""
