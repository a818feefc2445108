"""The live view of a run: every action above a moving line with a bar on a terminal, one line a stage in a log file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from m3b.cli.show import console
from m3b.events import Event

if TYPE_CHECKING:
    from m3b.cli.bar import Bar

BEAT_S = 120.0
"""After so long without a line, a log file hears what a script that goes on said last."""
WIDTH = 110


class Live:
    """Takes events and shows them on standard error.

    Args:
        quiet: show nothing at all.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = console(to_stderr=True)
        self.moving = self.console.is_terminal and not quiet
        self.role, self.actions, self.tokens = "", 0, 0
        self.doing, self.tail, self._draft = "", "", ""
        self.started = time.monotonic()
        self._said, self._waited = self.started, False
        self._status: Bar | None = None

    def __enter__(self) -> Live:
        if self.moving:
            from m3b.cli.bar import Bar

            self._status = Bar(self.console)
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing moves on the terminal meanwhile: somebody is typing there."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        handler = getattr(self, f"_{event.kind}", None)
        if handler:
            handler(event.data)
        if self._status is not None:
            self._status.describe(self._line())

    # --- one method a kind of event that is shown ----------------------------------------------------------------

    def _run_started(self, data: dict[str, Any]) -> None:
        self._say(f"run {data['id']}  sandbox: {data['sandbox']['name']}")
        if data["sandbox"]["name"] == "off":
            self._say("WARNING: scripts run unconfined (sandbox off): they can read and write whatever you can.")

    def _role_started(self, data: dict[str, Any]) -> None:
        self.role = data["title"]
        self._say(f"{self.role} ({data['llm']})")

    def _role_ended(self, data: dict[str, Any]) -> None:
        if data["status"] != "done":
            self._say(f"  {self.role} ended: {data['status']}")
        self.role = ""

    def _call(self, data: dict[str, Any]) -> None:
        self.actions += data.get("cost", 1)
        self.doing = f"{data['name']} {_brief(data['arguments'])}"
        self._detail(f"  {self.actions:>3}  {self.doing}")

    def _result(self, data: dict[str, Any]) -> None:
        self.doing = self.tail = ""
        self._unknown()
        if data["is_error"]:
            self._detail(f"       failed: {_first_line(data['text'])}")

    def _delta(self, data: dict[str, Any]) -> None:
        """The model's words, on a terminal only: a log file is told what came of them."""
        self._draft = self._draft[-WIDTH:] + data["text"] if data["text"] else ""
        lines = [line.strip() for line in self._draft.splitlines() if line.strip()]
        self.doing = lines[-1] if lines else ""

    def _reply(self, data: dict[str, Any]) -> None:
        self._draft = self.doing = ""
        self._waited = False
        usage = data["usage"]
        self.tokens += usage["input_tokens"] + usage["output_tokens"]

    def _output(self, data: dict[str, Any]) -> None:
        lines = [line.strip() for line in data["text"].splitlines() if line.strip()]
        self.tail = lines[-1] if lines else ""
        if self._status is not None:
            for line in lines:
                self._status.told(line)
        if self.tail:
            self._alive(self.tail)

    def _waiting(self, data: dict[str, Any]) -> None:
        told = f"waiting {data['seconds']:.0f} s: {data['reason']}"
        if self.moving or not self._waited:
            self._say(f"       {told}")
        else:
            self._alive(told)
        self._waited = True

    def _stage(self, data: dict[str, Any]) -> None:
        self.doing = data["text"]
        self._unknown()
        self._say(f"       {data['text']}")

    def _audit(self, data: dict[str, Any]) -> None:
        self._detail(f"       {data['summary']}")

    def _check(self, data: dict[str, Any]) -> None:
        for reason in data.get("reasons") or data["faults"]:  # the user's voice; old journals have the agent's alone
            self._detail(f"       not accepted: {_first_line(reason)}")
        for warning in data["warnings"]:
            self._detail(f"       noted: {_first_line(warning)}")

    # -------------------------------------------------------------------------------------------------------------

    def _detail(self, text: str) -> None:
        """What a person who looks on wants to see, and a log file that is read afterwards is spared."""
        if self.moving:
            self._say(text)

    def _alive(self, text: str) -> None:
        """A sign of life in a log file that has heard nothing for long."""
        if not self.moving and time.monotonic() - self._said > BEAT_S:
            self._say(f"       {text[:WIDTH]}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        spent = int(time.monotonic() - self.started)
        self.console.print(f"{spent // 60:>2}:{spent % 60:02d} {text}", markup=False, overflow="fold")

    def _unknown(self) -> None:
        if self._status is not None:
            self._status.unknown()

    def _line(self) -> str:
        parts = [self.role or "m3b", f"{self.actions} actions", f"{self.tokens:,} tokens"]
        return " | ".join([*parts, self.tail or self.doing])


def _brief(arguments: dict[str, Any]) -> str:
    """What a call is about, in one line."""
    for key in ("command", "job", "path", "paths", "source"):
        if arguments.get(key):
            return _first_line(str(arguments[key]))
    if arguments.get("files"):
        files = arguments["files"] if isinstance(arguments["files"], list) else []
        return ", ".join(str(item.get("path", "?")) for item in files if isinstance(item, dict))
    return ""


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
