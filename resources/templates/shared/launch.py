"""train.py starts itself once a GPU where its plan wants several (`processes`); whoever calls torchrun needs none of this."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from Utils.start import AGAIN, ENDED, trains_on_cpu
from Utils.together import processes

RESTARTS = 12
"""Times that a training starts again with a smaller plan."""
OWN = (3, 4)
"""Exit codes that say why a training ended; others are those of processes that broke down."""


def count_of(plan: Mapping[str, Any]) -> int:
    """Processes to train with here: as many as the plan wants, no more than there are GPUs. On processors those of a plan that was
    made for them."""
    wanted = int(plan.get("processes") or 1)
    if wanted < 2 or processes() > 1:
        return 1
    if trains_on_cpu(plan):
        return 1 if plan.get("machine") else wanted
    import torch

    return min(wanted, torch.cuda.device_count())


def launched(plan: Mapping[str, Any], argv: Sequence[str], logout: Path = Path("Logout")) -> int | None:
    """The exit code of a training by several processes; None where this one is to do it.

    Where the processes cannot work together at all (they end before a first checkpoint), this one does it alone, and says so.
    """
    count, more = count_of(plan), list(argv)
    if count < 2:
        return None
    for _ in range(RESTARTS):
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "train.py", *more]
        print(f"training with {count} processes", flush=True)
        quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}  # train.py sets its threads itself
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
            print(f"{count} processes could not train together (exit code {ended}): going on with one", flush=True)
            return None
        if code != AGAIN:
            return ended
        more = [*more, "--resume"] if "--resume" not in more else more
    return 4


def side_by_side(plan: Mapping[str, Any], jobs: Sequence[Sequence[str]], count: int) -> list[int]:
    """Exit codes of `train.py` with each of the options, `count` of them at a time, each on a GPU of its own."""
    waiting, running, codes = list(enumerate(jobs)), dict[int, tuple[int, Any]](), [0] * len(jobs)
    cards = [""] * count if trains_on_cpu(plan) else _cards()
    while waiting or running:
        for place in range(count):
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
