"""What the rules see of a conversation: the stage, its briefing, and what has happened in it so far."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from m3b.messages import Message, ToolCall


@dataclass(frozen=True)
class Step:
    """One call and what came of it."""

    call: ToolCall
    result: str
    is_error: bool

    @property
    def command(self) -> str:
        return str(self.call.arguments.get("command", ""))

    @property
    def failed(self) -> bool:
        """Whether a script ended otherwise than with exit code 0."""
        code = re.search(r"exit code (\d+)", self.result)
        return self.is_error or (code is not None and code.group(1) != "0")


@dataclass(frozen=True)
class View:
    """The conversation from the last briefing on.

    Args:
        stage: from its first line, `Stage: ...`.
        briefing: the whole of it.
        steps: calls and results since.
        told: what m3b has said since (rejections, reflections, warnings), and an empty text for each step.
    """

    stage: str = ""
    briefing: str = ""
    steps: tuple[Step, ...] = ()
    told: tuple[str, ...] = field(default=())

    @property
    def request(self) -> str:
        return self.part(r"Request of the user:\n(.*?)(?:\n\n|\Z)")

    @property
    def task(self) -> str:
        """The selection's task; diagnosis where none is named."""
        block = self.part(r"## Selection\n(\{.*?\n\})")
        found = re.search(r'"task": "(\w+)"', block)
        return found.group(1) if found else "diagnosis"

    @property
    def preview(self) -> str:
        """The preview of the data folder."""
        return self.part(r"## Preview of data/[\w-]+\n(.*?)(?:\n\n|\Z)") + "\n"

    def part(self, pattern: str, more: re.RegexFlag = re.DOTALL) -> str:
        """The first group of a pattern in the briefing, or nothing."""
        found = re.search(pattern, self.briefing, re.DOTALL | more)
        return found.group(1).strip() if found else ""

    @property
    def rejected(self) -> str:
        """The last rejection, if it is the last thing that was said."""
        last = self.told[-1] if self.told else ""
        return last if last.startswith("The check does not accept") else ""

    @property
    def answer(self) -> str:
        """What the user answered, if that is the last thing that was said."""
        last = self.told[-1] if self.told else ""
        found = re.match(r"The user answers(?: your question \(.*\))?: (.*?) Decide (?:again|now)\.", last, re.DOTALL)
        return found.group(1).strip() if found else ""


def read(messages: Sequence[Message]) -> View:
    """The view of a conversation; an unknown one gives an empty stage."""
    start = next(
        (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user" and _stage(messages[at].text)), -1
    )
    if start < 0:
        return View()
    text = messages[start].text
    briefing = text[text.rindex("Stage: ", 0, _last_stage(text) + 8) :]
    steps, told = _since(messages[start + 1 :])
    return View(_stage(text), briefing, tuple(steps), tuple(told))


def _last_stage(text: str) -> int:
    return max(found.start() for found in re.finditer(r"^Stage: \w+", text, re.MULTILINE))


def _stage(text: str) -> str:
    found = re.findall(r"^Stage: (\w+)", text, re.MULTILINE)
    return str(found[-1]) if found else ""


def _since(messages: Sequence[Message]) -> tuple[list[Step], list[str]]:
    calls: dict[str, ToolCall] = {}
    steps, told = [], []
    for message in messages:
        if message.role == "assistant":
            calls.update({call.id: call for call in message.calls})
        elif message.role == "tool" and message.call_id in calls:
            steps.append(Step(calls[message.call_id], message.text, message.is_error))
            told.append("")  # whatever was said before has been acted on
        elif message.role == "user":
            told.append(message.text)
    return steps, told


def call(name: str, **arguments: object) -> ToolCall:
    """A call; its id is set when it is sent."""
    return ToolCall("", name, dict(arguments))
