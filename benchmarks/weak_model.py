"""Make the same run with a deliberately weak model, with the repairs of `m3b.llm` and without them.

The model knows the correct actions (it is the embedded rules, with some additional previews) but cannot express them: one call in
three is truncated JSON, and the others have arguments of the wrong type, Python's quotes, JSON in a fence, calls inside its prose,
or prose that only announces a call. If it is told in plain words what was wrong and what is expected, it repeats
that one call correctly; otherwise it repeats the same reply, as a model does. It is asked over HTTP, by the
chat-completions protocol, like any small model on a local server.

    python benchmarks/weak_model.py                 both runs on generated radiographs; about two minutes

Its errors are of form; weak_errors.py is about errors of content: invented paths, test cases in training, forgotten steps, loops.

"Without" is a loop without repairs: `json.loads`, types as given, calls in the provider's format only, and
"Invalid arguments." as the answer to errors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from m3b import Pipeline
from m3b.data.synthetic import make_chest
from m3b.errors import ToolError
from m3b.llm import LLM, LLMRequest
from m3b.llm.rules import RulesLLM
from m3b.llm.text_calls import find_calls
from m3b.messages import Message, Reply, ToolCall, ToolSpec
from m3b.run.result import Result
from m3b.testing.conformance.server import ReceivedRequest, Server, ServerAnswer
from m3b.tools import schema
from m3b.tools.toolbox import Toolbox

REQUEST = "Build a model that detects lung opacities on chest X-rays"
LOOK_CALLS = (
    ToolCall("", "list_files", {"path": "resources", "depth": 1}),
    ToolCall("", "read_files", {"paths": ["resources/indexes/README.md"], "limit": 5}),
    ToolCall("", "list_files", {"path": ".", "depth": 2}),
    ToolCall("", "read_files", {"paths": ["resources/templates/diagnosis/README.md"], "offset": 0, "limit": 3}),
)
"""Previews of the model in each stage before it works: useless, but with many opportunities for errors."""

CORRECTION_PHRASES = ("Schema of the arguments", "You speak of calling a tool", "Tools: ")
REFUSAL_PHRASES = (*CORRECTION_PHRASES, "Invalid arguments.")
SLIP_KINDS = ("types", "fence", "announced", "python", "in text")
ANNOUNCEMENT = "I will now call {name} to go on with the task."


# --- the model ---------------------------------------------------------------------------------------------------


@dataclass
class WeakModel:
    """The server side of the weak model.

    Args:
        brain: decides what to do.
    """

    brain: LLM
    slips: Counter[str] = field(default_factory=Counter)
    requests: int = 0

    def respond(self, request: ReceivedRequest) -> ServerAnswer:
        """Answer one request."""
        self.requests += 1
        tools = [_spec(tool) for tool in request.body.get("tools", ())]
        messages = _parse_messages(request.body["messages"])
        clean_messages, turns, is_informed = _remove_failures(messages, tools)
        reply = self._intended_reply(clean_messages, turns)
        if not reply.calls:
            return ServerAnswer(_body(f"Sure! Here is my answer:\n\n```\n{reply.text}\n```\nI hope this helps."))
        step = turns + 2 * _stage_number(messages)
        slip = "none" if is_informed else "cut" if turns % 3 == 2 else SLIP_KINDS[step % len(SLIP_KINDS)]
        self.slips[slip] += 1
        return ServerAnswer(self._distort_reply(list(reply.calls), slip))

    def _intended_reply(self, clean_messages: Sequence[Message], turns: int) -> Reply:
        """Return the reply of a better model: first it looks around, then it takes the brain's action."""
        looks = [_call_key(look) for look in LOOK_CALLS]
        looks_done, remaining = 0, list[Message]()
        look_ids: set[str] = set()
        for message in clean_messages:
            if message.calls and all(_call_key(call) in looks for call in message.calls):
                looks_done += 1
                look_ids |= {call.id for call in message.calls}
            elif message.call_id not in look_ids or not message.call_id:
                remaining.append(message)
        if looks_done < len(LOOK_CALLS):
            return Reply(calls=(LOOK_CALLS[looks_done],))
        return self.brain.ask(LLMRequest(remaining))

    def _distort_reply(self, calls: list[ToolCall], slip: str) -> dict[str, Any]:
        if slip == "announced":
            return _body(ANNOUNCEMENT.format(name=calls[0].name))
        if slip == "in text":
            return _body("Let me do this.\n\n" + "\n\n".join(map(_write_in_text, calls)))
        tool_calls = []
        for index, call in enumerate(calls):
            text = _distort(call.arguments, slip)
            call_id = f"call_{self.requests}_{index}"
            tool_calls.append({"id": call_id, "type": "function", "function": {"name": call.name, "arguments": text}})
        return _body("", tool_calls)


