"""The budget of a run. Actions are reserved before they are executed, so that parallel calls cannot exceed it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from m3b.errors import BudgetExceeded
from m3b.messages import Usage

MAX_TRAINING_SHARE = 0.6
"""Maximum share of the remaining time for training; imports, export, check and delivery need the rest."""


@dataclass
class Budget:
    """The budget shared by all roles of a run.

    Args:
        max_actions: tool calls in total; 100 in the M3Builder paper.
        max_iterations: debug iterations and rejected artifacts of each role; 5 in the paper.
        max_tokens: input tokens of every request plus output tokens; None is no limit.
        max_cost_usd: US dollars, as far as the prices of the model are known.
        max_wall_s: seconds since `started_at`.
    """

    max_actions: int = 100
    max_iterations: int = 5
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_wall_s: float | None = None
    usage: Usage = field(default_factory=Usage)
    used_actions: int = 0
    clock: Callable[[], float] = time.monotonic
    started_at: float = -1.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if self.started_at < 0:
            self.started_at = self.clock()

    @property
    def actions_left(self) -> int:
        """Number of actions that can still be reserved."""
        return self.max_actions - self.used_actions

    @property
    def mean_output_tokens(self) -> int:
        """Mean number of output tokens of a reply so far, used as the estimate for the next one."""
        return self.usage.output_tokens // max(self.usage.requests, 1)

    def reserve_actions(self, count: int) -> int:
        """Reserve up to `count` actions and return how many were granted."""
        with self._lock:
            granted = max(0, min(count, self.actions_left))
            self.used_actions += granted
            return granted

    def record_usage(self, usage: Usage) -> None:
        """Add the usage of a request."""
        with self._lock:
            self.usage = self.usage + usage

    def check_limits(self, next_request: Usage | None = None) -> None:
        """Check the limits; to be called before every request.

        Args:
            next_request: estimated usage of the next request: its input at the price without a cache, and a reply of
                mean length.

        Raises:
            BudgetExceeded: tokens, cost or time are spent, or would be with the next request; the message names the
                limit.
        """
        projected = self.usage + (next_request or Usage())
        if self.max_tokens is not None and projected.total_tokens >= self.max_tokens:
            raise BudgetExceeded(
                f"{self.usage.total_tokens:,} of {self.max_tokens:,} tokens are "
                f"spent{_describe_next_request(next_request, tokens=True)}."
                " Raise max_tokens.",
                code="tokens",
            )
        if self.max_cost_usd is not None and projected.cost_usd >= self.max_cost_usd:
            raise BudgetExceeded(
                f"${self.usage.cost_usd:.2f} of ${self.max_cost_usd:.2f} are "
                f"spent{_describe_next_request(next_request, tokens=False)}."
                " Raise max_cost.",
                code="cost",
            )
        self.check_time()

    def seconds_left(self) -> float | None:
        """Return the seconds until the time is spent; None if there is no limit."""
        return None if self.max_wall_s is None else self.max_wall_s - (self.clock() - self.started_at)

    def describe_remaining(self) -> str:
        """Return the remaining budget for agents, for those limits that are set."""
        seconds_left = self.seconds_left()
        parts = [f"{self.actions_left} of {self.max_actions} actions"]
        parts += [f"{max(seconds_left, 0) / 60:.0f} min"] if seconds_left is not None else []
        parts += (
            [f"{max(self.max_tokens - self.usage.total_tokens, 0):,} tokens"] if self.max_tokens is not None else []
        )
        parts += [f"${max(self.max_cost_usd - self.usage.cost_usd, 0):.2f}"] if self.max_cost_usd is not None else []
        no_time_limit_note = (
            "" if seconds_left is not None else "; the run has no time limit, each training has its own"
        )
        return f"Left in this run, for all roles together: {', '.join(parts)}{no_time_limit_note}."

    def cap_training_minutes(self, requested: float) -> float:
        """Return the requested minutes of training, at most `MAX_TRAINING_SHARE` of the remaining time."""
        seconds_left = self.seconds_left()
        return (
            requested
            if seconds_left is None
            else min(requested, max(round(seconds_left / 60 * MAX_TRAINING_SHARE, 2), 0.01))
        )

    def check_time(self) -> None:
        """Check the time limit; to be called before and during every wait.

        Raises:
            BudgetExceeded: the time is spent.
        """
        spent = self.clock() - self.started_at
        if self.max_wall_s is not None and spent >= self.max_wall_s:
            raise BudgetExceeded(
                f"{spent:.0f} of {self.max_wall_s:.0f} seconds are spent. Raise max_wall.", code="time"
            )


def _describe_next_request(next_request: Usage | None, *, tokens: bool) -> str:
    if next_request is None:
        return ""
    return (
        f", and the next request needs about {next_request.total_tokens:,} more"
        if tokens
        else (f", and the next request costs ${next_request.cost_usd:.4f} or more" if next_request.cost_usd else "")
    )
