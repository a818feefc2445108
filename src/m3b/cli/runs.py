"""`m3b runs`, `m3b show`, `m3b report` and `m3b doctor`."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.run import Json, RunName
from m3b.cli.show import complain, console, echo, print_json, result_lines, table
from m3b.errors import WrongUse

if TYPE_CHECKING:
    from m3b.events import Event
    from m3b.run.folder import Run


WIDTH = 80
"""Columns of the list of runs where no terminal says otherwise."""


def runs(
    root: Annotated[Path | None, typer.Argument(help="Folder of runs. Default: all runs that you began.")] = None,
    json: Json = False,
) -> None:
    """List your runs, or those of a folder, the newest first."""
    from m3b.run.folder import list_runs
    from m3b.run.registry import read_registry

    if root is not None and not root.is_dir():
        raise WrongUse(f"There is no folder {root}.")
    runs_and_records = [(run, _record(run)) for run in reversed(list_runs(root))]
    for warning in read_registry().warnings:
        complain(WrongUse(warning))
    if json:
        print_json({"runs": [_summary(run, record) for run, record in runs_and_records]})
    elif runs_and_records:
        echo(_listed([_summary(run, record) for run, record in runs_and_records], whole=root is None))
    else:
        echo(_format_no_runs(root))


def _format_no_runs(root: Path | None) -> str:
    from m3b.run.folder import runs_root

    if root is None:
        older = any(runs_root().glob("*/run.json"))
        hint = f" {runs_root()}/ holds runs that are not in the list: `m3b runs {runs_root()}`." if older else ""
        return f"You have no runs yet. `m3b run REQUEST --data DIR` makes one.{hint}"
    return f"{root} holds no run: neither it nor a folder in it has a run.json outside of data folders. `m3b runs` lists yours."


def _listed(rows: Sequence[Mapping[str, Any]], *, whole: bool) -> str:
    """The table, as wide as the terminal. A dated name tells when its run began; others have that said.

    Args:
        whole: name each run so that a command finds it from here, not by its name alone.
    """
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    has_start_column = width >= 100 or not all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", row["id"]) for row in rows)
    header = ["run", *(["started"] if has_start_column else []), "status", "test", "request"]
    table_rows = []
    for row in rows:
        primary, name = row["primary"] or {}, row["handle"] if whole else row["id"]
        relative_name = os.path.relpath(name) if os.path.isabs(name) else name
        metric_text = f"{primary['name']} {primary['value']:.3f}" if primary.get("value") is not None else ""
        table_rows.append(
            [
                min(name, relative_name, key=len),
                *([row["started"]] if has_start_column else []),
                row["status"],
                metric_text,
                row["request"],
            ]
        )
    return table(header, table_rows, width=width)


def _record(run: Run) -> dict[str, Any]:
    """What run.json holds; one that cannot be read must not hide the other runs."""
    try:
        return run.load()
    except WrongUse as error:
        return {"status": "unreadable", "request": str(error), "started": run.began}


def _summary(run: Run, record: dict[str, Any]) -> dict[str, Any]:
    status = record.get("status", "?")
    if status == "working" and not run.busy:
        status = "interrupted"
    result = record.get("result")
    return {
        "id": run.id,
        "handle": run.handle,
        "folder": str(run.folder),
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began)),
        "status": str(status),
        "request": str(record.get("request", "")),
        "primary": result.get("primary") if isinstance(result, dict) else None,
    }


def show(
    run: RunName = "last",
    full: Annotated[bool, typer.Option("--full", help="Whole prompts, replies and results.")] = False,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="What was sent to whom: requests, bytes and tokens a host, no content.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what happened in a run, from its journal."""
    from m3b.cli.sent import show_ledger
    from m3b.journal import salvage
    from m3b.run.folder import Run
    from m3b.run.result import Result

    opened_run = Run.open(run)
    record = opened_run.load()
    if ledger:
        show_ledger(opened_run.folder, as_json=json)
        return
    journal = salvage(opened_run.journal_file)
    if json:
        events = [{"kind": e.kind, "role": e.role, "at": e.at, "data": e.data} for e in journal.events]
        print_json({**record, "events": events, "damaged_lines": list(journal.damaged)})
        return
    terminal = console()
    terminal.print(f"{opened_run.id}: {record['request']}", markup=False)
    for text in [*(_format_event(event, full) for event in journal.events), journal.warning]:
        if text:
            terminal.print(text, markup=False, soft_wrap=True)
    if record.get("result"):
        for line in ["", *result_lines(Result.from_json(record["result"]))]:
            terminal.print(line, markup=False, soft_wrap=True)
    else:
        terminal.print(f"\nThis run has not ended; `{opened_run.command('resume')}` goes on.", markup=False)


