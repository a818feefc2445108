"""More training of a finished run: from the delivered weights, compared with them on validation cases, kept if it is better."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.check_result import CheckResult, accept, describe_script_failure
from m3b.agents.checks.model import DELIVERABLE_FOLDER, VALID_PREDICTIONS_FILE
from m3b.agents.roles import MODEL_TRAINER, FailureMessage, Role
from m3b.data.cards import Card
from m3b.errors import OptionError, RunCancelled, RunFailed, UsageError
from m3b.events import ModelsCompared, StepStarted, ToolCalled, ToolReturned, TrainingAdded
from m3b.isolation import untrusted
from m3b.messages import ToolCall
from m3b.metrics.metric_tables import lower_is_better
from m3b.run.data_integrity import has_raw_data_changed
from m3b.run.folder import MODEL_SCRIPT, RunFolder
from m3b.run.model_validation import discard_candidate, hash_project, measure_candidate
from m3b.run.options import MINUTES_PER_DAY
from m3b.run.provisioning import ensure_plain_folder
from m3b.run.result import DELIVERED_STATUSES
from m3b.run.services import RunServices
from m3b.run.stages import Stage
from m3b.run.state import RunState
from m3b.run.training_checks import check_fixed_plan
from m3b.training.earlier_weights import RECORD_FILE, SUPPORTED_ENGINES
from m3b.writing import rename_durably

ADDED_TRAINING = Role(
    "added_training",
    "Added Training",
    ("run_script",),
    FailureMessage(
        "The added training made no model that can be delivered",
        "The earlier model stays; `m3b train RUN --discard` drops the added training.",
    ),
)
MAX_MINUTES = 14 * MINUTES_PER_DAY
LOG_FOLDER = "Logout"
CACHE_FOLDER = "cache"
"""Folder in `LOG_FOLDER` with preprocessed cases, which all trainings of a run share."""
WAIT_S = 3600


class AddedTrainingStage(Stage[TrainedModel]):
    """The added training, from the set-up of its project to the choice between its model and the delivered one."""

    role = ADDED_TRAINING
    artifact = TrainedModel

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        """Accept the better model: that of the added training after all checks of a model, or the delivered one."""
        training, run, selection = state.added_training, services.folder, state.get_artifact(Selection)
        assert training is not None
        services.prepare_training(training.minutes)
        set_results_aside(run.work, training.number)
        run_training(services, training)
        check_result = check_fixed_plan(services.training, run.work, selection.task)
        if check_result.is_accepted:
            first_predictions = find_first_predictions(run.work, training.number)
            check_result = measure_candidate(services, selection, earlier_predictions=first_predictions)
        check_result = services.extensions.apply_check(MODEL_TRAINER.name, check_result, run.work)
        if not check_result.is_accepted:
            return check_result
        earlier = state.get_artifact(TrainedModel)
        comparison = compare_models(earlier.validation, check_result.artifact.validation, selection.metric, training)
        if comparison.kept == "new":
            services.emit(comparison)
            return check_result
        restore_results(run, training.number)
        services.emit(comparison)
        return accept(earlier)


# --- the training -------------------------------------------------------------------------------------------------


def name_results(number: int) -> dict[str, str]:
    """Return the folders of a project that a training fills -> their names while a later one runs."""
    return {name: f"{name}-of-model-{number}" for name in (LOG_FOLDER, DELIVERABLE_FOLDER)}


def find_first_predictions(work: Path, number: int) -> str:
    """Return the file with the validation cases of the first training, on which all models of the run are compared."""
    name = Path(VALID_PREDICTIONS_FILE).name
    files = [f"{name_results(earlier)[LOG_FOLDER]}/{name}" for earlier in range(1, number + 1)]
    return next((file for file in files if untrusted.is_file(work, file)), "")


def set_results_aside(work: Path, number: int) -> None:
    """Rename the folders of the training that made the delivered model; may be called again after a crash."""
    for name, aside in name_results(number).items():
        if not os.path.lexists(work / aside) and untrusted.is_folder(work, name):
            rename_durably(work / name, work / aside)
    ensure_plain_folder(work, LOG_FOLDER)
    _move_cache(work, name_results(number)[LOG_FOLDER], LOG_FOLDER)


def _move_cache(work: Path, source: str, target: str) -> None:
    """Move the preprocessed cases from one folder to another, unless there are some already."""
    if untrusted.is_folder(work, f"{source}/{CACHE_FOLDER}") and not os.path.lexists(work / target / CACHE_FOLDER):
        rename_durably(work / source / CACHE_FOLDER, work / target / CACHE_FOLDER)


def restore_results(run: RunFolder, number: int) -> None:
    """Drop the results of the added training, so that project and measured model are as before."""
    discard_candidate(run)
    aside_log = name_results(number)[LOG_FOLDER]
    if untrusted.is_folder(run.work, aside_log):
        _move_cache(run.work, LOG_FOLDER, aside_log)
    for name, aside in name_results(number).items():
        if os.path.lexists(run.work / aside):
            untrusted.remove_tree(run.work / name)
            rename_durably(run.work / aside, run.work / name)


def remove_replaced_export(run: RunFolder, number: int) -> None:
    """Remove the project's copy of a model that another one replaced; the log of its training stays."""
    untrusted.remove_tree(run.work / name_results(number)[DELIVERABLE_FOLDER])


