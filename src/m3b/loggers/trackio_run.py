"""Trackio: its local database, or the server of TRACKIO_SERVER_URL or TRACKIO_SPACE_ID."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping

import trackio
from trackio import context_vars

from m3b.loggers.base import LoggedRun, ParameterValue

PROJECT = "m3b"


class TrackioLogger:
    """Writes a run of Trackio. Parameters and tags are texts of the run's first and last step."""

    def __init__(self, run: LoggedRun) -> None:
        self.key, self._step = run.key or run.id, 0
        with contextlib.redirect_stdout(sys.stderr):  # standard output may be JSON
            self._run = trackio.init(
                PROJECT, name=self.key, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
            )

    def log_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        self._run.log(dict(parameters), step=self._step)

    def log_figures(self, figures: Mapping[str, float], step: int, at: float) -> None:
        self._step = step
        self._run.log(dict(figures), step=step)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self._run.log({f"m3b.{name}": text for name, text in tags.items()}, step=self._step)

    def close(self, status: str) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()
        context_vars.current_run.set(None)  # else Trackio ends it once more, and prints, when the process ends
