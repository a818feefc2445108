"""The leaderboard: an append-only file with one checked entry for each system and model of a sweep.

An entry has the successes of every task, so that its completion and interval can be computed again, and the SHA-256 of the entry
before it, so that a changed or removed one is found; the order of keys and blanks do not matter. No later entry names the last
ones: only a fingerprint of the leaderboard (the SHA-256 of its last entry) that was noted elsewhere shows that they were removed.
Entries of different benchmarks, minutes or tasks are never ranked together.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from datetime import date as calendar_date
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from m3b.bench.resource_use import CORE_WATTS, GPU_WATTS, add_up_use
from m3b.bench.results_store import PLAN_FILE, RESULTS_FILE, gather_rows
from m3b.bench.statistics import Estimate, bootstrap_by_task
from m3b.bench.tables.base import ResultTable, Row, collect_successes, group_rows
from m3b.bench.tasks import FIELD_VARIANT
from m3b.errors import UsageError
from m3b.jsonlines import iter_complete_lines, truncate_torn_line

FORMAT_VERSION = 1
TOLERANCE = 1e-9
UNINFORMATIVE_KINDS = ("provider", "not_installed", "crashed", "cancelled")
MAX_TASKS = 10_000
MAX_RUNS = 1_000_000
"""Runs of an entry; its interval is computed from them."""
MIN_FINGERPRINT_DIGITS = 12
_FIRST_ENTRY = "0" * 64


@dataclass(frozen=True)
class LeaderboardEntry:
    """The result of one system and model in one sweep.

    Args:
        benchmark: `stand-ins`, `real` or `field`; `mixed` if a sweep holds several.
        minutes: training minutes of a run; None if each stand-in has its own.
        outcomes: task -> 1 for success and 0 for failure, one for each run.
        completion: the mean over the runs with its 95 % interval from resampling tasks.
        hidden: task -> name and mean value of the metric on hidden cases, of the models that could be measured.
        readings: verdict on the reading of field sets -> number of runs.
        labels: number of runs with a sign of cheating.
        unfinished: number of runs that ended for reasons independent of the task; they count as failures.
        energy_wh: an estimate from processor and GPU time at `watts`; None if the time was not recorded.
        rows: SHA-256 of the rows of the sweep.
        previous: SHA-256 of the entry before, as `to_line` writes it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    system: str
    model: str
    date: str
    benchmark: str
    minutes: float | None
    versions: Mapping[str, Sequence[str]]
    outcomes: Mapping[str, Sequence[int]]
    completion: Mapping[str, float | int | None]
    hidden: Mapping[str, Mapping[str, Any]]
    readings: Mapping[str, int]
    labels: int
    unfinished: int
    wall_hours: float
    cpu_hours: float | None
    cost_usd: float
    energy_wh: float | None
    watts: Mapping[str, float]
    rows: str
    previous: str = _FIRST_ENTRY
    format: int = field(default=FORMAT_VERSION)

    @property
    def group(self) -> str:
        """A name of the tasks, their number of runs and the minutes: only entries of the same group are compared."""
        tasks = hashlib.sha256(json.dumps(sorted(self.outcomes)).encode()).hexdigest()[:6]
        minutes = "own minutes" if self.minutes is None else f"{self.minutes:g} min"
        return f"{self.benchmark}, {len(self.outcomes)} tasks ({tasks}), {minutes}"

    def to_line(self) -> str:
        """Return the entry as a line of the file; raise ValueError if a number is not finite."""
        return _format_line(asdict(self))


def _format_line(raw: Any) -> str:
    return json.dumps(raw, ensure_ascii=False, sort_keys=True, allow_nan=False)


