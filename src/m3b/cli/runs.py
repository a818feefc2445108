"""`m3b runs`, `m3b show`, `m3b report` and `m3b doctor`."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.output import echo, format_result, format_table, make_console, print_error, print_json
from m3b.cli.run import JsonOption, RunArgument
from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.events import Event
    from m3b.run.folder import RunFolder


LOCAL_PROCESS_LABEL = "this process"
"""Host name in the ledger for models within this process: the rules, a function, a recording."""


def print_ledger(folder: Path, *, as_json: bool) -> None:
    """Print the summary of a run's ledger, one line for each host and model."""
    from m3b.llm.ledger import LEDGER_FILE, summarize_by_host

    rows = summarize_by_host(folder / LEDGER_FILE)
    if as_json:
        print_json({"ledger": rows})
    elif not rows:
        echo("No model was asked anything: the ledger is empty.")
    else:
        echo(format_table(LEDGER_HEADER, [_format_ledger_row(row) for row in rows]))
        remote_rows = [row for row in rows if not row["local"]]
        remote_requests = sum(row["requests"] for row in remote_rows)
        echo(
            f"{sum(row['bytes'] for row in remote_rows):,} bytes left this machine, in {remote_requests:,} requests."
            if remote_requests
            else "Nothing left this machine."
        )


LEDGER_HEADER = ("host", "model", "requests", "bytes", "input tokens", "output tokens", "cost")


def _format_ledger_row(row: dict[str, Any]) -> list[str]:
    counts = [f"{row[name]:,}" for name in ("requests", "bytes", "input_tokens", "output_tokens")]
    return [row["host"] or LOCAL_PROCESS_LABEL, row["model"], *counts, f"${row['cost_usd']:.4f}"]


DEFAULT_TERMINAL_WIDTH = 80
"""Width of the list of runs if the output is no terminal."""


def runs(
    root: Annotated[Path | None, typer.Argument(help="Folder of runs. Default: all runs that you started.")] = None,
    json: JsonOption = False,
) -> None:
    """List your runs, or those of a folder, the newest first."""
    from m3b.run.folder import list_runs
    from m3b.run.registry import read_registry

    if root is not None and not root.is_dir():
        raise UsageError(f"There is no folder {root}.")
    runs_and_records = [(run, _load_record(run)) for run in reversed(list_runs(root))]
    for warning in read_registry().warnings:
        print_error(UsageError(warning))
    if json:
        print_json({"runs": [_summarize_run(run, record) for run, record in runs_and_records]})
    elif runs_and_records:
        echo(
            _format_run_table(
                [_summarize_run(run, record) for run, record in runs_and_records], with_handles=root is None
            )
        )
    else:
        echo(_format_no_runs(root))


def _format_no_runs(root: Path | None) -> str:
    from m3b.run.folder import get_runs_root

    if root is None:
        has_unlisted_runs = any(get_runs_root().glob("*/run.json"))
        hint = (
            f" {get_runs_root()}/ holds runs that are not in the list: `m3b runs {get_runs_root()}`."
            if has_unlisted_runs
            else ""
        )
        return f"You have no runs yet. `m3b run REQUEST --data DIR` makes one.{hint}"
    return f"{root} holds no run: neither it nor a folder in it has a run.json outside of data folders. `m3b runs` lists yours."


def _format_run_table(rows: Sequence[Mapping[str, Any]], *, with_handles: bool) -> str:
    """Return the table, as wide as the terminal. The start is a column of its own unless all names are dated.

    Args:
        with_handles: name each run so that a command finds it from here, instead of by its id.
    """
    width = shutil.get_terminal_size((DEFAULT_TERMINAL_WIDTH, 24)).columns
    has_start_column = width >= 100 or not all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", row["id"]) for row in rows)
    header = ["run", *(["started"] if has_start_column else []), "status", "test", "request"]
    table_rows = []
    for row in rows:
        primary, name = row["primary"] or {}, row["handle"] if with_handles else row["id"]
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
    return format_table(header, table_rows, width=width)


def _load_record(run: RunFolder) -> dict[str, Any]:
    """Return run.json; if it cannot be read, return a replacement, so that the other runs are still listed."""
    try:
        return run.load_record()
    except UsageError as error:
        return {"status": "unreadable", "request": str(error), "started": run.started_at}


