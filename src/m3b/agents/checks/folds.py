"""The validation of a deliverable of several networks, one a fold of the training cases, or of one trained on every case.

Together, or trained anew on all, they have seen every case: what they answer on "held-out" cases flatters them. So each case is
answered by the network alone that was trained without it. Those of a refit (`"refit": true` in config.json) are not delivered:
they lie in the project, where `Logout/members.json` names them.
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

VALID_PREDICTIONS_FILE = "Logout/valid_predictions.json"
ENSEMBLE_FILE = "Logout/members.json"
MAX_WEIGHT_BYTES = 2**33
"""Bytes of a weight file that is copied."""
PredictCases = Callable[[Path, Sequence[Record], Index], list[Row]]
"""Runs a deliverable's predict.py on cases, without the raw data, and measures each answer: one row a case."""


def read_folds(work: Path) -> dict[str, int]:
    """Key of a held-out case -> the fold that it was held out of; empty where the project names none."""
    try:
        rows = untrusted.read_json(work, VALID_PREDICTIONS_FILE)
        return {case_key_of(row["image"]): int(row["fold"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def case_key_of(image: Any) -> str:
    """A case of `valid_predictions.json`, as `Record.key` has it."""
    return "|".join(paths_of(image))


def find_refit_problem(folder: Path, folds: Mapping[str, int], valid: Sequence[Record], work: Path) -> str:
    """What keeps the held-out cases of a refit from being measured fairly; empty where nothing does, or of other deliverables."""
    has_refit, weight_files = _fold_weights(folder, work)
    if not has_refit or not valid:
        return ""
    missing = [name for name in weight_files if not untrusted.is_file(work, name)]
    if missing or not all(0 <= folds.get(record.key, -1) < len(weight_files) for record in valid):
        cause = (
            f"{missing[0]} is missing"
            if missing
            else f"{ENSEMBLE_FILE} does not name the networks that answer the held-out cases"
        )
        return (
            f"The weights of Deliver/ were trained on every case (refit), and {cause}: nothing could be measured on cases that "
            "its network has not seen. Keep Logout/ as train.py left it, or train with refit=false."
        )
    return ""


def _fold_weights(folder: Path, work: Path) -> tuple[bool, list[str]]:
    """Whether the deliverable is a refit, and the weight files that answer the folds, in their order: its own, or of a refit
    those below `work` that `ENSEMBLE_FILE` names."""
    refit = is_refit(folder)
    return refit, _read_weight_files(work, ENSEMBLE_FILE) if refit else _read_weight_files(folder, "config.json")


def is_refit(folder: Path) -> bool:
    """Whether the weights of a deliverable were trained on every case, as its config.json says."""
    return bool(_read_config(folder).get("refit")) and len(_read_weight_files(folder, "config.json")) == 1


def predict_held_out(
    folder: Path, folds: Mapping[str, int], valid: Sequence[Record], index: Index, predict: PredictCases, work: Path
) -> list[Row] | None:
    """One row a case of `valid`, each from the network that was trained without it; None where the deliverable is neither one
    network a fold nor a refit.

    Args:
        folder: the deliverable; `weights` of its config.json are one file a fold, in their order.
        folds: of each case, as `read_folds` gives them.
        work: the project; copies with a single network lie beside it for a while.

    Raises:
        ModelError: predict.py fails.
    """
    has_refit, weight_files = _fold_weights(folder, work)
    case_folds = [folds.get(record.key, -1) for record in valid]
    if (
        not case_folds
        or not all(0 <= fold < len(weight_files) for fold in case_folds)
        or (len(weight_files) < 2 and not has_refit)
    ):
        return None
    rows: dict[str, Row] = {}
    staging = Path(tempfile.mkdtemp(dir=work.parent, prefix=".staged-"))
    try:
        for fold in sorted(set(case_folds)):
            fold_records = [record for record, case_fold in zip(valid, case_folds, strict=True) if case_fold == fold]
            copy_model = _copy_with_project_weights if has_refit else _copy_with_one_network
            fold_model = copy_model(folder, staging / str(fold), weight_files, fold, work)
            rows |= {
                record.key: row
                for record, row in zip(fold_records, predict(fold_model, fold_records, index), strict=True)
            }
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [rows[record.key] for record in valid]


def _read_config(folder: Path) -> Mapping[str, Any]:
    try:
        config = untrusted.read_json(folder, "config.json")
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _read_weight_files(folder: Path, file: str) -> list[str]:
    """The weight files that a JSON file below a folder lists; none where it does not."""
    try:
        names = untrusted.read_json(folder, file).get("weights")
    except (OSError, ValueError, AttributeError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _copy_with_one_network(folder: Path, target: Path, weight_files: Sequence[str], fold: int, work: Path) -> Path:
    """A copy of the deliverable with one of its networks."""
    other_weights = {name for name in weight_files if name != weight_files[fold]}
    shutil.copytree(folder, target, ignore=lambda _, entries: [name for name in entries if name in other_weights])
    (target / "config.json").write_text(
        json.dumps({**_read_config(folder), "weights": [weight_files[fold]]}), encoding="utf-8"
    )
    return target


def _copy_with_project_weights(folder: Path, target: Path, weight_files: Sequence[str], fold: int, work: Path) -> Path:
    """A copy of the deliverable with weights of the project in place of its own."""
    delivered_weights = _read_weight_files(folder, "config.json")[0]
    shutil.copytree(folder, target, ignore=lambda _, entries: [name for name in entries if name == delivered_weights])
    with (
        untrusted.open_file(work, weight_files[fold], max_bytes=MAX_WEIGHT_BYTES) as source,
        (target / delivered_weights).open("wb") as out,
    ):
        shutil.copyfileobj(source, out, 2**20)
    return target
