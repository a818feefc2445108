"""Tools, checks and metrics that a user gives to a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from m3b.errors import WrongUse
from m3b.run.callbacks import guarded

if TYPE_CHECKING:
    from m3b.agents.verdict import Verdict
    from m3b.tasks import Metric
    from m3b.tools.own import Bound

V = TypeVar("V", bound="Verdict | None")

OwnTool = Callable[..., Any]
"""A typed function with a docstring, which gives a text or a `ToolResult`."""
OwnCheck = Callable[[Any, Path], Sequence[str]]
"""Takes what a role handed over (see `m3b.agents.artifacts`) and the working directory; gives what has to be fixed."""

__all__ = ["NOTHING", "Own", "OwnCheck", "OwnTool", "add_metrics", "own"]


@dataclass(frozen=True)
class Own:
    """What of a run is the user's own.

    Args:
        tools: by name, bound.
        checks: by the role's name.
        metrics: names of those that were given.
    """

    tools: Mapping[str, Bound] = field(default_factory=dict)
    checks: Mapping[str, OwnCheck] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    def named(self) -> dict[str, list[str]]:
        """What there is, by name, for run.json."""
        names_by_kind = {"tools": list(self.tools), "checks": list(self.checks), "metrics": list(self.metrics)}
        return {kind: names for kind, names in names_by_kind.items() if names}

    def asked(self, role: str, verdict: V, work: Path) -> V | Verdict:
        """The verdict, or the user's own on a hand-over that m3b accepts."""
        if role not in self.checks or verdict is None or not verdict.accepted:
            return verdict
        from m3b.agents.verdict import rejected

        messages = guarded(f"checks[{role!r}]", self.checks[role])(verdict.artifact, work)
        messages = [messages] if isinstance(messages, str) else list(messages or ())
        return rejected(*messages) if messages else verdict


NOTHING = Own()


def own(
    tools: Sequence[OwnTool],
    checks: Mapping[str, OwnCheck],
    metrics: Sequence[Metric],
    roles: Sequence[str],
) -> Own:
    """The user's tools and checks, looked at.

    Args:
        roles: those that there are.

    Raises:
        WrongUse: a tool that agents cannot be told of, a check of a role that does not exist.
    """
    if unknown := sorted(set(checks) - set(roles)):
        raise WrongUse(f"`checks` names the roles {', '.join(unknown)}; known are {', '.join(roles)}.")
    bound_tools = {}
    if tools:
        from m3b.tools.own import bound

        bound_tools = {name: guarded(f"tools: {name}", tool) for name, tool in bound(tools).items()}
    return Own(bound_tools, dict(checks), tuple(metric.name for metric in metrics))


def add_metrics(metrics: Iterable[Metric]) -> None:
    """Make the user's metrics known in this process.

    Raises:
        WrongUse: something that is no metric, or one that cannot be added to its task.
    """
    for metric in metrics:
        from m3b.tasks import Metric

        if not isinstance(metric, Metric):
            raise WrongUse(f"`metrics` holds {metric!r}; give m3b.Metric objects: Metric(name, task, of).")
        try:
            metric.register()
        except ValueError as error:
            raise WrongUse(f"The metric {metric.name!r} cannot be added: {error}") from error