def run_training(services: RunServices, training: TrainingAdded) -> None:
    """Train from the delivered weights and export, in the sandbox; an interrupted training goes on.

    Raises:
        RunCancelled: the run was cancelled.
        RunFailed: the training failed, or the project cannot go on from weights.
    """
    earlier = name_results(training.number)[LOG_FOLDER]
    command = (
        f"python train.py --resume --start-from {earlier} --minutes {training.minutes:g} && "
        f"python export.py --out {DELIVERABLE_FOLDER}"
    )
    call = ToolCall(f"train-{training.number}", "run_script", {"command": command, "wait_s": WAIT_S})
    services.emit(StepStarted(describe_addition(services.folder.work, training)))
    services.emit(ToolCalled(call.id, call.name, call.arguments, cost=0))
    services.tools.continue_command(command, set())  # a cluster job of an earlier process goes on
    result = services.tools.call(call, (call.name,))
    while result.data.get("running") and not services.cancel_event.is_set():
        wait_call = ToolCall(call.id, call.name, {"job": result.data["job"], "wait_s": WAIT_S})
        result = services.tools.call(wait_call, (call.name,))
    services.emit(ToolReturned(call.id, call.name, result.text, result.is_error, result.data))
    if services.cancel_event.is_set():
        raise RunCancelled("The run was cancelled.")
    remedy = f"The earlier model stays; `{services.folder.format_command('train')} --discard` drops the added training."
    if result.is_error:
        retry = f"`{services.folder.format_command('resume')}` tries again from where it stopped."
        raise RunFailed(f"The added training failed. {describe_script_failure(result)} {retry} {remedy}")
    if not untrusted.is_file(services.folder.work, f"{LOG_FOLDER}/{RECORD_FILE}"):
        raise RunFailed(f"train.py of this project takes no --start-from, so it began anew. {remedy}")


def describe_addition(work: Path, training: TrainingAdded) -> str:
    """Return how much training is added, and from which weights: a plan that counts steps makes as many again."""
    plan = untrusted.read_json(work, "plan.json") if untrusted.is_file(work, "plan.json") else {}
    steps = plan.get("max_steps") if isinstance(plan, dict) else None
    amount = f"{steps} more steps, as plan.json sets" if steps else f"{training.minutes:g} more minutes"
    return f"training {amount}, from the weights of model {training.number}"


def compare_models(
    earlier: Mapping[str, Any], new: Mapping[str, Any], metric: str, training: TrainingAdded
) -> ModelsCompared:
    """Return which model is better by its metric on the validation cases; the earlier one if there is no difference.

    Args:
        earlier, new: the validation metric, as `Measure.to_dict` returns it; empty if there is none.
    """
    values = [measure.get("value") for measure in (earlier, new)]
    measured = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    after = f"After {training.minutes:g} more minutes of training"
    if len(measured) < 2:
        reason = f"{after}, there is no validation metric of both models, so the earlier model stays."
        return ModelsCompared("earlier", reason, dict(earlier), dict(new))
    counts = [measure.get("n") for measure in (earlier, new)]
    count_note = f", on {counts[1]} and {counts[0]} cases" if counts[0] != counts[1] else ""
    figures = f"{after}, validation {metric} is {measured[1]:.4g} (before: {measured[0]:.4g}{count_note})."
    is_better = measured[1] < measured[0] if lower_is_better(metric) else measured[1] > measured[0]
    if is_better:
        decision = f"The new model is delivered; the earlier one is in model-{training.number}/."
    else:
        decision = "This is no gain: the earlier model stays, and the new one was not scored on the locked test cases."
    return ModelsCompared("new" if is_better else "earlier", f"{figures} {decision}", dict(earlier), dict(new))


# --- what can be trained -------------------------------------------------------------------------------------------


