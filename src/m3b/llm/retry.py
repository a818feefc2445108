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
from typing import TypeVar

from m3b.errors import RunCancelled, Transient

from .base import IsCancelled, OnWait

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
"""How often `cancelled` is asked; the contract is twice a second at least."""


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

    def run(self, request: Callable[[], T], on_wait: OnWait | None = None, cancelled: IsCancelled | None = None) -> T:
        """The result of `request`, made again after each `Transient` until it passes or patience ends.

        Raises:
            Transient: the last one, when waiting longer would pass `total_s` or `attempts` is reached.
            Cancelled: `cancelled` said so, before, during or between requests.
        """
        started, waited_s = self.clock(), 0.0
        failures: Counter[str] = Counter()
        for attempt in range(1, self.attempts + 1):
            _raise_if_cancelled(cancelled)
            try:
                return _run_cancellable(request, cancelled)
            except Transient as trouble:
                factor, max_failures = RETRY_LIMITS.get(trouble.kind, (1.0, self.attempts))
                failures[trouble.kind] += 1
                seconds = self._compute_wait(failures[trouble.kind], trouble.retry_after, factor)
                is_exhausted = failures[trouble.kind] >= max_failures or attempt == self.attempts
                if is_exhausted or waited_s + seconds > self.total_s:
                    limit = (
                        ""
                        if is_exhausted
                        else f", {waited_s:.0f} s of them waiting (the next wait would have been {seconds:.0f} s; the limit is "
                        f"{self.total_s:.0f} s)"
                    )
                    raise Transient(
                        f"{trouble} Given up after {_pluralize(attempt, 'request')} in {self.clock() - started:.0f} s{limit}."
                        " Nothing is lost: resume the run later.",
                        trouble.retry_after,
                        trouble.kind,
                    ) from trouble
                if on_wait is not None:
                    on_wait(f"{trouble.kind}: {trouble}" if trouble.kind else str(trouble), seconds)
                self.pause(seconds, cancelled)
                waited_s += seconds
        raise Transient("Retry.attempts is below 1, so no request was made. Set it to at least 1.")

    def pause(self, seconds: float, cancelled: IsCancelled | None = None) -> None:
        """Sleep in short pieces, asking `cancelled` before each."""
        end = self.clock() + seconds
        # Counted by pieces as well as by the clock, so that a clock that stands still cannot hang the run.
        for _ in range(max(1, math.ceil(seconds / POLL_S))):
            _raise_if_cancelled(cancelled)
            remaining_s = end - self.clock()
            if remaining_s <= 0:
                break
            self.sleep(min(POLL_S, remaining_s))
        _raise_if_cancelled(cancelled)

    def _compute_wait(self, attempt: int, requested_s: float | None, factor: float = 1.0) -> float:
        """Seconds to wait; what the provider asks for is a lower bound, with a little on top."""
        ceiling = min(self.max_wait_s, factor * self.first_s * 2.0 ** min(attempt - 1, 30))
        backoff_s = ceiling * (0.5 + 0.5 * self.random())
        if requested_s is None:
            return backoff_s
        return requested_s + min(1.0, 0.1 * requested_s) * self.random() if requested_s > 0 else backoff_s


def _pluralize(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _raise_if_cancelled(cancelled: IsCancelled | None) -> None:
    if cancelled is not None and cancelled():
        raise RunCancelled("Cancelled by the user while waiting for the language model.")


def _run_cancellable(request: Callable[[], T], cancelled: IsCancelled | None) -> T:
    """`request()`, given up as soon as `cancelled` says so, even while the provider is silent.

    A blocking HTTP call cannot be interrupted, so it runs in a daemon thread that is left behind on cancellation.
    """
    if cancelled is None:
        return request()
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
        _raise_if_cancelled(cancelled)
    if errors:
        raise errors[0]
    return results[0]
