"""Whole runs of the embedded rules in one process, some at a time: does anything pile up?

Every run reads drawn chest radiographs, makes an index, trains a small network and delivers it. After each run the
memory of this process is noted; after the last one its descriptors, threads and child processes are compared with those
after the first few, and the temporary folder, which is this script's own, with empty.

    python benchmarks/soak.py                          200 runs, four at a time
    python benchmarks/soak.py --runs 24 --minutes 0.05
    python benchmarks/soak.py --results FILE           goes on where a benchmark that was stopped left off
    python benchmarks/soak.py --results FILE --max-minutes 30

Printed are the memory's course, its slope with a 95 % interval (least squares over all runs but the first quarter, which
fill caches), and what was left. With `--results` each run is a line of JSON in that file as soon as it has ended, and a
later call makes only the runs that have none; memory is then followed within each process, with one slope for all. The
exit code is 1 if a run did not end with a model, if something was left, or if memory grows: if the interval of the slope
lies above zero and 200 runs at its middle would make more than 64 MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
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
from typing import Any

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


def slope(courses: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Least squares: the growth a step, and half the width of its 95 % interval (normal approximation).

    Args:
        courses: of one process each, which begin wherever they like and have one slope.
    """
    points = [
        (at - (len(values) - 1) / 2, value - sum(values) / len(values))
        for values in courses
        for at, value in enumerate(values)
    ]
    spread, free = sum(at**2 for at, _ in points), len(points) - len(courses) - 1
    if free < 1 or spread == 0:
        return 0.0, math.inf
    grade = sum(at * value for at, value in points) / spread
    rest = sum((value - grade * at) ** 2 for at, value in points)
    return grade, 1.96 * math.sqrt(rest / free / spread)


def known(results: Path | None) -> list[dict[str, Any]]:
    """The runs that earlier calls made; a last line that was torn is left out."""
    found = []
    for line in results.read_text().splitlines() if results is not None and results.is_file() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


@dataclass
class Soak:
    """Runs one pipeline many times and keeps what it saw."""

    place: Path
    data: Path
    minutes: float
    results: Path | None = None
    earlier: list[dict[str, Any]] = field(default_factory=list)
    until: float = math.inf
    memory: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def one(self, number: int) -> None:
        """One run to its end; its folder goes at once."""
        if time.monotonic() > self.until:
            return
        from m3b import Pipeline

        out = self.place / "runs" / f"{number:04d}"
        pipeline = Pipeline("rules", data=self.data, out=out, train_minutes=self.minutes, seed=number, register=False)
        result = pipeline.run(REQUEST)
        left = sorted(path.relative_to(out).as_posix() for path in out.rglob(".*") if path.name != ".lock")
        with self.lock:
            faults = [f"run {number} left {left[:5]}"] if left else []
            if result.model_dir is None or result.integrity != "clean":
                faults.append(f"run {number} ended as {result.status}: {result.reason}")
            self.faults += faults
            self.memory.append(resident_mib())
            if self.results is not None:
                told = {"process": os.getpid(), "number": number, "memory": self.memory[-1], "faults": faults}
                with self.results.open("a") as stream:
                    stream.write(json.dumps(told) + "\n")
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
    courses: dict[object, list[float]] = {}
    for one in soak.earlier:
        courses.setdefault(one["process"], []).append(one["memory"])
        soak.faults += one["faults"]
    every = [*courses.values(), soak.memory]
    warm = [course[math.ceil(len(course) * WARM) :] for course in every if len(course) > 3]
    grade, half = slope(warm)
    if grade - half > 0 and grade * OVER_RUNS > MAX_GROWTH_MIB:
        soak.faults.append(f"memory grows by {grade:.2f} MiB a run")
    lines = [
        f"{sum(map(len, every))} runs, {at_once} at a time, {len(soak.memory)} of them now in "
        f"{time.monotonic() - began:.0f} s; processes: {sum(map(bool, every))}.",
        *(
            f"Memory of a process: {course[0]:.1f} MiB after its first run, {course[-1]:.1f} after {len(course)}, "
            f"{max(course):.1f} at most."
            for course in every
            if course
        ),
        f"Slope {grade:+.3f} MiB a run (95 % CI {grade - half:+.3f} to {grade + half:+.3f}).",
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
    parser.add_argument("--results", type=Path, help="lines of JSON to add to, and to go on from")
    parser.add_argument("--max-minutes", type=float, help="begin no further run after so long")
    args = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        (place / "tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(place / "tmp")
        from m3b.data.synthetic import make_chest

        data, earlier, began = (
            make_chest(place / "xrays", patients=args.patients),
            known(args.results),
            time.monotonic(),
        )
        until = began + args.max_minutes * 60 if args.max_minutes else math.inf
        soak = Soak(place, data, args.minutes, args.results, earlier, until)
        done = {one["number"] for one in earlier}
        if left := [number for number in range(args.runs) if number not in done]:
            soak.one(left[0])  # what is imported and opened once is there from now on
            before = state()
            with ThreadPoolExecutor(args.at_once) as pool:
                list(pool.map(soak.one, left[1:]))
            soak.compare(before)
        print(told(soak, began, args.at_once))
        return 1 if soak.faults else 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