def open_run_to_train(name: str | Path) -> RunFolder:
    """Return the run of a folder, an id or `last`.

    Raises:
        UsageError: there is no such run.
    """
    path = Path(name).expanduser()
    if (path / MODEL_SCRIPT).is_file() and not any((folder / "run.json").is_file() for folder in (path, path.parent)):
        raise UsageError(
            f"{path} is a model without its run: its project and its training cases are not there. Name the run that made it, "
            f"or start a new run from it: `m3b run REQUEST --data DIR --pretrained {path}`."
        )
    try:
        return RunFolder.open(name)
    except UsageError as error:
        if " " in str(name) and not path.exists():
            raise UsageError(f"{error} `m3b run REQUEST --data DIR` trains a new model for a request.") from None
        raise


def check_minutes(minutes: Any) -> None:
    """Raise OptionError for minutes that no training can take."""
    if isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= MAX_MINUTES:
        return
    text = f"minutes must be a number above 0 and at most {MAX_MINUTES:,}; it is {minutes!r}."
    raise OptionError(text, f"--{text}")


def resolve_added_minutes(
    run: RunFolder, record: Mapping[str, Any], state: RunState, card: Card | None, minutes: float | None
) -> float:
    """Return the minutes of the training to be added; those of an interrupted one if there is one.

    Args:
        card: of the run's data set.
        minutes: as the user asks for; None goes on with an interrupted training.

    Raises:
        UsageError: nothing can be added to this run, or the minutes are invalid.
    """
    if minutes is not None:
        check_minutes(minutes)
    if state.added_training is not None:
        planned = state.added_training.minutes
        if minutes not in (None, planned):
            raise UsageError(
                f"An added training of {planned:g} min was interrupted. `{run.format_command('resume')}` goes on with it, "
                f"`{run.format_command('train')} --discard` drops it."
            )
        return planned
    if minutes is None:
        raise UsageError(f"Say how long to train: `{run.format_command('train')} --minutes 20`.")
    if record.get("status") not in DELIVERED_STATUSES or not state.deliveries:
        raise UsageError(
            f"The run {run.display_name} has delivered no model (status: {record.get('status', 'unknown')}), so no training "
            f"can be added. `{run.format_command('resume')}` goes on with it."
        )
    _check_project(run, state.get_artifact(TrainedModel))
    if card is None or card.path is None or not card.path.is_dir():
        raise UsageError(
            f"The data folder of the run is not there any more{f': {card.path}' if card else ''}. Put it back."
        )
    if has_raw_data_changed(run, card.path, card.origin):
        raise UsageError(
            f"The files in {card.path} are not those of the run any more, so that a model trained on them would be another "
            "one. Put them back, or start a new run."
        )
    return minutes


def _check_project(run: RunFolder, model: TrainedModel) -> None:
    """Raise UsageError if the project is not the one that made the delivered model, or its engine cannot go on."""
    advice = "Put it back as it was, or start a new run."
    if not untrusted.is_file(run.work, "train.py"):
        raise UsageError(f"The training project of the run is gone: {run.work / 'train.py'} is missing. {advice}")
    hashes = hash_project(run.work)
    changed = [name for name, value in model.project.items() if hashes.get(name) != value]
    if changed:
        raise UsageError(
            f"The training project was changed after the run trained its model: {', '.join(changed[:5])} in {run.work}. {advice}"
        )
    plan = untrusted.read_json(run.work, "plan.json") if untrusted.is_file(run.work, "plan.json") else {}
    engine = plan.get("engine", SUPPORTED_ENGINES[0]) if isinstance(plan, dict) else ""
    if engine not in SUPPORTED_ENGINES:
        raise UsageError(f"The engine {engine} cannot go on from weights. Start a new run with more minutes.")
    config = untrusted.read_json(run.measured_model, "config.json")
    delivered = set(config.get("trained_weights") or ()) or {  # whole files, if the model stores their common part once
        value for name, value in model.hashes.items() if name.endswith(".safetensors") and name.startswith("model")
    }
    if missing := delivered - _hash_trained_weights(run.work):
        raise UsageError(
            f"{len(missing)} of {len(delivered)} weight files of the delivered model are not in {run.work / LOG_FOLDER} any "
            f"more. {advice}"
        )


def _hash_trained_weights(work: Path) -> set[str]:
    if not untrusted.is_folder(work, LOG_FOLDER):
        return set()
    names = [entry.name for entry in untrusted.walk(work, LOG_FOLDER) if entry.kind == "file"]
    return {untrusted.hash_file(work, f"{LOG_FOLDER}/{name}") for name in names if name.endswith(".safetensors")}
