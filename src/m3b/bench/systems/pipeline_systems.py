"""m3b as benchmark system, its ablations (one part of the pipeline switched off), and its single roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from m3b.agents.roles import BUILTIN_ROLES
from m3b.bench.systems.base import CellJob, CellOutcome
from m3b.errors import UsageError
from m3b.events import ArtifactAccepted, Event, ReplyReceived
from m3b.llm import LLM
from m3b.run.pipeline import Pipeline
from m3b.run.result import Result
from m3b.workspace import Workspace

ROLE_PREFIX = "role:"
ROLE_NAMES = tuple(role.name for role in BUILTIN_ROLES)


@dataclass(frozen=True)
class SingleRoleSystem:
    """One role of m3b with the model under test; all other roles use `rules`.

    Args:
        connect: returns the model for the job's `provider:model`; for scripted models in tests.
    """

    role: str
    connect: Callable[[str], LLM] | None = None
    is_resumable: bool | None = True

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
                reason=f"The roles before it did not finish: {pipeline_outcome.reason}",
                model="",
            )
        roles = {self.role: role_result}
        if role_result["status"] == "done":
            return replace(
                pipeline_outcome,
                status="completed",
                reason="Its artifact was accepted.",
                kind="role",
                roles=roles,
                model="",
            )
        return replace(pipeline_outcome, kind=pipeline_outcome.kind or "role", roles=roles, model="")


def parse_role_system(name: str) -> SingleRoleSystem:
    """Return the system for a name such as `role:data_engineer`.

    Raises:
        UsageError: there is no such role.
    """
    role = name.removeprefix(ROLE_PREFIX)
    if role not in ROLE_NAMES:
        raise UsageError(f"There is no role {role!r}; choose one of {', '.join(ROLE_NAMES)}.")
    return SingleRoleSystem(role)


ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "m3b": {},
    "m3b-single": {"roles": "single"},
    "m3b-no-debug": {"debug": False},
    "m3b-no-reflect": {"reflect": False},
    "m3b-no-examples": {"examples": False},
}
"""Name -> changed options: the paper's ablations (single agent, no debugging, no reflection, no few-shot examples)."""


@dataclass(frozen=True)
class PipelineSystem:
    """m3b with changed options.

    Args:
        connect: returns the model for the job's `provider:model`; for scripted models in tests.
    """

    name: str
    option_changes: Mapping[str, Any] = field(default_factory=dict)
    connect: Callable[[str], LLM] | None = None
    is_resumable: bool | None = True

    def explain_missing(self) -> str:
        return ""

    def run(self, job: CellJob) -> CellOutcome:
        llm: Any = self.connect(job.model) if self.connect else job.model
        options = {**job.options, **self.option_changes, "seed": job.seed}
        pipeline = Pipeline(
            llm, workspace=Workspace(data=list(job.cards)), out=job.folder / "run", register=False, **options
        )
        request_count = 0

        def count_request(event: Event) -> None:
            nonlocal request_count
            request_count += isinstance(event, ReplyReceived)

        pipeline.on_event = count_request
        outcome = to_outcome(pipeline.run(job.request), job)
        outcome.usage["requests"] = request_count
        return outcome


def to_outcome(result: Result, job: CellJob) -> CellOutcome:
    """Return the result of a run as outcome of a cell. Only an accepted deliverable counts as delivered."""
    run = job.folder / "run"
    model_folder = result.model_dir or ""
    kind = "provider" if result.status == "failed" and _is_provider_failure(result.reason) else ""
    return CellOutcome(
        status=result.status,
        reason=result.reason,
        model=model_folder,
        work=str(run / "work"),
        run=str(run),
        claimed=result.to_json()["primary"],
        integrity=result.integrity,
        usage=result.usage,
        roles=result.roles,
        kind=kind,
    )


def _is_provider_failure(reason: str) -> bool:
    lower_reason = reason.lower()
    return any(
        word in lower_reason
        for word in ("api key", "rate limit", "overload", "lost connection", "no connection to", "provider")
    )
