"""One role alone: the roles before it are played by the embedded rules, and the run ends when it has handed over.

So every model gets the same prepared hand-over, and what is measured is the one role: whether plain Python accepts what it
makes, with how many actions, iterations and tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from m3b.agents.roles import BUILTIN_ROLES
from m3b.errors import UsageError
from m3b.events import ArtifactAccepted, Event
from m3b.llm import LLM
from m3b.run.pipeline import Pipeline
from m3b.workspace import Workspace

from .base import CellJob, CellOutcome
from .own import to_outcome

ROLE_PREFIX = "role:"
ROLE_NAMES = tuple(role.name for role in BUILTIN_ROLES)


@dataclass(frozen=True)
class SingleRoleSystem:
    """A role of m3b with the model under test; `rules` is everybody else.

    Args:
        connect: gives the model instead of the job's `provider:model`; for scripted models in tests.
    """

    role: str
    connect: Callable[[str], LLM] | None = None

    @property
    def name(self) -> str:
        return f"{ROLE_PREFIX}{self.role}"

    def explain_missing(self) -> str:
        return ""

    def run(self, job: CellJob) -> CellOutcome:
        llm: Any = self.connect(job.model) if self.connect else job.model
        options = {**job.options, "seed": job.seed}
        pipeline = Pipeline(
            {"default": "rules", self.role: llm},
            workspace=Workspace(data=list(job.cards)),
            out=job.folder / "run",
            register=False,
            **options,
        )

        def cancel_after_role(event: Event) -> None:
            if isinstance(event, ArtifactAccepted) and event.role == self.role:
                pipeline.cancel()

        pipeline.on_event = cancel_after_role
        return self._make_outcome(to_outcome(pipeline.run(job.request), job))

    def _make_outcome(self, pipeline_outcome: CellOutcome) -> CellOutcome:
        role_result = pipeline_outcome.roles.get(self.role)
        if role_result is None:
            return replace(
                pipeline_outcome,
                kind="no_handover",
                reason=f"The roles before it did not get there: {pipeline_outcome.reason}",
                model="",
            )
        roles = {self.role: role_result}
        if role_result["status"] == "done":
            return replace(
                pipeline_outcome,
                status="completed",
                reason="Its hand-over was accepted.",
                kind="role",
                roles=roles,
                model="",
            )
        return replace(pipeline_outcome, kind=pipeline_outcome.kind or "role", roles=roles, model="")


def parse_role_system(name: str) -> SingleRoleSystem:
    """`role:data_engineer` as a system.

    Raises:
        UsageError: there is no such role.
    """
    role = name.removeprefix(ROLE_PREFIX)
    if role not in ROLE_NAMES:
        raise UsageError(f"There is no role {role!r}; choose one of {', '.join(ROLE_NAMES)}.")
    return SingleRoleSystem(role)
