"""Measure the overhead of the agent loop: one scripted conversation of 100 tool calls through m3b and through its peers.

No model is asked and no process is started: a canned model calls a tool that returns a line of text, so that only
the framework is measured. Every contender runs in its own fresh process.

    python benchmarks/overhead.py                            peers that this interpreter can import
    python benchmarks/overhead.py --install                  peers from a new temporary environment (needs a network)
    python benchmarks/overhead.py --peer-python VENV/bin/python

Columns, microseconds per action: *in memory* keeps nothing on disk; *recorded* writes each step in the
contender's own way without a sync; *synced* waits until each step is on the disk. A dash marks a contender
without such a mode; a contender that cannot be imported is listed as missing. Fsync costs depend on the
disk: the time of a single one is printed below the table, and is near zero for a folder in memory (tmpfs).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

from overhead_loops import CONTENDERS

PEERS = {
    "langgraph": ("langgraph", "langgraph-checkpoint-sqlite"),
    "smolagents": ("smolagents",),
    "minisweagent": ("mini-swe-agent",),
}
"""Module to import, and the requirement that pip installs for it."""

MODES = ("memory", "recorded", "synced")
LABELS = {"m3b": "m3b", "langgraph": "LangGraph", "smolagents": "smolagents", "minisweagent": "mini-swe-agent"}


@dataclass(frozen=True)
class Outcome:
    """One contender in one mode, timed by its fastest conversation, which other work disturbed least."""

    name: str
    mode: str
    version: str = ""
    import_s: float = 0.0
    us_per_action: float | None = None
    missing: str = ""
    """The reason for a missing time."""


def measure(name: str, mode: str, folder: Path, actions: int, repeats: int) -> Outcome:
    """Time one contender in this process.

    Raises:
        RuntimeError: the conversation had another number of tool calls than its script.
    """
    if importlib.util.find_spec(name) is None:
        return Outcome(name, mode, missing="not installed")
    started = time.perf_counter()
    try:
        contender = CONTENDERS[name](mode, folder)
    except ModuleNotFoundError as error:
        return Outcome(name, mode, missing=f"needs {error.name}")
    import_s = time.perf_counter() - started
    if contender is None:
        return Outcome(name, mode, missing="not offered")
    version, run = contender
    times = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        calls = run(actions)
        if repeat:  # the first conversation fills caches
            times.append(time.perf_counter() - start)
        if calls != actions:
            raise RuntimeError(f"{name} ran {calls} of {actions} tool calls; its loop is not used as it should be.")
    return Outcome(name, mode, version, import_s, min(times) / actions * 1e6)


def measure_in_subprocess(python: str, name: str, mode: str, args: argparse.Namespace) -> Outcome:
    """Run `measure` by another interpreter; a contender that breaks is reported with its last line of error."""
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="overhead-") as folder:
        quiet = {"MSWEA_SILENT_STARTUP": "1", "MSWEA_GLOBAL_CONFIG_DIR": folder, "LANGSMITH_TRACING": "false"}
        command = [python, __file__, "--child", name, mode, folder, "--actions", str(args.actions)]
        done = subprocess.run(
            [*command, "--repeats", str(args.repeats)],
            capture_output=True, text=True, env={**os.environ, **quiet}, check=False, timeout=900,
        )  # fmt: skip
    if done.returncode:
        return Outcome(name, mode, missing=f"failed: {(done.stderr.strip().splitlines() or ['no output'])[-1][:120]}")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def measure_fsync_us(folder: Path) -> float:
    """Return the minimum microseconds of appending a line and waiting for the disk, in this folder."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(100):
            start = time.perf_counter()
            file.write(b"x" * 300)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return min(times) * 1e6


def install_peers(folder: Path) -> str:
    """Create an environment with the peers and return its interpreter; peers that pip cannot get stay missing."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    for packages in PEERS.values():
        done = subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=False)
        if done.returncode:
            print(f"pip could not install {' '.join(packages)}", file=sys.stderr)
    return python


def format_table(outcomes: list[Outcome]) -> str:
    """Format the outcomes as a Markdown table, one contender a row."""
    lines = ["| loop | version | import, s | in memory, µs | recorded, µs | synced, µs |", "|---|---|--:|--:|--:|--:|"]
    for name in CONTENDERS:
        rows = {outcome.mode: outcome for outcome in outcomes if outcome.name == name}
        timed_rows = [row for row in rows.values() if row.us_per_action is not None]
        if not timed_rows:
            lines.append(f"| {LABELS[name]} | {rows['memory'].missing} | – | – | – | – |")
            continue
        imports = f"{statistics.median(row.import_s for row in timed_rows):.2f}"
        cells = [_format_cell(rows[mode]) for mode in MODES]
        lines.append(f"| {LABELS[name]} | {timed_rows[0].version} | {imports} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _format_cell(row: Outcome) -> str:
    if row.us_per_action is not None:
        return f"{row.us_per_action:.0f}"
    return "–" if row.missing == "not offered" else row.missing


def main() -> None:
    """Measure every contender and print the table, or, with --child, one of them as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--folder", type=Path, default=Path.cwd(), help="where records are written; its disk is measured"
    )
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter that can import the peers")
    parser.add_argument("--install", action="store_true", help="install the peers into a temporary environment first")
    parser.add_argument("--json", type=Path, help="write the outcomes here too")
    parser.add_argument("--child", nargs=3, metavar=("NAME", "MODE", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        name, mode, folder = args.child
        print(json.dumps(asdict(measure(name, mode, Path(folder), args.actions, args.repeats))))
        return
    with tempfile.TemporaryDirectory(prefix="overhead-peers-") as peers:
        peer_python = install_peers(Path(peers)) if args.install else args.peer_python
        outcomes = [
            measure_in_subprocess(sys.executable if name == "m3b" else peer_python, name, mode, args)
            for name in CONTENDERS
            for mode in MODES
        ]
    bare_fsync_us = measure_fsync_us(args.folder)
    print(format_table(outcomes))
    print(
        f"\n{args.actions} actions, best of {args.repeats} conversations, Python {platform.python_version()},",
        end=" ",
    )
    print(f"{os.cpu_count()} CPUs; one bare append and fsync in {args.folder} takes {bare_fsync_us:.0f} µs at best.")
    print("LangGraph: recorded is its in-memory checkpointer, synced its SQLite one. mini-swe-agent: recorded is its")
    print(
        "trajectory file. m3b writes three events an action (reply, call, result); synced waits twice: reply and call are one."
    )
    if args.json:
        args.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
