"""Output of the commands: JSON for programs on standard output, messages for people on standard error."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from m3b.run.result import Result


def inert(text: str) -> str:
    """Escape control codes: see `m3b.writing.escape_control_codes`."""
    from m3b.writing import escape_control_codes

    return escape_control_codes(text)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line on standard output (or error), with control codes escaped, since parts may come from others."""
    import typer

    typer.echo(inert(text), err=err)


def make_console(*, to_stderr: bool = False) -> Console:
    """Return a console that neither breaks lines in logs nor interprets texts (`:m:` is no emoji). See `inert`."""
    from rich.console import Console

    class EscapingConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(inert(item) if isinstance(item, str) else item for item in objects), **options)

    default_console = EscapingConsole(stderr=to_stderr, highlight=False, emoji=False)
    return (
        default_console
        if default_console.is_terminal
        else EscapingConsole(stderr=to_stderr, highlight=False, emoji=False, width=200)
    )


@contextmanager
def show_transfer_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a progress bar on standard error if that is a terminal.

    Yields:
        A callback that takes file name, bytes so far and total bytes.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    stderr_console = make_console(to_stderr=True)
    task_ids: dict[str, Any] = {}
    with Progress(*columns, console=stderr_console, disable=not stderr_console.is_terminal) as bar:

        def on_progress(name: str, received_bytes: int, total_bytes: int | None) -> None:
            if name not in task_ids:
                task_ids[name] = bar.add_task(name)
            bar.update(task_ids[name], completed=received_bytes, total=total_bytes)

        yield on_progress


@contextmanager
def show_steps() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step: beside a moving sign on a terminal, as a line elsewhere."""
    stderr_console = make_console(to_stderr=True)
    if not stderr_console.is_terminal:
        yield lambda title: echo(f"{title} ...", err=True)
        return
    with stderr_console.status("starting") as status:
        yield lambda title: status.update(title)


def print_json(value: Any) -> None:
    """Print one JSON object on standard output."""
    from m3b.writing import json_text

    sys.stdout.write(json_text(value, indent=1, default=str) + "\n")


def print_error(error: BaseException) -> None:
    """Print an error in one line on standard error, with options as the command line spells them."""
    message = str(getattr(error, "on_command_line", "") or error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        place = f" of {error.filename}" if error.filename else ""
        message = f"The disk{place} is full. Make room, or set TMPDIR if it is that of temporary files; then try again."
    elif isinstance(error, OSError) and error.filename and error.strerror:
        message = f"{error.filename}: {error.strerror}."
    sys.stderr.write(f"m3b: {inert(spell_as_flags(message))}\n")


def spell_as_flags(text: str) -> str:
    """Return a message of the library with its options as the command line spells them."""
    return _LIBRARY_OPTION_NAMES.sub(lambda match: f"--{match[0].replace('_', '-')}", text)


_LIBRARY_OPTION_NAMES = re.compile(r"(?<![\w-])(?:max_actions|max_tokens|max_cost|max_wall|train_minutes)(?![\w-])")


def require_folder(path: Path) -> None:
    """Check that a path is a folder; the message says whether it is missing or a file.

    Raises:
        UsageError: `path` is no folder.
    """
    if path.is_dir():
        return
    if not path.exists():
        from m3b.remote.addresses import suggest_address

        raise UsageError(f"There is no folder {path}.{suggest_address(str(path))} Name the folder with the images.")
    parent = path.resolve().parent
    is_archive = path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz"))
    contents = "archives in it are read, too" if is_archive else "all files in it are read"
    raise UsageError(f"{path} is a file. Name the folder with the images, such as {parent} ({contents}).")


def require_writable_target(path: Path | None, option: str, *, force: bool) -> None:
    """Check that an output file can be written; to be called before anything is made.

    Raises:
        UsageError: its folder does not exist or cannot be written, it is a folder, or it exists and `force` is not set.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file with {option}.")
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder} for {option} {path}. Make it first, or name another file.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"The folder {folder} for {option} {path} cannot be written; check its permissions (ls -ld).")
    if path.exists() and not force:
        raise UsageError(f"{path} exists. Give --force to overwrite it, or another {option}.")


def refuse_overwriting(paths: Iterable[Path], *, force: bool) -> None:
    """Check that outputs do not exist yet; to be called before anything is made.

    Raises:
        UsageError: an output exists, and `force` is not set.
    """
    existing_paths = [
        path for path in paths if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))
    ]
    if existing_paths and not force:
        count_text = f" (and {len(existing_paths) - 1} more)" if len(existing_paths) > 1 else ""
        raise UsageError(
            f"{existing_paths[0]} exists already{count_text}. Name another place with -o, or add --force to overwrite it."
        )


