"""The stages of a run: the briefing of each agent, and how its artifact is checked."""

from __future__ import annotations

import copy
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from m3b.agents import briefing
from m3b.agents.artifacts import ARTIFACT_CLASSES, DataIndex, Selection, TrainedModel, TrainingModule, kind_of
from m3b.agents.briefing import Briefing
from m3b.agents.check_result import CheckResult
from m3b.agents.checks.model import DELIVERABLE_FOLDER
from m3b.agents.checks.module import check_module
from m3b.agents.checks.selection import SelectionCheck
from m3b.agents.prompts import has_prompt
from m3b.agents.roles import (
    DATA_ENGINEER,
    MODEL_TRAINER,
    MODULE_ARCHITECT,
    ROLE_NAMES,
    SINGLE_AGENT,
    TASK_MANAGER,
    Role,
)
from m3b.data.index import read_index
from m3b.errors import UsageError
from m3b.events import NoteAdded, StepStarted
from m3b.facts import SearchSummary
from m3b.isolation import untrusted
from m3b.run.confirmation import confirm_index
from m3b.run.data_integrity import record_raw_fingerprint
from m3b.run.index_validation import validate_index
from m3b.run.labelling import LABELLING_INSTRUCTIONS
from m3b.run.manifest_proposals import propose_manifests, survey_card
from m3b.run.manifests import explain_manifest
from m3b.run.model_validation import validate_model
from m3b.run.overrides import enforce_overrides
from m3b.run.request_wishes import drop_unserved_wishes
from m3b.run.training_checks import (
    check_fixed_plan,
    describe_short_training,
    enforce_selection,
    extend_minutes,
    write_plan_minutes,
)
from m3b.run.training_overrides import to_plan_command, to_settings
from m3b.run.visible_names import check_visible_names
from m3b.tools import TOOLS
from m3b.training.search_space import list_searched_keys

if TYPE_CHECKING:
    from m3b.llm import LLM
    from m3b.run.extensions import UserExtensions
    from m3b.run.services import RunServices
    from m3b.run.state import RunState
    from m3b.workspace import Workspace


MAX_EPOCH_MINUTES = 14 * 24 * 60.0
"""Maximum minutes of a training whose epochs the user set."""
MAX_ROLE_NAME_CHARS = 40
"""Maximum length of a role's name."""
RESERVED_ROLE_NAMES = ("default", "common", SINGLE_AGENT.name)
"""Names with another meaning: the model of all other roles, the prompt of all roles, the agent for all stages."""
STAGES_EXAMPLE = f"[{', '.join(map(repr, ROLE_NAMES[:2]))}, MyStage(), {', '.join(map(repr, ROLE_NAMES[2:]))}]"


def validate_stages(user_stages: UserStages) -> Stages:
    """Return the stages in their order.

    Raises:
        UsageError: a name is unknown, a role or an artifact occurs twice, an artifact that a stage needs is not made
            before it, an artifact that every run needs is never made, or prompts, journal or report cannot hold the
            stage.
    """
    if isinstance(user_stages, str) or not user_stages:
        raise UsageError(f"`stages` is {user_stages!r}; give all stages in their order, such as {STAGES_EXAMPLE}.")
    stages = tuple(_resolve_stage(item) for item in user_stages)
    names = [stage.role.name for stage in stages]
    if duplicate := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"`stages` has {duplicate} twice; every stage needs a role with a name of its own.")
    stage_by_kind: dict[str, Stage[Any]] = {}
    for stage in stages:
        _check_artifact(stage)
        _check_order(stage, stages, stage_by_kind)
        stage_by_kind[kind_of(stage.artifact)] = stage
    for artifact_class in (Selection, DataIndex, TrainedModel):
        if kind_of(artifact_class) not in stage_by_kind:
            raise UsageError(
                f"No stage makes a {artifact_class.__name__}, without which there is no model. Give {STAGES_EXAMPLE}."
            )
    return stages


