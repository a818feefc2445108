"""Kill live runs with SIGKILL at random moments and resume them, each in a fresh process.

A run of a scripted model, with real scripts, checks, a real training and a real delivery, is timed once. Then, for
each moment, a run is started, killed after a random share of that time, and resumed to its end. With `--events` it is
killed right after each event that the journal keeps instead. All runs must have the Result of a run that nobody
kills.

    python benchmarks/kills.py                          200 moments
    python benchmarks/kills.py --moments 20 --seed 7
    python benchmarks/kills.py --events                 once at every event
    python benchmarks/kills.py --results FILE           continues an interrupted benchmark

The script prints the moments with another Result, recorded replies of the model that were requested again,
calls that ran twice, processes that were left running, and temporary files, in the run's folder and in the system's
temporary folder, which each run has to itself. The exit code is 1 if there was any. With `--results` each kill is
a line of JSON in that file as soon as it is known, kills with a line are not repeated, and the sum is over all lines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pipeline"))

from kill_kit import KIT_FOLDER, faults_of, outcome
from pipeline_kit import journal, make_spots

KILLED = -signal.SIGKILL


def start_run(run: Path, data: Path, at: int = 0) -> subprocess.Popen[bytes]:
    """Start a process that works on a run to its end, or kills itself right after the run's event `at`."""
    run.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(KIT_FOLDER / "kill_kit.py"), str(run), str(data), str(at)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@dataclass(frozen=True)
class Kill:
    """The moment at which a run is killed: right after its event `at`, or, if that is 0, after so many seconds."""

    name: str
    at: int = 0
    seconds: float = 0.0

    def begin(self, run: Path, data: Path) -> int:
        """Start a run and kill its process, and nothing else; return the exit code."""
        if self.at:
            return start_run(run, data, self.at).wait()
        process = start_run(run, data)
        try:
            return process.wait(timeout=self.seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            return process.wait()


@dataclass(frozen=True)
class Outcome:
    """The outcome of one kill: how the first process ended, problems after the second, processor seconds."""

    name: str
    first: int
    events: int
    faults: tuple[str, ...]
    processor_s: float


def random_kills(count: int, seed: int, length: float) -> Iterator[Kill]:
    """Yield kills at random moments of a run that takes `length` seconds."""
    draw = random.Random(seed)
    for at in range(count):
        share = draw.random()
        yield Kill(f"moment {at + 1} of seed {seed}", seconds=share * length)


def event_kills(count: int) -> Iterator[Kill]:
    """Yield a kill right after each event but the last."""
    yield from (Kill(f"event {at}", at=at) for at in range(1, count))


def kill_and_resume(run: Path, data: Path, kill: Kill, expected: dict[str, Any]) -> Outcome:
    """Start, kill and resume one run; return the problems after a second process has ended it."""
    before, temporary = get_processor_s(), run.parent / "tmp"
    temporary.mkdir(parents=True)
    os.environ["TMPDIR"] = str(temporary)
    os.environ["XDG_STATE_HOME"] = str(run.parent / "state")  # no entry in the user's list of runs
    exit_code, event_count, faults = kill.begin(run, data), 0, []
    if (run / "journal.jsonl").is_file():
        event_count = (run / "journal.jsonl").read_bytes().count(b"\n")
    if exit_code not in (0, KILLED):
        faults = [f"the process ended with {exit_code} before it was killed"]
    elif exit_code == KILLED and (code := start_run(run, data).wait()) != 0:
        faults = [f"the resumed process ended with {code}"]
    else:
        faults = faults_of(run, expected)
        faults += [f"left among temporary files: {file.name}" for file in sorted(temporary.iterdir())]
    return Outcome(kill.name, exit_code, event_count, tuple(faults), get_processor_s() - before)


def get_processor_s() -> float:
    """Return the processor seconds of this process and of all processes that it waited for."""
    return sum(os.times()[:4])


def load_outcomes(results: Path | None) -> dict[str, Outcome]:
    """Load the kills of an earlier call, by name; an incomplete last line is left out."""
    outcomes: dict[str, Outcome] = {}
    for line in results.read_text().splitlines() if results is not None and results.is_file() else ():
        try:
            raw_outcome = json.loads(line)
        except ValueError:
            continue
        outcomes[raw_outcome["name"]] = Outcome(**{**raw_outcome, "faults": tuple(raw_outcome["faults"])})
    return outcomes


def format_outcomes(outcomes: Sequence[Outcome]) -> str:
    """Format the sum of all kills, and the problems, as lines of text."""
    faulty = [result for result in outcomes if result.faults]
    killed = sum(result.first == KILLED for result in outcomes)
    lines = [
        f"{len(outcomes)} runs: {killed} killed with SIGKILL and resumed, "
        f"{sum(result.first == 0 for result in outcomes)} ended before their moment; "
        f"{sum(result.processor_s for result in outcomes) / max(1, len(outcomes)):.1f} s of the processor each.",
        f"{len(outcomes) - len(faulty)} of {len(outcomes)} end with the same Result, no model call repeated, no call run "
        "twice, no process and no temporary file left.",
    ]
    return "\n".join(
        [
            *lines,
            *(
                f"  {result.name}, after {result.events} events: {fault}"
                for result in faulty
                for fault in result.faults
            ),
        ]
    )


def main() -> int:
    """Kill, resume, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--events", action="store_true", help="at every event instead of random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="lines of JSON to add to, and to go on from")
    parser.add_argument("--max-minutes", type=float, help="begin no further run after so long")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    try:
        data = make_spots(folder / "data" / "spots")
        started = time.monotonic()
        if start_run(folder / "undisturbed" / "run", data).wait() != 0:
            raise RuntimeError("The run that nobody kills does not end; nothing can be compared.")
        length, expected = time.monotonic() - started, outcome(folder / "undisturbed" / "run")
        count = len(journal(folder / "undisturbed" / "run"))
        print(f"Undisturbed: {expected['status']} after {length:.1f} s and {count} events.", flush=True)
        done = load_outcomes(args.results)
        for kill in event_kills(count) if args.events else random_kills(args.moments, args.seed, length):
            if args.max_minutes and time.monotonic() - started > args.max_minutes * 60:
                break
            if kill.name in done:
                continue
            kill_outcome = done[kill.name] = kill_and_resume(folder / "killed" / "run", data, kill, expected)
            if args.results is not None:
                with args.results.open("a") as stream:
                    stream.write(json.dumps(asdict(kill_outcome)) + "\n")
            shutil.rmtree(folder / "killed")
        print(format_outcomes(list(done.values())))
        return 1 if any(kept_outcome.faults for kept_outcome in done.values()) else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