def _summarize_run(run: RunFolder, record: dict[str, Any]) -> dict[str, Any]:
    status = record.get("status", "?")
    if status == "working" and not run.is_busy:
        status = "interrupted"
    result = record.get("result")
    return {
        "id": run.id,
        "handle": run.display_name,
        "folder": str(run.path),
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at)),
        "status": str(status),
        "request": str(record.get("request", "")),
        "primary": result.get("primary") if isinstance(result, dict) else None,
    }


def show(
    run: RunArgument = "last",
    full: Annotated[bool, typer.Option("--full", help="Show complete prompts, replies and results.")] = False,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Show what was sent to which host: requests, bytes and tokens, no content.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what happened in a run, from its journal."""
    from m3b.journal import salvage_journal
    from m3b.run.folder import RunFolder
    from m3b.run.result import Result

    opened_run = RunFolder.open(run)
    record = opened_run.load_record()
    if ledger:
        print_ledger(opened_run.path, as_json=json)
        return
    journal = salvage_journal(opened_run.journal_file)
    if json:
        events = [{"kind": e.kind, "role": e.role, "at": e.at, "data": e.data} for e in journal.events]
        print_json({**record, "events": events, "damaged_lines": list(journal.damaged_lines)})
        return
    terminal = make_console()
    terminal.print(f"{opened_run.id}: {record['request']}", markup=False)
    for text in [*(_format_event(event, full) for event in journal.events), journal.warning]:
        if text:
            terminal.print(text, markup=False, soft_wrap=True)
    if record.get("result"):
        for line in ["", *format_result(Result.from_json(record["result"]))]:
            terminal.print(line, markup=False, soft_wrap=True)
    else:
        terminal.print(f"\nThis run has not ended; `{opened_run.format_command('resume')}` goes on.", markup=False)


def _format_event(event: Event, full: bool) -> str:
    from m3b import events

    max_characters = 10**9 if full else 300

    def truncate(text: str) -> str:
        return text if len(text) <= max_characters else f"{text[:max_characters]}... ({len(text):,} characters)"

    match event:
        case events.RunStarted():
            return "\n".join(f"[note] {note}" for note in event.notes)
        case events.RoleStarted():
            return f"\n== {event.title} ({event.llm})"
        case events.PromptSent():
            return f"[briefing] {truncate(event.text)}"
        case events.ReplyReceived():
            return f"[reply] {truncate(event.text)}" if event.text else ""
        case events.ToolCalled():
            return f"[call] {event.name} {truncate(str(event.arguments))}{_format_iteration(event.iteration)}"
        case events.ToolReturned():
            return f"[result] {truncate(event.text)}"
        case events.MessageSent():
            return f"[m3b] {truncate(event.text)}{_format_iteration(event.iteration)}"
        case events.ArtifactChecked():
            return f"[check] {'accepted' if event.accepted else 'rejected'} {' '.join(event.faults)}"
        case events.ArtifactAccepted():
            return f"[handed over] {event.artifact}"
        case events.IndexAudited():
            return f"[audit] {event.summary}"
        case events.NoteAdded():
            return f"[note] {event.text}"
    return ""


def _format_iteration(iteration: int) -> str:
    return f" (debug iteration {iteration})" if iteration else ""


def report(
    run: RunArgument = "last",
    paper: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write a paper kit to this folder instead: methods, flow diagram, Table 1, results, and filled CLAIM 2024 "
            "and TRIPOD+AI lists, as Markdown and LaTeX. `m3b verify` checks its numbers.",
        ),
    ] = None,
) -> None:
    """Write a run's report.html again and print its path."""
    from m3b.report import write_report
    from m3b.run.folder import RunFolder

    if paper is not None:
        _write_paper_kit(run, paper)
        return
    echo(str(write_report(RunFolder.open(run).path)))


def _write_paper_kit(run: str, folder: Path) -> None:
    from m3b.run.paper_kit import write_paper_kit

    kit = write_paper_kit(run, folder)
    echo(str(kit.folder))
    for title, (answered, total) in kit.answered_items.items():
        echo(f"{title}: {answered} of {total} items have text from the run; search for 'to be filled by the authors'.")
    echo(f"`m3b verify {shlex.quote(str(kit.folder))}` compares its numbers with the run.")


def verify(
    place: Annotated[
        str, typer.Argument(help="A run's folder or id, `last`, or the folder of a delivered model or of a paper kit.")
    ] = "last",
    expect: Annotated[str, typer.Option(help="The fingerprint that was noted elsewhere.")] = "",
    paper: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A paper kit of the run, whose numbers are compared too.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check whether a run or a model is unchanged: journal, locked data, predictions, metrics, files."""
    from m3b.run.verification import verify as verify_target

    verification = verify_target(place, expect, paper=paper)
    if json:
        print_json(verification.to_dict())
    else:
        state_labels = {"same": "same     ", "changed": "CHANGED  ", "unknown": "unknown  "}
        for finding in verification.comparisons:
            code = f" [{finding.code}]" if finding.code else ""
            echo(
                f"{state_labels[finding.state]}{finding.subject}{f': {finding.detail}' if finding.detail else ''}{code}"
            )
        echo(f"fingerprint: {verification.fingerprint or 'none'}")
    raise typer.Exit(0 if verification.ok else 1)


def doctor(json: JsonOption = False) -> None:
    """Show what works on this machine: sandbox, keys, training packages, device."""
    from m3b.errors import SandboxError
    from m3b.isolation.reader.self_test import probe_reader
    from m3b.isolation.sandbox import choose_sandbox, diagnose_sandboxes
    from m3b.isolation.sandbox.reach import list_open_threats
    from m3b.llm import choose_default_spec, find_provider_keys
    from m3b.llm.offline import OFFLINE_VARIABLE, is_offline
    from m3b.llm.specs import RULES
    from m3b.run.packaging import collect_versions
    from m3b.run.sandbox_executor import describe_device

    probes = diagnose_sandboxes()
    try:
        active_sandbox = choose_sandbox("auto")
        sandbox, level = active_sandbox.name, active_sandbox.level
    except SandboxError as error:
        sandbox, level = "none", str(error)
    reader_probe = probe_reader()
    probes = [*probes, reader_probe]
    package_versions = collect_versions()
    default_llm = RULES if is_offline() else choose_default_spec()
    missing_packages = [name for name in ("torch", "transformers", "monai") if name not in package_versions]
    status = {
        "sandbox": {"active": sandbox, "level": level, "probes": [dataclasses.asdict(probe_result) for probe_result in probes],
                    "not_stopped": list_open_threats(sandbox)},
        "llm": default_llm,
        "offline": is_offline(),
        "keys": find_provider_keys(),
        "device": describe_device(),
        "versions": package_versions,
        "missing": missing_packages,
    }  # fmt: skip
    if json:
        print_json(status)
    else:
        echo(f"sandbox: {sandbox}\n  {level}")
        for probe_result in probes:
            echo(f"  {'yes' if probe_result.works else 'no ':<3}  {probe_result.name}: {probe_result.detail}")
        for open_attack in list_open_threats(sandbox):
            echo(f"  not stopped: {open_attack}")
        reason = f" ({OFFLINE_VARIABLE} is set)" if is_offline() else _explain_default_llm(find_provider_keys())
        echo(f"language model without --llm: {default_llm}{reason}")
        echo(f"device: {describe_device()}")
        echo("packages: " + ", ".join(f"{name} {version}" for name, version in package_versions.items()))
        if missing_packages:
            echo(f"missing for training: {', '.join(missing_packages)}; install m3b[train]")
    raise typer.Exit(1 if sandbox == "none" or missing_packages or not reader_probe.works else 0)


def _explain_default_llm(keys: dict[str, str]) -> str:
    """Return why the default model is taken, and which others could be used."""
    if not keys:
        return " (no provider's key is set)"
    (first_key, *other_keys) = keys.items()
    other_keys_text = ", ".join(f"{variable} (--llm {name})" for name, variable in other_keys)
    return f" ({first_key[1]} is set{f'; also set: {other_keys_text}' if other_keys_text else ''})"
