"""Start of train.py in several processes, one a GPU, if its plan says so (`processes`): for one model of several processes, or for a
fold each. torchrun needs none of this."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from m3b.training.distributed import world_size
from m3b.training.earlier_weights import copy_start_weights
from m3b.training.entry import (
    EXIT_CODE_FILE,
    RESTART_CODE,
    DivergenceError,
    InsufficientMemoryError,
    count_cores,
    prepare_logout,
    run_training,
    trains_on_cpu,
)
from m3b.training.folds import TimeShares, count_folds, count_parallel_folds, list_start_names, read_result
from m3b.training.interruption import INTERRUPTED_CODE, TrainingInterruptedError, goes_on_after_restart
from m3b.training.pretrained.trial import apply_chosen_start
from m3b.training.recipe_check import check_recipe

MAX_RESTARTS = 12
"""Maximum restarts of a training with a smaller plan."""
TRAINING_EXIT_CODES = (3, 4, INTERRUPTED_CODE)
"""Exit codes of a training that ended for a known reason; others mean that a process broke down."""


def count_processes(plan: Mapping[str, Any]) -> int:
    """Return the number of processes to train with: at most the plan's and the number of GPUs; on processors, the plan's if it was
    made for them."""
    wanted = int(plan.get("processes") or 1)
    if wanted < 2 or world_size() > 1:
        return 1
    if trains_on_cpu(plan):
        return 1 if plan.get("machine") else wanted
    import torch

    return min(wanted, int(torch.cuda.device_count()))


def launch_processes(plan: Mapping[str, Any], argv: Sequence[str], logout: Path = Path("Logout")) -> int | None:
    """Train with several processes and return the exit code; None if this process has to train, or to start one a fold.

    If the processes cannot work together (they end before a first checkpoint), this process trains alone and says so.
    """
    processes, train_options = count_processes(plan), list(argv)
    if processes < 2 or count_folds(plan) > 1:
        return None
    for _ in range(MAX_RESTARTS):
        command = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(processes),
            "train.py",
            *train_options,
        ]
        print(f"training with {processes} processes", flush=True)
        defaults = {
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "OMP_NUM_THREADS": str(count_cores()),
        }  # train.py takes its share of them
        exit_code = subprocess.run([sys.executable, *command], env={**defaults, **os.environ}).returncode
        code_file = logout / EXIT_CODE_FILE
        code = int(json.loads(code_file.read_text())["code"]) if code_file.exists() else exit_code
        if exit_code == 0 or code in TRAINING_EXIT_CODES:
            return 0 if exit_code == 0 else code
        if (
            code != RESTART_CODE
            and not list(logout.glob("*/checkpoint-*/complete.json"))
            and not list(logout.glob("*/done.json"))
        ):
            print(
                f"{processes} processes could not train together (exit code {exit_code}): continuing with one",
                flush=True,
            )
            return None
        if code != RESTART_CODE:
            return exit_code
        train_options = [*train_options, "--resume"] if "--resume" not in train_options else train_options
    return 4


def parse_train_options(
    doc: str | None,
    argv: Sequence[str] | None,
    train_fold: Callable[[dict[str, Any], int, float], object] | None = None,
    networks: Sequence[str] = (),
) -> tuple[dict[str, Any], float] | int:
    """Return the plan and the minutes of a call of train.py, with Logout and threads prepared; an exit code if nothing is left to do
    here, because other processes trained, or the call was for one fold.

    Args:
        doc: of train.py, for `--help`.
        argv: its options; None for the command line.
        train_fold: (plan, fold, seconds) trains one of several parallel folds; None if a task has no folds.
        networks: folders in Logout of the networks that `--start-from` goes on with, if a task has no folds.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted training")
    parser.add_argument("--minutes", type=float, help="instead of the plan's")
    start_help = "go on from the weights of a finished training: its Logout folder, under another name"
    parser.add_argument("--start-from", type=Path, metavar="DIR", help=start_help)
    if train_fold:
        only_help = "train one of several parallel folds; train.py itself calls this"
        parser.add_argument("--only", nargs=2, metavar=("FOLD", "SECONDS"), help=only_help)
    options = parser.parse_args(argv)
    plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    check_recipe(plan)
    if train_fold and options.only:
        return train_only_fold(
            plan, options.only, lambda fold, seconds: train_fold(apply_chosen_start(plan), fold, seconds)
        )
    if (code := launch_processes(plan, sys.argv[1:] if argv is None else argv)) is not None:
        return code
    from m3b.training.threads import use_threads

    names = list_start_names(plan) if train_fold else networks
    fill = partial(copy_start_weights, plan, options.start_from, names, Path("Logout")) if options.start_from else None
    resume = options.resume or goes_on_after_restart()
    prepare_logout(resume, on_cpu=trains_on_cpu(plan), fill=fill)
    use_threads({**plan, "processes": 1})  # this process computes while no fold trains
    return plan, options.minutes or float(plan["minutes"])


