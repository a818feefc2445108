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
from m3b.agents.verdict import CheckResult
from m3b.events import StepStarted
from m3b.run.given import enforce_overrides
from m3b.run.labelling import LABELLING_INSTRUCTIONS
from m3b.run.sandbox_runner import describe_device

if TYPE_CHECKING:
    from m3b.run.context import RunContext

A = TypeVar("A")


class Stage(ABC, Generic[A]):
    """One part of a run, from what an agent is told to a hand-over that is accepted; or a part that Python does alone.

    A subclass sets `role` and `artifact` and says `check`; with `build_briefing` a language model works on it, without one
    `check` is all there is. Each run works with a copy of the object.

    Attributes:
        role: who does it, unlike that of every other stage.
        artifact: the class of what is handed over: a dataclass or a pydantic model whose values JSON can hold.
        required_artifacts: classes of what earlier stages must have handed over; `run.made` gives them.
        required: whether the run ends where this stage fails. If not, that is noted, and the run goes on.
    """

    role: ClassVar[Role]
    artifact: type[A]
    required_artifacts: ClassVar[tuple[type[Any], ...]] = ()
    required: ClassVar[bool] = True

    def build_briefing(self, run: RunContext) -> Briefing | str:
        """What the agent is told; asked for once a run, however often that is taken up again. This one is for no agent."""
        return ""

    @abstractmethod
    def check(self, run: RunContext, closing_text: str) -> CheckResult:
        """The verdict on what was handed over with these words: `accepted(artifact)`, or `rejected(what is wrong)`."""

    def salvage(self, run: RunContext) -> CheckResult | None:
        """The verdict on what lies there when the budget ends before the agent does; None where nothing can be used."""
        return None

    @property
    def uses_agent(self) -> bool:
        """Whether a language model works on it."""
        return type(self).build_briefing is not Stage.build_briefing


class SelectionStage(Stage[Selection]):
    """Which data set, which task, which metric."""

    role = TASK_MANAGER
    artifact = Selection
    _check: SelectionCheck | None = None

    def build_briefing(self, run: RunContext) -> Briefing:
        manifests = run.validator.manifests
        return briefing.build_selection_briefing(
            run.request,
            list(run.workspace.cards.values()),
            run.preview,
            lambda card: manifests.survey(run.request, card),
        )

    def check(self, run: RunContext, closing_text: str) -> CheckResult:
        self._check = self._check or SelectionCheck(run.workspace.cards, run.hooks.ask)  # it counts what it asks
        return enforce_overrides(run.overrides, self._check)(closing_text)


class IndexStage(Stage[DataIndex]):
    """Each case with image, labels and patient, for training and for testing."""

    role = DATA_ENGINEER
    artifact = DataIndex
    required_artifacts = (Selection,)

    def build_briefing(self, run: RunContext) -> Briefing:
        selection, card = run.get_artifact(Selection), run.card
        proposals = run.validator.manifests.propose(run.request, selection, card)
        return briefing.build_index_briefing(
            run.request,
            selection,
            card,
            run.preview,
            run.folder.resources,
            proposals.proposals,
            proposals.insufficient,
            proposals.unusable,
            extra_instructions=LABELLING_INSTRUCTIONS if run.labelling is not None else "",
        )

    def check(self, run: RunContext, closing_text: str) -> CheckResult:
        return run.validator.check_index(run.get_artifact(Selection), run.card, closing_text)


class ModuleStage(Stage[TrainingModule]):
    """A training project that runs."""

    role = MODULE_ARCHITECT
    artifact = TrainingModule
    required_artifacts = (Selection, DataIndex)

    def build_briefing(self, run: RunContext) -> Briefing:
        return briefing.build_module_briefing(
            run.get_artifact(Selection),
            run.get_artifact(DataIndex),
            run.state.audit_text,
            _plan_training_minutes(run),
            describe_device(),
            run.folder.resources,
            collect_closing_remarks(run, self),
            run.state.audit_summary,
            run.request,
        )

    def check(self, run: RunContext, closing_text: str) -> CheckResult:
        return check_module(
            run.folder.work,
            run.get_artifact(DataIndex).classes,
            run.executor.run_probe,
            run.get_artifact(Selection).task,
        )


class ModelStage(Stage[TrainedModel]):
    """A trained model, exported."""

    role = MODEL_TRAINER
    artifact = TrainedModel
    required_artifacts = (Selection, DataIndex, TrainingModule)

    def build_briefing(self, run: RunContext) -> Briefing:
        module = run.get_artifact(TrainingModule)
        minutes = _parse_planned_minutes(module.plan.get("minutes")) or run.options.train_minutes
        return briefing.build_model_briefing(
            run.get_artifact(Selection),
            run.get_artifact(DataIndex),
            module,
            minutes,
            collect_closing_remarks(run, self),
            run.folder.resources,
        )

    def check(self, run: RunContext, closing_text: str) -> CheckResult:
        return run.validator.check_model(run.get_artifact(Selection), run.card)

    def salvage(self, run: RunContext) -> CheckResult | None:
        return run.validator.get_last_model_result(run.get_artifact(Selection), run.card)


BUILTIN_STAGES: tuple[type[Stage[Any]], ...] = (SelectionStage, IndexStage, ModuleStage, ModelStage)
"""m3b's own, in the order of their work."""


def collect_closing_remarks(run: RunContext, stage: Stage[Any]) -> dict[str, str]:
    """What those who worked before a stage said when they handed over, by title: all from the index on, for the plan of the
    selection is told apart. A single agent has said it itself."""
    if run.options.roles == "single":
        return {}
    names = [other_stage.role.name for other_stage in run.stages]
    earlier_stages = run.stages[: names.index(stage.role.name)]
    earlier_roles = [other_stage.role for other_stage in earlier_stages if not isinstance(other_stage, SelectionStage)]
    remarks = {role.title: " ".join(run.state.closing_remarks.get(role.name, [])) for role in earlier_roles}
    return {title: text for title, text in remarks.items() if text}


def _plan_training_minutes(run: RunContext) -> float:
    minutes = run.budget.cap_training_minutes(run.options.train_minutes)
    if minutes < run.options.train_minutes:
        message = f"Training gets {minutes:g} minutes: the rest of --max-wall is kept for measuring what it makes."
        run.emit(StepStarted(message))
    return minutes


def _parse_planned_minutes(minutes: Any) -> float:
    """What plan.json says of the minutes; 0 where that is no time. Scripts write it."""
    is_valid = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes < math.inf
    return float(minutes) if is_valid else 0.0
