"""The leaderboard: what is appended, what is found out when it was changed, and the estimates of energy."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bench_kit import by_id
from typer.testing import CliRunner

from m3b.bench.cell import Cell, run_system
from m3b.bench.leaderboard import (
    LeaderboardEntry,
    append_entries,
    make_entries,
    make_leaderboard_table,
    read_leaderboard,
)
from m3b.bench.render import to_text
from m3b.bench.resource_use import CORE_WATTS, GPU_WATTS, add_up_use, read_cpu_seconds
from m3b.bench.results_store import SweepStore
from m3b.bench.statistics import bootstrap_by_task
from m3b.bench.systems import CellOutcome
from m3b.bench.tables import make_tables
from m3b.cli.bench import app
from m3b.errors import UsageError

DATE = datetime(2026, 3, 4, tzinfo=UTC)


def make_row(task: str, run: int = 0, ok: bool = True, **changes: Any) -> dict[str, Any]:
    score = {"primary": {"name": "auroc", "value": 0.9, "low": 0.8, "high": 0.95, "baseline": 0.5}, "acceptable": []}
    return {
        "key": f"m3b--rules--{task}--{run}",
        "system": "m3b",
        "model": "rules",
        "task": task,
        "family": "diagnosis",
        "variant": "plain",
        "dataset": task,
        "run": run,
        "ok": ok,
        "kind": "success" if ok else "below_range",
        "reason": "",
        "labels": [],
        "status": "completed",
        "score": score,
        "claimed": None,
        "usage": {"wall_s": 360.0, "cpu_s": 720.0, "cost_usd": 0.25},
        "roles": {},
        "machine": {"m3b": "0.1.0", "python": "3.11.2", "cores": 2, "gpus": 0},
        **changes,
    }


def write_sweep(folder: Path, rows: list[dict[str, Any]], **plan: Any) -> Path:
    with SweepStore(folder) as store:
        for row in rows:
            store.finish(row)
    (folder / "bench.json").write_text(json.dumps({"options": {}, "real": {}, **plan}))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    rows = [make_row(task, run, ok=task != "c") for task in "abc" for run in range(2)]
    return write_sweep(tmp_path / "sweep", rows, options={"train_minutes": 5.0})


def test_an_entry_follows_from_the_rows(sweep: Path, tmp_path: Path) -> None:
    (entry,) = append_entries(tmp_path / "board.jsonl", make_entries([sweep], DATE)).entries
    assert entry.outcomes == {"a": [1, 1], "b": [1, 1], "c": [0, 0]}
    expected = bootstrap_by_task(entry.outcomes)
    assert (entry.completion["value"], entry.completion["low"]) == (pytest.approx(2 / 3), expected.low)
    assert (entry.date, entry.benchmark, entry.minutes) == ("2026-03-04", "stand-ins", 5.0)
    assert entry.versions == {"m3b": ["0.1.0"], "python": ["3.11.2"]}
    assert entry.hidden["a"] == {"metric": "auroc", "mean": pytest.approx(0.9), "models": 2}
    assert (entry.wall_hours, entry.cpu_hours, entry.cost_usd) == (0.6, 1.2, 1.5)
    assert entry.energy_wh == pytest.approx(1.2 * CORE_WATTS)


def test_entries_are_appended_once_and_ranked_within_their_group(sweep: Path, tmp_path: Path) -> None:
    board = tmp_path / "board.jsonl"
    append_entries(board, make_entries([sweep], DATE))
    begin = board.read_bytes()
    assert len(append_entries(board, make_entries([sweep], DATE)).entries) == 1, "the same rows again"
    assert board.read_bytes() == begin
    better = write_sweep(
        tmp_path / "better", [make_row(task, system="m3b-single") for task in "abc"], options={"train_minutes": 5.0}
    )
    fields = {"verdict": "right", "differences": []}
    field = write_sweep(
        tmp_path / "field", [make_row("field:eyes", variant="field", reading=fields, labels=["x"], ok=False)]
    )
    entries = append_entries(board, make_entries([better, field], DATE)).entries
    assert board.read_bytes().startswith(begin)
    assert [entry.benchmark for entry in entries] == ["stand-ins", "stand-ins", "field"]
    assert (entries[2].readings, entries[2].labels) == ({"right": 1}, 1)
    rows = make_leaderboard_table(entries).rows
    assert [row[0] for row in rows] == ["m3b / rules", "m3b-single / rules", "m3b / rules"]
    assert (rows[0][5], rows[1][4][:5]) == ("1/1", "100.0")
    assert entries[0].group == entries[1].group != entries[2].group


@pytest.mark.parametrize("change", ["outcome", "completion", "removed", "system", "not an entry"])
def test_changes_are_found(sweep: Path, tmp_path: Path, change: str) -> None:
    board = tmp_path / "board.jsonl"
    other_sweep = write_sweep(tmp_path / "other", [make_row("a")])
    third_sweep = write_sweep(tmp_path / "third", [make_row("b")])
    append_entries(board, make_entries([sweep, other_sweep, third_sweep], DATE))
    lines = board.read_text().splitlines()
    raw = json.loads(lines[1])
    if change == "outcome":
        raw["outcomes"]["a"] = [0]
    elif change == "completion":
        raw["completion"]["value"] = 0.5
    elif change == "system":
        raw["system"] = "ours"
    lines[1] = "{}" if change == "not an entry" else json.dumps(raw)
    board.write_text("".join(f"{line}\n" for line in (lines[:1] + lines[2:] if change == "removed" else lines)))
    number = 2 if change in ("outcome", "completion", "removed", "not an entry") else 3
    with pytest.raises(UsageError, match=f"line {number}"):
        read_leaderboard(board)
    with pytest.raises(UsageError, match=f"line {number}"):
        append_entries(board, make_entries([sweep], DATE))


def test_a_removed_last_entry_is_found_by_a_noted_fingerprint(sweep: Path, tmp_path: Path) -> None:
    board = tmp_path / "board.jsonl"
    runner = CliRunner()
    append_entries(board, make_entries([sweep], DATE))
    early = read_leaderboard(board).fingerprint
    append_entries(board, make_entries([write_sweep(tmp_path / "other", [make_row("a")])], DATE))
    late = json.loads(runner.invoke(app, ["leaderboard", str(board), "--json"]).stdout)["fingerprint"]
    assert late != early
    assert late in runner.invoke(app, ["leaderboard", str(board)]).stdout
    for fingerprint in (early, late, late[:12].upper()):
        assert runner.invoke(app, ["leaderboard", str(board), "--expect", fingerprint]).exit_code == 0
        assert len(read_leaderboard(board, fingerprint).entries) == 2
    board.write_text(board.read_text().splitlines()[0] + "\n")
    assert len(read_leaderboard(board, early).entries) == 1
    content, third_sweep = board.read_bytes(), write_sweep(tmp_path / "third", [make_row("b")])
    for wrong_fingerprint in (late, late[:12], late[:11], "none"):
        with pytest.raises(UsageError):
            read_leaderboard(board, wrong_fingerprint)
        with pytest.raises(UsageError):
            append_entries(board, make_entries([third_sweep], DATE), wrong_fingerprint)
    assert board.read_bytes() == content
    new_board = tmp_path / "new" / "board.jsonl"
    with pytest.raises(UsageError):
        append_entries(new_board, make_entries([third_sweep], DATE), late)
    assert not new_board.parent.exists()


class WatchedEntries(list[LeaderboardEntry]):
    """Entries that find out whether other writers are kept away between the check of a leaderboard and the appending."""

    def __init__(self, entries: list[LeaderboardEntry], board: Path) -> None:
        super().__init__(entries)
        self.board, self.was_locked = board, False

    def __iter__(self) -> Iterator[LeaderboardEntry]:
        with self.board.open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.was_locked = True
        return super().__iter__()


def test_sweeps_that_are_appended_at_the_same_time_are_all_kept(sweep: Path, tmp_path: Path) -> None:
    """They took the same entry for the last one: the chain broke, or lines mixed."""
    board, n_writers = tmp_path / "board.jsonl", 6
    append_entries(board, make_entries([sweep], DATE))
    sweeps = [write_sweep(tmp_path / f"sweep{number}", [make_row("a", number)]) for number in range(n_writers)]
    batches = [WatchedEntries(make_entries([folder], DATE), board) for folder in sweeps]
    with ThreadPoolExecutor(n_writers) as executor:
        list(executor.map(append_entries, [board] * n_writers, batches))
    assert all(batch.was_locked for batch in batches)
    added_entries = read_leaderboard(board).entries[1:]
    assert sorted(entry.rows for entry in added_entries) == sorted(batch[0].rows for batch in batches)


def write_changed(board: Path, number: int, changes: dict[str, Any]) -> None:
    """Change values of a line by their paths (`completion.value`)."""
    lines = board.read_text().splitlines()
    raw = json.loads(lines[number])
    for path, value in changes.items():
        *parents, key = path.split(".")
        target = raw
        for parent in parents:
            target = target[parent]
        target[key] = value
    lines[number] = json.dumps(raw)
    board.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *(("completion.value", value) for value in (float("nan"), float("inf"), -0.5, 1.5, "1", None, [], 10**400)),
        ("completion.low", float("nan")), ("completion.n", None), ("completion", {}), ("completion", []),
        ("outcomes", {"a": [True]}), ("outcomes", {"a": 1}), ("outcomes", [1]), ("outcomes", {"a": [[1]]}),
        ("wall_hours", float("nan")), ("wall_hours", -1.0), ("cost_usd", -1e-9), ("energy_wh", float("-inf")),
        ("labels", 7), ("labels", -1), ("unfinished", 1.0), ("readings", {"right": 99}), ("readings", {"right": -1, "wrong": 2}),
        ("versions", {}), ("versions", {"m3b": 3}), ("system", 5), ("model", None), ("date", "today"), ("format", "1"),
        ("hidden", {"a": {"mean": float("nan")}}), ("extra", 1), ("rows", "\ud800"), ("minutes", "5"), ("minutes", -5.0),
    ],
)  # fmt: skip
def test_figures_that_cannot_be_are_refused_with_their_line(
    sweep: Path, tmp_path: Path, path: str, value: object
) -> None:
    board = tmp_path / "board.jsonl"
    append_entries(board, make_entries([write_sweep(tmp_path / "other", [make_row("a")]), sweep], DATE))
    write_changed(board, 1, {path: value})
    with pytest.raises(UsageError, match=r"board\.jsonl, line 2"):
        read_leaderboard(board)


@pytest.mark.parametrize("line", ["[]", "5", "null", '{"system": ' * 5000, "[" * 200_000, "nonsense", "\x00", ""])
def test_lines_that_are_no_entries_are_refused(tmp_path: Path, line: str) -> None:
    board = tmp_path / "board.jsonl"
    board.write_text(f"{line}\n")
    with pytest.raises(UsageError, match="line 1"):
        read_leaderboard(board)


def test_a_key_that_stands_twice_is_refused(sweep: Path, tmp_path: Path) -> None:
    board = tmp_path / "board.jsonl"
    append_entries(board, make_entries([sweep], DATE))
    board.write_text(board.read_text().replace('{"benchmark"', '{"labels": 5, "benchmark"'))
    with pytest.raises(UsageError, match="twice"):
        read_leaderboard(board)


def test_the_chain_does_not_depend_on_the_order_of_keys(sweep: Path, tmp_path: Path) -> None:
    """After another program had written a line anew, what was appended to it was taken for a removed line."""
    board = tmp_path / "board.jsonl"
    append_entries(board, make_entries([sweep], DATE))
    raw = json.loads(board.read_text())
    board.write_text(json.dumps(dict(reversed(raw.items())), separators=(",", ":")) + "\n")
    other_sweep = write_sweep(tmp_path / "other", [make_row("a")])
    assert len(append_entries(board, make_entries([other_sweep], DATE)).entries) == 2
    assert len(read_leaderboard(board).entries) == 2


def test_results_that_no_sweep_can_have_are_not_appended(sweep: Path, tmp_path: Path) -> None:
    """They were appended, and the file could not be read any more."""
    board = tmp_path / "board.jsonl"
    append_entries(board, make_entries([sweep], DATE))
    content = board.read_bytes()
    forged = write_sweep(tmp_path / "forged", [make_row("a", usage={"wall_s": float("nan"), "cost_usd": 1.0})])
    with pytest.raises(UsageError, match="cannot be appended"):
        append_entries(board, make_entries([forged], DATE))
    assert board.read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [{"usage": {"wall_s": "long"}}, {"usage": 5}, {"score": {"primary": 3}}, {"ok": "maybe"}, {"reading": "right"}],
)
def test_results_of_other_types_are_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"results\.jsonl"):
        make_entries([write_sweep(tmp_path / "sweep", [make_row("a", **changes)])], DATE)


def test_names_cannot_control_the_terminal(tmp_path: Path) -> None:
    rows = [make_row("a", system="\x1b]0;title\x07m3b\nfake row", model="\x1b[2J\u202erules")]
    (entry,) = make_entries([write_sweep(tmp_path / "sweep", rows)], DATE)
    text = to_text([make_leaderboard_table([entry])])
    assert "\\x1b" in text
    assert "\\u202e" in text
    assert not [letter for letter in text if letter != "\n" and not letter.isprintable()]
    assert not [line for line in text.splitlines() if line.startswith("fake row")]


def test_a_torn_last_line_is_cut(sweep: Path, tmp_path: Path) -> None:
    board = tmp_path / "board.jsonl"
    append_entries(board, make_entries([sweep], DATE))
    complete_content = board.read_bytes()
    board.write_bytes(complete_content + b'{"system": "m3')
    other_sweep = write_sweep(tmp_path / "other", [make_row("a")])
    assert len(append_entries(board, make_entries([other_sweep], DATE)).entries) == 2
    assert board.read_bytes().startswith(complete_content)


def test_the_command_writes_the_page(sweep: Path, tmp_path: Path) -> None:
    runner, board = CliRunner(), str(tmp_path / "board.jsonl")
    assert runner.invoke(app, ["leaderboard", board]).exit_code != 0
    page_result = runner.invoke(app, ["leaderboard", board, str(sweep), "-o", str(tmp_path / "page")])
    assert page_result.exit_code == 0
    assert "66.7 %" in page_result.stdout
    page = (tmp_path / "page/bench.html").read_text()
    assert "m3b / rules" in page
    assert (tmp_path / "page/leaderboard.csv").read_text().splitlines()[1].startswith("m3b / rules,")
    entries = json.loads(runner.invoke(app, ["leaderboard", board, "--json"]).stdout)["entries"]
    assert [entry["system"] for entry in entries] == ["m3b"]


def test_energy_is_estimated_from_processor_and_gpu_time() -> None:
    row = make_row("a", machine={"gpus": 2})
    use = add_up_use([row, make_row("b")], core_watts=5.0, gpu_watts=200.0)
    assert use.cpu_hours == pytest.approx(0.4)
    assert use.energy_wh == pytest.approx(0.4 * 5 + 0.1 * 2 * 200)
    assert add_up_use([row, make_row("b", usage={"wall_s": 3600})]).energy_wh is None
    assert add_up_use([{"usage": {}}]).wall_hours == 0
    assert CORE_WATTS < GPU_WATTS
    (costs,) = (table for table in make_tables([make_row("a"), make_row("b", ok=False)]) if table.name == "costs")
    assert costs.rows[0][1:] == ("2", "1", "0.20", "0.40", "0.50", "0.50", "4", "4")


class BusySystem:
    """A system that computes for a while."""

    name = "busy"

    def explain_missing(self) -> str:
        return ""

    def run(self, job: Any) -> CellOutcome:
        end = read_cpu_seconds() + 0.3
        while read_cpu_seconds() < end:
            pass
        return CellOutcome("failed", "computed")


def test_a_cell_records_its_processor_time(tmp_path: Path) -> None:
    task = replace(by_id("decline:ecg"), offered=())
    outcome = run_system(Cell("busy", "rules", task, 0, data=str(tmp_path / "data")), tmp_path, BusySystem())
    assert 0.2 < outcome.usage["cpu_s"] < 30
