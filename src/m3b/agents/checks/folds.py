"""The validation of a deliverable of several networks, one a fold of the training cases.

Together they have seen every case: what they answer in common on "held-out" cases flatters them. So each case is answered by
the network alone that was trained without it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.data.index import Index, Record
from m3b.data.records import paths_of
from m3b.tasks import Row

PREDICTIONS = "Logout/valid_predictions.json"
Predict = Callable[[Path, Sequence[Record], Index], list[Row]]
"""Runs a deliverable's predict.py on cases, without the raw data, and measures each answer: one row a case."""


def folds_of(work: Path) -> dict[str, int]:
    """Key of a held-out case -> the fold that it was held out of; empty where the project names none."""
    try:
        rows = untrusted.read_json(work, PREDICTIONS)
        return {key_of(row["image"]): int(row["fold"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def key_of(image: Any) -> str:
    """A case of `valid_predictions.json`, as `Record.key` has it."""
    return "|".join(paths_of(image))


def held_out_answers(
    folder: Path, folds: Mapping[str, int], valid: Sequence[Record], index: Index, predict: Predict, scratch: Path
) -> list[Row] | None:
    """One row a case of `valid`, each from its fold's own network; None where the deliverable is not one network a fold.

    Args:
        folder: the deliverable; `weights` of its config.json are one file a fold, in their order.
        folds: of each case, as `folds_of` gives them.
        scratch: where copies with a single network may lie for a while.

    Raises:
        ModelError: predict.py fails.
    """
    names = _networks(folder)
    known = [folds.get(record.key, -1) for record in valid]
    if len(names) < 2 or not known or not all(0 <= fold < len(names) for fold in known):
        return None
    rows: dict[str, Row] = {}
    place = Path(tempfile.mkdtemp(dir=scratch, prefix=".staged-"))
    try:
        for fold in sorted(set(known)):
            mine = [record for record, own in zip(valid, known, strict=True) if own == fold]
            alone = _alone(folder, place / str(fold), names, fold)
            rows |= {record.key: row for record, row in zip(mine, predict(alone, mine, index), strict=True)}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return [rows[record.key] for record in valid]


def _networks(folder: Path) -> list[str]:
    """The weight files that config.json lists."""
    try:
        names = untrusted.read_json(folder, "config.json").get("weights")
    except (OSError, ValueError, AttributeError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _alone(folder: Path, target: Path, names: Sequence[str], fold: int) -> Path:
    """A copy of the deliverable with one of its networks."""
    others = {name for name in names if name != names[fold]}
    shutil.copytree(folder, target, ignore=lambda _, found: [name for name in found if name in others])
    config = untrusted.read_json(folder, "config.json")
    (target / "config.json").write_text(json.dumps({**config, "weights": [names[fold]]}), encoding="utf-8")
    return target
