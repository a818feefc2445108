"""Command line of every plan.py."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from m3b.training.interruption import goes_on_after_restart
from m3b.training.machine import DEVICE_HELP, GPUS_HELP, Machine, parse_machine

TIME_ONLY_HELP = "estimate the time of the existing plan.json with --set, and write nothing"
KEEP_HELP = "change the existing plan.json by --set instead of making a new one"


class PlanArguments(argparse.Namespace):
    """`minutes` of training; `set`, the KEY=VALUE pairs; `time_only`, `keep`; `device` and `gpus` of the machine."""

    minutes: float
    set: list[str]
    time_only: bool
    keep: bool
    device: str
    gpus: int

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu" or "device=cpu" in self.set

    def machine(self, gpu_here: bool) -> Machine:
        """Return the machine that is planned for. Raises SystemExit if there is no such machine."""
        return parse_machine("cpu" if self.on_cpu else self.device, self.gpus, gpu_here)


def parse_plan_options(doc: str | None, argv: Sequence[str] | None) -> PlanArguments:
    """Parse the options; `doc` is that of plan.py, for `--help`."""
    parser = argparse.ArgumentParser(description=doc)
    minutes = "of training; imports and the first reading are extra"
    parser.add_argument("--minutes", type=float, default=10.0, help=minutes)
    values = "overrides; a dot enters an object"
    parser.add_argument("--set", nargs="*", action="extend", default=[], metavar="KEY=VALUE", help=values)
    parser.add_argument("--time-only", action="store_true", help=TIME_ONLY_HELP)
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    parser.add_argument("--device", default="auto", help=DEVICE_HELP)
    parser.add_argument("--gpus", type=int, default=0, help=GPUS_HELP)
    options = parser.parse_args(argv, PlanArguments())
    if not options.time_only and Path("plan.json").is_file() and goes_on_after_restart():
        print("plan.json stays: this job was started again, and its training goes on")
        raise SystemExit(0)
    return options
