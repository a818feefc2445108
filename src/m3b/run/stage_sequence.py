"""Which stages a run has and in which order: m3b's four, or what the user made of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.llm import LLM
    from m3b.run.extensions import UserExtensions
    from m3b.run.stages import Stage
    from m3b.run.state import RunState
    from m3b.workspace import Workspace

    UserStages = Sequence[str | Stage[Any]]
    Stages = tuple[Stage[Any], ...]


def resolve_stages(user_stages: UserStages | None) -> Stages:
    """The stages that a user asks for, looked at; none, and nothing imported, where he asks for none.

    Raises:
        UsageError: see `m3b.run.stages.validate_stages`.
    """
    if user_stages is None:
        return ()
    from m3b.run.stages import validate_stages

    return validate_stages(user_stages)


def role_names_of(user_stages: Stages) -> tuple[str, ...]:
    """The roles of the stages that a user asks for; m3b's own where he asks for none."""
    from m3b.agents.roles import ROLE_NAMES  # what constructing a pipeline needs, and importing it does not

    return tuple(stage.role.name for stage in user_stages) if user_stages else ROLE_NAMES


def check_agents_ready(
    user_stages: Stages, workspace: Workspace, llms: Mapping[str, LLM], extensions: UserExtensions
) -> None:
    """That every agent has its prompt, tools that exist, and a model that can play its role.

    Raises:
        DataError: a file of the workspace's prompts is called after no role.
        UsageError: something else is missing.
    """
    workspace.check_prompts(role_names_of(user_stages))
    if user_stages:
        from m3b.run.stages import check_agents

        check_agents(user_stages, workspace, llms, extensions)


def copy_stages(user_stages: Stages) -> Stages:
    """The stages of one run: copies, so that runs side by side do not meet in them."""
    from m3b.run.stages import BUILTIN_STAGES

    return (
        tuple(copy.copy(stage) for stage in user_stages) if user_stages else tuple(stage() for stage in BUILTIN_STAGES)
    )


def check_resumed_state(user_stages: Stages, state: RunState) -> None:
    """That a run which is taken up has handed over what these stages hand over.

    Raises:
        UsageError: the journal holds something else.
    """
    from m3b.agents.artifacts import kind_of

    stages = copy_stages(user_stages)
    kinds = {kind_of(stage.artifact) for stage in stages}
    if unknown := sorted(set(state.artifacts) - kinds):
        raise UsageError(
            f"The journal holds {', '.join(map(repr, unknown))}, which no stage of this m3b makes. Go on with the version "
            "that wrote it (`versions` in run.json), or start a new run."
        )
    for stage in stages:
        state.get_artifact(stage.artifact)
