"""The check of the Model Trainer's deliverable: it is run in a clean process on every validation and test case."""

from __future__ import annotations

import builtins
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.check_result import CheckResult, Issue, accept, extract_last_line, reject, strip_agent_instructions
from m3b.data.index import Index, Record
from m3b.data.records import paths_of
from m3b.errors import ModelError
from m3b.isolation import untrusted
from m3b.metrics import Measure, Scores, judge
from m3b.models import FrozenCopy, freeze, read_model_info
from m3b.models.deliverable_check import check_deliverable, find_patient_identifiers
from m3b.tasks import Row, get_family, score_all
from m3b.tasks.base import sample_evenly

VALID_PREDICTIONS_FILE = "Logout/valid_predictions.json"
ENSEMBLE_FILE = "Logout/members.json"
MAX_WEIGHT_BYTES = 2**33
"""Maximum size of a weight file that is copied."""
PredictCases = Callable[[Path, Sequence[Record], Index], list[Row]]
"""Runs a deliverable's predict.py on cases, without the raw data, and measures it: one row for each case."""


def read_folds(work: Path) -> dict[str, int]:
    """Return key of a held-out case -> its fold; empty if the project names none."""
    try:
        rows = untrusted.read_json(work, VALID_PREDICTIONS_FILE)
        return {case_key_of(row["image"]): int(row["fold"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def case_key_of(image: Any) -> str:
    """Return the key of a case in `valid_predictions.json`, equal to its `Record.key`."""
    return "|".join(paths_of(image))


def find_refit_problem(folder: Path, folds: Mapping[str, int], valid: Sequence[Record], work: Path) -> str:
    """Return why the held-out cases of a refit cannot be measured fairly; '' if they can, or for other deliverables."""
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
    """Return whether the deliverable is a refit, and the weight files of the folds in their order.

    They are the deliverable's own, or for a refit those below `work` that `ENSEMBLE_FILE` names.
    """
    refit = is_refit(folder)
    return refit, _read_weight_files(work, ENSEMBLE_FILE) if refit else _read_weight_files(folder, "config.json")


def is_refit(folder: Path) -> bool:
    """Return whether config.json says that the weights of a deliverable were trained on every case."""
    return bool(_read_config(folder).get("refit")) and len(_read_weight_files(folder, "config.json")) == 1


def predict_held_out(
    folder: Path, folds: Mapping[str, int], valid: Sequence[Record], index: Index, predict: PredictCases, work: Path
) -> list[Row] | None:
    """Return one row for each case of `valid`, predicted by the fold that was trained without it.

    None if the deliverable is neither an ensemble of folds nor a refit.

    Args:
        folder: the deliverable; `weights` of its config.json is one file for each fold, in order.
        folds: fold of each case, from `read_folds`.
        work: the project; copies with a single network are made next to it temporarily.

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
    """Return the weight files that a JSON file below a folder lists; empty if it lists none."""
    try:
        names = untrusted.read_json(folder, file).get("weights")
    except (OSError, ValueError, AttributeError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _copy_with_one_network(folder: Path, target: Path, weight_files: Sequence[str], fold: int, work: Path) -> Path:
    """Copy the deliverable with only one of its networks."""
    other_weights = {name for name in weight_files if name != weight_files[fold]}
    shutil.copytree(folder, target, ignore=lambda _, entries: [name for name in entries if name in other_weights])
    (target / "config.json").write_text(
        json.dumps({**_read_config(folder), "weights": [weight_files[fold]]}), encoding="utf-8"
    )
    return target


def _copy_with_project_weights(folder: Path, target: Path, weight_files: Sequence[str], fold: int, work: Path) -> Path:
    """Copy the deliverable with weights of the project in place of its own."""
    delivered_weights = _read_weight_files(folder, "config.json")[0]
    shutil.copytree(folder, target, ignore=lambda _, entries: [name for name in entries if name == delivered_weights])
    with (
        untrusted.open_file(work, weight_files[fold], max_bytes=MAX_WEIGHT_BYTES) as source,
        (target / delivered_weights).open("wb") as out,
    ):
        shutil.copyfileobj(source, out, 2**20)
    return target


DELIVERABLE_FOLDER = "Deliver"
MAX_TRIED_CASES = 4
"""Number of training cases that a failing predict.py predicts again; its full output on them is shown to agents."""
_EXCEPTION_NAMES = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}
"""Built-in ones only, since a script could name a class of its own after a label."""
ChooseTestCases = Callable[[Path, Sequence[Record]], Sequence[Record]]
"""Returns the test cases that a deliverable is measured on; it may time the deliverable on the given training cases."""
PredictBaseline = Callable[[Sequence[Record], Sequence[Record], Index, Path], Any]
"""`TaskFamily.predict_baseline`, or the same function in the reader process."""


@dataclass(frozen=True)
class LockedTestResult:
    """The measured predictions of the deliverable on the locked test cases."""

    rows: tuple[Row, ...]


def find_deliverable_problem(work: Path, frozen: FrozenCopy | None, index: Index) -> CheckResult | None:
    """Return why a deliverable cannot be measured, before it is run; None if it can.

    Args:
        frozen: as for `check_model`.
    """
    if frozen is None:
        agent_message = (
            f"There is no folder {DELIVERABLE_FOLDER}/. Train, then run `python export.py --out {DELIVERABLE_FOLDER}`."
        )
        return reject(Issue(agent_message, "Training left no model behind.", "no_deliverable"))
    folder = frozen.folder
    problems = frozen.refusals or [
        *check_deliverable(folder),
        *find_patient_identifiers(folder, [record.patient for record in index.all_images if record.patient_known]),
    ]
    if problems:
        return reject(
            *(
                Issue(text, f"The trained model cannot be delivered: {text}.", "deliverable_invalid")
                for text in problems
            )
        )
    if promise_mismatch := _find_promise_mismatch(folder, index):
        return reject(
            Issue(
                promise_mismatch,
                f"The trained model is not the one that was asked for: {strip_agent_instructions(promise_mismatch)}",
                "other_model",
            )
        )
    if training_mismatch := _find_training_mismatch(folder, work):
        return reject(
            Issue(
                training_mismatch,
                "The trained model and its held-out cases come from two different trainings.",
                "other_training",
            )
        )
    return None


def predict_validation(work: Path, frozen: FrozenCopy, index: Index, predict: PredictCases) -> list[Row]:
    """Return one row for each validation case of a project, and touch no test case.

    Args:
        frozen: a copy of its deliverable, for which `find_deliverable_problem` found none.

    Raises:
        ModelError: predict.py fails, or the project held out no cases.
    """
    valid, folds = read_validation_records(work, index), read_folds(work)
    if not valid:
        raise ModelError(f"{VALID_PREDICTIONS_FILE} names no held-out case of the index.")
    rows = predict_held_out(frozen.folder, folds, valid, index, predict, work)
    return predict(frozen.folder, valid, index) if rows is None else rows


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
    keep_failed_output: Callable[[str], Path],
    predict_baseline: PredictBaseline | None = None,
    earlier_predictions: str = "",
    choose_test_cases: ChooseTestCases | None = None,
) -> CheckResult:
    """Accept a deliverable that is complete and predicts every validation and test case.

    The test scores are not computed here, and agents are told the validation metric only.

    Args:
        frozen: the copy of the deliverable that is checked and measured, from `freeze_deliverable`.
        index: the locked index.
        store_test_result: stores the predictions on the test cases where agents cannot see them.
        root: base folder of the paths in the index.
        keep_failed_output: stores the output of a predict.py that fails on test cases for the user alone, and returns the file.
        predict_baseline: computes the image-blind baseline; by default the task family does, in this process.
        earlier_predictions: file of an earlier training like `VALID_PREDICTIONS_FILE`; its cases are measured if this
            project held out all of them, so that both models can be compared.
        choose_test_cases: chooses the test cases to measure; by default all.
    """
    if (problem := find_deliverable_problem(work, frozen, index)) is not None:
        return problem
    assert frozen is not None
    folder = frozen.folder
    valid, folds = read_validation_records(work, index, earlier_predictions), read_folds(work)
    if refit_problem := find_refit_problem(folder, folds, valid, work):
        return reject(
            Issue(
                refit_problem,
                "The trained model was trained on every case, so no validation case is left to measure it on.",
                "refit_unmeasurable",
            )
        )
    try:
        held_out_rows = predict_held_out(folder, folds, valid, index, predict, work)
        test_cases = choose_test_cases(folder, valid or index.train) if choose_test_cases else index.test
    except ModelError as error:
        return reject(_describe_failure(error))
    try:
        rows = (
            [*held_out_rows, *predict(folder, test_cases, index)]
            if held_out_rows
            else predict(folder, [*valid, *test_cases], index)
        )
    except ModelError as error:
        if held_out_rows is None:
            try:
                predict(folder, sample_evenly(valid or index.train, MAX_TRIED_CASES), index)
            except ModelError as shown_error:
                return reject(_describe_failure(shown_error))
        failure = describe_hidden_failure(str(error))
        agent_message = (
            f"{DELIVERABLE_FOLDER}/predict.py predicts training cases, but fails on the locked test cases ({failure}). Its output "
            "stays hidden, since it could tell labels. Look for what only some images have: size, channels, type of pixels."
        )
        user_message = (
            f"The trained model's predict.py fails on the locked test cases ({failure}). Its output, which no agent saw, is in "
            f"{keep_failed_output(str(error))}."
        )
        return reject(Issue(agent_message, user_message, "predict_fails_on_test"))
    store_test_result(LockedTestResult(tuple(rows[len(valid) :])))
    scores = score_validation(root, valid, rows[: len(valid)], index, selection, predict_baseline)
    primary_measure = scores.primary if scores else None
    model = TrainedModel(
        folder=DELIVERABLE_FOLDER,
        validation=primary_measure.to_dict() if primary_measure else {},
        files=len(frozen.hashes),
        hashes=dict(frozen.hashes),
        refit=is_refit(folder),
    )
    return accept(model, *_describe_weaknesses(primary_measure, scores, acceptable_range))


def _describe_failure(error: ModelError) -> Issue:
    """Return the issue of a predict.py that fails on training cases, with its output."""
    agent_message = f"{DELIVERABLE_FOLDER}/predict.py fails in a clean process: {error}"
    user_message = f"The trained model's predict.py fails in a clean process: {extract_last_line(str(error))}"
    return Issue(agent_message, user_message, "predict_fails")


def describe_hidden_failure(output: str) -> str:
    """Return the exit status and the built-in exception class that an error message of predict.py holds, and nothing else."""
    status = re.search(r"ended with status (-?\d{1,3})\b", output)
    names = re.findall(r"\b([A-Z][A-Za-z]+)\b", output)
    exceptions = [name for name in names if name in _EXCEPTION_NAMES]
    return f"exit status {status[1] if status else 'unknown'}, exception {exceptions[-1] if exceptions else 'unknown'}"


def freeze_deliverable(work: Path, target: Path) -> FrozenCopy | None:
    """Copy the deliverable out of the reach of scripts; None if there is none."""
    try:
        return freeze(work / DELIVERABLE_FOLDER, target)
    except NotADirectoryError:
        return None


def _find_promise_mismatch(folder: Path, index: Index) -> str:
    """Return the problem if config.json is for another task or other classes; else ''."""
    promise = read_model_info(folder)
    if promise.task != index.task:
        return f"{DELIVERABLE_FOLDER}/config.json belongs to a {promise.task} model; the task is {index.task}."
    if get_family(index.task).answers.requires_classes and set(promise.classes) != set(index.classes):
        return (
            f"{DELIVERABLE_FOLDER}/config.json names the classes {sorted(promise.classes)}; the index has "
            f"{sorted(index.classes)}. Export from this plan."
        )
    return ""


def _find_training_mismatch(folder: Path, work: Path) -> str:
    """Return the problem if the held-out cases are those of another training, so that this model may have seen them.

    Projects that do not record the training of their model are trusted.
    """
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


def read_validation_records(work: Path, index: Index, earlier_predictions: str = "") -> list[Record]:
    """Return the training cases that the project held out, as far as it names them.

    Args:
        earlier_predictions: see `check_model`.
    """
    keys = _read_held_out_keys(work, VALID_PREDICTIONS_FILE)
    earlier_keys = _read_held_out_keys(work, earlier_predictions) if earlier_predictions else set()
    keys = earlier_keys if earlier_keys and earlier_keys <= keys else keys
    held_out = [record for record in index.train if record.key in keys]
    # sampled evenly, since an index is often sorted by label
    return list(sample_evenly(held_out, get_family(index.task).max_validation_cases)) if held_out else []


def _read_held_out_keys(work: Path, file: str) -> set[str]:
    try:
        return {case_key_of(row["image"]) for row in untrusted.read_json(work, file)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def score_validation(
    root: Path,
    valid: Sequence[Record],
    rows: Sequence[Row],
    index: Index,
    selection: Selection,
    predict_baseline: PredictBaseline | None,
) -> Scores | None:
    """Return the scores of the cases that the project held out; None if there are too few of them.

    The image-blind baseline is fitted on the other training cases. If the project held out every case once (folds),
    it is fitted on all of them, which can only favour the baseline.
    """
    if not valid:
        return None
    task_family, held_out_keys = get_family(index.task), {record.key for record in valid}
    training = [record for record in index.train if record.key not in held_out_keys] or index.train
    try:
        baseline_predictions = (predict_baseline or task_family.predict_baseline)(training, valid, index, root)
        scores = score_all(task_family, rows, index, primary=selection.metric, baseline=baseline_predictions)
        return replace(scores, patients_known=index.patients_known)
    except ValueError:
        return None  # too few validation cases of a class


def _describe_weaknesses(
    primary_measure: Measure | None, scores: Scores | None, acceptable_range: tuple[float, float | None] | None
) -> list[str]:
    if primary_measure is None or scores is None:
        return ["m3b could not measure the model on validation cases: Logout/valid_predictions.json names none."]
    verdict = judge(scores, acceptable_range, split_name="validation")
    return [] if verdict.ok or verdict.is_open else [f"On the validation cases m3b measures: {verdict.reason}"]