def _digest_line(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def make_entries(folders: Sequence[Path], date: datetime | None = None) -> list[LeaderboardEntry]:
    """Return the entries of sweeps, one for each folder, system and model.

    Raises:
        UsageError: a folder has no results, or what is in them is not that of a sweep.
    """
    day = (date or datetime.now(UTC)).date().isoformat()
    entries = []
    for folder in folders:
        rows = gather_rows([folder])
        plan = _read_plan(folder)
        try:
            groups = group_rows(rows, "system", "model")
            entries += [_make_entry(system, model, group, plan, day) for (system, model), group in groups.items()]
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UsageError(
                f"{folder}: {RESULTS_FILE} or {PLAN_FILE} is not as a sweep writes it ({type(error).__name__}: {error}). Restore "
                "it from a copy, or run the sweep again."
            ) from error
    return entries


def _read_plan(folder: Path) -> Mapping[str, Any]:
    try:
        plan: Mapping[str, Any] = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} has no plan of a sweep ({PLAN_FILE}): {error}.") from error
    return plan


def _make_entry(system: str, model: str, rows: Sequence[Row], plan: Mapping[str, Any], day: str) -> LeaderboardEntry:
    outcomes = {task: [int(success) for success in runs] for task, runs in sorted(collect_successes(rows).items())}
    hidden: dict[str, dict[str, Any]] = {}
    for (task,), group in group_rows(rows, "task").items():
        measures = [row["score"]["primary"] for row in group if row.get("score") and row["score"].get("primary")]
        values = [measure["value"] for measure in measures if measure["value"] is not None]
        if values:
            hidden[task] = {"metric": measures[0]["name"], "mean": sum(values) / len(values), "models": len(values)}
    verdicts = [row["reading"]["verdict"] for row in rows if row.get("reading")]
    use = add_up_use(rows)
    machines = [row.get("machine") or {} for row in rows]
    return LeaderboardEntry(
        system=system,
        model=model,
        date=day,
        benchmark=_name_benchmark(rows, plan),
        minutes=(plan.get("options") or {}).get("train_minutes"),
        versions={key: sorted({str(machine.get(key, "unknown")) for machine in machines}) for key in ("m3b", "python")},
        outcomes=outcomes,
        completion=bootstrap_by_task(outcomes).to_json(),
        hidden=hidden,
        readings={verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
        labels=sum(bool(row.get("labels")) for row in rows),
        unfinished=sum(row["kind"] in UNINFORMATIVE_KINDS for row in rows),
        wall_hours=round(use.wall_hours, 4),
        cpu_hours=None if use.cpu_hours is None else round(use.cpu_hours, 4),
        cost_usd=round(use.cost_usd, 6),
        energy_wh=None if use.energy_wh is None else round(use.energy_wh, 2),
        watts={"core": CORE_WATTS, "gpu": GPU_WATTS},
        rows=_digest_rows(rows),
    )


def _name_benchmark(rows: Sequence[Row], plan: Mapping[str, Any]) -> str:
    real_names = set(plan.get("real") or {})
    kinds = {
        "field" if row["variant"] == FIELD_VARIANT else "real" if row["dataset"] in real_names else "stand-ins"
        for row in rows
    }
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _digest_rows(rows: Sequence[Row]) -> str:
    lines = sorted(json.dumps(row, ensure_ascii=False, sort_keys=True, default=str) for row in rows)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True)
