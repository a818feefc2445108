"""The stages of a run: what an agent is told at the beginning of each, and how its hand-over is checked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from m3b.agents import briefing
from m3b.agents.artifacts import DataIndex, Selection, TrainedModel, TrainingModule
from m3b.agents.briefing import Briefing
from m3b.agents.checks.module import check_module
from m3b.agents.checks.selection import SelectionCheck
from m3b.agents.roles import DATA_ENGINEER, MODEL_TRAINER, MODULE_ARCHITECT, TASK_MANAGER, Role
from m3b.agents.verdict import Verdict
from m3b.events import StageBegun
from m3b.run.given import kept_to
from m3b.run.labelling import TOLD
from m3b.run.sandbox_runner import device

if TYPE_CHECKING:
    from m3b.run.context import RunContext

A = TypeVar("A")


class Stage(ABC, Generic[A]):
    """One part of a run, from what an agent is told to a hand-over that is accepted; or a part that Python does alone.

    A subclass sets `role` and `artifact` and says `check`; with `briefing` a language model works on it, without one
    `check` is all there is. Each run works with a copy of the object.

    Attributes:
        role: who does it, unlike that of every other stage.
        artifact: the class of what is handed over: a dataclass or a pydantic model whose values JSON can hold.
        needs: classes of what earlier stages must have handed over; `run.made` gives them.
        required: whether the run ends where this stage fails. If not, that is noted, and the run goes on.
    """

    role: ClassVar[Role]
    artifact: type[A]
    needs: ClassVar[tuple[type[Any], ...]] = ()
    required: ClassVar[bool] = True

    def briefing(self, run: RunContext) -> Briefing | str:
        """What the agent is told; asked for once a run, however often that is taken up again. This one is for no agent."""
        return ""

    @abstractmethod
    def check(self, run: RunContext, said: str) -> Verdict:
        """The verdict on what was handed over with these words: `accepted(artifact)`, or `rejected(what is wrong)`."""

    def left(self, run: RunContext) -> Verdict | None:
        """The verdict on what lies there when the budget ends before the agent does; None where nothing can be used."""
        return None

    @property
    def asks(self) -> bool:
        """Whether a language model works on it."""
        return type(self).briefing is not Stage.briefing


class SelectionStage(Stage[Selection]):
    """Which data set, which task, which metric."""

    role = TASK_MANAGER
    artifact = Selection
    _check: SelectionCheck | None = None

    def briefing(self, run: RunContext) -> Briefing:
        manifests = run.inspector.readings
        return briefing.selection_briefing(
            run.request,
            list(run.workspace.cards.values()),
            run.look,
            lambda card: manifests.overview(run.request, card),
        )

    def check(self, run: RunContext, said: str) -> Verdict:
        self._check = self._check or SelectionCheck(run.workspace.cards, run.hooks.ask)  # it counts what it asks
        return kept_to(run.given, self._check)(said)


class IndexStage(Stage[DataIndex]):
    """Each case with image, labels and patient, for training and for testing."""

    role = DATA_ENGINEER
    artifact = DataIndex
    needs = (Selection,)

    def briefing(self, run: RunContext) -> Briefing:
        selection, card = run.made(Selection), run.card
        proposals = run.inspector.readings.propose(run.request, selection, card)
        return briefing.index_briefing(
            run.request,
            selection,
            card,
            run.look,
            run.folder.resources,
            proposals.readings,
            proposals.insufficient,
            proposals.unusable,
            more=TOLD if run.labelling is not None else "",
        )

    def check(self, run: RunContext, said: str) -> Verdict:
        return run.inspector.check_index(run.made(Selection), run.card, said)


class ModuleStage(Stage[TrainingModule]):
    """A training project that runs."""

    role = MODULE_ARCHITECT
    artifact = TrainingModule
    needs = (Selection, DataIndex)

    def briefing(self, run: RunContext) -> Briefing:
        return briefing.module_briefing(
            run.made(Selection),
            run.made(DataIndex),
            run.state.audit,
            _plan_training_minutes(run),
            device(),
            run.folder.resources,
            closing(run, self),
            run.state.audited,
            run.request,
        )

    def check(self, run: RunContext, said: str) -> Verdict:
        return check_module(run.folder.work, run.made(DataIndex).classes, run.executor.probe, run.made(Selection).task)


class ModelStage(Stage[TrainedModel]):
    """A trained model, exported."""

    role = MODEL_TRAINER
    artifact = TrainedModel
    needs = (Selection, DataIndex, TrainingModule)

    def briefing(self, run: RunContext) -> Briefing:
        module = run.made(TrainingModule)
        minutes = _planned(module.plan.get("minutes")) or run.options.train_minutes
        return briefing.model_briefing(
            run.made(Selection), run.made(DataIndex), module, minutes, closing(run, self), run.folder.resources
        )

    def check(self, run: RunContext, said: str) -> Verdict:
        return run.inspector.check_model(run.made(Selection), run.card)

    def left(self, run: RunContext) -> Verdict | None:
        return run.inspector.last_model(run.made(Selection), run.card)


SHIPPED: tuple[type[Stage[Any]], ...] = (SelectionStage, IndexStage, ModuleStage, ModelStage)
"""m3b's own, in the order of their work."""


def closing(run: RunContext, stage: Stage[Any]) -> dict[str, str]:
    """What those who worked before a stage said when they handed over, by title: all from the index on, for the plan of the
    selection is told apart. A single agent has said it itself."""
    if run.options.roles == "single":
        return {}
    names = [other_stage.role.name for other_stage in run.stages]
    earlier_stages = run.stages[: names.index(stage.role.name)]
    earlier_roles = [other_stage.role for other_stage in earlier_stages if not isinstance(other_stage, SelectionStage)]
    remarks = {role.title: " ".join(run.state.closing.get(role.name, [])) for role in earlier_roles}
    return {title: text for title, text in remarks.items() if text}


def _plan_training_minutes(run: RunContext) -> float:
    minutes = run.budget.training_minutes(run.options.train_minutes)
    if minutes < run.options.train_minutes:
        message = f"Training gets {minutes:g} minutes: the rest of --max-wall is kept for measuring what it makes."
        run.emit(StageBegun(message))
    return minutes


def _planned(minutes: Any) -> float:
    """What plan.json says of the minutes; 0 where that is no time. Scripts write it."""
    is_valid = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes < math.inf
    return float(minutes) if is_valid else 0.0
