"""Make whole runs of the embedded rules in one process, several at a time, and look for leaks.

Every run reads drawn chest radiographs, makes an index, trains a small network and delivers it. The script notes the
memory of this process after each run. After the last run, it compares descriptors, threads and child processes with those
after the first few, and the temporary folder, which this script has to itself, with an empty one.

    python benchmarks/soak.py                          200 runs, four at a time
    python benchmarks/soak.py --runs 24 --minutes 0.05
    python benchmarks/soak.py --results FILE           continues an interrupted benchmark
    python benchmarks/soak.py --results FILE --max-minutes 30

It prints the course of the memory, its slope with a 95 % interval (least squares over all runs but the first quarter, which
fills caches), and anything that was left. With `--results` each run is a line of JSON in that file as soon as it has ended, and a
later call makes only the missing runs; memory is then followed within each process, with one slope for all. The
exit code is 1 if a run did not end with a model, if something was left, or if memory grows: if the interval of the slope
lies above zero and 200 runs at its middle would add more than 64 MiB.
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
WARM_UP_SHARE = 0.25
"""Share of the runs that fill caches and are excluded from the slope."""
MAX_GROWTH_MIB, OVER_RUNS = 64.0, 200
SETTLE_S = 20.0
"""Seconds for the guards of the last scripts to end."""


@dataclass(frozen=True)
class ProcessState:
    """Memory, descriptors, threads and children of this process."""

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]
    children: tuple[str, ...]


def get_process_state() -> ProcessState:
    """Return the present state of this process."""
    descriptors = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            descriptors.append(os.readlink(link))
        except OSError:
            continue  # that of the listing itself
    return ProcessState(
        tuple(sorted(descriptors)),
        tuple(sorted(thread.name for thread in threading.enumerate())),
        tuple(list_children()),
    )


def list_children() -> list[str]:
    """Return the command lines of all processes below this one."""
    parents = {}
    for process_folder in Path("/proc").iterdir():
        if process_folder.name.isdigit():
            try:
                status = (process_folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(process_folder.name)] = int(status[1])
            except OSError:
                continue
    descendants, has_grown = {os.getpid()}, True
    while has_grown:
        new_pids = {pid for pid, parent in parents.items() if parent in descendants} - descendants
        descendants |= new_pids
        has_grown = bool(new_pids)
    command_lines = []
    for pid in sorted(descendants - {os.getpid()}):
        try:
            command_lines.append(
                f"{pid} {Path('/proc', str(pid), 'cmdline').read_bytes().decode(errors='replace')[:100]}"
            )
        except OSError:
            continue
    return command_lines


def get_resident_mib() -> float:
    """Return the resident memory of this process in MiB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def fit_slope(courses: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the least-squares growth a step, and half the width of its 95 % interval (normal approximation).

    Args:
        courses: one course a process, with arbitrary starts and a common slope.
    """
    points = [
        (position - (len(values) - 1) / 2, value - sum(values) / len(values))
        for values in courses
        for position, value in enumerate(values)
    ]
    spread, free = sum(position**2 for position, _ in points), len(points) - len(courses) - 1
    if free < 1 or spread == 0:
        return 0.0, math.inf
    gradient = sum(position * value for position, value in points) / spread
    residual = sum((value - gradient * position) ** 2 for position, value in points)
    return gradient, 1.96 * math.sqrt(residual / free / spread)


def load_earlier_runs(results: Path | None) -> list[dict[str, Any]]:
    """Load the runs of earlier calls; an incomplete last line is left out."""
    runs = []
    for line in results.read_text().splitlines() if results is not None and results.is_file() else ():
        with contextlib.suppress(ValueError):
            runs.append(json.loads(line))
    return runs


@dataclass
class Soak:
    """Runs one pipeline many times and keeps the measurements."""

    place: Path
    data: Path
    minutes: float
    results: Path | None = None
    earlier: list[dict[str, Any]] = field(default_factory=list)
    until: float = math.inf
    memory: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run_once(self, number: int) -> None:
        """Make one run to its end and delete its folder at once."""
        if time.monotonic() > self.until:
            return
        from m3b import Pipeline

        out = self.place / "runs" / f"{number:04d}"
        pipeline = Pipeline("rules", data=self.data, out=out, train_minutes=self.minutes, seed=number, register=False)
        result = pipeline.run(REQUEST)
        leftover_files = sorted(path.relative_to(out).as_posix() for path in out.rglob(".*") if path.name != ".lock")
        with self.lock:
            faults = [f"run {number} left {leftover_files[:5]}"] if leftover_files else []
            if result.model_dir is None or result.integrity != "clean":
                faults.append(f"run {number} ended as {result.status}: {result.reason}")
            self.faults += faults
            self.memory.append(get_resident_mib())
            if self.results is not None:
                record = {"process": os.getpid(), "number": number, "memory": self.memory[-1], "faults": faults}
                with self.results.open("a") as stream:
                    stream.write(json.dumps(record) + "\n")
            print(f"{len(self.memory):4} {result.status:12} {self.memory[-1]:7.1f} MiB", flush=True)
        shutil.rmtree(out)

    def compare(self, before: ProcessState) -> None:
        """Return the things that exist now and did not exist before."""
        end = time.monotonic() + SETTLE_S
        while (now := get_process_state()) != before and time.monotonic() < end:
            time.sleep(0.5)
        for name in ("descriptors", "threads", "children"):
            new_items = list(getattr(now, name))
            for old_item in getattr(before, name):
                if old_item in new_items:
                    new_items.remove(old_item)
            if new_items:
                self.faults.append(f"{len(new_items)} {name} left: {new_items[:5]}")
        if leftover_files := sorted(path.name for path in (self.place / "tmp").iterdir()):
            self.faults.append(f"{len(leftover_files)} temporary files left: {leftover_files[:5]}")


def format_summary(soak: Soak, started: float, at_once: int) -> str:
    """Format the figures in lines; also return whether memory grows."""
    courses: dict[object, list[float]] = {}
    for earlier_run in soak.earlier:
        courses.setdefault(earlier_run["process"], []).append(earlier_run["memory"])
        soak.faults += earlier_run["faults"]
    all_courses = [*courses.values(), soak.memory]
    warm_courses = [course[math.ceil(len(course) * WARM_UP_SHARE) :] for course in all_courses if len(course) > 3]
    gradient, half_width = fit_slope(warm_courses)
    if gradient - half_width > 0 and gradient * OVER_RUNS > MAX_GROWTH_MIB:
        soak.faults.append(f"memory grows by {gradient:.2f} MiB a run")
    lines = [
        f"{sum(map(len, all_courses))} runs, {at_once} at a time, {len(soak.memory)} of them now in "
        f"{time.monotonic() - started:.0f} s; processes: {sum(map(bool, all_courses))}.",
        *(
            f"Memory of a process: {course[0]:.1f} MiB after its first run, {course[-1]:.1f} after {len(course)}, "
            f"{max(course):.1f} at most."
            for course in all_courses
            if course
        ),
        f"Slope {gradient:+.3f} MiB a run (95 % CI {gradient - half_width:+.3f} to {gradient + half_width:+.3f}).",
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
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        (folder / "tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        from m3b.data.synthetic import make_chest

        data, earlier, started = (
            make_chest(folder / "xrays", patients=args.patients),
            load_earlier_runs(args.results),
            time.monotonic(),
        )
        until = started + args.max_minutes * 60 if args.max_minutes else math.inf
        soak = Soak(folder, data, args.minutes, args.results, earlier, until)
        done = {earlier_run["number"] for earlier_run in earlier}
        if remaining_runs := [number for number in range(args.runs) if number not in done]:
            soak.run_once(remaining_runs[0])  # what is imported and opened once is there from now on
            before = get_process_state()
            with ThreadPoolExecutor(args.at_once) as pool:
                list(pool.map(soak.run_once, remaining_runs[1:]))
            soak.compare(before)
        print(format_summary(soak, started, args.at_once))
        return 1 if soak.faults else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
