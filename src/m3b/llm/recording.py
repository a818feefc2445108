"""Recordings: what was said to a model and what it answered, written to a file; and a model that says it again from there.

`record:FILE:SPEC` is the model of SPEC, whose every exchange is appended to FILE; `replay:FILE` is a model without a
network that gives the recorded replies in order, as long as it is told what the recorded one was told. If the
conversation departs from the recording, it fails with a diff: a reply to something else would prove nothing.

A recording is JSON lines: a header, then one exchange a line. A request holds only what is new since the request before
it. Keys are blotted out, as far as they can be told by their value or their shape.

What changes from run to run without meaning is made equal before it is compared:

- everywhere: numbers with a decimal point, numbers of seconds, minutes and bytes, the machine's processors (`4 CPU
  cores, no GPU`), and object addresses (`0x7f...`);
- in the results of scripts also: every number, and neighbouring lines that are then the same, so that a training may
  take more or fewer epochs on another machine.

All else has to be the same to the letter: files, previews, checks, the order of events, every word of a prompt.
"""

from __future__ import annotations

import base64
import difflib
import itertools
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b import errors
from m3b.errors import LLMError, UsageError
from m3b.messages import Message, Reply, ToolCall, Usage

from .base import LLM, LLMRequest, ModelFacts, spec_of

Json = dict[str, Any]

FORMAT_VERSION = 1

_SECRET_VARIABLES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_SECRET_PATTERNS = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|glpat)[-_](?=[\w-]*\d)[\w-]{16,}|\bAIza[\w-]{30,}|\bAKIA[A-Z0-9]{16}\b"
    r"|(?<=Bearer )[\w.~+/-]{16,}"
)

SCRIPT_TOOLS = ("run_script",)
"""Tools whose results hold what a program printed."""

MAX_DIFF_LINES = 60
"""Lines of a difference that are shown."""

