"""Live runs that are killed with SIGKILL at random moments and taken up again, each process a fresh one.

A run of a scripted model, with real scripts, checks, a real training and a real delivery, is timed once; then, once for
each moment, a run is begun, killed after a random share of that time, and resumed to its end. With `--events` it is
killed right after each event that the journal keeps instead. A run that nobody kills gives the Result that all others
must have.

    python benchmarks/kills.py                          200 moments
    python benchmarks/kills.py --moments 20 --seed 7
    python benchmarks/kills.py --events                 once at every event

Printed are the moments at which the Result was another one, replies of the model that were recorded and asked for again,
calls that were run twice, processes that were left running, and temporary files. The exit code is 1 if there was any.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pipeline"))

from kill_kit import command, ended, faults_of, outcome
from pipeline_kit import journal, make_spots

KILLED = -signal.SIGKILL


@dataclass
class Tally:
    """What was found over all kills; `faults` holds the place of each kill and what was wrong after it."""

    killed: int = 0
    too_late: int = 0
    """Ended before their moment came."""
    faults: list[tuple[str, str]] = field(default_factory=list)

    def told(self, kills: int, seconds: float) -> str:
        """The tally as lines of text."""
        hit = len({place for place, _ in self.faults})
        lines = [
            f"{kills} runs in {seconds:.0f} s: {self.killed} killed with SIGKILL and resumed, "
            f"{self.too_late} ended before their moment.",
            f"{kills - hit} of {kills} end with the same Result, no model call repeated, no call run twice, no process "
            "and no temporary file left.",
        ]
        return "\n".join([*lines, *(f"  {place}: {fault}" for place, fault in self.faults)])


def killed_after(run: Path, data: Path, seconds: float) -> int:
    """Begin a run and kill its process, and nothing else, after so long; gives the exit code."""
    run.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(command(run, data), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        return process.wait()


def moments(count: int, seed: int, length: float) -> Iterator[tuple[str, Callable[[Path, Path], int]]]:
    """Kills at random moments of a run that takes `length` seconds."""
    draw = random.Random(seed)
    for at in range(count):
        after = draw.uniform(0.0, length)
        yield f"moment {at + 1}, {after:.2f} s", lambda run, data, after=after: killed_after(run, data, after)


def at_events(count: int) -> Iterator[tuple[str, Callable[[Path, Path], int]]]:
    """A kill right after each event but the last."""
    for at in range(1, count):
        yield f"event {at}", lambda run, data, at=at: ended(run, data, at)


def survive(
    run: Path, data: Path, kill: Callable[[Path, Path], int], expected: dict[str, Any]
) -> tuple[int, list[str]]:
    """How the first process ended, and what is wrong once a second one has worked the run to its end."""
    first = kill(run, data)
    if first not in (0, KILLED):
        return first, [f"the process ended with {first} before it was killed"]
    if first == KILLED and (code := ended(run, data)) != 0:
        return first, [f"the resumed process ended with {code}"]
    return first, faults_of(run, expected)


def main() -> int:
    """Kill, resume, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--events", action="store_true", help="at every event instead of random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-minutes", type=float, help="begin no further run after so long")
    args = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="kills-"))
    try:
        data = make_spots(place / "data" / "spots")
        began = time.monotonic()
        if ended(place / "undisturbed" / "run", data) != 0:
            raise RuntimeError("The run that nobody kills does not end; nothing can be compared.")
        length, expected = time.monotonic() - began, outcome(place / "undisturbed" / "run")
        count = len(journal(place / "undisturbed" / "run"))
        print(f"Undisturbed: {expected['status']} after {length:.1f} s and {count} events.", flush=True)
        kills = at_events(count) if args.events else moments(args.moments, args.seed, length)
        tally, done = Tally(), 0
        for name, kill in kills:
            if args.max_minutes and time.monotonic() - began > args.max_minutes * 60:
                break
            run = place / str(done) / "run"
            first, faults = survive(run, data, kill, expected)
            done += 1
            tally.killed += first == KILLED
            tally.too_late += first == 0
            tally.faults += [(name, fault) for fault in faults]
            shutil.rmtree(run.parent)
        print(tally.told(done, time.monotonic() - began))
        return 1 if tally.faults else 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