def _write_in_text(call: ToolCall) -> str:
    return f"```json\n{json.dumps({'name': call.name, 'arguments': call.arguments})}\n```"


def _distort(arguments: dict[str, Any], slip: str) -> str:
    text = json.dumps(arguments)
    if slip == "cut":
        return text[: max(2, len(text) * 2 // 3)].rstrip('"}] ')
    if slip == "fence":
        return f"```json\n{text}\n```"
    if slip == "python":
        return repr(arguments)
    return json.dumps(_mistype(arguments)) if slip == "types" else text


def _mistype(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return numbers as text, lists of one element as the element, objects as JSON text."""
    mistyped: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, bool | int | float):
            value = json.dumps(value)
        elif isinstance(value, list):
            value = value[0] if len(value) == 1 and isinstance(value[0], str) else json.dumps(value)
        mistyped[name] = value
    return mistyped


def _remove_failures(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[list[Message], int, bool]:
    """Return the conversation without failed turns, the number of successful turns of calls, and whether the last message said
    what to correct.
    """
    results = {message.call_id: message for message in messages if message.role == "tool"}
    clean_messages: list[Message] = []
    turns, is_informed, should_skip = 0, False, False
    for message in messages:
        if message.role == "assistant":
            valid_calls = tuple(call for call in message.calls if not _mentions(results.get(call.id), REFUSAL_PHRASES))
            last = [results[call.id] for call in message.calls if call.id in results]
            is_informed = any(_mentions(result, CORRECTION_PHRASES) for result in last)
            should_skip = not message.calls and bool(
                find_calls(message.text, tools)[1] or message.text.startswith(ANNOUNCEMENT[:15])
            )
            if valid_calls or not (message.calls or should_skip):
                clean_messages.append(Message("assistant", message.text, valid_calls))
                turns += bool(valid_calls)
        elif message.role == "user":
            is_informed = _mentions(message, CORRECTION_PHRASES)
            if not should_skip:  # the answer to a turn that was none
                clean_messages.append(message)
            should_skip = False
        elif message.role == "system" or not _mentions(message, REFUSAL_PHRASES):
            clean_messages.append(message)
    return clean_messages, turns, is_informed


def _call_key(call: ToolCall) -> tuple[str, str]:
    """Return the tool and the subject of a call, in whatever form it was written."""
    target = call.arguments.get("path") or call.arguments.get("paths")
    return call.name, str(target[0] if isinstance(target, list) and target else target)


def _stage_number(messages: Sequence[Message]) -> int:
    """Return the number of the present stage of the conversation."""
    stage_text = next((message.text for message in messages if message.text.startswith("Stage: ")), "")
    return [stage_text.startswith(f"Stage: {name}") for name in ("selection", "index", "module", "model")].index(True)


def _mentions(message: Message | None, phrases: Sequence[str]) -> bool:
    return message is not None and any(mark in message.text[-1500:] for mark in phrases)


# --- its wire ----------------------------------------------------------------------------------------------------


def _spec(tool: dict[str, Any]) -> ToolSpec:
    function = tool["function"]
    return ToolSpec(function["name"], function["description"], function["parameters"])


def _parse_messages(raw: Sequence[dict[str, Any]]) -> list[Message]:
    """The conversation of a request."""
    conversation: list[Message] = []
    for turn in raw:
        text = turn.get("content") or ""
        if turn["role"] == "tool":
            conversation.append(Message("tool", text, call_id=turn["tool_call_id"], is_error=text.startswith("Error")))
        elif turn["role"] == "assistant":
            calls = []
            for call in turn.get("tool_calls") or ():
                function = call["function"]
                calls.append(ToolCall(call["id"], function["name"], json.loads(function["arguments"])))
            conversation.append(Message("assistant", text, tuple(calls)))
        else:
            conversation.append(Message(turn["role"], text))
    return conversation


def _body(text: str, calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    message = {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "weak", "choices": [choice]}


# --- with and without --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_repairs() -> Iterator[None]:
    """Disable the repairs of m3b."""
    lenient, call_tool = schema.coerce, Toolbox.call

    def strict_json(raw: Any) -> tuple[dict[str, Any], str]:
        with contextlib.suppress(ValueError, TypeError):
            value = json.loads(raw or "{}")
            return (value, "") if isinstance(value, dict) else ({}, "no object")
        return {}, "no JSON"

    def strict_types(value: Any, hint: Any, location: str) -> Any:
        if lenient(value, hint, location) != value:
            raise ToolError("Wrong type.")
        return value

    def answer_curtly(self: Toolbox, call: ToolCall, allowed: Sequence[str]) -> Any:
        result = call_tool(self, call, allowed)
        text = "Invalid arguments." if result.data.get("malformed") else result.text
        return type(result)(text, result.is_error, result.data)

    with (
        mock.patch("m3b.llm.calls.parse_arguments", strict_json),
        mock.patch.object(schema, "coerce", strict_types),
        mock.patch.object(Toolbox, "call", answer_curtly),
    ):
        yield


@dataclass(frozen=True)
class Outcome:
    """One run of the weak model."""

    result: Result
    slips: Counter[str]
    corrected_calls: int
    """Calls that were answered with their error."""

    def line(self) -> str:
        slips = sum(count for name, count in self.slips.items() if name != "none")
        used = self.result.usage
        return (
            f"{self.result.status:<12} {used['actions']:>3} actions; {slips} of {sum(self.slips.values())} turns of calls"
            f" flawed ({', '.join(f'{name} {count}' for name, count in sorted(self.slips.items()) if name != 'none')});"
            f" {self.corrected_calls} told what is wrong"
        )


def run(brain: LLM, data: Path, out: Path, *, request: str = REQUEST, tools: str = "auto", **options: Any) -> Outcome:
    """A whole run with the weak model; `tools` as in `m3b.llm.connect`."""
    weak = WeakModel(brain)
    with Server(weak.respond) as server:
        llm = f"openai:weak@{server.url}/v1"
        result = Pipeline(llm, data=[data], out=out, tools=tools, register=False, **options).run(request)
    lines = [json.loads(line) for line in (out / "journal.jsonl").read_text("utf-8").splitlines()]
    corrected_calls = sum(1 for line in lines if line["kind"] == "result" and line["data"]["data"].get("malformed"))
    return Outcome(result, weak.slips, corrected_calls)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.5, help="of training")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weak-model-") as folder:
        work_folder = Path(folder)
        data = make_chest(work_folder / "chest")
        options = {"train_minutes": args.minutes}
        repaired = run(RulesLLM(), data, work_folder / "with", **options)
        print(f"with repairs     {repaired.line()}\n                 {repaired.result.reason}", flush=True)
        with without_repairs():
            unrepaired = run(RulesLLM(), data, work_folder / "without", tools="native", **options)
        print(f"without repairs  {unrepaired.line()}\n                 {unrepaired.result.reason}")
    return 0 if repaired.result.ok and not unrepaired.result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
