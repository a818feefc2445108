"""`m3b show`: what happened in a run, or what it is doing now."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.output import echo, format_result, format_table, make_console, print_json
from m3b.cli.run import JsonOption, RunArgument

if TYPE_CHECKING:
    from rich.console import Console

    from m3b.events import Event
    from m3b.run.folder import RunFolder


def show(
    run: RunArgument = "last",
    full: Annotated[bool, typer.Option("--full", help="Show complete prompts, replies and results.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow a run at work until it ends.")] = False,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Show what was sent to which host: requests, bytes and tokens, no content.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what happened in a run, from its journal, and what a run at work is doing."""
    from m3b.journal import salvage_journal
    from m3b.run.folder import RunFolder
    from m3b.run.watching import load_progress

    opened_run = RunFolder.open(run)
    record = opened_run.load_record()
    if ledger:
        print_ledger(opened_run.path, as_json=json)
        return
    if watch and opened_run.is_busy:
        _follow(opened_run)
        record = opened_run.load_record()
        if not json:
            _print_ending(make_console(), opened_run, record)
            return
    journal = salvage_journal(opened_run.journal_file)
    if json:
        events = [{"kind": e.kind, "role": e.role, "at": e.at, "data": e.data} for e in journal.events]
        now = load_progress(opened_run).to_dict(time.time()) if opened_run.is_busy else None
        print_json({**record, "now": now, "events": events, "damaged_lines": list(journal.damaged_lines)})
        return
    terminal = make_console()
    terminal.print(f"{opened_run.id}: {record['request']}", markup=False)
    for text in [*(_format_event(event, full) for event in journal.events), journal.warning]:
        if text:
            terminal.print(text, markup=False, soft_wrap=True)
    _print_ending(terminal, opened_run, record)


def _print_ending(terminal: Console, run: RunFolder, record: dict[str, Any]) -> None:
    """Print the result, or what the run is doing, or how it can go on."""
    from m3b.run.result import Result
    from m3b.run.watching import load_progress

    lines = [""]
    if run.is_busy:
        lines += ["This run is at work.", *load_progress(run).describe_now(time.time())]
        lines.append(f"`{run.format_command('show')} --watch` follows it.")
    elif record.get("result"):
        lines += format_result(Result.from_json(record["result"]))
    else:
        lines.append(f"This run was interrupted; `{run.format_command('resume')}` goes on.")
    for line in lines:
        terminal.print(line, markup=False, soft_wrap=True)


def _follow(run: RunFolder) -> None:
    """Show the events of a run at work, as the process that works on it does. Ctrl-C ends the view, not the run."""
    from m3b.cli.live import LiveView
    from m3b.run.watching import follow_events

    with contextlib.suppress(KeyboardInterrupt), LiveView() as live:
        for event in follow_events(run):
            live(event)


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
        case events.TrainingAdded():
            return f"\n== {event.minutes:g} more minutes of training, from the weights of model {event.number}"
        case events.ModelsCompared():
            return f"[compared] {event.reason}"
        case events.NoteAdded():
            return f"[note] {event.text}"
    return ""


def _format_iteration(iteration: int) -> str:
    return f" (debug iteration {iteration})" if iteration else ""


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
    return [
        row["host"] or LOCAL_PROCESS_LABEL,
        row["model"],
        *counts,
        f"${row['cost_usd']:.4f}" if row["cost_usd"] else "-",
    ]
