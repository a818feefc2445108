"""What every train.py and export.py does around a training: threads, a clean or a resumed Logout, exit codes, and several
processes, one a GPU, where the plan wants them."""

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

AGAIN = 75
"""Exit code: all processes start again with a smaller plan (EX_TEMPFAIL)."""
ENDED = "ended.json"
"""In Logout, of several processes: the exit code of the one that ended first, since torchrun has a code of its own."""
KEPT = ("cache", "jobs")
"""What a fresh start leaves in Logout: decoded images, and what scripts printed (this one among them)."""


class DivergenceError(RuntimeError):
    """The loss became NaN or infinite."""


class InsufficientMemoryError(RuntimeError):
    """Memory ran out, and nothing is left that could be made smaller."""


class RestartRequiredError(RuntimeError):
    """One of several processes ran out of memory: all have to start again, with --resume, with the smaller plan."""


def cores() -> int:
    """Processor cores to compute on: those that this process may use, which several that train together share, or as many as
    OMP_NUM_THREADS says where these are fewer."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, min(there // world_size(), int(asked) if asked.isdecimal() else there))


def begin(resume: bool, logout: Path = Path("Logout"), on_cpu: bool = True) -> None:
    """An empty Logout, caches apart; with `resume`, everything stays. Freed memory stays with the process.

    Several processes (torchrun) meet here, and the first one alone empties and prints.

    Args:
        on_cpu: whether several processes train on processors.
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
        (logout / ENDED).unlink(missing_ok=True)
    barrier()


def _empty(logout: Path) -> None:
    for item in logout.glob("*"):
        if item.is_dir() and item.name not in KEPT:
            shutil.rmtree(item)
        elif item.suffix in (".csv", ".json", ".npz", ".png"):
            item.unlink()


def held_out(logout: Path = Path("Logout")) -> str:
    """SHA-256 of valid_predictions.json, for config.json: which training a model is of, so that it is never measured on the
    held-out cases of another one, which it may have trained on. Empty without that file."""
    file = logout / "valid_predictions.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def guarded(train: Callable[[], None], logout: Path = Path("Logout")) -> int:
    """The exit code of a training: 0, 3 where the loss is not finite, 4 where memory does not suffice; of several processes
    75 where all have to start again with a smaller plan."""
    from m3b.training.memory import says_memory

    try:
        train()
    except DivergenceError as error:
        code, told = 3, f"{error}. Lower lr in plan.json, or look for broken intensities in the data."
    except InsufficientMemoryError as error:
        code, told = 4, f"out of memory even with {error}. Make size, patch or network smaller in plan.json."
    except RestartRequiredError as error:
        code, told = AGAIN, f"{error}. Start again with --resume."
    except (MemoryError, RuntimeError) as error:
        if not says_memory(error):
            raise
        short = str(error).splitlines()[0][:200]
        code, told = (
            4,
            f"out of memory outside of the steps ({short}). Make size, patch or network smaller in plan.json.",
        )
    else:
        end_group()
        return 0
    print(f"training ended: {told}", file=sys.stdout if is_main() else sys.stderr, flush=True)
    if world_size() > 1:
        with (logout / ENDED).open("w") as stream:
            json.dump({"code": code, "rank": rank()}, stream)
    return code


def trains_on_cpu(plan: Mapping[str, Any]) -> bool:
    """Whether there is no GPU, or the plan wants none."""
    import torch

    return plan["device"] == "cpu" or not torch.cuda.is_available()


def refuse_distributed(engine: str) -> None:
    """Ends the program where several processes (torchrun) would train what one does.

    Raises:
        SystemExit.
    """
    if world_size() > 1:
        raise SystemExit(f"engine {engine} is trained by one process: start train.py without torchrun")
