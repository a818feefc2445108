"""Validation of a deliverable: it is copied, measured on cases that it has not seen, and kept if it is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.check_result import CheckResult
from m3b.agents.checks.index_lock import sha256_or_missing
from m3b.agents.checks.model import ChooseTestCases, PredictCases, check_model, freeze_deliverable
from m3b.data.index import read_index
from m3b.data.records import Record
from m3b.events import StepStarted
from m3b.isolation.untrusted import hash_file, list_entries, remove_tree
from m3b.models.kept_answers import ANSWERS_FILE, ANSWERS_FOLDER
from m3b.run.folder import RunFolder
from m3b.run.packaging import TEST_PREDICTIONS_FILE, get_acceptable_range, write_test_result
from m3b.run.sampled_test_part import check_on_test_part, choose_test_cases
from m3b.writing import rename_durably, write_text_atomically

if TYPE_CHECKING:
    from m3b.run.services import RunServices

CANDIDATE_FOLDER = "candidate"
"""Folder below `locked/` with a model that is being measured, and its predictions."""
FAILED_OUTPUT_FILE = "predict_failure.txt"
"""File with the output of a predict.py that failed on hidden cases; agents and scripts cannot read the folder it is in."""
MEASURED_NAMES = ("model", ANSWERS_FOLDER, TEST_PREDICTIONS_FILE)
"""What the measuring of a model leaves below `locked/`; the file that identifies the model comes last."""


def validate_model(services: RunServices, selection: Selection, previous: CheckResult | None) -> CheckResult:
    """Measure the deliverable, and keep it if it is accepted.

    Args:
        previous: the check result of the model that this process accepted last; it remains the one to deliver until
            another one is accepted.
    """
    check_result = measure_candidate(services, selection, previous)
    if check_result.is_accepted and check_result is not previous:
        adopt_candidate(services.folder)
    discard_candidate(services.folder)
    return check_result


def measure_candidate(
    services: RunServices,
    selection: Selection,
    previous: CheckResult | None = None,
    earlier_predictions: str = "",
) -> CheckResult:
    """Copy the deliverable below `locked/candidate/` and measure the copy.

    Args:
        previous: a check result that is returned if the deliverable is still the one that it accepted.
        earlier_predictions: see `check_model`.
    """
    run, candidate = services.folder, services.folder.locked / CANDIDATE_FOLDER
    discard_candidate(run)
    candidate.mkdir()
    frozen = freeze_deliverable(run.work, candidate / run.measured_model.name)
    hashes = frozen.hashes if frozen and not frozen.refusals else {}
    if previous is not None and isinstance(previous.artifact, TrainedModel) and previous.artifact.hashes == hashes:
        return previous  # nothing was changed since it was accepted
    (run.locked / FAILED_OUTPUT_FILE).unlink(missing_ok=True)
    services.emit(StepStarted("running the model on cases that it has not seen"))
    index = read_index(run.locked, selection.task)
    minutes = max(services.options.training_minutes, services.training_minutes)

    def choose_cases(model: Path, training_cases: Sequence[Record]) -> Sequence[Record]:
        return choose_test_cases(
            run.locked,
            index,
            services.executor.predict,
            model,
            training_cases,
            60 * minutes,
            services.options.seed,
            lambda sample: services.emit(StepStarted(sample.sentence)),
            services.executor.read_clock,
        )

    def check(predict: PredictCases, choose: ChooseTestCases | None) -> CheckResult:
        return check_model(
            run.work,
            frozen,
            selection,
            index,
            predict,
            partial(write_test_result, candidate),
            get_acceptable_range(services.card_of(selection), selection),
            root=run.locked,
            keep_failed_output=partial(keep_failed_output, run.locked),
            predict_baseline=services.executor.predict_baseline,
            earlier_predictions=earlier_predictions,
            choose_test_cases=choose,
        )

    check_result = check_on_test_part(
        run.locked,
        partial(services.executor.predict, keep_answers_in=candidate),
        check,
        choose_cases,
        lambda sentence: services.emit(StepStarted(sentence)),
        services.executor.read_clock,
        is_measured=(run.locked / TEST_PREDICTIONS_FILE).is_file(),
    )
    if not check_result.is_accepted:
        return check_result
    artifact = replace(
        check_result.artifact,
        answers=sha256_or_missing(candidate, TEST_PREDICTIONS_FILE),
        kept_answers=sha256_or_missing(candidate, f"{ANSWERS_FOLDER}/{ANSWERS_FILE}"),
        project=hash_project(run.work),
    )
    return replace(check_result, artifact=artifact)


def keep_failed_output(folder: Path, output: str) -> Path:
    """Write what predict.py printed when it failed on hidden cases, for the user alone; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(folder / FAILED_OUTPUT_FILE, output + "\n", errors="replace", is_private=True)
    return folder / FAILED_OUTPUT_FILE


def adopt_candidate(run: RunFolder) -> None:
    """Let the candidate replace the measured model; may be called again after a crash."""
    candidate = run.locked / CANDIDATE_FOLDER
    for name in MEASURED_NAMES:
        if (candidate / name).exists():
            _remove_path(run.locked / name)
            rename_durably(candidate / name, run.locked / name)


def settle_candidate(run: RunFolder, model: TrainedModel) -> None:
    """Finish what a killed process left: adopt the candidate if it is the accepted model, else remove it."""
    if model.answers and sha256_or_missing(run.locked, f"{CANDIDATE_FOLDER}/{TEST_PREDICTIONS_FILE}") == model.answers:
        adopt_candidate(run)
    discard_candidate(run)


def discard_candidate(run: RunFolder) -> None:
    """Remove the candidate, if there is one."""
    remove_tree(run.locked / CANDIDATE_FOLDER)


def hash_project(work: Path) -> dict[str, str]:
    """Return name -> SHA-256 of the scripts and plan.json of a training project."""
    names = sorted(entry.name for entry in list_entries(work) if entry.kind == "file")
    return {name: hash_file(work, name) for name in names if name.endswith(".py") or name == "plan.json"}


def _remove_path(path: Path) -> None:
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
