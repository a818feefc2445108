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

__all__ = [
    "ENDED_STATES",
    "ClusterResources",
    "Engine",
    "EngineError",
    "EngineName",
    "JobRequest",
    "JobState",
    "JobStatus",
    "Partition",
    "Resources",
    "read_tail",
]
