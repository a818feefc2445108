"""What has happened in a run so far, folded from its events: the same live and from a journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from m3b.agents.artifacts import Artifact, from_json
from m3b.errors import WrongUse
from m3b.events import Event
from m3b.messages import Usage


@dataclass
class RoleTally:
    """What one role has used; `status` is `working`, `done`, or how it failed."""

    status: str = "working"
    actions: int = 0
    iterations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class History:
    """State of a run as its events tell it.

    `dialogue` holds, a role, the events from which its conversation can be restored; `closing` what it said with a
    hand-over that was accepted.
    """

    artifacts: dict[str, Artifact] = field(default_factory=dict)
    roles: dict[str, RoleTally] = field(default_factory=dict)
    dialogue: dict[str, list[Event]] = field(default_factory=dict)
    closing: dict[str, list[str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    audit: str = ""
    seconds: float = 0.0
    _started: float = 0.0
    _last: float = 0.0

    @property
    def actions(self) -> int:
        return sum(tally.actions for tally in self.roles.values())

    @property
    def iterations(self) -> int:
        return sum(tally.iterations for tally in self.roles.values())

    def take(self, event: Event) -> None:
        """Fold one event in."""
        handler = getattr(self, f"_{event.kind}", None)
        if handler:
            handler(event)
        if event.kind in ("prompt", "reply", "result", "message"):
            self.dialogue.setdefault(event.role, []).append(event)
        self._last = event.at

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        history = cls()
        for event in events:
            try:
                history.take(event)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise WrongUse(
                    f"The journal holds a {event.kind!r} that this m3b cannot read ({error!r}). Go on with the version "
                    "that wrote it (`versions` in run.json), or start a new run."
                ) from error
        history.seconds += max(0.0, history._last - history._started) if history._started else 0.0
        history._started = 0.0
        return history

    # One method a kind of event that changes the state.

    def _run_started(self, event: Event) -> None:
        if self._started:  # a resumed run: the time between crash and resume was not worked
            self.seconds += max(0.0, self._last - self._started)
        self._started = event.at

    def _role_started(self, event: Event) -> None:
        self.roles.setdefault(event.role, RoleTally()).status = "working"

    def _role_ended(self, event: Event) -> None:
        self.roles.setdefault(event.role, RoleTally()).status = str(event.data.get("status", "done"))

    def _call(self, event: Event) -> None:
        tally = self.roles.setdefault(event.role, RoleTally())
        tally.actions += int(event.data.get("cost", 1))

    def _note(self, event: Event) -> None:
        if "iteration" in event.data:
            self.roles.setdefault(event.role, RoleTally()).iterations = int(event.data["iteration"])

    def _reply(self, event: Event) -> None:
        usage = Usage(**event.data["usage"])
        self.usage = self.usage + usage
        tally = self.roles.setdefault(event.role, RoleTally())
        tally.input_tokens += usage.input_tokens
        tally.output_tokens += usage.output_tokens

    def _check(self, event: Event) -> None:
        said = self.dialogue.get(event.role, [])
        if event.data.get("accepted") and said and said[-1].kind == "reply":
            self.closing[event.role] = [str(said[-1].data["text"]).strip()]  # a reflection corrects what came before

    def _audit(self, event: Event) -> None:
        self.audit = str(event.data.get("summary", ""))

    def _artifact(self, event: Event) -> None:
        kind = str(event.data["artifact"])
        self.artifacts[kind] = from_json(kind, event.data["value"])

    def roles_json(self) -> dict[str, dict[str, Any]]:
        return {name: tally.to_json() for name, tally in self.roles.items()}
