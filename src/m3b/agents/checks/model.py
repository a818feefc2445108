"""The check of what the Model Trainer hands over: the deliverable is run, in a clean process, on every case."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.check_result import CheckResult, Issue, accept, extract_last_line, reject, strip_agent_instructions
from m3b.data.index import Index, Record
from m3b.data.records import paths_of
from m3b.errors import ModelError
from m3b.metrics import Measure, Scores, judge
from m3b.models import FrozenCopy, freeze, read_model_info
from m3b.models.deliverable_check import check_deliverable, find_patient_identifiers
from m3b.tasks import Row, get_family, score_all
from m3b.tasks.base import sample_evenly

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


DELIVERABLE_FOLDER = "Deliver"
PredictBaseline = Callable[[Sequence[Record], Sequence[Record], Index, Path], Any]
"""`TaskFamily.predict_baseline`, or the same in the reader process."""


@dataclass(frozen=True)
class LockedTestResult:
    """What the deliverable answered on the locked test cases, measured."""

    rows: tuple[Row, ...]


def check_model(
    work: Path,
    frozen: FrozenCopy | None,
    selection: Selection,
    index: Index,
    predict: PredictCases,
    store_test_result: Callable[[LockedTestResult], None],
    acceptable_range: tuple[float, float | None] | None,
    *,
    root: Path,
    predict_baseline: PredictBaseline | None = None,
) -> CheckResult:
    """Accept a deliverable that is whole and predicts every validation and test case.

    The test figure is not looked at here: agents hear the validation figure alone.

    Args:
        frozen: the copy of the deliverable that is looked at and measured, as `freeze_deliverable` made it.
        index: the locked one.
        store_test_result: stores the predictions on the test cases where agents cannot see them.
        root: what the index's paths count from.
        predict_baseline: makes the best answer that looks at no image; by default the task family does, in this process.
    """
    if frozen is None:
        agent_message = (
            f"There is no folder {DELIVERABLE_FOLDER}/. Train, then run `python export.py --out {DELIVERABLE_FOLDER}`."
        )
        return reject(Issue(agent_message, "Training left no model behind."))
    folder = frozen.folder
    problems = frozen.refusals or [
        *check_deliverable(folder),
        *find_patient_identifiers(folder, _patient_ids_of(index)),
    ]
    if problems:
        return reject(*(Issue(text, f"The trained model cannot be delivered: {text}.") for text in problems))
    if promise_mismatch := _find_promise_mismatch(folder, index):
        return reject(
            Issue(
                promise_mismatch,
                f"The trained model is not the one that was asked for: {strip_agent_instructions(promise_mismatch)}",
            )
        )
    if training_mismatch := _find_training_mismatch(folder, work):
        return reject(
            Issue(training_mismatch, "The trained model and the cases that were held out for it are of two trainings.")
        )
    valid, folds = read_validation_records(work, index), read_folds(work)
    if refit_problem := find_refit_problem(folder, folds, valid, work):
        return reject(
            Issue(refit_problem, "The trained model has learnt from every case, and nothing is left to measure it on.")
        )
    try:
        held_out_rows = predict_held_out(folder, folds, valid, index, predict, work)
        rows = (
            [*held_out_rows, *predict(folder, index.test, index)]
            if held_out_rows
            else predict(folder, [*valid, *index.test], index)
        )
    except ModelError as error:
        agent_message = f"{DELIVERABLE_FOLDER}/predict.py does not do its work in a clean process: {error}"
        user_message = (
            f"The trained model's predict.py does not do its work in a clean process: {extract_last_line(str(error))}"
        )
        return reject(Issue(agent_message, user_message))
    store_test_result(LockedTestResult(tuple(rows[len(valid) :])))
    scores = _score_validation(root, valid, rows[: len(valid)], index, selection, predict_baseline)
    primary_measure = scores.primary if scores else None
    model = TrainedModel(
        folder=DELIVERABLE_FOLDER,
        validation=primary_measure.to_dict() if primary_measure else {},
        files=len(frozen.hashes),
        hashes=dict(frozen.hashes),
        refit=is_refit(folder),
    )
    return accept(model, *_describe_weaknesses(primary_measure, scores, acceptable_range))


def freeze_deliverable(work: Path, target: Path) -> FrozenCopy | None:
    """Copy the deliverable out of every script's reach; None where there is none."""
    try:
        return freeze(work / DELIVERABLE_FOLDER, target)
    except NotADirectoryError:
        return None


