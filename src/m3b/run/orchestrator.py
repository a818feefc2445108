"""One run from its request to a delivered model: the stages in order, and what m3b does between them.

`m3b.run.stages` defines the stages, `m3b.run.stage_runner` performs one. Once the index is accepted, agents and scripts
see training cases only.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.errors import (
    BudgetExceeded,
    DataError,
    LLMError,
    M3bError,
    RunCancelled,
    RunEnd,
    RunFailed,
    Status,
    TrainingDeclined,
)
from m3b.events import ModelDelivered, NoteAdded, RunEnded, RunStarted, StepStarted
from m3b.journal import JOURNAL_FORMAT
from m3b.models.checksums import PROVENANCE_FILE, hash_files, sha256_of
from m3b.run.confinement import sandbox_entry
from m3b.run.data_integrity import verify_integrity
from m3b.run.extensions import CallbackError
from m3b.run.external_sets import measure_external_sets
from m3b.run.folder import RunFolder
from m3b.run.packaging import DeliveredModel, deliver_model
from m3b.run.precheck import check_data_folders
from m3b.run.result import FINAL_STATUSES, Result
from m3b.run.services import RunServices
from m3b.run.stage_runner import StageRunner
from m3b.run.stages import Stage
from m3b.run.state import RunState

OpenServices = Callable[[RunState], RunServices]
"""Makes the services of a run from its state."""


def execute_run(
    run: RunFolder,
    record: dict[str, Any],
    state: RunState,
    stages: Sequence[Stage[Any]],
    open_services: OpenServices,
    notes: Sequence[str] = (),
) -> Result:
    """Work on a run to its end, however it ends, and write run.json and the report.

    Args:
        record: the content of run.json; see `m3b.run.record`.
        state: what earlier processes did in the run; empty for a new one.
        stages: the stages in their order.
        open_services: called after run.json says that the run is working.
        notes: messages for the user and the journal at the start of the work.
    """
    started, services = time.monotonic(), None
    result = _make_result(record, state, "failed", f"m3b itself was ended; `{run.format_command('resume')}` goes on.")
    try:
        record.update(status="working", reason="", result=None, format=JOURNAL_FORMAT)
        run.save_record(record)
        services = open_services(state)
        services.emit(RunStarted(record["request"], run.id, sandbox_entry(services.sandbox), tuple(notes)))
        result = _make_model_result(record, state, run, run_stages(stages, state, services))
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - every ending is reported as a Result
        result = _make_result(record, state, *_describe_ending(run, error))
    finally:
        result = _finish_run(run, record, result, state, services, state.worked_seconds + time.monotonic() - started)
    return result


TRACEBACK_FILE = "error.txt"
"""File of the run folder with the traceback of an unexpected error."""


def _describe_ending(run: RunFolder, error: BaseException) -> tuple[Status, str]:
    """Return the status of a run that ended with an error, and the reason for people."""
    resume_hint = f"`{run.format_command('resume')}` goes on."
    match error:
        case TrainingDeclined():
            return error.status, str(error)
        case KeyboardInterrupt() | RunCancelled():
            return "cancelled", f"Stopped on request. Everything made so far is kept; {resume_hint}"
        case RunEnd():
            if isinstance(error, CallbackError):
                _save_traceback(run, error)
            return error.status, str(error)
        case M3bError():
            return "failed", str(error)
        case OSError():
            file_note = f" ({error.filename})" if error.filename else ""
            return (
                "failed",
                f"The system refused: {error.strerror or error}{file_note}. Fix that, then {resume_hint[: -len(' goes on.')]}.",
            )
    _save_traceback(run, error)
    message = f"m3b itself failed with {type(error).__name__}: {error}".rstrip(": ")
    return "failed", f"{message}. {TRACEBACK_FILE} in the run folder says where; please report it. {resume_hint}"


def _save_traceback(run: RunFolder, error: BaseException) -> None:
    with contextlib.suppress(OSError):
        (run.path / TRACEBACK_FILE).write_text("".join(traceback.format_exception(error)), encoding="utf-8")


def _finish_run(
    run: RunFolder, record: dict[str, Any], result: Result, state: RunState, services: RunServices | None, wall_s: float
) -> Result:
    """Stop everything that still runs, then write the result; a full disk or a second Ctrl-C must not hide it."""
    result.usage["wall_s"] = round(wall_s, 1)
    if services is not None:
        services.role = ""
        services.tools.close()
        with contextlib.suppress(OSError, DataError):
            services.restore_folders(state.index, is_resumable=result.status not in FINAL_STATUSES)
    with contextlib.suppress(OSError, RunFailed):
        record.update(status=result.status, reason=result.reason, result=result.to_json(), ended=time.time())
        run.save_record(record)
        from m3b.report import write_report

        result = replace(result, report=str(write_report(run.path)))
        record["result"] = result.to_json()
        run.save_record(record)
    if services is not None:
        with contextlib.suppress(RunFailed):
            services.emit(RunEnded(result.to_json()))
        services.close()
    return result


def _make_result(record: Mapping[str, Any], state: RunState, status: Status, reason: str) -> Result:
    selection, index, usage = state.selection, state.index, state.usage
    return Result(
        status=status,
        reason=reason,
        request=record["request"],
        task=selection.task if selection else "",
        data_card=selection.card if selection else "",
        usage={
            "actions": state.actions,
            "iterations": state.iterations,
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cached_share": round(usage.cached_share, 4),
            "cost_usd": round(usage.cost_usd, 6),
        },
        roles=state.role_usage_to_json(),
        run_dir=record["run_dir"],
        patients_known=index.patients_known if index else None,
        grouped_by=index.grouped_by if index else "",
    )


def _make_model_result(record: Mapping[str, Any], state: RunState, run: RunFolder, delivered: DeliveredModel) -> Result:
    status: Status = (
        "completed" if delivered.is_accepted else "below_range" if delivered.integrity == "clean" else "failed"
    )
    return replace(
        _make_result(record, state, status, delivered.reason),
        primary=delivered.scores.primary,
        acceptable=delivered.acceptable,
        metrics=delivered.metrics_to_dict(),
        integrity=delivered.integrity,
        model_dir=str(run.model),
        patients=delivered.scores.n_patients if delivered.scores.patients_known else None,
        external=dict(delivered.external),
    )


def run_stages(stages: Sequence[Stage[Any]], state: RunState, services: RunServices) -> DeliveredModel:
    """Perform all stages and deliver the model.

    Artifacts that another process got accepted are not made again, so a resumed run passes through here too.

    Raises:
        RunEnd: why there is no model.
    """
    stage_runner = StageRunner(stages, state, services)
    check_data_folders(list(services.workspace.cards.values()))
    for stage in stages:
        try:
            stage_runner.run_stage(stage)
        except (RunFailed, BudgetExceeded, LLMError) as error:
            if stage.required:
                raise
            services.emit(NoteAdded(f"The run goes on without {stage.role.title}: {error}"))
            services.role = ""
    return _deliver_model(state, services)


def _deliver_model(state: RunState, services: RunServices) -> DeliveredModel:
    """Copy the measured model to `model/` with its card, metrics and hashes, and return it."""
    services.emit(StepStarted("measuring and delivering the model"))
    services.tools.close()
    selection, data = state.get_artifact(Selection), state.get_artifact(DataIndex)
    card, folder = services.card_of(selection), services.folder
    external = measure_external_sets(state, services)
    integrity = verify_integrity(services, selection, data)
    run_facts = {
        "request": services.request,
        "run": folder.id,
        "seed": services.options.seed,
        "llm": {name: llm.name for name, llm in services.llms.items()},
        "options": services.options.to_json(),
        "sandboxes": list(state.sandboxes),
    }
    delivered = deliver_model(
        folder,
        selection=selection,
        card=card,
        data=data,
        model=state.get_artifact(TrainedModel),
        integrity=integrity,
        run_facts=run_facts,
        predict_baseline=services.executor.predict_baseline,
        journal={"lines": services.journal.line_count, "head": services.journal.last_digest},
        external_results=external,
    )
    provenance_hash = sha256_of(folder.model / PROVENANCE_FILE)
    services.emit(ModelDelivered({**hash_files(folder.model), PROVENANCE_FILE: provenance_hash}))
    return replace(delivered, reason=f"{delivered.reason} {state.remark}".strip())