def _resolve_stage(item: Any) -> Stage[Any]:
    if isinstance(item, str):
        if item not in ROLE_NAMES:
            raise UsageError(f"`stages` names {item!r}; m3b's own are {', '.join(ROLE_NAMES)}. Give others as objects.")
        return BUILTIN_STAGES[ROLE_NAMES.index(item)]()
    if isinstance(item, type) and issubclass(item, Stage):
        raise UsageError(f"`stages` holds the class {item.__name__}; give an object of it: {item.__name__}().")
    if not isinstance(item, Stage):
        raise UsageError(
            f"`stages` holds {item!r}; give names of m3b's own ({', '.join(ROLE_NAMES)}) or m3b.Stage objects."
        )
    class_name, role = type(item).__name__, getattr(item, "role", None)
    if not isinstance(role, Role):
        raise UsageError(f"The stage {class_name} has no role; give it one: role = Role('its_name', 'Its Title', ...).")
    if (
        not re.fullmatch(r"[a-z][a-z0-9_]*", role.name)
        or len(role.name) > MAX_ROLE_NAME_CHARS
        or role.name in RESERVED_ROLE_NAMES
    ):
        raise UsageError(
            f"The role of {class_name} is called {role.name!r}; take small letters, digits and underscores, at most "
            f"{MAX_ROLE_NAME_CHARS}, "
            f"and none of {', '.join(RESERVED_ROLE_NAMES)}."
        )
    return item


# --- validation: artifact -------------------------------------------------------------------------------------------


def _check_artifact(stage: Stage[Any]) -> None:
    """Check the class of a stage's artifact.

    m3b's own artifacts are accepted by m3b's checks only, whoever makes them; others must be serializable to the
    journal.
    """
    name, artifact_class = stage.role.name, getattr(stage, "artifact", None)
    if not isinstance(artifact_class, type):
        raise UsageError(
            f"The stage {type(stage).__name__} does not say what it makes; give it `artifact`, a dataclass."
        )
    builtin_stage = next(
        (stage_class for stage_class in BUILTIN_STAGES if stage_class.artifact is artifact_class), None
    )
    if builtin_stage is not None:
        _check_builtin_artifact(stage, builtin_stage)
    elif kind_of(artifact_class) in ARTIFACT_CLASSES:
        raise UsageError(
            f"{name} makes a {artifact_class.__name__}, and the journal takes that for m3b's own; rename the class."
        )
    elif problem := _find_serialization_problem(artifact_class):
        raise UsageError(f"{name} makes a {artifact_class.__name__}, which the journal cannot hold: {problem}.")


def _check_builtin_artifact(stage: Stage[Any], builtin_stage: type[Stage[Any]]) -> None:
    problem = f"{stage.role.name} makes a {builtin_stage.artifact.__name__}"
    if not isinstance(stage, builtin_stage):
        raise UsageError(
            f"{problem}, which m3b's own check accepts: derive {type(stage).__name__} from m3b.run.stages.{builtin_stage.__name__}."
        )
    if not stage.required:
        raise UsageError(f"{problem}, which no run can do without: set required = True.")


def _find_serialization_problem(artifact_class: type[Any]) -> str:
    """Return why an artifact class cannot be written to JSON and read again; '' if it can."""
    if not is_dataclass(artifact_class) and not issubclass(artifact_class, BaseModel):
        return "it is neither a dataclass nor a pydantic model"
    try:
        TypeAdapter(artifact_class).json_schema()
    except (PydanticUserError, NameError, TypeError) as error:
        return str(error).splitlines()[0].rstrip(".")
    return ""


# --- validation: order ----------------------------------------------------------------------------------------------


def _check_order(stage: Stage[Any], stages: Stages, stage_by_kind: Mapping[str, Stage[Any]]) -> None:
    """Check that the artifacts a stage needs are made by the stages before it.

    Args:
        stage_by_kind: kind of artifact -> earlier stage that makes it.
    """
    name, artifact_name = stage.role.name, stage.artifact.__name__
    if earlier_stage := stage_by_kind.get(kind_of(stage.artifact)):
        raise UsageError(f"{earlier_stage.role.name} and {name} both make a {artifact_name}; keep one of them.")
    for needed_class in stage.required_artifacts:
        maker = stage_by_kind.get(kind_of(needed_class))
        if maker is None or maker.artifact is not needed_class:
            later_role = next(
                (later_stage.role.name for later_stage in stages if later_stage.artifact is needed_class), ""
            )
            hint = f"put it behind {later_role}" if later_role else "no stage makes one"
            raise UsageError(f"{name} needs a {needed_class.__name__}, which is not there at its turn: {hint}.")
        if stage.required and not maker.required:
            raise UsageError(
                f"{name} needs a {needed_class.__name__}, but {maker.role.name}, which makes it, is not required: set its "
                "required = True."
            )
    if stage.uses_agent and "run_script" in stage.role.tools and kind_of(Selection) not in stage_by_kind:
        raise UsageError(f"{name} may run scripts before a data set is chosen; put it behind {ROLE_NAMES[0]}.")


