"""Engines: where jobs run that take long (`--engine local`, `slurm`, `ray`)."""

from __future__ import annotations

from m3b.engines.base import (
    ENDED_STATES,
    ClusterResources,
    Engine,
    EngineError,
    EngineName,
    JobRequest,
    JobState,
    JobStatus,
    Partition,
    Resources,
    read_tail,
)
from m3b.engines.scripts import LOCAL, ClusterProcess, ClusterScripts, EngineOptions, open_engine, resolve_resources

__all__ = [
    "ENDED_STATES",
    "LOCAL",
    "ClusterProcess",
    "ClusterResources",
    "ClusterScripts",
    "Engine",
    "EngineError",
    "EngineName",
    "EngineOptions",
    "JobRequest",
    "JobState",
    "JobStatus",
    "Partition",
    "Resources",
    "open_engine",
    "read_tail",
    "resolve_resources",
]
