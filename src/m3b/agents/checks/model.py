"""The check of what the Model Trainer hands over: the deliverable is run, in a clean process, on every case."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.checks.folds import PREDICTIONS, Predict, folds_of, held_out_answers, is_refit, key_of, refit_fault
from m3b.agents.reasons import for_people, last_line
from m3b.agents.verdict import Fault, Verdict, accepted, rejected
from m3b.data.index import Index, Record
from m3b.errors import ModelError
from m3b.metrics import Measure, Scores, judge
from m3b.models import Frozen, freeze, read_promise
from m3b.models.deliverable import check_deliverable
from m3b.models.identifiers import names_patients
from m3b.tasks import Row, family
from m3b.tasks.base import spread

FOLDER = "Deliver"
Baseline = Callable[[Sequence[Record], Sequence[Record], Index, Path], Any]
"""`TaskFamily.trivial`, or the same in the reader process."""


@dataclass(frozen=True)
class MeasuredTest:
    """What the deliverable answered on the locked test cases, measured."""

    rows: tuple[Row, ...]


def check_model(
    work: Path,
    frozen: Frozen | None,
    selection: Selection,
    index: Index,
    predict: Predict,
    keep: Callable[[MeasuredTest], None],
    acceptable: tuple[float, float | None] | None,
    *,
    base: Path,
    baseline: Baseline | None = None,
) -> Verdict:
    """Accept a deliverable that is whole and predicts every validation and test case.

    The test figure is not looked at here: agents hear the validation figure alone.

    Args:
        frozen: the copy of the deliverable that is looked at and measured, as `take` made it.
        index: the locked one.
        keep: stores the predictions on the test cases where agents cannot see them.
        base: what the index's paths count from.
        baseline: makes the best answer that looks at no image; by default the task family does, in this process.
    """
    if frozen is None:
        agent_message = f"There is no folder {FOLDER}/. Train, then run `python export.py --out {FOLDER}`."
        return rejected(Fault(agent_message, "Training left no model behind."))
    folder = frozen.folder
    problems = frozen.refused or [*check_deliverable(folder), *names_patients(folder, _patients(index))]
    if problems:
        return rejected(*(Fault(text, f"The trained model cannot be delivered: {text}.") for text in problems))
    if promise_mismatch := _find_promise_mismatch(folder, index):
        return rejected(
            Fault(
                promise_mismatch, f"The trained model is not the one that was asked for: {for_people(promise_mismatch)}"
            )
        )
    if training_mismatch := _find_training_mismatch(folder, work):
        return rejected(
            Fault(training_mismatch, "The trained model and the cases that were held out for it are of two trainings.")
        )
    valid, folds = validation_records(work, index), folds_of(work)
    if refit_problem := refit_fault(folder, folds, valid, work):
        return rejected(
            Fault(refit_problem, "The trained model has learnt from every case, and nothing is left to measure it on.")
        )
    try:
        held_out_rows = held_out_answers(folder, folds, valid, index, predict, work)
        rows = (
            [*held_out_rows, *predict(folder, index.test, index)]
            if held_out_rows
            else predict(folder, [*valid, *index.test], index)
        )
    except ModelError as error:
        agent_message = f"{FOLDER}/predict.py does not do its work in a clean process: {error}"
        user_message = (
            f"The trained model's predict.py does not do its work in a clean process: {last_line(str(error))}"
        )
        return rejected(Fault(agent_message, user_message))
    keep(MeasuredTest(tuple(rows[len(valid) :])))
    scores = _validation(base, valid, rows[: len(valid)], index, selection, baseline)
    primary_measure = scores.primary if scores else None
    model = TrainedModel(
        folder=FOLDER,
        validation=primary_measure.to_dict() if primary_measure else {},
        files=len(frozen.hashes),
        hashes=dict(frozen.hashes),
        refit=is_refit(folder),
    )
    return accepted(model, *_warnings(primary_measure, scores, acceptable))


def take(work: Path, target: Path) -> Frozen | None:
    """Copy the deliverable out of every script's reach; None where there is none."""
    try:
        return freeze(work / FOLDER, target)
    except NotADirectoryError:
        return None


def _patients(index: Index) -> list[str]:
    return [record.patient for record in index.records if record.patient_known]


def _find_promise_mismatch(folder: Path, index: Index) -> str:
    """Whether config.json speaks of this task and these classes."""
    promise = read_promise(folder)
    if promise.task != index.task:
        return f"{FOLDER}/config.json is of a {promise.task} model; the task is {index.task}."
    if family(index.task).answers.needs_classes and set(promise.classes) != set(index.classes):
        return (
            f"{FOLDER}/config.json names the classes {sorted(promise.classes)}; the index has "
            f"{sorted(index.classes)}. Export from this plan."
        )
    return ""


def _find_training_mismatch(folder: Path, work: Path) -> str:
    """Whether the held-out cases are those of another training, which this model may have seen; projects that do not say which
    training their model is of are believed."""
    try:
        recorded_hash = untrusted.read_json(folder, "config.json").get("held_out")
        current_hash = hashlib.sha256(untrusted.read_bytes(work, PREDICTIONS, most=2**30)).hexdigest()
    except (OSError, ValueError, AttributeError):
        return ""
    if not recorded_hash or recorded_hash == current_hash:
        return ""
    return (
        f"{FOLDER}/ is of another training than {PREDICTIONS}: cases held out there may be among those that this model was trained "
        f"with. Put the Logout/ of the training back that {FOLDER}/ comes from, or run `python export.py --out {FOLDER}` for the one "
        "in Logout/."
    )


def validation_records(work: Path, index: Index) -> list[Record]:
    """The training cases that the project held out, as far as it says which."""
    try:
        rows = untrusted.read_json(work, PREDICTIONS)
        keys = {key_of(row["image"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    held_out = [record for record in index.train if record.key in keys]
    return (
        list(spread(held_out, family(index.task).valid_cases)) if held_out else []
    )  # an index is often sorted by label


def _validation(
    base: Path,
    valid: Sequence[Record],
    rows: Sequence[Row],
    index: Index,
    selection: Selection,
    baseline: Baseline | None,
) -> Scores | None:
    if not valid:
        return None
    task_family, held_out_keys = family(index.task), {record.key for record in valid}
    training = [record for record in index.train if record.key not in held_out_keys]
    try:
        baseline_predictions = (baseline or task_family.trivial)(training, valid, index, base)
        scores = task_family.score_all(rows, index, primary=selection.metric, trivial=baseline_predictions)
        return replace(scores, patients_known=index.patients_known)
    except ValueError:
        return None  # too few validation cases of a class to say anything


def _warnings(
    figure: Measure | None, scores: Scores | None, acceptable: tuple[float, float | None] | None
) -> list[str]:
    if figure is None or scores is None:
        return ["m3b could not measure the model on validation cases: Logout/valid_predictions.json names none."]
    verdict = judge(scores, acceptable, part="validation")
    return [] if verdict.ok else [f"On the validation cases m3b measures: {verdict.reason}"]
