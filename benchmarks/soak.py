"""Whole runs of the embedded rules in one process, some at a time: does anything pile up?

Every run reads drawn chest radiographs, makes an index, trains a small network and delivers it. After each run the
memory of this process is noted; after the last one its descriptors, threads and child processes are compared with those
after the first few, and the temporary folder, which is this script's own, with empty.

    python benchmarks/soak.py                          200 runs, four at a time
    python benchmarks/soak.py --runs 24 --minutes 0.05

Printed are the memory's course, its slope with a 95 % interval (least squares over all runs but the first quarter, which
fill caches), and what was left. The exit code is 1 if a run did not end with a model, if something was left, or if
memory grows: if the interval of the slope lies above zero and 200 runs at its middle would make more than 64 MiB.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

MIB = 2**20
REQUEST = "Build a model that detects lung opacities on chest X-rays"
WARM = 0.25
"""Share of the runs that fill caches and are left out of the slope."""
MAX_GROWTH_MIB, OVER_RUNS = 64.0, 200
SETTLE_S = 20.0
"""Seconds that guards of the last scripts get to end."""


@dataclass(frozen=True)
class State:
    """What this process holds."""

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]
    children: tuple[str, ...]


def state() -> State:
    """What this process holds now."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(link))
        except OSError:
            continue  # that of the listing itself
    return State(tuple(sorted(found)), tuple(sorted(one.name for one in threading.enumerate())), tuple(children()))


def children() -> list[str]:
    """Command lines of all processes below this one."""
    parents = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                status = (place / "stat").read_text().rpartition(")")[2].split()
                parents[int(place.name)] = int(status[1])
            except OSError:
                continue
    below, grown = {os.getpid()}, True
    while grown:
        more = {one for one, parent in parents.items() if parent in below} - below
        below |= more
        grown = bool(more)
    found = []
    for one in sorted(below - {os.getpid()}):
        try:
            found.append(f"{one} {Path('/proc', str(one), 'cmdline').read_bytes().decode(errors='replace')[:100]}")
        except OSError:
            continue
    return found


def resident_mib() -> float:
    """Memory of this process that is in RAM, in MiB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def slope(values: Sequence[float]) -> tuple[float, float]:
    """Least squares: the growth a step, and half the width of its 95 % interval (normal approximation)."""
    count = len(values)
    if count < 3:
        return 0.0, math.inf
    middle, mean = (count - 1) / 2, sum(values) / count
    spread = sum((at - middle) ** 2 for at in range(count))
    grade = sum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
    rest = sum((value - mean - grade * (at - middle)) ** 2 for at, value in enumerate(values))
    return grade, 1.96 * math.sqrt(rest / (count - 2) / spread)


@dataclass
class Soak:
    """Runs one pipeline many times and keeps what it saw."""

    place: Path
    data: Path
    minutes: float
    memory: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, number: int) -> None:
        """One run to its end; its folder goes at once."""
        from m3b import Pipeline

        out = self.place / "runs" / f"{number:04d}"
        result = Pipeline("rules", data=self.data, out=out, train_minutes=self.minutes, seed=number).run(REQUEST)
        left = sorted(path.relative_to(out).as_posix() for path in out.rglob(".*") if path.name != ".lock")
        with self.lock:
            if result.model_dir is None or result.integrity != "clean":
                self.faults.append(f"run {number} ended as {result.status}: {result.reason}")
            if left:
                self.faults.append(f"run {number} left {left[:5]}")
            self.memory.append(resident_mib())
            print(f"{len(self.memory):4} {result.status:12} {self.memory[-1]:7.1f} MiB", flush=True)
        shutil.rmtree(out)

    def compare(self, before: State) -> None:
        """What is there now and was not before."""
        end = time.monotonic() + SETTLE_S
        while (now := state()) != before and time.monotonic() < end:
            time.sleep(0.5)
        for name in ("descriptors", "threads", "children"):
            more = list(getattr(now, name))
            for one in getattr(before, name):
                if one in more:
                    more.remove(one)
            if more:
                self.faults.append(f"{len(more)} {name} left: {more[:5]}")
        if left := sorted(path.name for path in (self.place / "tmp").iterdir()):
            self.faults.append(f"{len(left)} temporary files left: {left[:5]}")


def told(soak: Soak, began: float, at_once: int) -> str:
    """The figures in lines, and whether memory grows as a fault."""
    warm = soak.memory[math.ceil(len(soak.memory) * WARM) :]
    grade, half = slope(warm)
    if grade - half > 0 and grade * OVER_RUNS > MAX_GROWTH_MIB:
        soak.faults.append(f"memory grows by {grade:.2f} MiB a run")
    lines = [
        f"{len(soak.memory)} runs, {at_once} at a time, in {time.monotonic() - began:.0f} s.",
        f"Memory of this process: {soak.memory[0]:.1f} MiB after the first run, {warm[0] if warm else 0:.1f} after the "
        f"caches are full, {soak.memory[-1]:.1f} at the end, {max(soak.memory):.1f} at most; slope {grade:+.3f} MiB a run "
        f"(95 % CI {grade - half:+.3f} to {grade + half:+.3f}).",
        *(soak.faults or ["Every run delivered a model; no descriptor, thread, process or temporary file was left."]),
    ]
    return "\n".join(lines)


def main() -> int:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--patients", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=0.05, help="that training may take, a run")
    args = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        (place / "tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(place / "tmp")
        from m3b.data.synthetic import make_chest

        soak = Soak(place, make_chest(place / "chest-xrays", patients=args.patients), args.minutes)
        began = time.monotonic()
        soak.one(0)  # what is imported and opened once is there from now on
        before = state()
        with ThreadPoolExecutor(args.at_once) as pool:
            list(pool.map(soak.one, range(1, args.runs)))
        soak.compare(before)
        print(told(soak, began, args.at_once))
        return 1 if soak.faults else 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
