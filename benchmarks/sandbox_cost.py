"""Measure the time that a sandbox adds to one command, over a bare subprocess: medians and minima, in milliseconds.

    python benchmarks/sandbox_cost.py [--times 30] [--most-ms bubblewrap=60 --most-ms landlock=50]

Bare and confined runs take turns, so that other load on the machine slows both alike. The processor time of all
processes together equals the wall time on an idle machine with one core; the minimum wall time is that of an undisturbed
run. With `--most-ms` the exit status is 1 if the minimum of a backend adds more than that.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from m3b.errors import SandboxError
from m3b.isolation.sandbox import Mounts, Sandbox, choose_sandbox

COMMANDS = {"true": ["true"], "python -c pass": [sys.executable, "-c", "pass"]}


@dataclass(frozen=True)
class Duration:
    """Milliseconds of wall time, and of processor time in this process and in all that it waited for."""

    clock: float
    processor: float


def measure_duration(action: Callable[[], None]) -> Duration:
    processor_before, started = get_processor_s(), time.perf_counter()
    action()
    return Duration(1000 * (time.perf_counter() - started), 1000 * (get_processor_s() - processor_before))


def get_processor_s() -> float:
    usages = (resource.getrusage(usage_scope) for usage_scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_bare(command: list[str], work: Path) -> None:
    subprocess.run(command, cwd=work, stdout=subprocess.DEVNULL, check=True)


def run_confined(sandbox: Sandbox, command: list[str], work: Path) -> None:
    process = sandbox.start(command, cwd=work, mounts=Mounts(write=(work,)), output=work.parent / "output")
    end = process.wait()
    assert end is not None
    assert end.code == 0, (work.parent / "output").read_text()


def measure(backend: str, command: list[str], times: int, work: Path) -> tuple[list[Duration], list[Duration]]:
    """Measure bare and confined runs in turns; the first of each is left out."""
    sandbox = choose_sandbox(backend)
    without, with_it = [], []
    for _ in range(times + 1):
        without.append(measure_duration(lambda: run_bare(command, work)))
        with_it.append(measure_duration(lambda: run_confined(sandbox, command, work)))
    return without[1:], with_it[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--most-ms", action="append", default=[], metavar="BACKEND=MS")
    options = parser.parse_args()
    limits_ms = {name: float(value) for name, _, value in (bare_ms.partition("=") for bare_ms in options.most_ms)}
    status = 0
    print(f"{'':<28}{'by the clock, ms':>34}{'least by the clock, ms':>34}{'of the processor, ms':>34}")
    print(f"{'backend':<12}{'command':<16}" + 3 * f"{'bare':>12}{'confined':>12}{'added':>10}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        for backend in ("bubblewrap", "landlock", "off"):
            for name, command in COMMANDS.items():
                try:
                    without, with_it = measure(backend, command, options.times, work)
                except SandboxError as error:
                    print(f"{backend:<12}does not work here: {str(error).splitlines()[0]}")
                    break
                added, line = [], f"{backend:<12}{name:<16}"
                for kind, of in (("clock", statistics.median), ("clock", min), ("processor", statistics.median)):
                    bare_ms, confined_ms = (of([getattr(t, kind) for t in took]) for took in (without, with_it))
                    line += f"{bare_ms:12.1f}{confined_ms:12.1f}{confined_ms - bare_ms:10.1f}"
                    added.append(confined_ms - bare_ms)
                print(line)
                status |= added[1] > limits_ms.get(backend, float("inf"))
    return status


if __name__ == "__main__":
    sys.exit(main())
