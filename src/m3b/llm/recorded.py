"""The lines of a recording: messages and replies as JSON and back, and what counts as a difference between two.

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
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from m3b.messages import ImageContent, Message, Reply, ToolCall, Usage

Json = dict[str, Any]

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
    # what ends a training, the time or `max_epochs`, depends on how quick the machine is
    (
        re.compile(r"\bmax_epochs ends it after \d+ epoch\(s\) of (\d+) steps, [\w ]+ % of these"),
        r"# epochs of \1 steps",
    ),
    (re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.\d+(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"(?<![\w.])\d[\d,]*(?= (?:s|ms|min|minutes|seconds|h|bytes|kB|KB|KiB|MB|MiB|GB|GiB)\b)"), "#"),
)
_NUMBER = re.compile(r"[-+]?(?<![A-Za-z_])\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


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
    """The exchanges of a recording's lines, requests whole again.

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
    """How many messages at the beginning are the same."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(previous, current, strict=False)))


# --- JSON and back -----------------------------------------------------------------------------------------------


def message_to_json(message: Message) -> Json:
    """A message without its empty parts."""
    calls = [_call_to_json(call) for call in message.calls]
    images = [
        {"media_type": image.media_type, "data": base64.b64encode(image.data).decode("ascii")}
        for image in message.images
    ]
    fields: Json = {"role": message.role, "text": message.text, "calls": calls, "call_id": message.call_id}
    fields |= {"is_error": message.is_error, "images": images}
    return {key: value for key, value in fields.items() if value or key == "role"}


def message_from_json(raw: Json) -> Message:
    """The message that `message_to_json` wrote."""
    images = tuple(
        ImageContent(base64.b64decode(image["data"]), image["media_type"]) for image in raw.get("images", ())
    )
    calls = tuple(ToolCall(**call) for call in raw.get("calls", ()))
    text, call_id = raw.get("text", ""), raw.get("call_id", "")
    return Message(raw["role"], text, calls, call_id, bool(raw.get("is_error", False)), images)


def reply_to_json(reply: Reply) -> Json:
    """A reply, its usage included."""
    calls = [_call_to_json(call) for call in reply.calls]
    return {"text": reply.text, "calls": calls, "stop": reply.stop, "model": reply.model, "usage": asdict(reply.usage)}


def reply_from_json(raw: Json) -> Reply:
    """The reply that `reply_to_json` wrote."""
    usage_fields = {key: value for key, value in raw["usage"].items() if key in Usage.__dataclass_fields__}
    calls = tuple(ToolCall(**call) for call in raw["calls"])
    return Reply(raw["text"], calls, Usage(**usage_fields), raw["stop"], raw["model"])


def _call_to_json(call: ToolCall) -> Json:
    fields = {"id": call.id, "name": call.name, "arguments": call.arguments, "parse_error": call.parse_error}
    return {key: value for key, value in fields.items() if value or key != "parse_error"}


# --- what counts as a difference ---------------------------------------------------------------------------------


def diff_messages(recorded: Sequence[Json], current: Sequence[Json]) -> str:
    """A diff of the first message that is not as recorded; empty where all are."""
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
    """A diff of the tools that were offered."""
    if list(recorded) == list(current):
        return ""
    return f"The tools:\n{_format_diff(_format_json(recorded), _format_json(current))}"


def normalize_messages(messages: Sequence[Json]) -> list[Json]:
    """The messages with everything volatile made equal."""
    names = {call["id"]: call["name"] for message in messages for call in message.get("calls", ())}
    normalized = []
    for message in messages:
        is_script_output = names.get(message.get("call_id", "")) in SCRIPT_TOOLS
        normalized.append(
            {**message, "text": normalize_text(message.get("text", ""), is_script_output=is_script_output)}
        )
    return normalized


def normalize_text(text: str, *, is_script_output: bool = False) -> str:
    """A text with everything volatile made equal."""
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
