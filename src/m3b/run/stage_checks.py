"""What is refused of a user's stages before a run begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from m3b.agents.artifacts import ARTIFACT_CLASSES, DataIndex, Selection, TrainedModel, kind_of
from m3b.agents.prompts import has_prompt
from m3b.agents.roles import ROLE_NAMES, SINGLE_AGENT, Role
from m3b.errors import UsageError
from m3b.run.stages import BUILTIN_STAGES, Stage
from m3b.tools import TOOLS

if TYPE_CHECKING:
    from m3b.llm import LLM
    from m3b.run.extensions import UserExtensions
    from m3b.run.sequence import Stages, UserStages
    from m3b.workspace import Workspace

MAX_ROLE_NAME_CHARS = 40
"""Characters of a role's name."""
RESERVED_ROLE_NAMES = ("default", "common", SINGLE_AGENT.name)
"""Names that mean something else: the model for other roles, the prompt for all, the agent for all stages."""
STAGES_EXAMPLE = f"[{', '.join(map(repr, ROLE_NAMES[:2]))}, MyStage(), {', '.join(map(repr, ROLE_NAMES[2:]))}]"


def validate_stages(user_stages: UserStages) -> Stages:
    """The stages in their order.

    Raises:
        UsageError: an unknown name, a role or an artifact that occurs twice, a stage at a place where what it needs is not
            there, something that no stage makes and every run needs, a stage that prompts, journal or report cannot hold.
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


# --- what it makes --------------------------------------------------------------------------------------------------


def _check_artifact(stage: Stage[Any]) -> None:
    """What m3b's roles make is accepted by m3b's checks alone, whoever makes it; anything else must fit into the journal."""
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
    """Why a class of artifacts cannot be written down and read again; empty where it can."""
    if not is_dataclass(artifact_class) and not issubclass(artifact_class, BaseModel):
        return "it is neither a dataclass nor a pydantic model"
    try:
        TypeAdapter(artifact_class).json_schema()
    except (PydanticUserError, NameError, TypeError) as error:
        return str(error).splitlines()[0].rstrip(".")
    return ""


# --- where it stands ------------------------------------------------------------------------------------------------


def _check_order(stage: Stage[Any], stages: Stages, stage_by_kind: Mapping[str, Stage[Any]]) -> None:
    """`stage_by_kind` are the stages before it, by the kind of what they make."""
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
                f"{name} needs a {needed_class.__name__}, which a run may do without: set required of {maker.role.name}."
            )
    if stage.uses_agent and "run_script" in stage.role.tools and kind_of(Selection) not in stage_by_kind:
        raise UsageError(f"{name} may run scripts before a data set is chosen; put it behind {ROLE_NAMES[0]}.")


# --- who does it ----------------------------------------------------------------------------------------------------


def check_agents(stages: Stages, workspace: Workspace, llms: Mapping[str, LLM], extensions: UserExtensions) -> None:
    """See `m3b.run.sequence.check_agents_ready`.

    Raises:
        UsageError: an agent that nothing is told, a tool that does not exist, a role that its model cannot play.
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
                f"Nothing tells the agent of {role.name} what to do. Give Role(..., prompt=...), or {role.name}.md in the "
                "folder of `prompts`."
            )
        model = llms.get(role.name) or llms["default"]
        if stage.artifact not in ARTIFACT_CLASSES.values() and model.name == "rules":
            raise UsageError(
                f"The rules play m3b's own roles only. Name a model for {role.name}: "
                f"Pipeline({{'default': 'rules', '{role.name}': ...}}, ...)."
            )
