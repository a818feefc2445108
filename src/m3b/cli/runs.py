"""`m3b runs`, `m3b report` and `m3b verify`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from m3b.cli.output import clean_cell, echo, fit_to_width, format_table, print_error, print_json
from m3b.cli.run import JsonOption, RunArgument
from m3b.cli.shell_completion import complete_runs
from m3b.errors import UsageError

if TYPE_CHECKING:
    pass

DEFAULT_TERMINAL_WIDTH = 80
"""Width of the list of runs if the output is no terminal."""


class _ListByDefault(TyperGroup):
    """Commands on runs; without the name of one, runs are listed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [LIST_COMMAND, *args]
        return super().parse_args(ctx, args)


LIST_COMMAND = "list"
app = typer.Typer(cls=_ListByDefault, help="List your runs, or remove some.", rich_markup_mode=None)


@app.command("rm")
def remove(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders or ids of runs, or `last`.", autocompletion=complete_runs),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs with their models, reports and journals."""
    from m3b.run.folder import RunFolder
    from m3b.run.removal import check_removable, measure_size, remove_run
    from m3b.run.summary import summarize_run

    run_folders = list({run.path.resolve(): run for run in map(RunFolder.open, names)}.values())
    for run in run_folders:
        check_removable(run)
    for run in run_folders:
        echo(f"{run.path}  {measure_size(run.path) / 2**20:,.1f} MB  {summarize_run(run)['status']}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("Nothing was removed: nobody can be asked here. Add --yes to remove these runs.")
        subject = "this run" if len(run_folders) == 1 else f"these {len(run_folders)} runs"
        if not typer.confirm(f"Remove {subject} with everything in it?"):
            raise typer.Exit(1)
    for run in run_folders:
        remove_run(run)
        echo(f"removed {run.path}")


@app.command(LIST_COMMAND)
def list_all(
    root: Annotated[Path | None, typer.Argument(help="Folder of runs. Default: all runs that you started.")] = None,
    json: JsonOption = False,
) -> None:
    """List your runs, or those of a folder, the newest first."""
    from m3b.run.folder import list_runs
    from m3b.run.registry import read_registry
    from m3b.run.summary import summarize_run

    if root is not None and not root.is_dir():
        raise UsageError(f"There is no folder {root}.")
    summaries = [summarize_run(run) for run in reversed(list_runs(root))]
    for warning in read_registry().warnings:
        print_error(UsageError(warning))
    if json:
        print_json({"runs": summaries})
    elif summaries:
        echo(_format_run_table(summaries, with_handles=root is None))
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
    """Return the list, as wide as the terminal: a line for each run, and its request below it unless there is room.

    Args:
        with_handles: name each run so that a command finds it from here, instead of by its id.
    """
    width = shutil.get_terminal_size((DEFAULT_TERMINAL_WIDTH, 24)).columns
    has_request_column = width >= MIN_WIDTH_FOR_REQUEST
    header = ["run", "started", "status", "test", *(["request"] if has_request_column else [])]
    table_rows = []
    for row in rows:
        primary, name = row["primary"] or {}, row["handle"] if with_handles else row["id"]
        relative_name = os.path.relpath(name) if os.path.isabs(name) else name
        metric_text = f"{primary['name']} {primary['value']:.3f}" if primary.get("value") is not None else ""
        cells = [min(name, relative_name, key=len), row["started"], row["status"], metric_text]
        table_rows.append([*cells, *([row["request"]] if has_request_column else [])])
    table = format_table(header, table_rows, width=width)
    if has_request_column:
        return table
    head, *lines = table.splitlines()
    requests = [_format_request(row["request"], width) for row in rows]
    return "\n".join([head, *(text for pair in zip(lines, requests, strict=True) for text in pair)])


MIN_WIDTH_FOR_REQUEST = 130
"""Width from which the request is a column of the list."""
REQUEST_INDENT, MAX_REQUEST_LINES = 4, 2


def _format_request(request: str, width: int) -> str:
    """Return a request in at most two indented lines."""
    from rich.cells import cell_len, chop_cells

    room = width - REQUEST_INDENT
    text = clean_cell(request)
    lines: list[str] = []
    for word in text.split():
        for part in chop_cells(word, room):
            if lines and cell_len(lines[-1]) + 1 + cell_len(part) <= room:
                lines[-1] += f" {part}"
            else:
                lines.append(part)
    if len(lines) > MAX_REQUEST_LINES:
        lines = [lines[0], fit_to_width(" ".join(lines[1:]), room)]
    return "\n".join(f"{' ' * REQUEST_INDENT}{line}".rstrip() for line in lines)


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
    from m3b.run.folder import RunFolder
    from m3b.run.reporting import write_run_report

    if paper is not None:
        _write_paper_kit(run, paper)
        return
    echo(write_run_report(RunFolder.open(run)))


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
            code = "" if finding.state == "same" else f" [{finding.code}]"
            echo(
                f"{state_labels[finding.state]}{finding.subject}{f': {finding.detail}' if finding.detail else ''}{code}"
            )
        echo(f"fingerprint: {verification.fingerprint or 'none'}")
    raise typer.Exit(0 if verification.ok else 1)
