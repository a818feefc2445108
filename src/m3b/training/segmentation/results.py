"""The end of a segmentation training: its figures in Logout/, and for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from m3b.training.curves import draw_curves
from m3b.training.folds import ALL, count, done_of
from m3b.training.segmentation.scoring import mean_dice

LOGOUT = Path("Logout")


def finish(
    plan: dict[str, Any],
    table: np.ndarray,
    records: Sequence[Sequence[dict[str, Any]]],
    done: Sequence[dict[str, Any]],
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """metrics.json, valid_predictions.json, curves.png; the plan as it was really trained, in trained.json.

    Args:
        table: (N, K) Dice of all held-out cases, fold after fold.
        records: of each fold, and `done` of its network.
        extra: more figures of the same cases: Dice, NSD and HD95 beside those of the mean shape, cases without marks.
    """
    classes = plan["classes"]
    each = {name: _rounded(np.nanmean(c)) for name, c in zip(classes, table.T, strict=True) if some(c)}
    figures = {"dice": round(mean_dice(table), 4), "dice_by_class": each, "cases": len(table)}
    figures |= extra
    every = [*done, *([done_of(ALL)] if plan.get("refit") else [])]
    metrics: dict[str, Any] = {"validation": figures, "seconds": round(sum(one["seconds"] for one in every), 1)}
    for key in ("epochs", "steps", "best_epoch"):
        metrics[key] = every[0][key] if len(every) == 1 else [one[key] for one in every]
    rows = [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "fold": fold,
            "dice": {name: _rounded(value) for name, value in zip(classes, values, strict=True)},
        }
        for (fold, record), values in zip(
            ((fold, record) for fold, part in enumerate(records) for record in part), table, strict=True
        )
    ]
    (LOGOUT / "trained.json").write_text(json.dumps(plan, indent=1))
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(rows, indent=1))
    draw_curves()
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    print(told(figures, classes, plan), flush=True)


def told(figures: Mapping[str, Any], classes: list[str], plan: Mapping[str, Any]) -> str:
    """The end of a training, for people."""
    folds = count(plan)
    whose = f", each by the one of {folds} networks that has not seen it" if folds > 1 else ""
    whose += (
        "; the delivered network was trained on every case and has no figure of its own" if plan.get("refit") else ""
    )
    dice, each, blind = figures["dice"], figures["dice_by_class"], figures.get("mean_shape_dice")
    lines = [f"done: validation Dice {dice} on {figures['cases']} held-out cases{whose}; by class {each}"]
    if blind is not None:
        verdict = "above" if dice > blind else "NOT above"
        lines.append(
            f"Dice is {verdict} that of the mean shape of the training masks, which looks at no image: {blind}"
        )
    if empty := figures.get("empty"):
        false = figures["falsely_marked"]
        lines.append(
            f"in {empty} held-out cases nothing is to be marked: {empty - false} are left empty (and not in the mean), "
            f"{false} are falsely marked (and count as Dice 0)"
        )
    if lost := [name for name in classes if name not in each]:
        lines.append(f"not measured, since no held-out mask has them on the plan's grid: {', '.join(lost)}")
    return "\n".join(lines)


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def some(column: np.ndarray) -> bool:
    """Whether any case has a figure."""
    return bool(np.isfinite(column).any())
