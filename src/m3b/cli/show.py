"""Printing: JSON for programs on standard output, everything for people on standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import WrongUse

if TYPE_CHECKING:
    from rich.console import Console

    from m3b.run.result import Result


def inert(text: str) -> str:
    """See `m3b.writing.inert`."""
    from m3b.writing import inert as spelled

    return spelled(text)


def echo(text: str, *, err: bool = False) -> None:
    """A text that others had a hand in, as a line on standard output (or error)."""
    import typer

    typer.echo(inert(text), err=err)


def console(*, to_stderr: bool = False) -> Console:
    """A console that does not break lines in logs, and shows texts as they are: `:m:` is no emoji. See `inert`."""
    from rich.console import Console

    class Inert(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(inert(item) if isinstance(item, str) else item for item in objects), **options)

    default_console = Inert(stderr=to_stderr, highlight=False, emoji=False)
    return (
        default_console
        if default_console.is_terminal
        else Inert(stderr=to_stderr, highlight=False, emoji=False, width=200)
    )


@contextmanager
def transfer() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar on standard error, fed with file name, bytes so far and bytes in all; silent where nobody looks."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    stderr_console = console(to_stderr=True)
    task_ids: dict[str, Any] = {}
    with Progress(*columns, console=stderr_console, disable=not stderr_console.is_terminal) as bar:

        def told(name: str, received_bytes: int, total_bytes: int | None) -> None:
            if name not in task_ids:
                task_ids[name] = bar.add_task(name)
            bar.update(task_ids[name], completed=received_bytes, total=total_bytes)

        yield told


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    from m3b.writing import json_text

    sys.stdout.write(json_text(value, indent=1, default=str) + "\n")


def complain(error: BaseException) -> None:
    """An error in one line on standard error, in the command line's words."""
    message = str(getattr(error, "on_command_line", "") or error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        message = f"{error.filename}: {error.strerror}."
    sys.stderr.write(f"m3b: {inert(as_flags(message))}\n")


def as_flags(text: str) -> str:
    """A message of the library with its options as the command line spells them."""
    return _LIBRARY_OPTION_NAMES.sub(lambda match: f"--{match[0].replace('_', '-')}", text)


_LIBRARY_OPTION_NAMES = re.compile(r"(?<![\w-])(?:max_actions|max_tokens|max_cost|max_wall|train_minutes)(?![\w-])")


def demand_folder(place: Path) -> None:
    """Refuse what is no folder, and say whether it is absent or a file.

    Raises:
        WrongUse: `place` is no folder.
    """
    if place.is_dir():
        return
    problem = f"{place} is a file." if place.exists() else f"There is no folder {place}."
    raise WrongUse(f"{problem} Name the folder with the images.")


def spare(places: Iterable[Path], *, force: bool) -> None:
    """To be called before anything is made: what lies there already is somebody's.

    Raises:
        WrongUse: one of the places is taken, and `force` does not say that it may be lost.
    """
    existing_paths = [
        path for path in places if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))
    ]
    if existing_paths and not force:
        count_text = f" (and {len(existing_paths) - 1} more)" if len(existing_paths) > 1 else ""
        raise WrongUse(
            f"{existing_paths[0]} exists already{count_text}. Name another place with -o, or add --force to overwrite it."
        )


def measure_line(measure: dict[str, Any]) -> str:
    """A metric with its interval and baseline, or that it is undefined."""
    from m3b.measure import figure

    return figure(measure, baseline=True) or f"{measure.get('name')}: undefined on these cases"


def _format_cached_share(usage: dict[str, Any]) -> str:
    """The part of the input that the provider's cache served, where it served some."""
    cached_share = usage.get("cached_share") or 0
    return f" ({cached_share:.0%} of the input cached)" if cached_share else ""


def result_lines(result: Result) -> list[str]:
    """A result in a few lines."""
    usage = result.usage
    lines = [f"{result.status}: {as_flags(result.reason)}"]
    if result.primary:
        lines.append(f"test {measure_line(result.primary.to_dict())}")
    if result.tested_on:
        lines.append(f"measured on {result.tested_on}")
    lines += [external_set.line for external_set in result.external.values()]
    if result.integrity:
        lines.append(f"integrity: {result.integrity}")
    lines.append(
        f"{usage.get('actions', 0)} actions, {usage.get('iterations', 0)} iterations, "
        f"{usage.get('input_tokens', 0) + usage.get('output_tokens', 0):,} tokens{_format_cached_share(usage)}, "
        f"${usage.get('cost_usd', 0):.2f}, "
        f"{usage.get('wall_s', 0):.0f} s"
    )
    output_paths = (("model", result.model_dir), ("report", result.report), ("run", result.run_dir))
    return [*lines, *(f"{name}: {path}" for name, path in output_paths if path)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """A plain table with aligned columns, readable in a log file.

    Args:
        width: columns that a line may take; texts are cut for it, those of the last column first and of the first one
            last. None is no limit.
    """
    from rich.cells import cell_len

    cell_rows = [[_clean_cell(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[column]) for row in cell_rows) for column in range(len(head))]
    if width is not None:
        excess = sum(widths) + 2 * (len(widths) - 1) - width
        for column in reversed(range(len(widths))):
            reduction = max(0, min(excess, widths[column] - LEAST))
            widths[column], excess = widths[column] - reduction, excess - reduction
    text_rows = ["  ".join(_fit(cell, size) for cell, size in zip(row, widths, strict=True)) for row in cell_rows]
    return "\n".join(line.rstrip() for line in text_rows)


LEAST = 8
"""Columns that a cut text keeps."""


def _clean_cell(cell: object) -> str:
    """A text without line breaks and control characters, which would break the table, or the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(cell)).split())


def _fit(cell: str, size: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(cell if cell_len(cell) <= size else set_cell_size(cell, size - 3) + "...", size)
