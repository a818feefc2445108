"""The functions of the user's that a run calls while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from m3b.events import Event
from m3b.run.callbacks import guard_callback

AskUser = Callable[[str], str | None]
ApproveCommand = Callable[[str], bool]
OnEvent = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Takes events where nobody looks on."""


@dataclass(frozen=True)
class Hooks:
    """See `Pipeline`."""

    ask: AskUser | None = None
    approve: ApproveCommand | None = None
    on_event: OnEvent = ignore_event


def make_hooks(
    ask: AskUser | None, approve: ApproveCommand | None, on_event: OnEvent | None, publish: OnEvent
) -> Hooks:
    """What a user gave, guarded, with m3b's own feed of events before it."""
    user_callback = guard_callback("on_event", on_event) if on_event else ignore_event

    def publish_event(event: Event) -> None:
        publish(event)
        user_callback(event)

    return Hooks(
        guard_callback("ask", ask) if ask else None,
        guard_callback("approve", approve) if approve else None,
        publish_event,
    )
