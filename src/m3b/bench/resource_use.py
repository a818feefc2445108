"""What a cell used: processor time, measured; money, from the ledger; energy, estimated from stated powers."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import m3b

CORE_WATTS, GPU_WATTS = 10.0, 300.0
"""Assumed power of a busy processor core with its share of the machine, and of a GPU, in watts. No measurement: servers take 4 to 12
watts a core by the power limits of their processors, and GPUs 70 to 700 watts."""


def read_cpu_seconds() -> float:
    """Return the processor time of this process and of its ended children in seconds."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def describe_machine() -> dict[str, Any]:
    """Return the versions of m3b and Python, the usable processors, and the number of NVIDIA GPUs, without any name of the machine."""
    gpus = [entry for entry in Path("/dev").glob("nvidia*") if entry.name.removeprefix("nvidia").isdigit()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"m3b": m3b.__version__, "python": platform.python_version(), "cores": cores, "gpus": len(gpus)}


@dataclass(frozen=True)
class ResourceUse:
    """The resources of some cells.

    Args:
        cpu_hours: processor time; None if a cell did not record it.
        energy_wh: estimated energy in watt hours; None without processor time. GPUs count as busy for the whole time of a cell.
    """

    wall_hours: float
    cpu_hours: float | None
    cost_usd: float
    energy_wh: float | None


def add_up_use(
    rows: Sequence[Mapping[str, Any]], *, core_watts: float = CORE_WATTS, gpu_watts: float = GPU_WATTS
) -> ResourceUse:
    """Return the sum over rows of `results.jsonl`."""
    usages: list[Mapping[str, Any]] = [row.get("usage") or {} for row in rows]
    wall_hours = sum(float(usage.get("wall_s") or 0) for usage in usages) / 3600
    cost_usd = sum(float(usage.get("cost_usd") or 0) for usage in usages)
    if any(usage.get("cpu_s") is None for usage in usages):
        return ResourceUse(wall_hours, None, cost_usd, None)
    cpu_hours = sum(float(usage["cpu_s"]) for usage in usages) / 3600
    gpu_hours = sum(
        float((row.get("usage") or {}).get("wall_s") or 0) * (row.get("machine") or {}).get("gpus", 0) for row in rows
    )
    return ResourceUse(wall_hours, cpu_hours, cost_usd, cpu_hours * core_watts + gpu_hours / 3600 * gpu_watts)
