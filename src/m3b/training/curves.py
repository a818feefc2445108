"""The figures of a training for people: a line on the console, and Logout/log.csv drawn as Logout/curves.png."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


def telling(figures: dict[str, float], most: int = 8) -> dict[str, float]:
    """The figures for a line on the console: of many classes only the lowest few; the log file has them all."""
    found = {key: value for key, value in figures.items() if math.isfinite(value)}
    if len(found) <= most:
        return found
    classes = [key for key in found if any(key.startswith(f"{other}_") for other in found)]
    general = {key: value for key, value in found.items() if key not in classes}
    return {**general, **{f"lowest {key}": found[key] for key in sorted(classes, key=lambda key: found[key])[:3]}}


def number(epoch: float | None) -> str:
    """Epochs for people: the last one is seldom whole, and was once called by the number of the one before."""
    return f"{round(float(epoch or 0), 1):g}"


def lock(stream: IO[str]) -> None:
    """No other process that asks for it has the open file before it is closed; systems without such locks go on at once."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(stream, fcntl.LOCK_EX)


def append_row(file: Path, row: Mapping[str, Any]) -> None:
    """One line of the log; the header first if the file is new. What a later row lacks is left empty: a training on every
    case has no validation figures. Folds that are trained side by side write one after the other."""
    with file.open("a+", newline="") as stream:
        lock(stream)
        stream.seek(0)
        head = next(csv.reader(stream), [])
        writer = csv.DictWriter(stream, head or list(row), restval="", extrasaction="ignore")
        if not head:
            writer.writeheader()
        writer.writerow(dict(row))


def draw_curves(log: str | Path = "Logout/log.csv", out: str | Path = "Logout/curves.png") -> None:
    """Columns that end in `loss` against those that do not; one line a fold, over the seconds of training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with Path(log).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    if not rows:
        return
    skip = {"fold", "epoch", "step", "lr", "seconds"}
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for fold in sorted({row.get("fold", "0") for row in rows}):
        part = [row for row in rows if row.get("fold", "0") == fold]
        for name in (key for key in rows[0] if key not in skip):
            points = [(float(row["epoch"]), float(row[name])) for row in part if row[name]]
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
