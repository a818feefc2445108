"""The check of what the Model Trainer hands over: the deliverable is run, in a clean process, on every case."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.checks.folds import (
    VALID_PREDICTIONS_FILE,
    PredictCases,
    case_key_of,
    find_refit_problem,
    is_refit,
    predict_held_out,
    read_folds,
)
from m3b.agents.reasons import extract_last_line, strip_agent_instructions
from m3b.agents.verdict import CheckResult, Issue, accept, reject
from m3b.data.index import Index, Record
from m3b.errors import ModelError
from m3b.metrics import Measure, Scores, judge
from m3b.models import FrozenCopy, freeze, read_model_info
from m3b.models.deliverable import check_deliverable
from m3b.models.identifiers import find_patient_identifiers
from m3b.tasks import Row, get_family
from m3b.tasks.base import sample_evenly

DELIVERABLE_FOLDER = "Deliver"
PredictBaseline = Callable[[Sequence[Record], Sequence[Record], Index, Path], Any]
"""`TaskFamily.trivial`, or the same in the reader process."""


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
        scores = task_family.score_all(rows, index, primary=selection.metric, baseline=baseline_predictions)
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
