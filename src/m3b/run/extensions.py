"""Tools, checks and metrics that a user gives to a run."""

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
    """A function of the user's raised; `__cause__` is what."""


def guard_callback(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors end the run as `failed` with its name.

    Args:
        name: as the user knows it, e.g. `on_event`.
    """

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (RunEnd, ToolError):
            raise  # says on purpose how to go on
        except Exception as error:  # a function of the user's raises what it likes
            error_text = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CallbackError(
                f"`{name}`, which was given to m3b, raised {error_text}. Fix it, then resume."
            ) from error

    return wrapper


V = TypeVar("V", bound="CheckResult | None")

UserTool = Callable[..., Any]
"""A typed function with a docstring, which gives a text or a `ToolResult`."""
UserCheck = Callable[[Any, Path], Sequence[str]]
"""Takes what a role handed over (see `m3b.agents.artifacts`) and the working directory; gives what has to be fixed."""

__all__ = ["NO_EXTENSIONS", "UserExtensions", "UserCheck", "UserTool", "register_metrics", "validate_extensions"]


@dataclass(frozen=True)
class UserExtensions:
    """What of a run is the user's own.

    Args:
        tools: by name, bound.
        checks: by the role's name.
        metrics: names of those that were given.
    """

    tools: Mapping[str, BoundTool] = field(default_factory=dict)
    checks: Mapping[str, UserCheck] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    def list_names(self) -> dict[str, list[str]]:
        """What there is, by name, for run.json."""
        names_by_kind = {"tools": list(self.tools), "checks": list(self.checks), "metrics": list(self.metrics)}
        return {kind: names for kind, names in names_by_kind.items() if names}

    def apply_check(self, role: str, check_result: V, work: Path) -> V | CheckResult:
        """The verdict, or the user's own on a hand-over that m3b accepts."""
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
    """The user's tools and checks, looked at.

    Args:
        role_names: those that there are.

    Raises:
        UsageError: a tool that agents cannot be told of, a check of a role that does not exist.
    """
    if unknown := sorted(set(checks) - set(role_names)):
        raise UsageError(f"`checks` names the roles {', '.join(unknown)}; known are {', '.join(role_names)}.")
    bound_tools = {}
    if tools:
        from m3b.tools.user_tools import bind_user_tools

        bound_tools = {name: guard_callback(f"tools: {name}", tool) for name, tool in bind_user_tools(tools).items()}
    return UserExtensions(bound_tools, dict(checks), tuple(metric.name for metric in metrics))


def register_metrics(metrics: Iterable[Metric]) -> None:
    """Make the user's metrics known in this process.

    Raises:
        UsageError: something that is no metric, or one that cannot be added to its task.
    """
    for metric in metrics:
        from m3b.tasks import Metric

        if not isinstance(metric, Metric):
            raise UsageError(f"`metrics` holds {metric!r}; give m3b.Metric objects: Metric(name, task, of).")
        try:
            metric.register()
        except ValueError as error:
            raise UsageError(f"The metric {metric.name!r} cannot be added: {error}") from error