# --- validation: agents ---------------------------------------------------------------------------------------------


def check_agents(stages: Stages, workspace: Workspace, llms: Mapping[str, LLM], extensions: UserExtensions) -> None:
    """Check the agents of the stages; see `check_agents_ready` of `m3b.run.pipeline`.

    Raises:
        UsageError: an agent has no prompt, a tool does not exist, or a model cannot play its role.
    """
    known_tools = (*TOOLS, *extensions.tools)
    for stage in stages:
        role = stage.role
        if unknown := [name for name in role.tools if name not in known_tools]:
            raise UsageError(f"{role.name} has the tools {', '.join(unknown)}; known are {', '.join(known_tools)}.")
        if not stage.uses_agent:
            continue
        if role.name not in ROLE_NAMES and not has_prompt(workspace.root / "prompts", role, workspace.prompts):
            raise UsageError(
                f"The agent of {role.name} has no prompt. Give Role(..., prompt=...), or {role.name}.md in the "
                "folder of `prompts`."
            )
        model = llms.get(role.name) or llms["default"]
        if stage.artifact not in ARTIFACT_CLASSES.values() and model.name == "rules":
            raise UsageError(
                f"The rules play m3b's own roles only. Name a model for {role.name}: "
                f"Pipeline({{'default': 'rules', '{role.name}': ...}}, ...)."
            )


A = TypeVar("A")


class Stage(ABC, Generic[A]):
    """One step of a run: an agent or plain Python makes an artifact, which is checked.

    A subclass sets `role` and `artifact` and defines `check`. With `build_briefing` a language model works on the
    stage; without it, `check` is all there is. Each run works with a copy of the object. `state` is what the run knows
    so far (`m3b.run.state.RunState`), `services` what it works with (`m3b.run.services.RunServices`).

    Attributes:
        role: the role, different from that of every other stage.
        artifact: the class of the artifact: a dataclass or a pydantic model with values that JSON can hold.
        required_artifacts: classes of artifacts of earlier stages that this one needs; `state.get_artifact` returns
            them.
        required: whether the run ends if this stage fails. If not, the failure is noted and the run continues.
    """

    role: ClassVar[Role]
    artifact: type[A]
    required_artifacts: ClassVar[tuple[type[Any], ...]] = ()
    required: ClassVar[bool] = True

    def prepare(self, state: RunState, services: RunServices) -> None:
        """Prepare before the agent is briefed or resumed; not called once the artifact is accepted."""

    def build_briefing(self, state: RunState, services: RunServices) -> Briefing | str:
        """Return the briefing of the agent; called once per run, also if it is resumed. The default has no agent."""
        return ""

    @abstractmethod
    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        """Return the check result on the artifact: `accept(artifact)`, or `reject(problem)`.

        Args:
            closing_text: the text with which the agent submits the artifact.
        """

    def salvage(self, state: RunState, services: RunServices) -> CheckResult | None:
        """Return the check result on what exists when the budget ends before the agent does; None if it is unusable."""
        return None

    def accept(self, state: RunState, services: RunServices) -> None:
        """Act on the accepted artifact; called again by each process that resumes the run."""

    @property
    def uses_agent(self) -> bool:
        """Whether a language model works on the stage."""
        return type(self).build_briefing is not Stage.build_briefing


class SelectionStage(Stage[Selection]):
    """Selection of data set, task and metric."""

    role = TASK_MANAGER
    artifact = Selection

    def prepare(self, state: RunState, services: RunServices) -> None:
        self._check = SelectionCheck(services.workspace.cards, services.hooks.ask)  # it counts its questions

    def build_briefing(self, state: RunState, services: RunServices) -> Briefing:
        return briefing.build_selection_briefing(
            services.request,
            list(services.workspace.cards.values()),
            services.preview,
            lambda card: survey_card(services, card),
            services.training.metric or "",
        )

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        return enforce_selection(services.training, enforce_overrides(services.overrides, self._check(closing_text)))

    def accept(self, state: RunState, services: RunServices) -> None:
        """Record the fingerprint of the raw data before any script has run, and drop wishes that the task has not."""
        selection = state.get_artifact(Selection)
        record_raw_fingerprint(services, selection)
        services.training, sentences = drop_unserved_wishes(services.training, selection.task)
        for sentence in sentences:
            services.emit(NoteAdded(sentence))


