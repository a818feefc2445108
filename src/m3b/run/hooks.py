"""The functions of the user's that a run calls while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from m3b.events import Event
from m3b.run.callbacks import guarded

Ask = Callable[[str], str | None]
Approve = Callable[[str], bool]
OnEvent = Callable[[Event], None]


def nobody(event: Event) -> None:
    """Takes events where nobody looks on."""


@dataclass(frozen=True)
class Hooks:
    """See `Pipeline`."""

    ask: Ask | None = None
    approve: Approve | None = None
    on_event: OnEvent = nobody


def hooks_of(ask: Ask | None, approve: Approve | None, on_event: OnEvent | None, feed: OnEvent) -> Hooks:
    """What a user gave, guarded, with m3b's own feed of events before it."""
    user_callback = guarded("on_event", on_event) if on_event else nobody

    def both(event: Event) -> None:
        feed(event)
        user_callback(event)

    return Hooks(guarded("ask", ask) if ask else None, guarded("approve", approve) if approve else None, both)
