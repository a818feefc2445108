"""Tools, checks and metrics that a user adds to a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from m3b.errors import RunEnd, RunFailed, ToolError, UsageError

if TYPE_CHECKING:
    from m3b.agents.check_result import CheckResult
    from m3b.tasks import Metric
    from m3b.tools.user_tools import BoundTool


P = ParamSpec("P")
R = TypeVar("R")


class CallbackError(RunFailed):
    """A function of the user raised an error; `__cause__` is that error."""


def guard_callback(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return the function wrapped so that its errors end the run as `failed`, with the function's name.

    Args:
        name: the name that the user knows, e.g. `on_event`.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (RunEnd, ToolError):
            raise  # raised on purpose, to end the run or to answer the agent
        except Exception as error:  # a function of the user may raise anything
            error_text = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CallbackError(
                f"`{name}`, which was given to m3b, raised {error_text}. Fix it, then resume."
            ) from error

    return wrapper


V = TypeVar("V", bound="CheckResult | None")

UserTool = Callable[..., Any]
"""A typed function with a docstring that returns a text or a `ToolResult`."""
UserCheck = Callable[[Any, Path], Sequence[str]]
"""Takes an artifact (see `m3b.agents.artifacts`) and the working directory; returns the problems to be fixed."""

__all__ = ["NO_EXTENSIONS", "UserExtensions", "UserCheck", "UserTool", "register_metrics", "validate_extensions"]


@dataclass(frozen=True)
class UserExtensions:
    """The tools, checks and metrics of the user in a run.

    Args:
        tools: name -> tool, bound.
        checks: role name -> check.
        metrics: names of the user's metrics.
    """

    tools: Mapping[str, BoundTool] = field(default_factory=dict)
    checks: Mapping[str, UserCheck] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    def list_names(self) -> dict[str, list[str]]:
        """Return the names of all extensions by kind, for run.json."""
        names_by_kind = {"tools": list(self.tools), "checks": list(self.checks), "metrics": list(self.metrics)}
        return {kind: names for kind, names in names_by_kind.items() if names}

    def apply_check(self, role: str, check_result: V, work: Path) -> V | CheckResult:
        """Return the check result, or the rejection of the user's own check if m3b accepts the artifact."""
        if role not in self.checks or check_result is None or not check_result.is_accepted:
            return check_result
        from m3b.agents.check_result import reject

        messages = guard_callback(f"checks[{role!r}]", self.checks[role])(check_result.artifact, work)
        messages = [messages] if isinstance(messages, str) else list(messages or ())
        return reject(*messages) if messages else check_result


NO_EXTENSIONS = UserExtensions()


def validate_extensions(
    tools: Sequence[UserTool],
    checks: Mapping[str, UserCheck],
    metrics: Sequence[Metric],
    role_names: Sequence[str],
) -> UserExtensions:
    """Return the user's tools and checks after validation.

    Args:
        role_names: the roles of the run.

    Raises:
        UsageError: a tool that cannot be described to agents, or a check of an unknown role.
    """
    if unknown := sorted(set(checks) - set(role_names)):
        raise UsageError(f"`checks` names the roles {', '.join(unknown)}; known are {', '.join(role_names)}.")
    bound_tools = {}
    if tools:
        from m3b.tools.user_tools import bind_user_tools

        bound_tools = {name: guard_callback(f"tools: {name}", tool) for name, tool in bind_user_tools(tools).items()}
    return UserExtensions(bound_tools, dict(checks), tuple(metric.name for metric in metrics))


def register_metrics(metrics: Iterable[Metric]) -> None:
    """Register the user's metrics in this process.

    Raises:
        UsageError: an item is no metric, or cannot be added to its task.
    """
    for metric in metrics:
        from m3b.tasks import Metric

        if not isinstance(metric, Metric):
            raise UsageError(f"`metrics` holds {metric!r}; give m3b.Metric objects: Metric(name, task, of).")
        try:
            metric.register()
        except ValueError as error:
            raise UsageError(f"The metric {metric.name!r} cannot be added: {error}") from error
