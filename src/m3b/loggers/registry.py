"""The loggers by name: what each needs, where it writes, and how it is opened."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from m3b.errors import OfflineError, UsageError
from m3b.llm.keys import is_loopback
from m3b.loggers.base import EventLogger, LoggedRun
from m3b.loggers.recorder import RunRecorder
from m3b.loggers.relay import LoggerRelay

ENTRY_POINT_GROUP = "m3b.loggers"
LOGGERS_FOLDER = "loggers"
"""Folder of the run folder with the files of its loggers."""

Progress = Mapping[str, Any]
"""`EventLogger.progress` of the process before; empty for a new run."""


def _open_tensorboard(run: LoggedRun, progress: Progress) -> EventLogger:
    from m3b.loggers.tensorboard_files import TensorBoardLogger

    return RunRecorder(TensorBoardLogger(run), run, progress)


def _open_mlflow(run: LoggedRun, progress: Progress) -> EventLogger:
    from m3b.loggers.mlflow_store import MlflowLogger

    return RunRecorder(MlflowLogger(run), run, progress)


def _open_trackio(run: LoggedRun, progress: Progress) -> EventLogger:
    from m3b.loggers.trackio_run import TrackioLogger

    return RunRecorder(TrackioLogger(run), run, progress)


def _open_wandb(run: LoggedRun, progress: Progress) -> EventLogger:
    from m3b.loggers.wandb_run import WandbLogger

    return RunRecorder(WandbLogger(run), run, progress)


def _open_otel(run: LoggedRun, progress: Progress) -> EventLogger:
    from m3b.loggers.otel_spans import SpanRecorder

    return SpanRecorder(run)


@dataclass(frozen=True)
class LoggerKind:
    """A logger of m3b itself.

    Args:
        module, install: the package that it imports, and what pip installs for it.
        view: the command that shows what was logged; `{store}` is its folder.
        remote_variables: environment variables that name a server, instead of files on this machine.
        silencers: variables that keep the package from sending reports on its use; those that the user has set stay.
    """

    open: Callable[[LoggedRun, Progress], EventLogger]
    module: str
    install: str
    view: str
    remote_variables: tuple[str, ...] = ()
    silencers: Mapping[str, str] = field(default_factory=dict)


LOGGERS: Mapping[str, LoggerKind] = {
    "tensorboard": LoggerKind(_open_tensorboard, "tensorboard", "m3b[log]", "tensorboard --logdir {store}"),
    "mlflow": LoggerKind(
        _open_mlflow, "mlflow", "m3b[log]", "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {store}",
        ("MLFLOW_TRACKING_URI",), {"MLFLOW_DISABLE_TELEMETRY": "true"},
    ),
    "trackio": LoggerKind(
        _open_trackio, "trackio", "trackio>=0.43,<0.44", "trackio show --project m3b",
        ("TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID"), {"HF_HUB_DISABLE_TELEMETRY": "1"},
    ),
    "wandb": LoggerKind(
        _open_wandb, "wandb", "m3b[wandb]", "wandb sync {store}/wandb/offline-run-* (sends it)", ("WANDB_MODE",),
        {"WANDB_ERROR_REPORTING": "false"},
    ),
    "otel": LoggerKind(
        _open_otel, "opentelemetry.exporter.otlp.proto.http", "m3b[otel]", "spans by OTLP, to localhost:4318",
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    ),
}  # fmt: skip
LOCAL_VALUES = ("", "offline", "disabled", "dryrun")


def parse_names(names: str) -> list[str]:
    """Return the names of a list with commas, each once."""
    return list(dict.fromkeys(name for part in names.split(",") if (name := part.strip())))


def check_loggers(names: str, *, is_offline: bool = False) -> None:
    """Check that the loggers exist and their packages are installed; nothing is opened.

    Args:
        names: separated by commas.
        is_offline: refuse servers on other machines, which the environment may name.

    Raises:
        UsageError: a logger does not exist, or an extra of m3b is missing.
        OfflineError: a logger would write to another machine.
    """
    for name in parse_names(names):
        kind = LOGGERS.get(name)
        if kind is None:
            _find_plugin(name)
        elif not _is_installed(kind.module):
            raise UsageError(f"The logger {name} needs the package {kind.module}: pip install '{kind.install}'.")
        elif is_offline and (variable := _find_remote_variable(kind)):
            raise OfflineError(
                f"The logger {name} would write to another machine, since {variable} is set in the environment, and only "
                f"this machine is allowed (offline). Unset {variable} to log into the run folder.",
                variable,
            )


def describe_loggers(names: str, folder: Path) -> list[str]:
    """Return where each logger writes, and how to look at it."""
    notes = []
    for name in parse_names(names):
        kind = LOGGERS.get(name)
        variable = _find_remote_variable(kind) if kind else ""
        if kind is None or variable:
            notes.append(f"Logged by {name}{f', to where {variable} says' if variable else ''}.")
        else:
            notes.append(f"Logged by {name}: {kind.view.format(store=folder / LOGGERS_FOLDER / name)}")
    return notes


def open_loggers(names: str, run_id: str, folder: Path) -> LoggerRelay:
    """Return the opened loggers of a run. A logger that cannot be opened is left out, with a warning."""
    relay = LoggerRelay(run_id, folder, folder / LOGGERS_FOLDER)
    for name in parse_names(names):
        relay.open(name, partial(_open_logger, name))
    return relay


def _open_logger(name: str, run: LoggedRun, progress: Progress) -> EventLogger:
    kind = LOGGERS.get(name)
    if kind is None:
        return RunRecorder(_find_plugin(name).load()(run), run, progress)
    for variable, value in kind.silencers.items():
        os.environ.setdefault(variable, value)
    return kind.open(run, progress)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def _find_plugin(name: str) -> EntryPoint:
    points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in points:
        known = [*LOGGERS, *sorted(points)]
        close_matches = difflib.get_close_matches(name.lower(), known, 1)
        suggestion = f" Did you mean {close_matches[0]}?" if close_matches else ""
        raise UsageError(f"There is no logger {name!r}.{suggestion} There are: {', '.join(known)}.")
    return points[name]


def _find_remote_variable(kind: LoggerKind) -> str:
    """Return the variable of the environment by which a logger writes to another machine; empty if there is none."""
    for variable in kind.remote_variables:
        value = os.environ.get(variable, "").strip()
        is_file = value.startswith(("file:", "sqlite:", "/", "."))
        if not (value.lower() in LOCAL_VALUES or is_file or is_loopback(value)):
            return variable
    return ""
