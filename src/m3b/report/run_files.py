"""Read the files of a run in whatever state: missing, truncated or invalid files give empty values, never an error."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from m3b.agents.checks.index_lock import list_site_codes
from m3b.agents.roles import BUILTIN_ROLES, SINGLE_AGENT
from m3b.events import Event
from m3b.isolation import untrusted
from m3b.journal import JournalReader, find_tail_offset, salvage_journal
from m3b.markup.formatting import format_size
from m3b.markup.json_values import as_dict, as_list
from m3b.models.case_pictures import CasePictures
from m3b.report.pictures import load_pictures
from m3b.writing import parse_list

MAX_JSON_BYTES = 64 * 2**20
MAX_ROWS_BYTES = 2**30
"""Maximum size of the measured test cases, which are read one by one."""
MAX_LINE_CHARS = 4 * 2**20
MAX_HEADER_BYTES = 16 * 2**20
"""Maximum size of the header of a safetensors file."""
TRAINING_LOG = "work/Logout/log.csv"
MAX_LOG_ROWS = 20_000
"""Maximum rows of the training log that are shown."""


@dataclass(frozen=True)
class ReportNotes:
    """What a report shows besides the files of its run.

    Args:
        next_steps: what to do next: sentence and command, which may be empty.
        training: steps, epochs and minutes of the training of one network; None if they are unknown.
        activity: what a run at work does at the moment, a line each.
    """

    next_steps: tuple[tuple[str, str], ...] = ()
    training: tuple[int, float, float] | None = None
    activity: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunFiles:
    """All inputs of a report."""

    folder: Path
    record: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    audit: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    training_log: list[dict[str, str]] = field(default_factory=list)
    delivered_files: list[tuple[str, int]] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)
    """The plan of the training."""
    parameter_count: int | None = None
    """Number of weights in all networks of the measured model."""
    test_rows: list[dict[str, Any]] = field(default_factory=list)
    """The measured test cases, as `m3b.run.packaging.write_test_result` stored them."""
    pictures: CasePictures = field(default_factory=CasePictures)
    proposals: list[dict[str, Any]] = field(default_factory=list)
    """The manifest proposals with their evidence and doubts, best first."""
    manifest: dict[str, Any] = field(default_factory=dict)
    """The accepted manifest."""
    notes: ReportNotes = ReportNotes()
    site_figures: dict[str, Any] = field(default_factory=dict)
    """Site -> validation figures of its cases, as the training computed them."""
    journal_warning: str = ""
    """Which lines of the journal could not be read; empty if all could."""

    @property
    def result(self) -> dict[str, Any]:
        """The Result of the run; empty until the run has ended."""
        return as_dict(self.record.get("result"))

    @cached_property
    def role_titles(self) -> dict[str, str]:
        """Role name -> display title, for m3b's own roles and further roles of the run."""
        builtin_titles = {role.name: role.title for role in (*BUILTIN_ROLES, SINGLE_AGENT)}
        start_events = [event for event in self.events if event.get("kind") == "role_started"]
        event_titles = {str(event.get("role")): as_dict(event.get("data")).get("title") for event in start_events}
        return {
            **{name: title for name, title in event_titles.items() if isinstance(title, str) and title},
            **builtin_titles,
        }

    def get_role_title(self, role: Any) -> str:
        """Return the display title of a role."""
        return self.role_titles.get(role, role) if isinstance(role, str) else str(role)


NO_NOTES = ReportNotes()


def read_run_files(folder: Path, notes: ReportNotes = NO_NOTES, *, max_journal_bytes: int | None = None) -> RunFiles:
    """Read a run folder.

    Args:
        max_journal_bytes: of a larger journal, only its beginning and end are read, so many bytes together.
    """
    events, journal_warning = _read_journal(folder / "journal.jsonl", max_journal_bytes)
    scores = _read_json(folder, "locked/scores.json") or _read_json(folder, "model/metrics.json")
    return RunFiles(
        folder=folder,
        record=_read_json(folder, "run.json"),
        events=[{"kind": event.kind, "role": event.role, "at": event.at, "data": event.data} for event in events],
        audit=_read_json(folder, "data_audit.json") or _read_json(folder, "work/data_audit.json"),
        scores=scores,
        training_log=read_training_log(folder),
        delivered_files=_list_delivered_files(folder / "model"),
        plan=_read_plan(folder),
        parameter_count=_count_parameters(folder),
        test_rows=_read_test_rows(folder),
        pictures=load_pictures(folder),
        proposals=list(map(as_dict, _read_json_list(folder, "survey/evidence.json"))),
        manifest=_read_json(folder, "manifest.json"),
        notes=notes,
        site_figures=_read_site_figures(folder),
        journal_warning=journal_warning,
    )


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return as_dict(json.loads(untrusted.read_text(folder, name, MAX_JSON_BYTES)))
    return {}


