"""What was said to a model and what it answered, written to a file; and a model that says it again from there.

`record:FILE:SPEC` is the model of SPEC, whose every exchange is appended to FILE; `replay:FILE` is a model without a
network that gives the recorded replies in order, as long as it is told what the recorded one was told. When the
conversation departs from the recording it fails with a diff: a reply to something else would prove nothing.

A recording is JSON lines: a header, then one exchange a line. A request holds only what is new since the request before
it. Keys are blotted out, as far as they can be told by their value or their shape.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from m3b import errors
from m3b.errors import LLMError, UsageError
from m3b.messages import Reply

from . import recorded
from .base import LLM, LLMRequest, ModelFacts, spec_of

FORMAT_VERSION = 1

_SECRET_VARIABLES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_SECRET_PATTERNS = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|glpat)[-_](?=[\w-]*\d)[\w-]{16,}|\bAIza[\w-]{30,}|\bAKIA[A-Z0-9]{16}\b"
    r"|(?<=Bearer )[\w.~+/-]{16,}"
)


def open_recording(spec: str, connect: Callable[[str], LLM]) -> LLM:
    """The model that `record:FILE:SPEC` or `replay:FILE` names.

    Raises:
        UsageError: the file is there already, or is not; or no model is named.
    """
    mode, _, arguments = spec.partition(":")
    if mode == "replay":
        return ReplayLLM(arguments)
    file, _, inner = arguments.partition(":")
    if not file or not inner:
        raise UsageError(f"{spec!r}: write record:FILE:SPEC, e.g. record:run.jsonl:openai:MODEL.")
    return RecordingLLM(connect(inner), file)


def scrub(text: str) -> str:
    """The text with `[key]` for whatever is in a variable of the environment named like a secret, or looks like a key."""
    for name, value in os.environ.items():
        if _SECRET_VARIABLES.search(name) and len(value) >= 8:
            # As it is, and as it looks within JSON.
            text = text.replace(value, "[key]").replace(json.dumps(value, ensure_ascii=False)[1:-1], "[key]")
    return _SECRET_PATTERNS.sub("[key]", text)


class RecordingLLM:
    """A model whose exchanges are written down.

    Args:
        llm: the model that answers.
        file: the recording; it is made with the first exchange, and must not be there before.

    Raises:
        UsageError: the file is there.
    """

    def __init__(self, llm: LLM, file: str | Path) -> None:
        self.llm, self.file = llm, Path(file).expanduser()
        self.name, self.facts, self.spec = llm.name, llm.facts, spec_of(llm)
        self._previous_messages: list[dict[str, Any]] = []
        self._known_toolsets: list[list[dict[str, Any]]] = []
        if self.file.exists():
            raise UsageError(f"The recording {self.file} exists. Name another file, or remove it.")

    def ask(self, request: LLMRequest) -> Reply:
        """See `LLM.ask`. A failure is written down too; a cancellation is not.

        Raises:
            LLMError: the recording cannot be written.
        """
        waits: list[tuple[str, float]] = []

        def record_wait(reason: str, seconds: float) -> None:
            waits.append((reason, seconds))
            if request.on_wait is not None:
                request.on_wait(reason, seconds)

        try:
            reply = self.llm.ask(replace(request, on_wait=record_wait))
        except LLMError as error:
            self._append(request, waits, {"error": type(error).__name__, "text": str(error)})
            raise
        self._append(request, waits, {"reply": recorded.reply_to_json(reply)})
        return reply

    def _append(self, request: LLMRequest, waits: Sequence[Any], outcome: dict[str, Any]) -> None:
        current = [recorded.message_to_json(message) for message in request.messages]
        common_count = recorded.count_common_messages(self._previous_messages, current)
        entry: dict[str, Any] = {"kept": common_count, "new": current[common_count:]}
        toolset = [asdict(tool) for tool in request.tools]
        if toolset not in self._known_toolsets:
            self._known_toolsets.append(toolset)
            entry["define"] = toolset
        entry["tools"] = self._known_toolsets.index(toolset)
        if waits:
            entry["waits"] = list(waits)
        self._previous_messages = current
        lines = [entry | outcome]
        if not self.file.exists():
            lines.insert(0, {"m3b_recording": FORMAT_VERSION, "model": self.name, "facts": asdict(self.facts)})
        text = "".join(scrub(json.dumps(line, ensure_ascii=False)) + "\n" for line in lines)
        try:
            handle = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with open(handle, "a", encoding="utf-8", errors="replace") as stream:
                stream.write(text)
        except OSError as error:
            raise LLMError(f"The recording {self.file} cannot be written: {error.strerror}.") from error


class RecordingMismatch(LLMError):
    """The conversation is not the recorded one; the message shows the difference."""


class ReplayLLM:
    """A model that gives recorded replies.

    Args:
        file: the recording.
        strict: fail when the conversation departs; without, the replies are given whatever they answer, which serves to
            record a conversation anew after a change of what m3b says.

    Raises:
        UsageError: the file is no recording.
    """

    def __init__(self, file: str | Path, *, strict: bool = True) -> None:
        self.file, self.strict = Path(file).expanduser(), strict
        self.name = f"replay:{self.file}"
        header, self.exchanges = _read_recording(self.file)
        facts_fields = {key: value for key, value in header["facts"].items() if key in ModelFacts.__dataclass_fields__}
        self.facts = ModelFacts(**facts_fields)
        self.model = str(header.get("model", ""))
        self._position = 0

    @property
    def remaining(self) -> int:
        """How many replies are still to come."""
        return len(self.exchanges) - self._position

    def ask(self, request: LLMRequest) -> Reply:
        """The next recorded reply, or the recorded failure; recorded waits are reported, and not waited.

        Raises:
            Departed: this is not what the recorded model was asked.
            LLMError: what the recorded model raised.
        """
        if self.remaining <= 0:
            raise RecordingMismatch(
                f"{self.name}: the recording ends after {len(self.exchanges)} exchanges, and one more was asked for. Its"
                f" last message is from {request.messages[-1].role!r}: {request.messages[-1].text[:300]!r}."
            )
        exchange = self.exchanges[self._position]
        if self.strict:
            current = [json.loads(scrub(json.dumps(recorded.message_to_json(message)))) for message in request.messages]
            difference = recorded.diff_messages(exchange.messages, current)
            difference = difference or recorded.diff_tools(exchange.tools, [asdict(tool) for tool in request.tools])
            if difference:
                raise RecordingMismatch(
                    f"{self.name}: exchange {self._position + 1} of {len(self.exchanges)} departs from the recording."
                    f" Record it anew if the change is meant.\n{difference}"
                )
        self._position += 1
        for reason, seconds in exchange.waits:
            if request.on_wait is not None:
                request.on_wait(reason, seconds)
        if exchange.error:
            kind = getattr(errors, exchange.error, LLMError)
            raise (
                kind(exchange.text)
                if isinstance(kind, type) and issubclass(kind, LLMError)
                else LLMError(exchange.text)
            )
        return replace(exchange.reply, model=exchange.reply.model or self.model)


def _read_recording(file: Path) -> tuple[dict[str, Any], list[recorded.Exchange]]:
    try:
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
        header = lines[0]
        if header.get("m3b_recording") != FORMAT_VERSION:
            raise UsageError(f"{file} is no recording of m3b, or one of another version. Record the conversation anew.")
        return header, recorded.parse_exchanges(lines[1:])
    except OSError as error:
        raise UsageError(f"The recording {file} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UsageError(f"{file} is no recording of m3b: {type(error).__name__}: {error}.") from error