def _format_event(event: Event, full: bool) -> str:
    from m3b import events

    max_characters = 10**9 if full else 300

    def cut(text: str) -> str:
        return text if len(text) <= max_characters else f"{text[:max_characters]}... ({len(text):,} characters)"

    match event:
        case events.RunStarted():
            return "\n".join(f"[note] {note}" for note in event.notes)
        case events.RoleStarted():
            return f"\n== {event.title} ({event.llm})"
        case events.Briefed():
            return f"[briefing] {cut(event.text)}"
        case events.Replied():
            return f"[reply] {cut(event.text)}" if event.text else ""
        case events.Called():
            return f"[call] {event.name} {cut(str(event.arguments))}{_format_iteration(event.iteration)}"
        case events.Returned():
            return f"[result] {cut(event.text)}"
        case events.Told():
            return f"[m3b] {cut(event.text)}{_format_iteration(event.iteration)}"
        case events.Checked():
            return f"[check] {'accepted' if event.accepted else 'rejected'} {' '.join(event.faults)}"
        case events.HandedOver():
            return f"[handed over] {event.artifact}"
        case events.Audited():
            return f"[audit] {event.summary}"
        case events.Noted():
            return f"[note] {event.text}"
    return ""


def _format_iteration(iteration: int) -> str:
    return f" (debug iteration {iteration})" if iteration else ""


def report(run: RunName = "last") -> None:
    """Write a run's report.html anew and print where it is."""
    from m3b.report import write_report
    from m3b.run.folder import Run

    echo(str(write_report(Run.open(run).folder)))


def verify(
    place: Annotated[
        str, typer.Argument(help="A run's folder or id, `last`, or the folder of a delivered model.")
    ] = "last",
    expect: Annotated[str, typer.Option(help="The fingerprint that was noted elsewhere.")] = "",
    json: Json = False,
) -> None:
    """Say whether a run or a model is still what it was: journal, locked data, answers, figures, files."""
    from m3b.run.verifying import verify as compare

    verification = compare(place, expect)
    if json:
        print_json(verification.to_dict())
    else:
        state_labels = {"same": "same     ", "changed": "CHANGED  ", "unknown": "unknown  "}
        for finding in verification.findings:
            echo(f"{state_labels[finding.state]}{finding.what}{f': {finding.detail}' if finding.detail else ''}")
        echo(f"fingerprint: {verification.fingerprint or 'none'}")
    raise typer.Exit(0 if verification.ok else 1)


def doctor(json: Json = False) -> None:
    """Say what works on this machine: sandbox, keys, training packages, device."""
    from m3b.errors import SandboxError
    from m3b.llm import default_spec, keys_set
    from m3b.llm.offline import VARIABLE, demanded
    from m3b.llm.specs import RULES
    from m3b.reader.trial import probe
    from m3b.run.packaging import versions
    from m3b.run.sandbox_runner import device
    from m3b.sandbox import choose, diagnose
    from m3b.sandbox.reach import not_stopped

    probes = diagnose()
    try:
        active_sandbox = choose("auto")
        sandbox, level = active_sandbox.name, active_sandbox.level
    except SandboxError as error:
        sandbox, level = "none", str(error)
    reader_probe = probe()
    probes = [*probes, reader_probe]
    package_versions = versions()
    default_llm = RULES if demanded() else default_spec()
    missing_packages = [name for name in ("torch", "transformers", "monai") if name not in package_versions]
    status = {
        "sandbox": {"active": sandbox, "level": level, "probes": [dataclasses.asdict(probe_result) for probe_result in probes],
                    "not_stopped": not_stopped(sandbox)},
        "llm": default_llm,
        "offline": demanded(),
        "keys": keys_set(),
        "device": device(),
        "versions": package_versions,
        "missing": missing_packages,
    }  # fmt: skip
    if json:
        print_json(status)
    else:
        echo(f"sandbox: {sandbox}\n  {level}")
        for probe_result in probes:
            echo(f"  {'yes' if probe_result.works else 'no ':<3}  {probe_result.name}: {probe_result.detail}")
        for open_attack in not_stopped(sandbox):
            echo(f"  not stopped: {open_attack}")
        reason = f" ({VARIABLE} is set)" if demanded() else _why(keys_set())
        echo(f"language model without --llm: {default_llm}{reason}")
        echo(f"device: {device()}")
        echo("packages: " + ", ".join(f"{name} {version}" for name, version in package_versions.items()))
        if missing_packages:
            echo(f"missing for training: {', '.join(missing_packages)}; install m3b[train]")
    raise typer.Exit(1 if sandbox == "none" or missing_packages or not reader_probe.works else 0)


def _why(keys: dict[str, str]) -> str:
    """Why that model is taken, and which others could be."""
    if not keys:
        return " (no provider's key is set)"
    (first_key, *other_keys) = keys.items()
    other_keys_text = ", ".join(f"{variable} (--llm {name})" for name, variable in other_keys)
    return f" ({first_key[1]} is set{f'; also set: {other_keys_text}' if other_keys_text else ''})"
