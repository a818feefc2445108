"""One run from its request to a delivered model: the stages one after the other, and what m3b does between them."""

from __future__ import annotations

from dataclasses import replace

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.checks.site import check_site
from m3b.data.cards import Card
from m3b.events import ModelDelivered, Output, StageBegun
from m3b.models.manifest import MANIFEST, hashes_of, sha256_of
from m3b.run.confirming import confirmed
from m3b.run.context import RunContext
from m3b.run.packaging import Delivered, deliver
from m3b.run.performing import Performer
from m3b.run.stages import IndexStage, ModelStage, ModuleStage, SelectionStage


def work(run: RunContext) -> Delivered:
    """All stages and the delivery.

    Raises:
        RunEnd: why there is no model.
    """
    cards, stages = run.workspace.cards, Performer(run)
    check_site(list(cards.values()))
    selection = stages.perform(SelectionStage(run))
    card = cards[selection.card]
    run.inspector.watch(card)
    data = stages.perform(IndexStage(selection, card))
    selection, data = confirmed(run, stages, selection, card, data)
    run.show_training_only(card.root, selection.task, lambda done, of: _tell_view(run, done, of))
    module = stages.perform(ModuleStage(selection, data))
    model = stages.perform(ModelStage(selection, card, data, module))
    return _deliver(run, selection, card, data, model)


def _tell_view(run: RunContext, done: int, total: int) -> None:
    run.emit(Output(0, f"view: {done} of {total} files"))


def _deliver(run: RunContext, selection: Selection, card: Card, data: DataIndex, model: TrainedModel) -> Delivered:
    run.emit(StageBegun("measuring and delivering the model"))
    run.tools.close()
    label = run.inspector.label(data, card)
    facts = {
        "request": run.request,
        "run": run.folder.id,
        "seed": run.options.seed,
        "llm": {name: llm.name for name, llm in run.llms.items()},
        "options": run.options.to_json(),
    }
    journal = {"lines": run.journal.lines, "head": run.journal.head}
    made = deliver(
        run.folder,
        selection=selection,
        card=card,
        data=data,
        model=model,
        integrity=label,
        facts=facts,
        baseline=run.executor.baseline,
        journal=journal,
    )
    own = sha256_of(run.folder.model / MANIFEST)
    run.emit(ModelDelivered({**hashes_of(run.folder.model), MANIFEST: own}))
    return replace(made, reason=f"{made.reason} {run.state.remark}".strip())
