"""The stages of a run in their order: m3b's four, or those that the user gave."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.llm import LLM
    from m3b.run.extensions import UserExtensions
    from m3b.run.stages import Stages, UserStages
    from m3b.run.state import RunState
    from m3b.workspace import Workspace


def resolve_stages(user_stages: UserStages | None) -> Stages:
    """Return the user's stages after validation; empty, without importing anything, if there are none.

    Raises:
        UsageError: see `m3b.run.stages.validate_stages`.
    """
    if user_stages is None:
        return ()
    from m3b.run.stages import validate_stages

    return validate_stages(user_stages)


def role_names_of(user_stages: Stages) -> tuple[str, ...]:
    """Return the role names of the user's stages; m3b's own if there are none."""
    from m3b.agents.roles import ROLE_NAMES  # needed to construct a pipeline, not to import it

    return tuple(stage.role.name for stage in user_stages) if user_stages else ROLE_NAMES


def check_agents_ready(
    user_stages: Stages, workspace: Workspace, llms: Mapping[str, LLM], extensions: UserExtensions
) -> None:
    """Check that every agent has a prompt, tools that exist, and a model that can play its role.

    Raises:
        DataError: a prompt file of the workspace belongs to no role.
        UsageError: something else is missing.
    """
    workspace.check_prompts(role_names_of(user_stages))
    if user_stages:
        from m3b.run.stages import check_agents

        check_agents(user_stages, workspace, llms, extensions)


def copy_stages(user_stages: Stages) -> Stages:
    """Return copies of the stages, so that parallel runs do not share them."""
    from m3b.run.stages import BUILTIN_STAGES

    return (
        tuple(copy.copy(stage) for stage in user_stages) if user_stages else tuple(stage() for stage in BUILTIN_STAGES)
    )


def check_resumed_state(user_stages: Stages, state: RunState) -> None:
    """Check that the artifacts of a resumed run are those of these stages.

    Raises:
        UsageError: the journal holds another artifact.
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
        state.find_artifact(stage.artifact)
