"""The four stages: what an agent is told at the beginning of each, and how its hand-over is checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from m3b.agents import briefing
from m3b.agents.artifacts import Artifact, DataIndex, Selection, TrainedModel, TrainingModule
from m3b.agents.checks.module import check_module
from m3b.agents.checks.selection import SelectionCheck
from m3b.agents.roles import DATA_ENGINEER, MODEL_TRAINER, MODULE_ARCHITECT, TASK_MANAGER, Role
from m3b.agents.verdict import Verdict
from m3b.data.cards import Card
from m3b.events import StageBegun
from m3b.run.context import RunContext
from m3b.run.given import kept_to
from m3b.run.sandbox_runner import device

A = TypeVar("A", bound=Artifact)


class Stage(ABC, Generic[A]):
    """One agent's part of a run, from its briefing to a hand-over that is accepted.

    Attributes:
        role: who does it.
        artifact: what is handed over.
    """

    role: ClassVar[Role]
    artifact: type[A]

    @abstractmethod
    def briefing(self, run: RunContext) -> briefing.Briefing:
        """What the agent is told; asked for once a run, however often that is taken up again."""

    @abstractmethod
    def check(self, run: RunContext, said: str) -> Verdict:
        """The verdict on what was handed over with these words."""

    def left(self, run: RunContext) -> Verdict | None:
        """The verdict on what lies there when the budget ends before the agent does; None where nothing can be used."""
        return None


class SelectionStage(Stage[Selection]):
    """Which data set, which task, which metric."""

    role = TASK_MANAGER
    artifact = Selection

    def __init__(self, run: RunContext) -> None:
        self._check = kept_to(run.given, SelectionCheck(run.workspace.cards, run.hooks.ask))

    def briefing(self, run: RunContext) -> briefing.Briefing:
        return briefing.selection_briefing(run.request, list(run.workspace.cards.values()), run.look)

    def check(self, run: RunContext, said: str) -> Verdict:
        return self._check(said)


class IndexStage(Stage[DataIndex]):
    """Each case with image, labels and patient, for training and for testing."""

    role = DATA_ENGINEER
    artifact = DataIndex

    def __init__(self, selection: Selection, card: Card) -> None:
        self.selection, self.card = selection, card

    def briefing(self, run: RunContext) -> briefing.Briefing:
        found = run.inspector.readings.propose(run.request, self.selection, self.card)
        return briefing.index_briefing(
            run.request,
            self.selection,
            self.card,
            run.look,
            run.folder.resources,
            found.readings,
            found.insufficient,
            found.unusable,
        )

    def check(self, run: RunContext, said: str) -> Verdict:
        return run.inspector.check_index(self.selection, self.card, said)


class ModuleStage(Stage[TrainingModule]):
    """A training project that runs."""

    role = MODULE_ARCHITECT
    artifact = TrainingModule

    def __init__(self, selection: Selection, data: DataIndex) -> None:
        self.selection, self.data = selection, data

    def briefing(self, run: RunContext) -> briefing.Briefing:
        said = closing(run, DATA_ENGINEER)
        return briefing.module_briefing(
            self.selection, self.data, run.state.audit, _minutes(run), device(), run.folder.resources, said
        )

    def check(self, run: RunContext, said: str) -> Verdict:
        return check_module(run.folder.work, self.data.classes, run.executor.probe, self.selection.task)


class ModelStage(Stage[TrainedModel]):
    """A trained model, exported."""

    role = MODEL_TRAINER
    artifact = TrainedModel

    def __init__(self, selection: Selection, card: Card, data: DataIndex, module: TrainingModule) -> None:
        self.selection, self.card, self.data, self.module = selection, card, data, module

    def briefing(self, run: RunContext) -> briefing.Briefing:
        planned = self.module.plan.get("minutes")
        minutes = float(planned) if isinstance(planned, int | float) else run.options.train_minutes
        said = closing(run, DATA_ENGINEER, MODULE_ARCHITECT)
        return briefing.model_briefing(self.selection, self.data, self.module, minutes, said)

    def check(self, run: RunContext, said: str) -> Verdict:
        return run.inspector.check_model(self.selection, self.card)

    def left(self, run: RunContext) -> Verdict | None:
        return run.inspector.last_model(self.selection, self.card)


def closing(run: RunContext, *roles: Role) -> dict[str, str]:
    """What earlier roles said when they handed over, by title; a single agent has said it itself."""
    if run.options.roles == "single":
        return {}
    said = {role.title: " ".join(run.state.closing.get(role.name, [])) for role in roles}
    return {title: text for title, text in said.items() if text}


def _minutes(run: RunContext) -> float:
    minutes = run.budget.training_minutes(run.options.train_minutes)
    if minutes < run.options.train_minutes:
        told = f"Training gets {minutes:g} minutes: the rest of --max-wall is kept for measuring what it makes."
        run.emit(StageBegun(told))
    return minutes
