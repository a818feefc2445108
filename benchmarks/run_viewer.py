"""Times of `m3b view`: the list of many runs, and the pages of a run with a large journal.

    python benchmarks/run_viewer.py [--runs 1000] [--megabytes 100] [--repeats 5]

The runs are registered in a list of their own, as those of a user are. Each figure is the time of a request in this process, without
a browser: the cold one, then the median of the repeats, by the clock and by the processor time of the process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.testclient import TestClient

from m3b.events import ReplyReceived, RunEnded, RunStarted, ToolCalled, ToolReturned
from m3b.journal import Journal
from m3b.run.folder import RunFolder
from m3b.run.registry import RegisteredRun, state_file
from m3b.serve.view.app import make_view_app
from m3b.serve.view.context import ViewSettings
from m3b.serve.view.run_index import make_key

TOKEN = "a-token-of-the-benchmark"  # nosec B105
MEASURE = {"name": "auroc", "value": 0.9, "low": 0.8, "high": 0.95, "n": 60}
USAGE = {"actions": 9, "input_tokens": 30_000, "output_tokens": 900, "wall_s": 200.0}


def make_runs(folder: Path, count: int) -> list[RunFolder]:
    """Create and register ended runs."""
    runs, lines = [], []
    for number in range(count):
        run = RunFolder.create(folder / f"20260101-{number // 60 % 24:02}{number % 60:02}00-{number:04x}")
        result = {"status": "completed", "task": "diagnosis", "primary": MEASURE, "usage": USAGE}
        request = f"Detect lung opacities on chest X-rays, attempt {number}"
        run.save_record(
            {"id": run.id, "request": request, "status": "completed", "started": 1.7e9 + number, "result": result}
        )
        token = f"{number:032x}"
        (run.path / ".registered").write_text(f"{token}\n")
        lines.append(RegisteredRun(run.path, token, 1.7e9 + number, "bubblewrap").to_line())
        runs.append(run)
    state_file().parent.mkdir(parents=True, mode=0o700)
    state_file().write_bytes(b"".join(lines))
    return runs


def write_journal(run: RunFolder, size: int) -> int:
    """Write a journal of at least so many bytes; return the number of its lines."""
    journal = Journal(run.journal_file, fsync=False)
    journal.write(RunStarted("detect opacities", run.id, {"name": "bubblewrap"}))
    text = "a line of what a script printed\n" * 150
    while run.journal_file.stat().st_size < size:
        journal.write(ReplyReceived("I read the files.", role="data_engineer"))
        journal.write(
            ToolCalled(f"c{journal.line_count}", "run_script", {"command": "python look.py"}, role="data_engineer")
        )
        journal.write(ToolReturned(f"c{journal.line_count - 1}", "run_script", text, role="data_engineer"))
    journal.write(RunEnded({"status": "completed", "reason": "done"}))
    journal.close()
    return journal.line_count


def measure(name: str, app: Callable[[], Starlette], path: str, repeats: int) -> None:
    """Print the time of the first request to an application and of later ones."""
    client = TestClient(app(), base_url="http://127.0.0.1")
    client.get(f"/static/style.css?token={TOKEN}")
    times, processor_times = [], []
    for _ in range(repeats + 1):
        start, processor_start = time.perf_counter(), time.process_time()
        answer = client.get(path)
        times.append(time.perf_counter() - start)
        processor_times.append(time.process_time() - processor_start)
        assert answer.status_code == 200
    for kind, values in (("clock", times), ("processor", processor_times)):
        print(f"{name:10} {kind:10} first {values[0]:.3f} s, then {statistics.median(values[1:]):.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="m3b-viewer-") as name:
        os.environ["XDG_STATE_HOME"], os.environ["M3B_RUNS"] = f"{name}/state", f"{name}/runs"
        runs = make_runs(Path(name) / "runs", options.runs)
        count = write_journal(runs[-1], options.megabytes * 10**6)
        print(f"{len(runs):,} runs; a journal of {options.megabytes} MB and {count:,} lines")
        key = make_key(runs[-1])
        pages = {"list": "/", "live": f"/runs/{key}/live", "events": f"/runs/{key}/events", "overview": f"/runs/{key}"}
        for page, path in pages.items():
            measure(page, lambda: make_view_app(ViewSettings(TOKEN)), path, options.repeats)


if __name__ == "__main__":
    main()
