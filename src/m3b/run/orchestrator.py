"""One run from its request to a delivered model: the stages one after the other, and what m3b does between them.

What a stage is stands in `m3b.run.stages`, how one is performed in `m3b.run.performing`. From the acceptance of the index on,
agents and scripts see training cases alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.checks.site import check_site
from m3b.errors import Failed, LLMError, OutOfBudget
from m3b.events import ModelDelivered, Noted, Output, StageBegun
from m3b.models.manifest import MANIFEST, hashes_of, sha256_of
from m3b.run.confirming import confirm
from m3b.run.context import RunContext
from m3b.run.external_sets import measure_sets
from m3b.run.packaging import Delivered, deliver
from m3b.run.performing import Performer
from m3b.run.stages import IndexStage, SelectionStage, Stage


def work(run: RunContext) -> Delivered:
    """All stages and the delivery.

    What was accepted in another process is not made again, so that a run that is taken up passes by here too.

    Raises:
        RunEnd: why there is no model.
    """
    stage_runner = Performer(run)
    check_site(list(run.workspace.cards.values()))
    for stage in run.stages:
        _run_stage(run, stage_runner, stage)
        match stage:
            case SelectionStage():
                run.inspector.watch(run.card)  # before any script has run
            case IndexStage():
                confirm(run, stage_runner, stage)
                selection = run.made(Selection)
                run.show_training_only(
                    run.card.root, selection.task, lambda done, total: _emit_view_progress(run, done, total)
                )
    return _deliver_model(run)


def _run_stage(run: RunContext, stage_runner: Performer, stage: Stage[Any]) -> None:
    """One stage; where the run can do without it, its failure is noted."""
    try:
        stage_runner.perform(stage)
    except (Failed, OutOfBudget, LLMError) as error:
        if stage.required:
            raise
        run.emit(Noted(f"The run goes on without {stage.role.title}: {error}"))
        run.role = ""


def _emit_view_progress(run: RunContext, done: int, total: int) -> None:
    run.emit(Output(0, f"view: {done} of {total} files"))


def _deliver_model(run: RunContext) -> Delivered:
    """The measured copy of the model, with its card, figures and hashes."""
    run.emit(StageBegun("measuring and delivering the model"))
    run.tools.close()
    data = run.made(DataIndex)
    external = measure_sets(run)
    integrity = run.inspector.label(data, run.card)
    run_facts = {
        "request": run.request,
        "run": run.folder.id,
        "seed": run.options.seed,
        "llm": {name: llm.name for name, llm in run.llms.items()},
        "options": run.options.to_json(),
        "sandboxes": list(run.state.sandboxes),
    }
    delivered = deliver(
        run.folder,
        selection=run.made(Selection),
        card=run.card,
        data=data,
        model=run.made(TrainedModel),
        integrity=integrity,
        facts=run_facts,
        baseline=run.executor.baseline,
        journal={"lines": run.journal.lines, "head": run.journal.head},
        external=external,
    )
    provenance_hash = sha256_of(run.folder.model / MANIFEST)
    run.emit(ModelDelivered({**hashes_of(run.folder.model), MANIFEST: provenance_hash}))
    return replace(delivered, reason=f"{delivered.reason} {run.state.remark}".strip())
