"""Waiting out trouble that passes: jittered exponential backoff that can be watched and cancelled."""

from __future__ import annotations

import contextvars
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from m3b.errors import RunCancelled, Transient

from .base import IsCancelled, OnWait

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

RETRY_LIMITS: dict[str, tuple[float, int]] = {
    "rate limit": (2.0, 50),  # a minute's quota comes back within a minute
    "overload": (2.0, 50),
    "server error": (1.0, 12),
    "lost connection": (1.0, 12),
    "unreachable": (1.0, 3),  # a server that has never answered: given up within seconds
    "garbled answer": (0.5, 6),
    "time-out": (1.0, 3),  # each has cost minutes already
}
"""For each kind of trouble: by what the first wait is multiplied, and how many requests may end in it."""

POLL_S = 0.25
"""How often `is_cancelled` is polled; the contract is twice a second at least."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How patient to be.

    Args:
        first_s: the wait after the first failure; it doubles each time, and each wait is drawn from the upper half of
            the doubled value, so that many runs do not come back at once.
        max_wait_s: no single wait of our own choosing is longer. A wait that the provider asks for may be.
        total_s: seconds of waiting after which the last error is raised.
        attempts: requests after which the last error is raised; `RETRY_LIMITS` may set fewer for a kind of trouble.
        sleep, clock, random: replaced by tests.
    """

    first_s: float = 1.0
    max_wait_s: float = 60.0
    total_s: float = 600.0
    attempts: int = 50
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random

    def run(
        self, request: Callable[[], T], on_wait: OnWait | None = None, is_cancelled: IsCancelled | None = None
    ) -> T:
        """Return the result of `request`, made again after each `Transient` until it passes or patience ends.

        Raises:
            Transient: the last one, when waiting longer would pass `total_s` or `attempts` is reached.
            RunCancelled: `is_cancelled` said so, before, during or between requests.
        """
        import tenacity  # loads asyncio, which an import of m3b does not need

        if self.attempts < 1:
            raise Transient("Retry.attempts is below 1, so no request was made. Set it to at least 1.")
        started = self.clock()
        failures: Counter[str] = Counter()

        def compute_wait(state: RetryCallState) -> float:
            trouble = _get_trouble(state)
            failures[trouble.kind] += 1
            return self._compute_wait(failures[trouble.kind], trouble)

        def is_exhausted(state: RetryCallState) -> bool:
            kind = _get_trouble(state).kind
            _, max_failures = RETRY_LIMITS.get(kind, (1.0, self.attempts))
            return failures[kind] >= max_failures or state.attempt_number >= self.attempts

        def should_stop(state: RetryCallState) -> bool:
            return is_exhausted(state) or state.idle_for + state.upcoming_sleep > self.total_s

        def report_wait(state: RetryCallState) -> None:
            trouble = _get_trouble(state)
            if on_wait is not None:
                on_wait(f"{trouble.kind}: {trouble}" if trouble.kind else str(trouble), state.upcoming_sleep)

        def give_up(state: RetryCallState) -> T:
            trouble, limit = _get_trouble(state), ""
            if not is_exhausted(state):
                limit = (
                    f", {state.idle_for:.0f} s of them waiting (the next wait would have been {state.upcoming_sleep:.0f} s;"
                    f" the limit is {self.total_s:.0f} s)"
                )
            requests = f"{state.attempt_number} request{'s' if state.attempt_number > 1 else ''}"
            raise Transient(
                f"{trouble} Given up after {requests} in {self.clock() - started:.0f} s{limit}."
                " Nothing is lost: resume the run later.",
                trouble.retry_after,
                trouble.kind,
            ) from trouble

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            wait=compute_wait,
            stop=should_stop,
            sleep=lambda seconds: self.pause(seconds, is_cancelled),
            before_sleep=report_wait,
            retry_error_callback=give_up,
        )
        result: T = retrying(_run_cancellable, request, is_cancelled)
        return result

    def pause(self, seconds: float, is_cancelled: IsCancelled | None = None) -> None:
        """Sleep in short pieces, polling `is_cancelled` before each."""
        end = self.clock() + seconds
        # Counted by pieces as well as by the clock, so that a clock that stands still cannot hang the run.
        for _ in range(max(1, math.ceil(seconds / POLL_S))):
            _raise_if_cancelled(is_cancelled)
            remaining_s = end - self.clock()
            if remaining_s <= 0:
                break
            self.sleep(min(POLL_S, remaining_s))
        _raise_if_cancelled(is_cancelled)

    def _compute_wait(self, failure_count: int, trouble: Transient) -> float:
        """Return the seconds to wait; what the provider asks for is a lower bound, with a little on top."""
        factor, _ = RETRY_LIMITS.get(trouble.kind, (1.0, self.attempts))
        requested_s = trouble.retry_after
        if requested_s is not None and requested_s > 0:
            return requested_s + min(1.0, 0.1 * requested_s) * self.random()
        ceiling = min(self.max_wait_s, factor * self.first_s * 2.0 ** min(failure_count - 1, 30))
        return ceiling * (0.5 + 0.5 * self.random())


def _get_trouble(state: RetryCallState) -> Transient:
    trouble = state.outcome.exception() if state.outcome else None
    assert isinstance(trouble, Transient)
    return trouble


def _raise_if_cancelled(is_cancelled: IsCancelled | None) -> None:
    if is_cancelled is not None and is_cancelled():
        raise RunCancelled("Cancelled by the user while waiting for the language model.")


def _run_cancellable(request: Callable[[], T], is_cancelled: IsCancelled | None) -> T:
    """Return `request()`, given up as soon as `is_cancelled` says so, even while the provider is silent.

    A blocking HTTP call cannot be interrupted, so it runs in a daemon thread that is left behind on cancellation.
    """
    if is_cancelled is None:
        return request()
    _raise_if_cancelled(is_cancelled)
    results: list[T] = []
    errors: list[BaseException] = []

    def run_request() -> None:
        try:
            results.append(request())
        except BaseException as error:  # noqa: BLE001 - carried over to the waiting thread and raised there
            errors.append(error)

    context = contextvars.copy_context()  # the ledger of this request, see `m3b.llm.ledger`
    thread = threading.Thread(target=context.run, args=(run_request,), name="m3b-llm-request", daemon=True)
    thread.start()
    while True:
        thread.join(POLL_S)
        if not thread.is_alive():
            break
        _raise_if_cancelled(is_cancelled)
    if errors:
        raise errors[0]
    return results[0]