class Leaderboard:
    """The checked entries of a file.

    Args:
        digests: SHA-256 of each entry, to which the next one is chained.
    """

    file: Path
    entries: Sequence[LeaderboardEntry]
    digests: Sequence[str]

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the last entry; zeros if there is none."""
        return self.digests[-1] if self.digests else _FIRST_ENTRY


def read_leaderboard(file: Path, expected_fingerprint: str = "") -> Leaderboard:
    """Return a leaderboard whose entries are checked; it is empty if there is no file.

    Args:
        expected_fingerprint: a fingerprint of the file, or its first 12 digits or more, as noted elsewhere: the entries that
            it had then must be there, and later ones do not matter. '' if none was noted.

    Raises:
        UsageError: a line is no entry, was changed or removed, its figures do not follow from its outcomes, or entries that
            the file had at the expected fingerprint are missing.
    """
    entries: list[LeaderboardEntry] = []
    digests: list[str] = []
    for number, line in enumerate(iter_complete_lines(file), 1):
        previous = digests[-1] if digests else _FIRST_ENTRY
        try:
            entry, digest = _parse_line(line.decode().rstrip("\r\n"), previous)
        except ValueError as error:
            raise UsageError(
                f"{file}, line {number}: {error}. The file is append-only: restore it from a copy, or begin a new one."
            ) from error
        entries.append(entry)
        digests.append(digest)
    leaderboard = Leaderboard(file, entries, digests)
    if expected_fingerprint:
        _require_fingerprint(leaderboard, expected_fingerprint)
    return leaderboard


def _require_fingerprint(leaderboard: Leaderboard, fingerprint: str) -> None:
    """Raise UsageError if no entry of a leaderboard has a fingerprint, or it is too short."""
    if len(fingerprint) < MIN_FINGERPRINT_DIGITS:
        raise UsageError(
            f"--expect is {fingerprint!r}; give at least {MIN_FINGERPRINT_DIGITS} digits of a fingerprint that was noted."
        )
    if not any(digest.startswith(fingerprint.lower()) for digest in (_FIRST_ENTRY, *leaderboard.digests)):
        raise UsageError(
            f"{leaderboard.file} has {len(leaderboard.entries)} entries, and none with the fingerprint {fingerprint[:64]!r}: its last "
            "entries were removed, or it was written anew. Restore it from a copy."
        )


_ENTRY_TYPE = TypeAdapter(LeaderboardEntry)


def _parse_line(line: str, previous: str) -> tuple[LeaderboardEntry, str]:
    """Return the entry of a line and its SHA-256.

    Args:
        previous: SHA-256 of the entry before.

    Raises:
        ValueError: it is no valid entry; the message says why.
    """
    try:
        canonical_line = _format_line(json.loads(line, object_pairs_hook=_require_unique_keys))
        digest = _digest_line(canonical_line)
        entry = _ENTRY_TYPE.validate_json(canonical_line)
        problem = _find_problem(entry, previous)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the line"
        raise ValueError(f"it is no entry ({place[:100]!r}: {first['msg']})") from error
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"it is no entry ({type(error).__name__}: {error})") from error
    if problem:
        raise ValueError(problem)
    return entry, digest


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is in it twice")
    return dict(pairs)


def _find_problem(entry: LeaderboardEntry, previous: str) -> str:
    """Return why an entry is not valid; empty if it is."""
    if entry.format != FORMAT_VERSION:
        return f"its format is {entry.format}, and this version of m3b knows {FORMAT_VERSION}"
    if entry.previous != previous:
        return "the line before it was changed or removed"
    if not entry.outcomes or any(not runs or set(runs) - {0, 1} for runs in entry.outcomes.values()):
        return "its outcomes are not 0 and 1 for each run"
    n_runs = sum(map(len, entry.outcomes.values()))
    if len(entry.outcomes) > MAX_TASKS or n_runs > MAX_RUNS:
        return (
            f"it has {len(entry.outcomes):,} tasks and {n_runs:,} runs; at most {MAX_TASKS:,} and {MAX_RUNS:,} are read"
        )
    return _find_wrong_figure(entry, n_runs)


def _find_wrong_figure(entry: LeaderboardEntry, n_runs: int) -> str:
    """Return the figure that does not follow from the outcomes, or that no sweep can have; empty if there is none."""
    expected = bootstrap_by_task(entry.outcomes).to_json()
    for name, value in expected.items():
        stated = entry.completion.get(name)
        if value is None or stated is None:
            is_equal = value is None and stated is None and name in entry.completion
        else:
            is_equal = math.isclose(value, stated, rel_tol=0.0, abs_tol=TOLERANCE)
        if not is_equal:
            return f"its completion has {name} {stated}, and its outcomes give {value}"
    counts = {"labels": entry.labels, "unfinished": entry.unfinished, "readings": sum(entry.readings.values())}
    counts |= {f"readings.{verdict}": count for verdict, count in entry.readings.items()}
    for name, count in counts.items():
        if not 0 <= count <= n_runs:
            return f"its {name} are {count}, and it has {n_runs} runs"
    amounts = {"wall_hours": entry.wall_hours, "cost_usd": entry.cost_usd}
    amounts |= {
        "cpu_hours": entry.cpu_hours or 0.0,
        "energy_wh": entry.energy_wh or 0.0,
        "minutes": entry.minutes or 0.0,
    }
    for name, amount in amounts.items():
        if amount < 0:
            return f"its {name} are {amount}, below 0"
    if "m3b" not in entry.versions:
        return "its versions lack that of m3b"
    try:
        calendar_date.fromisoformat(entry.date)
    except ValueError:
        return f"its date {entry.date[:40]!r} is none"
    return ""


def append_entries(file: Path, entries: Sequence[LeaderboardEntry], expected_fingerprint: str = "") -> Leaderboard:
    """Append entries to a leaderboard that is checked first, and return it. Entries of rows that it has are left out.

    The file is locked meanwhile (flock), so that several processes append one after the other.

    Args:
        expected_fingerprint: see `read_leaderboard`.

    Raises:
        UsageError: as `read_leaderboard`, an entry is not valid, or the file cannot be written. Then nothing is appended.
    """
    _make_lines(read_leaderboard(file, expected_fingerprint), entries)  # what is refused leaves no new file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            lines = _make_lines(read_leaderboard(file, expected_fingerprint), entries)
            truncate_torn_line(file)
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
            return read_leaderboard(file)
    except OSError as error:
        raise UsageError(f"The leaderboard {file} cannot be written: {error.strerror or error}.") from error


def _make_lines(leaderboard: Leaderboard, entries: Iterable[LeaderboardEntry]) -> list[str]:
    """Return the lines that continue the chain of a leaderboard; raises as `append_entries`."""
    previous = leaderboard.fingerprint
    digests = {entry.rows for entry in leaderboard.entries}
    lines = []
    for entry in entries:
        if entry.rows in digests:
            continue
        try:
            line = replace(entry, previous=previous).to_line()
            previous = _parse_line(line, previous)[1]
        except ValueError as error:
            raise UsageError(
                f"The results of {entry.system} with {entry.model} cannot be appended to {leaderboard.file}: {error}. Were the "
                "results of the sweep changed?"
            ) from error
        lines.append(f"{line}\n")
        digests.add(entry.rows)
    return lines


HEADER = (
    "system / model", "benchmark", "date", "m3b", "completed", "readings right", "labels", "wall h", "CPU h", "US$",
    "energy Wh (estimate)",
)  # fmt: skip


def make_leaderboard_table(entries: Sequence[LeaderboardEntry]) -> ResultTable:
    """Return the entries as a table, best first within each group of equal tasks and minutes."""
    ordered = sorted(entries, key=lambda entry: (entry.group, -float(entry.completion["value"] or 0), entry.date))
    rows, bars = [], []
    for entry in ordered:
        estimate = _to_estimate(entry)
        readings = sum(entry.readings.values())
        name = f"{entry.system} / {entry.model}"
        rows.append(
            (name, entry.group, entry.date, ", ".join(entry.versions["m3b"]),
             f"{estimate.percent()} of {estimate.n}",
             f"{entry.readings.get('right', 0)}/{readings}" if readings else "", str(entry.labels),
             f"{entry.wall_hours:.2f}", "" if entry.cpu_hours is None else f"{entry.cpu_hours:.2f}",
             f"{entry.cost_usd:.2f}", "" if entry.energy_wh is None else f"{entry.energy_wh:.0f}")
        )  # fmt: skip
        bars.append((f"{name}: {entry.group}", estimate.value, estimate.low, estimate.high))
    unfinished = sum(entry.unfinished for entry in entries)
    notes = [
        "Only rows of the same benchmark, tasks and minutes can be compared. Intervals are 95 %, from resampling tasks.",
        f"Energy is estimated, not measured: processor time x {CORE_WATTS:g} W a core, and wall time x {GPU_WATTS:g} W for each GPU"
        " of the machine. Models behind a network use more elsewhere.",
        *([f"{unfinished} runs ended for reasons independent of the task, and count as failures."] if unfinished else []),
    ]  # fmt: skip
    return ResultTable("leaderboard", "Leaderboard", HEADER, tuple(rows), tuple(notes), tuple(bars))


def _to_estimate(entry: LeaderboardEntry) -> Estimate:
    completion = entry.completion
    return Estimate(float(completion["value"] or 0), completion["low"], completion["high"], int(completion["n"] or 0))