_VOLATILE_PATTERNS = (
    (re.compile(r"\b(?:\d+ GPUs? and )?\d+ CPU cores?(?:, no GPU)?"), "(processors)"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "(address)"),
    (re.compile(r"\bNOT above\b"), "above"),  # how a measured figure compares depends on how far the training came
    (re.compile(r" \(few: [^()\n]*\)"), ""),  # what a plan says on a machine that is slow at the moment
    (re.compile(r", mean of \d+ views of each\b"), ""),  # whether views pay is found by the training that was made
    (re.compile(r" \(\d+ were planned\)"), ""),  # steps, if a training made others
    # what ends a training, the time or `max_epochs`, depends on how quick the machine is
    (
        re.compile(r"\bmax_epochs ends it after \d+ epoch\(s\) of (\d+) steps, [\w ]+ % of these"),
        r"# epochs of \1 steps",
    ),
    (re.compile(r"\bonly [\d.]+ of max_epochs=\d+ epochs of (\d+) steps fit\b"), r"# epochs of \1 steps"),
    (re.compile(r"(?<![\w.])[-+]?\d+(?:,\d+)*\.\d+(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"(?<![\w.])\d+(?:,\d+)*(?= (?:s|ms|min|minutes|seconds|h|bytes|kB|KB|KiB|MB|MiB|GB|GiB)\b)"), "#"),
)
_NUMBER = re.compile(r"[-+]?(?<![A-Za-z_])\d+(?:,\d+)*(?:\.\d+)?(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


def open_recording(spec: str, connect: Callable[[str], LLM]) -> LLM:
    """Return the model that `record:FILE:SPEC` or `replay:FILE` names.

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
    """Return the text with `[key]` for whatever is in a variable of the environment named like a secret, or looks like a key."""
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
        self._previous_messages: list[Json] = []
        self._known_toolsets: list[list[Json]] = []
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
        self._append(request, waits, {"reply": reply_to_json(reply)})
        return reply

    def _append(self, request: LLMRequest, waits: Sequence[Any], outcome: Json) -> None:
        current = [message_to_json(message) for message in request.messages]
        common_count = count_common_messages(self._previous_messages, current)
        entry: Json = {"kept": common_count, "new": current[common_count:]}
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
        """Return the next recorded reply, or the recorded failure; recorded waits are reported, and not waited.

        Raises:
            RecordingMismatch: this is not what the recorded model was asked.
            LLMError: what the recorded model raised.
        """
        if self.remaining <= 0:
            raise RecordingMismatch(
                f"{self.name}: the recording ends after {len(self.exchanges)} exchanges, and one more was asked for. Its"
                f" last message is from {request.messages[-1].role!r}: {request.messages[-1].text[:300]!r}."
            )
        exchange = self.exchanges[self._position]
        if self.strict:
            current = [json.loads(scrub(json.dumps(message_to_json(message)))) for message in request.messages]
            difference = diff_messages(exchange.messages, current)
            difference = difference or diff_tools(exchange.tools, [asdict(tool) for tool in request.tools])
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


# --- files ---------------------------------------------------------------------------------------------------------


def _read_recording(file: Path) -> tuple[Json, list[Exchange]]:
    try:
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
        header = lines[0]
        if header.get("m3b_recording") != FORMAT_VERSION:
            raise UsageError(f"{file} is no recording of m3b, or one of another version. Record the conversation anew.")
        return header, parse_exchanges(lines[1:])
    except OSError as error:
        raise UsageError(f"The recording {file} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UsageError(f"{file} is no recording of m3b: {type(error).__name__}: {error}.") from error


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came of it: a reply, or the name and text of an error."""

    messages: list[Json]
    tools: list[Json]
    reply: Reply = field(default_factory=Reply)
    waits: tuple[tuple[str, float], ...] = ()
    error: str = ""
    text: str = ""


def parse_exchanges(lines: Sequence[Json]) -> list[Exchange]:
    """Return the exchanges of a recording's lines, requests whole again.

    Raises:
        KeyError, TypeError, IndexError: a line is no exchange.
    """
    parsed_exchanges: list[Exchange] = []
    tools: list[list[Json]] = []
    messages: list[Json] = []
    for line in lines:
        if "define" in line:
            tools.append(line["define"])
        messages = [*messages[: line["kept"]], *line["new"]]
        waits = tuple((str(reason), float(seconds)) for reason, seconds in line.get("waits", ()))
        offered_tools = tools[line["tools"]]
        if "error" in line:
            parsed_exchanges.append(
                Exchange(messages, offered_tools, waits=waits, error=line["error"], text=line["text"])
            )
        else:
            parsed_exchanges.append(Exchange(messages, offered_tools, reply_from_json(line["reply"]), waits))
    return parsed_exchanges


def count_common_messages(previous: Sequence[Json], current: Sequence[Json]) -> int:
    """Return how many messages at the beginning are the same."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(previous, current, strict=False)))


# --- JSON and back -----------------------------------------------------------------------------------------------


def message_to_json(message: Message) -> Json:
    """Return a message without its empty parts."""
    calls = [_call_to_json(call) for call in message.calls]
    images = [
        {"media_type": image.media_type, "data": base64.b64encode(image.data).decode("ascii")}
        for image in message.images
    ]
    fields: Json = {"role": message.role, "text": message.text, "calls": calls, "call_id": message.call_id}
    fields |= {"is_error": message.is_error, "images": images}
    return {key: value for key, value in fields.items() if value or key == "role"}


def reply_to_json(reply: Reply) -> Json:
    """Return a reply, its usage included."""
    calls = [_call_to_json(call) for call in reply.calls]
    return {"text": reply.text, "calls": calls, "stop": reply.stop, "model": reply.model, "usage": asdict(reply.usage)}


def reply_from_json(raw: Json) -> Reply:
    """Return the reply that `reply_to_json` wrote."""
    usage_fields = {key: value for key, value in raw["usage"].items() if key in Usage.__dataclass_fields__}
    calls = tuple(ToolCall(**call) for call in raw["calls"])
    return Reply(raw["text"], calls, Usage(**usage_fields), raw["stop"], raw["model"])


def _call_to_json(call: ToolCall) -> Json:
    fields = {"id": call.id, "name": call.name, "arguments": call.arguments, "parse_error": call.parse_error}
    return {key: value for key, value in fields.items() if value or key != "parse_error"}


# --- what counts as a difference ---------------------------------------------------------------------------------


def diff_messages(recorded: Sequence[Json], current: Sequence[Json]) -> str:
    """Return a diff of the first message that is not as recorded; empty if all are."""
    recorded_messages, current_messages = normalize_messages(recorded), normalize_messages(current)
    for index, (recorded_message, current_message) in enumerate(
        itertools.zip_longest(recorded_messages, current_messages)
    ):
        if recorded_message != current_message:
            role = recorded[index]["role"] if recorded_message is not None else current[index]["role"]
            return (
                f"Message {index + 1} (from "
                f"{role}):\n{_format_diff(_format_message(recorded_message), _format_message(current_message))}"
            )
    return ""


def diff_tools(recorded: Sequence[Json], current: Sequence[Json]) -> str:
    """Return a diff of the tools that were offered."""
    if list(recorded) == list(current):
        return ""
    return f"The tools:\n{_format_diff(_format_json(recorded), _format_json(current))}"


def normalize_messages(messages: Sequence[Json]) -> list[Json]:
    """Return the messages with everything volatile made equal."""
    names = {call["id"]: call["name"] for message in messages for call in message.get("calls", ())}
    normalized = []
    for message in messages:
        is_script_output = names.get(message.get("call_id", "")) in SCRIPT_TOOLS
        normalized.append(
            {**message, "text": normalize_text(message.get("text", ""), is_script_output=is_script_output)}
        )
    return normalized


def normalize_text(text: str, *, is_script_output: bool = False) -> str:
    """Return a text with everything volatile made equal."""
    for pattern, replacement in _VOLATILE_PATTERNS:
        text = pattern.sub(replacement, text)
    if not is_script_output:
        return text
    lines = [re.sub(r"[ \t]+", " ", _NUMBER.sub("#", line)).strip() for line in text.splitlines()]
    return "\n".join(line for line, _ in itertools.groupby(lines))


def _format_message(message: Json | None) -> list[str]:
    if message is None:
        return []
    other_fields = {key: value for key, value in message.items() if key != "text"}
    return [*message.get("text", "").splitlines(), *_format_json(other_fields)]


def _format_json(value: Any) -> list[str]:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines()


def _format_diff(before: list[str], after: list[str]) -> str:
    lines = list(difflib.unified_diff(before, after, "recorded", "told now", lineterm="", n=2))
    truncation_note = [f"... and {len(lines) - MAX_DIFF_LINES} lines more"] if len(lines) > MAX_DIFF_LINES else []
    return "\n".join([*lines[:MAX_DIFF_LINES], *truncation_note])
