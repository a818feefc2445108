"""What a run may spend."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.agents.budget import Budget
from m3b.errors import BudgetExceeded
from m3b.messages import Usage


@given(st.integers(0, 60), st.lists(st.integers(-3, 25), max_size=30))
def test_reservations_never_overshoot(actions: int, amounts: list[int]) -> None:
    budget = Budget(max_actions=actions)
    granted = [budget.reserve_actions(amount) for amount in amounts]
    assert all(0 <= got <= max(0, requested) for got, requested in zip(granted, amounts, strict=True))
    requested = sum(max(0, amount) for amount in amounts)
    assert sum(granted) == budget.used_actions == min(actions, requested)
    assert budget.actions_left == actions - sum(granted)


def test_threads_together_get_no_more_than_there_is() -> None:
    budget = Budget(max_actions=1000)
    got: list[int] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        thread_total = 0
        for amount in [1, 3, 2] * 200:
            thread_total += budget.reserve_actions(amount)
            budget.record_usage(Usage(1, 0, 1, 1, 0.5))
        got.append(thread_total)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got) == budget.used_actions == 1000
    assert budget.actions_left == 0
    assert budget.usage == Usage(4800, 0, 4800, 4800, 2400.0)


def test_a_resumed_budget_that_is_smaller_grants_nothing() -> None:
    assert Budget(max_actions=5, used_actions=9).reserve_actions(3) == 0


def test_without_limits_nothing_is_spent_out() -> None:
    budget = Budget()
    budget.record_usage(Usage(10**9, 0, 10**9, 1, 10**6))
    budget.check_limits()


@pytest.mark.parametrize(
    ("limits", "usage", "code"),
    [({"max_tokens": 100}, Usage(60, 0, 40), "tokens"), ({"max_cost_usd": 0.5}, Usage(cost_usd=0.51), "cost")],
)
def test_a_limit_that_is_reached_is_named(limits: dict[str, float], usage: Usage, code: str) -> None:
    budget = Budget(**limits)  # type: ignore[arg-type]
    budget.check_limits()
    budget.record_usage(usage)
    with pytest.raises(BudgetExceeded) as ended:
        budget.check_limits()
    assert ended.value.code == code


def test_cached_tokens_are_not_counted_twice() -> None:
    budget = Budget(max_tokens=101)
    budget.record_usage(Usage(60, 60, 40))
    budget.check_limits()


def test_time_counts_from_the_start() -> None:
    now = [50.0]
    budget = Budget(max_wall_s=10, clock=lambda: now[0])
    now[0] = 59.9
    budget.check_limits()
    now[0] = 60.0
    with pytest.raises(BudgetExceeded) as ended:
        budget.check_limits()
    assert ended.value.code == "time"


def test_what_is_left_is_told_as_far_as_there_are_limits() -> None:
    assert Budget(max_actions=9, used_actions=2).describe_remaining() == (
        "Left in this run, for all roles together: 7 of 9 actions; the run has no time limit, each training has its own."
    )
    timed = Budget(max_wall_s=600, max_tokens=5000, max_cost_usd=2.5, clock=lambda: 130.0, started_at=10.0)
    assert (
        timed.describe_remaining()
        == "Left in this run, for all roles together: 100 of 100 actions, 8 min, 5,000 tokens, $2.50."
    )
