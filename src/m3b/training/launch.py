"""train.py starts itself once a GPU where its plan wants several (`processes`): for one model of several processes, or for a fold
each. Whoever calls torchrun needs none of this."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.training.distributed import world_size
from m3b.training.entry import (
    AGAIN,
    ENDED,
    DivergenceError,
    InsufficientMemoryError,
    begin,
    cores,
    guarded,
    trains_on_cpu,
)
from m3b.training.folds import TimeShares, at_once, count, done_of
from m3b.training.pretrained.trial import settled

RESTARTS = 12
"""Times that a training starts again with a smaller plan."""
OWN = (3, 4)
"""Exit codes that say why a training ended; others are those of processes that broke down."""


def processes_here(plan: Mapping[str, Any]) -> int:
    """Processes to train with here: as many as the plan wants, no more than there are GPUs. On processors those of a plan that was
    made for them."""
    wanted = int(plan.get("processes") or 1)
    if wanted < 2 or world_size() > 1:
        return 1
    if trains_on_cpu(plan):
        return 1 if plan.get("machine") else wanted
    import torch

    return min(wanted, torch.cuda.device_count())


def launch_processes(plan: Mapping[str, Any], argv: Sequence[str], logout: Path = Path("Logout")) -> int | None:
    """The exit code of a training by several processes; None where this one is to do it, or to start one for each fold (`beside`).

    Where the processes cannot work together at all (they end before a first checkpoint), this one does it alone, and says so.
    """
    several, more = processes_here(plan), list(argv)
    if several < 2 or count(plan) > 1:
        return None
    for _ in range(RESTARTS):
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(several), "train.py", *more]
        print(f"training with {several} processes", flush=True)
        quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": str(cores())}  # train.py takes its share of them
        ended = subprocess.run([sys.executable, *command], env={**quiet, **os.environ}).returncode
        said = logout / ENDED
        code = int(json.loads(said.read_text())["code"]) if said.exists() else ended
        if ended == 0 or code in OWN:
            return 0 if ended == 0 else code
        if (
            code != AGAIN
            and not list(logout.glob("*/checkpoint-*/complete.json"))
            and not list(logout.glob("*/done.json"))
        ):
            print(f"{several} processes could not train together (exit code {ended}): going on with one", flush=True)
            return None
        if code != AGAIN:
            return ended
        more = [*more, "--resume"] if "--resume" not in more else more
    return 4


def parse_call(
    doc: str | None, argv: Sequence[str] | None, one_fold: Callable[[dict[str, Any], int, float], object] | None = None
) -> tuple[dict[str, Any], float] | int:
    """What train.py was called for: the plan and its minutes, with Logout/ and threads ready; an exit code where nothing is left to
    do here, since other processes trained, or one fold was all.

    Args:
        doc: of train.py, for `--help`.
        argv: its options; None for those of the command line.
        one_fold: (plan, fold, seconds) trains a fold beside others; None where a template has no folds.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted training stopped")
    parser.add_argument("--minutes", type=float, help="instead of the plan's")
    if one_fold:
        told = "one fold, beside others: train.py calls it so"
        parser.add_argument("--only", nargs=2, metavar=("FOLD", "SECONDS"), help=told)
    options = parser.parse_args(argv)
    plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    if one_fold and options.only:
        return train_only_fold(plan, options.only, lambda fold, seconds: one_fold(settled(plan), fold, seconds))
    if (code := launch_processes(plan, sys.argv[1:] if argv is None else argv)) is not None:
        return code
    from m3b.training.threads import use_threads

    begin(options.resume, on_cpu=trains_on_cpu(plan))
    use_threads({**plan, "processes": 1})  # this process computes while no fold is trained
    return plan, options.minutes or float(plan["minutes"])


def train_only_fold(plan: dict[str, Any], asked: Sequence[str], train: Callable[[int, float], object]) -> int:
    """The exit code of one fold's training, while others are trained beside it.

    Args:
        asked: what `--only` was given.
        train: (fold, its seconds) trains it.
    """
    import torch

    begin(resume=True)
    torch.set_num_threads(max(1, int(plan.get("threads") or cores() // at_once(plan))))

    def once() -> None:
        train(int(asked[0]), float(asked[1]))

    return guarded(once)


def train_folds_in_parallel(plan: Mapping[str, Any], turns: TimeShares) -> None:
    """Where there are several folds and several GPUs: the folds at the same time, one a GPU. What is left undone (a process
    broke down) is for the caller, one after the other.

    Raises:
        DivergenceError, InsufficientMemoryError: a fold ended so.
    """
    folds = [fold for fold in range(count(plan)) if not done_of(f"fold{fold}")]
    several = min(processes_here(plan), len(folds))
    if count(plan) < 2 or several < 2:
        return
    seconds = turns.per_fold()
    print(f"{len(folds)} folds, {several} at a time, {seconds:.0f} s each", flush=True)
    codes = run_in_parallel(plan, [["--only", str(fold), f"{seconds:.1f}"] for fold in folds], several)
    if 3 in codes:
        raise DivergenceError(f"fold {folds[codes.index(3)]}: see above")
    if 4 in codes:
        raise InsufficientMemoryError(f"the least batch (fold {folds[codes.index(4)]})")


def run_in_parallel(plan: Mapping[str, Any], jobs: Sequence[Sequence[str]], several: int) -> list[int]:
    """Exit codes of `train.py` with each of the options, `several` of them at a time, each on a GPU of its own."""
    waiting, running, codes = list(enumerate(jobs)), dict[int, tuple[int, Any]](), [0] * len(jobs)
    cards = [""] * several if trains_on_cpu(plan) else _cards()
    while waiting or running:
        for place in range(several):
            if place not in running and waiting:
                number, options = waiting.pop(0)
                own = {**os.environ, "CUDA_VISIBLE_DEVICES": cards[place]} if cards[place] else None
                running[place] = number, subprocess.Popen([sys.executable, "train.py", *options], env=own)
        for place, (number, process) in list(running.items()):
            if (code := process.poll()) is not None:
                codes[number] = code
                del running[place]
        time.sleep(0.1)
    return codes


def _cards() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name, one by one."""
    import torch

    said = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    return said or [str(number) for number in range(torch.cuda.device_count())]
