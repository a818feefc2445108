"""Loggers of a run, by name: `m3b run --log tensorboard`. A logger keeps parameters, curves, results and tags of a run.

Other packages add loggers by an entry point of the group `m3b.loggers`: a function that takes a `LoggedRun` and returns
a `RunLogger`.
"""

from __future__ import annotations

from m3b.loggers.base import LoggedRun, ParameterValue, RunLogger
from m3b.loggers.registry import ENTRY_POINT_GROUP, check_loggers, describe_loggers, open_loggers
from m3b.loggers.relay import LoggerRelay

__all__ = [
    "ENTRY_POINT_GROUP",
    "LoggedRun",
    "LoggerRelay",
    "ParameterValue",
    "RunLogger",
    "check_loggers",
    "describe_loggers",
    "open_loggers",
]
