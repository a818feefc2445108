"""`m3b runs`, `m3b report` and `m3b verify`."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.output import echo, format_table, print_error, print_json
from m3b.cli.run import JsonOption, RunArgument
from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.run.folder import RunFolder

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


def report(run: RunArgument = "last") -> None:
    """Write a run's report.html again and print its path."""
    from m3b.report import write_report
    from m3b.run.folder import RunFolder

    echo(str(write_report(RunFolder.open(run).path)))


def verify(
    place: Annotated[
        str, typer.Argument(help="A run's folder or id, `last`, or the folder of a delivered model.")
    ] = "last",
    expect: Annotated[str, typer.Option(help="The fingerprint that was noted elsewhere.")] = "",
    json: JsonOption = False,
) -> None:
    """Check whether a run or a model is unchanged: journal, locked data, predictions, metrics, files."""
    from m3b.run.verification import verify as verify_target

    verification = verify_target(place, expect)
    if json:
        print_json(verification.to_dict())
    else:
        state_labels = {"same": "same     ", "changed": "CHANGED  ", "unknown": "unknown  "}
        for finding in verification.comparisons:
            echo(f"{state_labels[finding.state]}{finding.subject}{f': {finding.detail}' if finding.detail else ''}")
        echo(f"fingerprint: {verification.fingerprint or 'none'}")
    raise typer.Exit(0 if verification.ok else 1)