def _patient_ids_of(index: Index) -> list[str]:
    return [record.patient for record in index.records if record.patient_known]


def _find_promise_mismatch(folder: Path, index: Index) -> str:
    """Whether config.json speaks of this task and these classes."""
    promise = read_model_info(folder)
    if promise.task != index.task:
        return f"{DELIVERABLE_FOLDER}/config.json is of a {promise.task} model; the task is {index.task}."
    if get_family(index.task).answers.requires_classes and set(promise.classes) != set(index.classes):
        return (
            f"{DELIVERABLE_FOLDER}/config.json names the classes {sorted(promise.classes)}; the index has "
            f"{sorted(index.classes)}. Export from this plan."
        )
    return ""


def _find_training_mismatch(folder: Path, work: Path) -> str:
    """Whether the held-out cases are those of another training, which this model may have seen; projects that do not say which
    training their model is of are believed."""
    try:
        recorded_hash = untrusted.read_json(folder, "config.json").get("held_out")
        current_hash = hashlib.sha256(untrusted.read_bytes(work, VALID_PREDICTIONS_FILE, max_bytes=2**30)).hexdigest()
    except (OSError, ValueError, AttributeError):
        return ""
    if not recorded_hash or recorded_hash == current_hash:
        return ""
    return (
        f"{DELIVERABLE_FOLDER}/ is of another training than {VALID_PREDICTIONS_FILE}: cases held out there may be "
        f"among those that this model was trained "
        f"with. Put the Logout/ of the training back that {DELIVERABLE_FOLDER}/ comes from, or run `python "
        f"export.py --out {DELIVERABLE_FOLDER}` for the one "
        "in Logout/."
    )


def read_validation_records(work: Path, index: Index) -> list[Record]:
    """The training cases that the project held out, as far as it says which."""
    try:
        rows = untrusted.read_json(work, VALID_PREDICTIONS_FILE)
        keys = {case_key_of(row["image"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    held_out = [record for record in index.train if record.key in keys]
    return (
        list(sample_evenly(held_out, get_family(index.task).max_validation_cases)) if held_out else []
    )  # an index is often sorted by label


def _score_validation(
    root: Path,
    valid: Sequence[Record],
    rows: Sequence[Row],
    index: Index,
    selection: Selection,
    predict_baseline: PredictBaseline | None,
) -> Scores | None:
    if not valid:
        return None
    task_family, held_out_keys = get_family(index.task), {record.key for record in valid}
    training = [record for record in index.train if record.key not in held_out_keys]
    try:
        baseline_predictions = (predict_baseline or task_family.predict_baseline)(training, valid, index, root)
        scores = score_all(task_family, rows, index, primary=selection.metric, baseline=baseline_predictions)
        return replace(scores, patients_known=index.patients_known)
    except ValueError:
        return None  # too few validation cases of a class to say anything


def _describe_weaknesses(
    primary_measure: Measure | None, scores: Scores | None, acceptable_range: tuple[float, float | None] | None
) -> list[str]:
    if primary_measure is None or scores is None:
        return ["m3b could not measure the model on validation cases: Logout/valid_predictions.json names none."]
    verdict = judge(scores, acceptable_range, split_name="validation")
    return [] if verdict.ok else [f"On the validation cases m3b measures: {verdict.reason}"]