def format_metric(metric: dict[str, Any]) -> str:
    """Return a metric with its interval and baseline, or that it is undefined."""
    from m3b.measure import format_measure

    return format_measure(metric, with_baseline=True) or f"{metric.get('name')}: undefined on these cases"


def _format_cached_share(usage: dict[str, Any]) -> str:
    """Return the share of the input that came from the provider's cache, if any."""
    cached_share = usage.get("cached_share") or 0
    return f" ({cached_share:.0%} of the input cached)" if cached_share else ""


def _format_cost(usage: dict[str, Any]) -> str:
    """Return the cost with a comma; '' if it is zero, since the rules and models of unknown price report none."""
    cost = usage.get("cost_usd") or 0
    return f"${max(cost, 0.01):.2f}, " if cost > 0 else ""


def format_result(result: Result) -> list[str]:
    """Return a result in a few lines, with the next steps at its end."""
    usage = result.usage
    lines = [f"assumption: {text}" for text in result.assumptions]
    status = result.status if result.has_verdict else f"{result.status} (no verdict)"
    lines.append(f"{status}: {spell_as_flags(result.reason)}")
    if result.primary:
        lines.append(f"test {format_metric(result.primary.to_dict())}")
    if result.tested_on:
        lines.append(f"measured on {result.tested_on}")
    if result.looks_note:
        lines.append(result.looks_note)
    lines += [external_set.summary for external_set in result.external.values()]
    if result.integrity:
        lines.append(f"integrity: {result.integrity}")
    lines.append(
        f"{count_noun(usage.get('actions', 0), 'action')}, {count_noun(usage.get('iterations', 0), 'iteration')}, "
        f"{usage.get('input_tokens', 0) + usage.get('output_tokens', 0):,} tokens{_format_cached_share(usage)}, "
        f"{_format_cost(usage)}{usage.get('wall_s', 0):.0f} s"
    )
    output_paths = (("model", result.model_dir), ("report", result.report), ("run", result.run_dir))
    return [*lines, *(f"{name}: {path}" for name, path in output_paths if path), *format_next_steps(result)]


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 action` and `4 actions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_next_steps(result: Result) -> list[str]:
    """Return the next steps after a run, each with its command in a line of its own, which can be copied."""
    from m3b.run.folder import RunFolder
    from m3b.run.next_steps import list_next_steps

    if not result.run_dir:
        return []
    run = RunFolder(Path(result.run_dir))
    try:
        steps = list_next_steps(run, run.load_record(), result)
    except UsageError:  # run.json cannot be read; the result is shown without advice
        return []
    lines = ["", "Next:"] if steps else []
    for number, step in enumerate(steps, start=1):
        lines.append(f"  {number}. {step.text}{':' if step.command else '.'}")
        if step.command:
            lines.append(f"     {shorten_path(step.command)}")
    return lines


def shorten_path(text: str) -> str:
    """Return a path relative to the current folder if that is shorter; other texts unchanged."""
    if not os.path.isabs(text):
        return text
    return min(text, os.path.relpath(text), key=len)


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return a plain table with aligned columns, readable in a log file.

    Args:
        width: maximum width of a line; cells are cut to fit, those of the last column first and of the first one last.
            None is no limit.
    """
    from rich.cells import cell_len

    cell_rows = [[clean_cell(cell) for cell in row] for row in (header, *rows)]
    widths = [max(cell_len(row[column]) for row in cell_rows) for column in range(len(header))]
    if width is not None:
        excess = sum(widths) + 2 * (len(widths) - 1) - width
        for column in reversed(range(len(widths))):
            reduction = max(0, min(excess, widths[column] - MIN_COLUMN_WIDTH))
            widths[column], excess = widths[column] - reduction, excess - reduction
    text_rows = [
        "  ".join(fit_to_width(cell, size) for cell, size in zip(row, widths, strict=True)) for row in cell_rows
    ]
    return "\n".join(line.rstrip() for line in text_rows)


MIN_COLUMN_WIDTH = 8
"""Minimum width to which a column is cut."""


def clean_cell(cell: object) -> str:
    """Return a text without line breaks and control characters, which would break the table or the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(cell)).split())


def fit_to_width(cell: str, width: int) -> str:
    """Return a text padded or cut to a width in cells of the terminal."""
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(cell if cell_len(cell) <= width else set_cell_size(cell, width - 3) + "...", width)