class IndexStage(Stage[DataIndex]):
    """Index of the cases with image, labels, patient and split."""

    role = DATA_ENGINEER
    artifact = DataIndex
    required_artifacts = (Selection,)

    def prepare(self, state: RunState, services: RunServices) -> None:
        """Let the tools say what a manifest gives that the agent writes."""
        services.tools.explain_manifest = lambda content: explain_manifest(
            services, state.get_artifact(Selection), content
        )

    def build_briefing(self, state: RunState, services: RunServices) -> Briefing:
        selection = state.get_artifact(Selection)
        decision = propose_manifests(services, selection)
        return briefing.build_index_briefing(
            services.request,
            selection,
            services.card_of(selection),
            services.preview,
            decision.proposals,
            decision.text,
            decision.refusal,
            extra_instructions=LABELLING_INSTRUCTIONS if services.labelling is not None else "",
            can_ask=services.hooks.ask is not None and bool(services.options.confirm),
        )

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        return validate_index(services, state.get_artifact(Selection), closing_text, services.overrides)

    def accept(self, state: RunState, services: RunServices) -> None:
        """Ask the user to confirm the index if the options say so, then hide everything but the training cases."""
        confirm_index(state, services)
        selection = state.get_artifact(Selection)
        index = read_index(services.folder.locked, selection.task)
        check_visible_names(services.folder, index, services.sandbox.name, services.options.sandbox)
        services.restrict_to_training_cases(selection)


class ModuleStage(Stage[TrainingModule]):
    """A working training project."""

    role = MODULE_ARCHITECT
    artifact = TrainingModule
    required_artifacts = (Selection, DataIndex)

    def prepare(self, state: RunState, services: RunServices) -> None:
        services.prepare_training(services.options.training_minutes)

    def build_briefing(self, state: RunState, services: RunServices) -> Briefing:
        minutes, overrides = _plan_training_minutes(services), services.training
        task, seed = state.get_artifact(Selection).task, services.options.seed
        has_fixed_plan = bool(seed or overrides)
        return briefing.build_module_briefing(
            state.get_artifact(Selection),
            state.get_artifact(DataIndex),
            state.audit_text,
            minutes,
            services.describe_device(),
            services.folder.resources,
            collect_closing_remarks(state, services, self.role),
            state.audit_summary,
            services.request,
            to_plan_command(overrides, task, minutes, seed) if has_fixed_plan else "",
            overrides.plan if isinstance(overrides.plan, Mapping) else {},
            [] if services.options.hours is None else list_searched_keys(task, tuple(to_settings(overrides, task))),
        )

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        task = state.get_artifact(Selection).task
        if not (check_result := check_fixed_plan(services.training, services.folder.work, task)).is_accepted:
            return check_result
        check_result = check_module(
            services.folder.work,
            state.get_artifact(DataIndex).classes,
            services.executor.run_probe,
            task,
        )
        return _announce_training(services, check_result)


class ModelStage(Stage[TrainedModel]):
    """A trained and exported model."""

    role = MODEL_TRAINER
    artifact = TrainedModel
    required_artifacts = (Selection, DataIndex, TrainingModule)
    _last_accepted: CheckResult | None = None

    def build_briefing(self, state: RunState, services: RunServices) -> Briefing:
        module, search = state.get_artifact(TrainingModule), state.find_artifact(SearchSummary)
        if search is not None:  # which has put the plan of the selected candidate there
            module = replace(module, plan=dict(untrusted.read_json(services.folder.work, "plan.json")))
        minutes = _planned_minutes(state, services)
        return briefing.build_model_briefing(
            state.get_artifact(Selection),
            state.get_artifact(DataIndex),
            module,
            minutes,
            collect_closing_remarks(state, services, self.role),
            services.folder.resources,
            search,
        )

    def prepare(self, state: RunState, services: RunServices) -> None:
        services.prepare_training(_planned_minutes(state, services))

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        selection = state.get_artifact(Selection)
        check_result = check_fixed_plan(services.training, services.folder.work, selection.task)
        if not check_result.is_accepted:
            return check_result
        check_result = validate_model(services, selection, self._last_accepted)
        if check_result.is_accepted:
            self._last_accepted = check_result
        return check_result

    def salvage(self, state: RunState, services: RunServices) -> CheckResult | None:
        if self._last_accepted is not None:
            return self._last_accepted
        return self.check(state, services, "") if (services.folder.work / DELIVERABLE_FOLDER).is_dir() else None


