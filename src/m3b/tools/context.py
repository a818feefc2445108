"""What every tool gets, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from m3b.messages import ImageContent
from m3b.reader import Reader
from m3b.tools.jobs import JobManager, LogStore
from m3b.tools.paths import Roots
from m3b.tools.phi import Phi


@dataclass(frozen=True)
class ToolResult:
    """What a model reads back, and sees where it can.

    Args:
        data: the same facts for programs (`exit_code`, `job`, `running`, `full`, `malformed`); `done` ends the agent's work
            as its own word would.
        images: shown to models that take images; the journal does not keep them.
    """

    text: str
    is_error: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    images: tuple[ImageContent, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class PreviewContext:
    """What those tools need that only look: where they may go, what is masked, and how long a result may be."""

    roots: Roots
    phi: Phi
    max_result_chars: int


@dataclass(frozen=True)
class ToolContext:
    """The run that a tool works for: see `Toolbox` for the meaning of each."""

    roots: Roots
    jobs: JobManager
    logs: LogStore
    phi: Phi
    approve: Callable[[str], bool] | None
    on_output: Callable[[int, str], None] | None
    is_cancelled: Callable[[], bool]
    max_result_chars: int
    reader: Reader
    """Opens the files that tools look at."""
