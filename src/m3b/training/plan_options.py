"""What every plan.py is asked on its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from m3b.training.machine import DEVICE, GPUS, Machine, asked_machine

TIME_ONLY = "price the plan.json that is there, with --set, and write nothing"
KEEP = "change the plan.json that is there by --set, instead of making one afresh"


class PlanArguments(argparse.Namespace):
    """`minutes` of training; `set`, the KEY=VALUE pairs; `time_only`, `keep`; `device` and `gpus`, the machine that is planned for."""

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
        """The machine that is planned for; SystemExit where it cannot be meant."""
        return asked_machine("cpu" if self.on_cpu else self.device, self.gpus, gpu_here)


def read_options(doc: str | None, argv: Sequence[str] | None) -> PlanArguments:
    """Reads the options; `doc` is that of plan.py, for `--help`."""
    parser = argparse.ArgumentParser(description=doc)
    minutes = "of training; imports and first reading come on top"
    parser.add_argument("--minutes", type=float, default=10.0, help=minutes)
    values = "overrides; a dot enters an object"
    parser.add_argument("--set", nargs="*", action="extend", default=[], metavar="KEY=VALUE", help=values)
    parser.add_argument("--time-only", action="store_true", help=TIME_ONLY)
    parser.add_argument("--keep", action="store_true", help=KEEP)
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--gpus", type=int, default=0, help=GPUS)
    return parser.parse_args(argv, PlanArguments())