Stages = tuple[Stage[Any], ...]
UserStages = Sequence[str | Stage[Any]]
"""The stages that a user gives: names of m3b's own stages, and objects."""

BUILTIN_STAGES: tuple[type[Stage[Any]], ...] = (SelectionStage, IndexStage, ModuleStage, ModelStage)
"""m3b's own stages in their order."""


def copy_stages(user_stages: Stages) -> Stages:
    """Return copies of the stages, so that parallel runs do not share them."""
    return (
        tuple(copy.copy(stage) for stage in user_stages) if user_stages else tuple(stage() for stage in BUILTIN_STAGES)
    )


def check_resumed_state(user_stages: Stages, state: RunState) -> None:
    """Check that the artifacts of a resumed run are those of these stages.

    Raises:
        UsageError: the journal holds another artifact.
    """
    stages = copy_stages(user_stages)
    kinds = {*(kind_of(stage.artifact) for stage in stages), kind_of(SearchSummary)}
    if unknown := sorted(set(state.artifacts) - kinds):
        raise UsageError(
            f"The journal holds {', '.join(map(repr, unknown))}, which no stage of this m3b makes. Go on with the version "
            "that wrote it (`versions` in run.json), or start a new run."
        )
    for stage in stages:
        state.find_artifact(stage.artifact)


def collect_closing_remarks(state: RunState, services: RunServices, role: Role) -> dict[str, str]:
    """Return role title -> closing remark of the roles between the data index and `role`.

    Empty for a single agent, which made the remarks itself.
    """
    if services.options.roles == "single":
        return {}
    remarks = {}
    for earlier_role in services.remarking_roles:
        if earlier_role.name == role.name:
            break
        if text := " ".join(state.closing_remarks.get(earlier_role.name, [])):
            remarks[earlier_role.title] = text
    return remarks


def _announce_training(services: RunServices, check_result: CheckResult) -> CheckResult:
    """Return the check result of a project with the minutes that the user's epochs take; note a training that is short."""
    module = check_result.artifact
    if not check_result.is_accepted or not isinstance(module, TrainingModule):
        return check_result
    work, plan = services.folder.work, module.plan
    if services.options.train_minutes is None:
        minutes = extend_minutes(services.training, plan, services.budget.cap_training_minutes(MAX_EPOCH_MINUTES))
        if minutes is not None:
            write_plan_minutes(work, minutes)
            plan = dict(untrusted.read_json(work, "plan.json"))
            message = f"{services.training.epochs} epochs are expected to take longer: training gets {minutes:g} min."
            services.emit(NoteAdded(message))
    if sentence := describe_short_training(services.training, plan):
        services.emit(NoteAdded(sentence))
    return replace(check_result, artifact=replace(module, plan=plan))


def _plan_training_minutes(services: RunServices) -> float:
    minutes = services.budget.cap_training_minutes(services.options.training_minutes)
    if minutes < services.options.training_minutes:
        message = f"Training gets {minutes:g} min: the rest of --max-wall is kept for measuring what it makes."
        services.emit(StepStarted(message))
    return minutes


def _planned_minutes(state: RunState, services: RunServices) -> float:
    """Return the training minutes of the accepted plan; after a search, of the plan that it selected."""
    plan, search = state.get_artifact(TrainingModule).plan, state.find_artifact(SearchSummary)
    selected_minutes = search.final_minutes if search is not None else 0.0
    return selected_minutes or parse_planned_minutes(plan.get("minutes")) or services.options.training_minutes


def parse_planned_minutes(minutes: Any) -> float:
    """Return the training minutes of plan.json; 0 if the value is invalid, since scripts write the file."""
    is_valid = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes < math.inf
    return float(minutes) if is_valid else 0.0
