"""What a logger is, and what it is told of its run. No name of a case, person, data set or machine is passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from m3b.events import Event

ParameterValue = str | int | float | bool


@dataclass(frozen=True)
class LoggedRun:
    """The run that is logged.

    Args:
        id: of the run, which is the name of its folder.
        folder: of the run.
        store: folder in the run folder for the files of this logger; it need not exist.
        key: `RunLogger.key` of the process before, so that the same logger run goes on; empty for a new one.
    """

    id: str
    folder: Path
    store: Path
    key: str = ""


class RunLogger(Protocol):
    """Keeps the parameters, figures and tags of one run. An error of a method ends the logging, not the run."""

    @property
    def key(self) -> str:
        """The name of the logger's own run, which `LoggedRun.key` has if m3b goes on with the run."""
        ...

    def log_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        """Keep settings of the training plan; each name comes once."""
        ...

    def log_figures(self, figures: Mapping[str, float], step: int, at: float) -> None:
        """Keep finite figures of one step of a curve, or of a measurement.

        Args:
            at: time of the figures, in seconds since 1970.
        """
        ...

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Keep texts about the run, such as its task, its status and the names of its files."""
        ...

    def close(self, status: str) -> None:
        """Write everything, and end the work of this process.

        Args:
            status: of the run, as in its result; empty if the process ends without a result.
        """
        ...


class EventLogger(Protocol):
    """Follows a run by its events."""

    @property
    def key(self) -> str:
        """See `RunLogger.key`."""
        ...

    @property
    def progress(self) -> dict[str, Any]:
        """What was logged so far, as JSON values; a process that goes on with the run gets them again."""
        ...

    def record_event(self, event: Event) -> None:
        """Take an event of the run."""
        ...

    def close(self) -> None:
        """Write everything."""
        ...
