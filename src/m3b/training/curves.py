"""Training figures for people: a line on the console, and Logout/log.csv drawn as Logout/curves.png."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


def select_console_figures(figures: dict[str, float], max_figures: int = 8) -> dict[str, float]:
    """Return the figures for one console line, named in words: of many classes only the lowest three; the log file has all."""
    finite = {key: value for key, value in figures.items() if math.isfinite(value)}
    if len(finite) <= max_figures:
        return _name_in_words(finite)
    classes = [key for key in finite if any(key.startswith(f"{total}_") for total in finite)]
    general = {key: value for key, value in finite.items() if key not in classes}
    lowest = {f"lowest {key}": finite[key] for key in sorted(classes, key=lambda key: finite[key])[:3]}
    return _name_in_words({**general, **lowest})


def _name_in_words(figures: Mapping[str, float]) -> dict[str, float]:
    """Return the figures with blanks in their names, and a colon behind those that end with a number, as a class called 0 does."""
    return {f"{key.replace('_', ' ')}{':' * key[-1].isdigit()}": value for key, value in figures.items()}


def format_epoch(epoch: float | None) -> str:
    """Return the epoch with one decimal; the last one is rarely complete."""
    return f"{round(float(epoch or 0), 1):g}"


def lock_file(stream: IO[str]) -> None:
    """Lock an open file against other processes until it is closed; no-op on systems without such locks."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(stream, fcntl.LOCK_EX)


def append_row(file: Path, row: Mapping[str, Any]) -> None:
    """Append a line to the log, with a header if the file is new. Missing columns stay empty; a refit has no validation figures.
    Folds that train in parallel write one after the other."""
    with file.open("a+", newline="") as stream:
        lock_file(stream)
        stream.seek(0)
        header = next(csv.reader(stream), [])
        writer = csv.DictWriter(stream, header or list(row), restval="", extrasaction="ignore")
        if not header:
            writer.writeheader()
        writer.writerow(dict(row))


def draw_curves(log: str | Path = "Logout/log.csv", out: str | Path = "Logout/curves.png") -> None:
    """Plot columns that end in `loss` against the others over the epochs, one line a fold."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with Path(log).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    if not rows:
        return
    excluded = {"fold", "epoch", "step", "lr", "seconds"}
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for fold in sorted({row.get("fold", "0") for row in rows}):
        fold_rows = [row for row in rows if row.get("fold", "0") == fold]
        for name in (key for key in rows[0] if key not in excluded):
            points = [(float(row["epoch"]), float(row[name])) for row in fold_rows if row[name]]
            axis = axes[0] if name.endswith("loss") else axes[1]
            axis.plot(*zip(*points, strict=True), label=f"{name} {fold}") if points else None
    for axis, title in zip(axes, ("loss", "validation"), strict=True):
        axis.set_xlabel("epoch")
        axis.set_title(title)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(out, dpi=100)
    pyplot.close(figure)


if __name__ == "__main__":
    draw_curves(*sys.argv[1:])