def train_only_fold(plan: dict[str, Any], only: Sequence[str], train: Callable[[int, float], object]) -> int:
    """Train one of several parallel folds and return the exit code.

    Args:
        only: fold and seconds of `--only`.
        train: (fold, seconds) trains it.
    """
    import torch

    prepare_logout(resume=True)
    torch.set_num_threads(max(1, int(plan.get("threads") or count_cores() // count_parallel_folds(plan))))

    return run_training(lambda: train(int(only[0]), float(only[1])))


def train_folds_in_parallel(plan: Mapping[str, Any], shares: TimeShares) -> None:
    """Train the folds in parallel, one a GPU, if there are several of both. The caller trains folds of broken processes in sequence.

    Raises:
        DivergenceError, InsufficientMemoryError, TrainingInterruptedError: a fold ended so.
    """
    folds = [fold for fold in range(count_folds(plan)) if not read_result(f"fold{fold}")]
    processes = min(count_processes(plan), len(folds))
    if count_folds(plan) < 2 or processes < 2:
        return
    seconds = shares.seconds_per_fold()
    print(f"{len(folds)} folds, {processes} at a time, {seconds:.0f} s each", flush=True)
    codes = run_in_parallel(plan, [["--only", str(fold), f"{seconds:.1f}"] for fold in folds], processes)
    if INTERRUPTED_CODE in codes:
        raise TrainingInterruptedError(f"fold {folds[codes.index(INTERRUPTED_CODE)]}: see above")
    if 3 in codes:
        raise DivergenceError(f"fold {folds[codes.index(3)]}: see above")
    if 4 in codes:
        raise InsufficientMemoryError(f"the least batch (fold {folds[codes.index(4)]})")


def run_in_parallel(plan: Mapping[str, Any], jobs: Sequence[Sequence[str]], processes: int) -> list[int]:
    """Run `train.py` with each list of options, `processes` at a time, each on its own GPU; return the exit codes."""
    waiting, running, codes = list(enumerate(jobs)), dict[int, tuple[int, Any]](), [0] * len(jobs)
    gpus = [""] * processes if trains_on_cpu(plan) else _list_gpus()
    while waiting or running:
        for slot in range(processes):
            if slot not in running and waiting:
                job, job_options = waiting.pop(0)
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpus[slot]} if gpus[slot] else None
                running[slot] = job, subprocess.Popen([sys.executable, "train.py", *job_options], env=environment)
        for slot, (job, process) in list(running.items()):
            if (code := process.poll()) is not None:
                codes[job] = code
                del running[slot]
        time.sleep(0.1)
    return codes


def _list_gpus() -> list[str]:
    """Return the single values for CUDA_VISIBLE_DEVICES."""
    import torch

    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return names or [str(index) for index in range(torch.cuda.device_count())]