def _read_json_list(folder: Path, name: str) -> list[Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return as_list(json.loads(untrusted.read_text(folder, name, MAX_JSON_BYTES)))
    return []


def _read_site_figures(folder: Path) -> dict[str, Any]:
    """Return the validation figures of each site under its true name, which the training does not know."""
    figures = as_dict(_read_json(folder, "work/Logout/metrics.json").get("sites"))
    if not figures:
        return {}
    attributes = [
        as_dict(as_dict(row).get("attributes")) for row in _read_json_list(folder, "locked/Datapath/train.json")
    ]
    names = list_site_codes([str(item["site"]) for item in attributes if item.get("site")])
    return {names.get(code, code): as_dict(values) for code, values in figures.items()}


def _read_test_rows(folder: Path) -> list[dict[str, Any]]:
    with (
        contextlib.suppress(OSError, ValueError, RecursionError),
        untrusted.open_file(folder, "locked/predictions.json", max_bytes=MAX_ROWS_BYTES) as file,
        io.TextIOWrapper(io.BufferedReader(file), encoding="utf-8") as stream,
    ):
        return [row for row in parse_list(stream, "predictions.json") if isinstance(row, dict)]
    return []


def _read_plan(folder: Path) -> dict[str, Any]:
    """Return the plan that the measured model was trained with; without a model that of the working directory."""
    return as_dict(_read_json(folder, "locked/model/config.json").get("plan")) or _read_json(folder, "work/plan.json")


def _count_parameters(folder: Path) -> int | None:
    """Return the number of weights in the model's networks, by the headers of their files; None if one cannot be read.

    The files are those that config.json names in `weights`, `shared_weights` and `linear_probe_weights`; if it names none, all
    safetensors files.
    """
    model = folder / "locked/model"
    config = _read_json(model, "config.json")
    entries = (*as_list(config.get("weights")), config.get("shared_weights"), config.get("linear_probe_weights"))
    names = [name for name in entries if isinstance(name, str)]
    with contextlib.suppress(OSError, ValueError, TypeError, OverflowError, RecursionError):
        names = names or [file.name for file in model.iterdir() if file.suffix == ".safetensors"]
        return sum(_count_values(model, name) for name in set(names)) or None
    return None


def _count_values(folder: Path, name: str) -> int:
    """Return the number of values in a safetensors file, by its header."""
    with untrusted.open_file(folder, name) as stream:
        size = int.from_bytes(stream.read(8) or b"", "little")
        if not 0 < size <= MAX_HEADER_BYTES:
            raise ValueError(f"{name}: a header of {size:,} bytes")
        header = json.loads(stream.read(size) or b"{}")
    shapes = [as_list(as_dict(item).get("shape")) for key, item in as_dict(header).items() if key != "__metadata__"]
    return sum(int(math.prod(shape)) for shape in shapes)


def _iter_lines(folder: Path, name: str) -> Iterator[str]:
    with contextlib.suppress(OSError), untrusted.open_file(folder, name) as raw:
        stream = io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8", errors="replace")
        while line := stream.readline(MAX_LINE_CHARS):
            yield line


def _read_journal(file: Path, max_bytes: int | None) -> tuple[Sequence[Event], str]:
    """Return the readable events, and a sentence on what is missing, if anything is."""
    try:
        size = file.stat().st_size
        if max_bytes is None or size <= max_bytes:
            journal = salvage_journal(file)
            return journal.events, journal.warning
        head = takewhile(lambda item: item[0] <= max_bytes // 2, JournalReader(file).read_new())
        tail = JournalReader(file, find_tail_offset(file, max_bytes // 2)).read_new()
        warning = (
            f"The journal has {format_size(size)}: only its beginning and end are shown here; `m3b report` shows all."
        )
        return [event for _, event in chain(head, tail)], warning
    except OSError:
        return (), ""


def read_training_log(folder: Path) -> list[dict[str, str]]:
    """Return the rows of the log of a training; empty if there is none."""
    try:
        rows = list(islice(csv.DictReader(islice(_iter_lines(folder, TRAINING_LOG), MAX_LOG_ROWS)), MAX_LOG_ROWS))
    except csv.Error:
        return []
    return [{str(key): str(value) for key, value in row.items() if key and isinstance(value, str)} for row in rows]


def _list_delivered_files(folder: Path) -> list[tuple[str, int]]:
    try:
        files = sorted(item for item in folder.rglob("*") if item.is_file() and "__pycache__" not in item.parts)
        return [(item.relative_to(folder).as_posix(), item.stat().st_size) for item in files[:200]]
    except OSError:
        return []
