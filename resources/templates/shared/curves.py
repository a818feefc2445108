"""Logout/log.csv drawn as Logout/curves.png: losses on the left, validation figures on the right."""

from __future__ import annotations

import csv
import sys
from pathlib import Path


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
