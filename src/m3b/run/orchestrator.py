"""One run from its request to a delivered model: the stages one after the other, and what m3b does between them.

What a stage is stands in `m3b.run.stages`, how one is performed in `m3b.run.performing`. From the acceptance of the index on,
agents and scripts see training cases alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.checks.site import check_data_folders
from m3b.errors import BudgetExceeded, LLMError, RunFailed
from m3b.events import ModelDelivered, NoteAdded, ScriptOutput, StepStarted
from m3b.models.manifest import PROVENANCE_FILE, hash_files, sha256_of
from m3b.run.confirming import confirm_index
from m3b.run.context import RunContext
from m3b.run.external_sets import measure_external_sets
from m3b.run.packaging import DeliveredModel, deliver_model
from m3b.run.performing import StageRunner
from m3b.run.stages import IndexStage, SelectionStage, Stage


def run_stages(run: RunContext) -> DeliveredModel:
    """All stages and the delivery.

    What was accepted in another process is not made again, so that a run that is taken up passes by here too.

    Raises:
        RunEnd: why there is no model.
    """
    stage_runner = StageRunner(run)
    check_data_folders(list(run.workspace.cards.values()))
    for stage in run.stages:
        _run_stage(run, stage_runner, stage)
        match stage:
            case SelectionStage():
                run.validator.record_raw_fingerprint(run.card)  # before any script has run
            case IndexStage():
                confirm_index(run, stage_runner, stage)
                selection = run.get_artifact(Selection)
                run.restrict_to_training_cases(
                    run.card.root, selection.task, lambda done, total: _emit_view_progress(run, done, total)
                )
    return _deliver_model(run)


def _run_stage(run: RunContext, stage_runner: StageRunner, stage: Stage[Any]) -> None:
    """One stage; where the run can do without it, its failure is noted."""
    try:
        stage_runner.run_stage(stage)
    except (RunFailed, BudgetExceeded, LLMError) as error:
        if stage.required:
            raise
        run.emit(NoteAdded(f"The run goes on without {stage.role.title}: {error}"))
        run.role = ""


def _emit_view_progress(run: RunContext, done: int, total: int) -> None:
    run.emit(ScriptOutput(0, f"view: {done} of {total} files"))


def _deliver_model(run: RunContext) -> DeliveredModel:
    """The measured copy of the model, with its card, figures and hashes."""
    run.emit(StepStarted("measuring and delivering the model"))
    run.tools.close()
    data = run.get_artifact(DataIndex)
    external = measure_external_sets(run)
    integrity = run.validator.verify_integrity(data, run.card)
    run_facts = {
        "request": run.request,
        "run": run.folder.id,
        "seed": run.options.seed,
        "llm": {name: llm.name for name, llm in run.llms.items()},
        "options": run.options.to_json(),
        "sandboxes": list(run.state.sandboxes),
    }
    delivered = deliver_model(
        run.folder,
        selection=run.get_artifact(Selection),
        card=run.card,
        data=data,
        model=run.get_artifact(TrainedModel),
        integrity=integrity,
        run_facts=run_facts,
        predict_baseline=run.executor.predict_baseline,
        journal={"lines": run.journal.line_count, "head": run.journal.last_digest},
        external_results=external,
    )
    provenance_hash = sha256_of(run.folder.model / PROVENANCE_FILE)
    run.emit(ModelDelivered({**hash_files(run.folder.model), PROVENANCE_FILE: provenance_hash}))
    return replace(delivered, reason=f"{delivered.reason} {run.state.remark}".strip())
