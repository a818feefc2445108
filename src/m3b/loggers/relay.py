"""The loggers of one process of a run. An error of a logger ends its logging with a warning, never the run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.events import Event
from m3b.loggers.base import EventLogger, LoggedRun
from m3b.writing import write_text_atomically

_log = logging.getLogger(__name__)


@dataclass
class LoggerRelay:
    """Passes events on to the loggers of a run, and keeps how far each of them is.

    Args:
        folder: of the run.
        store: folder for the files of its loggers.
    """

    run_id: str
    folder: Path
    store: Path
    failures: list[str] = field(default_factory=list)
    """What failed since somebody emptied this list, in sentences."""
    _loggers: dict[str, EventLogger] = field(default_factory=dict)
    _states: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name -> content of the file with key and progress of the logger."""

    def open(self, name: str, open_logger: Callable[[LoggedRun, Mapping[str, Any]], EventLogger]) -> None:
        """Open a logger; it goes on from what an earlier process logged."""
        state = self._load_state(name)
        run = LoggedRun(self.run_id, self.folder, self.store / name, str(state.get("key", "")))
        self._attempt(name, lambda: self._loggers.update({name: open_logger(run, state.get("progress", {}))}))

    def record_event(self, event: Event) -> None:
        """Pass an event on to all loggers."""
        for name, logger in list(self._loggers.items()):
            self._attempt(name, lambda name=name, logger=logger: self._record(name, logger, event))  # type: ignore[misc]

    def close(self) -> None:
        """Close all loggers; they write what they hold."""
        for name, logger in list(self._loggers.items()):
            self._attempt(name, logger.close)
        self._loggers.clear()

    def _record(self, name: str, logger: EventLogger, event: Event) -> None:
        logger.record_event(event)
        state = {"key": logger.key, "progress": logger.progress}
        if state != self._states.get(name):
            self._states[name] = state
            self.store.mkdir(exist_ok=True)
            write_text_atomically(self.store / f"{name}.json", json.dumps(state))

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        """Perform an action of a logger; after an error the logger gets no further events."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a server that is gone or a full disk must not end the run
            self._loggers.pop(name, None)
            failure = f"The logger {name} failed and logs no more of this run: {type(error).__name__}: {error}"
            self.failures.append(failure)
            _log.warning("%s", failure)

    def _load_state(self, name: str) -> dict[str, Any]:
        try:
            state = json.loads((self.store / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}
