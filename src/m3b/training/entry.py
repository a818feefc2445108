"""Frame of every train.py and export.py: processor cores, a fresh or resumed Logout, exit codes, several processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from m3b.training.allocator import keep_freed_memory
from m3b.training.distributed import barrier, end_group, is_main, rank, start_group, world_size
from m3b.training.interruption import INTERRUPTED_CODE, TrainingInterruptedError, listen_for_interruptions, note_job

RESTART_CODE = 75
"""Exit code: all processes restart with a smaller plan (EX_TEMPFAIL)."""
EXIT_CODE_FILE = "ended.json"
"""File in Logout with the exit code of the process that ended first; torchrun returns a code of its own."""
KEPT_FOLDERS = ("cache", "jobs")
"""Folders of Logout that a fresh start keeps: decoded images and the output of scripts (this one included)."""


class DivergenceError(RuntimeError):
    """The loss became NaN or infinite."""


class InsufficientMemoryError(RuntimeError):
    """Memory ran out, and nothing is left that could be made smaller."""


class RestartRequiredError(RuntimeError):
    """One of several processes ran out of memory: all have to start again, with --resume, with the smaller plan."""


def count_cores() -> int:
    """Return the processor cores for computing: those that this process may use, divided among processes that train together, at
    most OMP_NUM_THREADS."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    requested = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, min(available // world_size(), int(requested) if requested.isdecimal() else available))


def prepare_logout(
    resume: bool, logout: Path = Path("Logout"), on_cpu: bool = True, fill: Callable[[], object] | None = None
) -> None:
    """Empty Logout except for caches, or keep everything with `resume`; freed memory stays with the process.

    Several processes (torchrun) join here; only the first one empties, fills and prints.

    Args:
        on_cpu: several processes train on processors.
        fill: puts into Logout what the training starts from.
    """
    keep_freed_memory()
    if world_size() > 1:
        start_group(on_cpu)
        if not is_main():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    if is_main():
        if not resume:
            _empty(logout)
        logout.mkdir(exist_ok=True)
        note_job(logout)
        (logout / EXIT_CODE_FILE).unlink(missing_ok=True)
        if fill:
            fill()
    barrier()


def _empty(logout: Path) -> None:
    for item in logout.glob("*"):
        if item.is_dir() and item.name not in KEPT_FOLDERS:
            shutil.rmtree(item)
        elif item.suffix in (".csv", ".json", ".npz", ".png"):
            item.unlink()


def hash_validation_cases(logout: Path = Path("Logout")) -> str:
    """Return the SHA-256 of valid_predictions.json, "" without that file.

    In config.json it identifies the training of a model, so that a model is never measured on the held-out cases of another training.
    """
    file = logout / "valid_predictions.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def run_training(train: Callable[[], object], logout: Path = Path("Logout")) -> int:
    """Run a training and return its exit code: 0, 3 (loss not finite), 4 (out of memory), 143 (interrupted), with several processes
    75 (restart with a smaller plan)."""
    from m3b.training.memory import is_out_of_memory

    listen_for_interruptions()
    try:
        train()
    except DivergenceError as error:
        code, message = 3, f"{error}. Lower lr in plan.json, or look for broken intensities in the data."
    except InsufficientMemoryError as error:
        code, message = 4, f"out of memory even with {error}. Make size, patch or network smaller in plan.json."
    except RestartRequiredError as error:
        code, message = RESTART_CODE, f"{error}. Start again with --resume."
    except TrainingInterruptedError as error:
        code, message = INTERRUPTED_CODE, f"interrupted, {error}. Start again with --resume."
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).splitlines()[0][:200]
        code, message = (
            4,
            f"out of memory outside of the steps ({first_line}). Make size, patch or network smaller in plan.json.",
        )
    else:
        end_group()
        return 0
    print(f"training ended: {message}", file=sys.stdout if is_main() else sys.stderr, flush=True)
    if world_size() > 1:
        with (logout / EXIT_CODE_FILE).open("w") as stream:
            json.dump({"code": code, "rank": rank()}, stream)
    return code


def trains_on_cpu(plan: Mapping[str, Any]) -> bool:
    """Return whether training runs on processors: there is no GPU, or the plan says so."""
    import torch

    return plan["device"] == "cpu" or not torch.cuda.is_available()


def refuse_distributed(engine: str) -> None:
    """Raise SystemExit if several processes (torchrun) would run an engine that trains in one process."""
    if world_size() > 1:
        raise SystemExit(f"engine {engine} is trained by one process: start train.py without torchrun")
