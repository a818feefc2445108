"""A scripted language model for tests, and its steps, which include misbehaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from m3b.errors import ContextOverflow, LLMError, Transient
from m3b.llm import tokens
from m3b.llm.base import LLMRequest, ModelFacts
from m3b.llm.callable import as_reply
from m3b.llm.calls import make_call
from m3b.llm.conversation import validate_conversation
from m3b.llm.retry import Retry
from m3b.messages import Message, Reply, ToolCall, ToolSpec, Usage

Step = Reply | str | dict[str, Any] | BaseException | Callable[[Sequence[Message], Sequence[ToolSpec]], Any]
"""One answer: a reply, its text, a dict as `m3b.llm.callable.as_reply` reads it, an exception to raise, or a function of
`(messages, tools)` that returns one of these."""


class ScriptExhausted(AssertionError):
    """The agent sent more requests than the script has steps."""


class ScriptedModel:
    """A language model that answers with `steps`, one after the other.

    Args:
        steps: see `Step`. A `Transient` among them is retried inside `ask`, as a provider does, without real waiting:
            it consumes its step, and the next step answers.
        name: the name of the model.
        facts: context window, prices and so on.
        repeat: repeat the last step for ever, so that the model never finishes.
        strict: refuse, as real providers do, a conversation with a call without result or a result without call.
        enforce_window: raise `ContextOverflow` if the estimated request and `max_output` exceed the context window.

    `requests` has the `(messages, tools)` of each request and `waits` the `(reason, seconds)` of each wait.
    """

    def __init__(
        self,
        steps: Iterable[Step] = (),
        *,
        name: str = "scripted",
        facts: ModelFacts | None = None,
        repeat: bool = False,
        strict: bool = True,
        enforce_window: bool = False,
    ) -> None:
        self.name = name
        self.facts = facts or ModelFacts(price_in=0.0, price_out=0.0)
        self.requests: list[tuple[tuple[Message, ...], tuple[ToolSpec, ...]]] = []
        self.waits: list[tuple[str, float]] = []
        self._steps = list(steps)
        self._played_steps = 0
        self._repeat = repeat
        self._strict = strict
        self._enforce_window = enforce_window
        self._retry = Retry(sleep=lambda seconds: None, random=lambda: 1.0)

    @property
    def remaining_steps(self) -> int:
        """Number of steps that are not yet used."""
        return len(self._steps) - self._played_steps

    def ask(self, request: LLMRequest) -> Reply:
        """Return the next step as a reply; usage is estimated if the step has none.

        Raises:
            ScriptExhausted: there is no next step.
            LLMError: the error of the step, or the error of a real provider for this conversation.
        """

        def record_wait(reason: str, seconds: float) -> None:
            self.waits.append((reason, seconds))
            if request.on_wait is not None:
                request.on_wait(reason, seconds)

        self.requests.append((tuple(request.messages), tuple(request.tools)))
        self._check_request(request)
        reply = self._retry.run(
            lambda: self._play_step(request.messages, request.tools), record_wait, request.is_cancelled
        )
        usage = tokens.estimate_usage(request, reply, self.facts) if reply.usage == Usage() else reply.usage
        return replace(reply, usage=usage, model=reply.model or self.name)

    def _check_request(self, request: LLMRequest) -> None:
        if self._strict:
            validate_conversation(request.messages)
        sent = tokens.estimate_request_tokens(request.messages, request.tools)
        if self._enforce_window and sent + self.facts.max_output > self.facts.window:
            raise ContextOverflow(
                f"About {sent} tokens of input and {self.facts.max_output} of output do not fit into the context window"
                f" of {self.facts.window}. Shorten the conversation."
            )

    def _play_step(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        if self.remaining_steps <= 0 and not (self._repeat and self._steps):
            last = messages[-1] if messages else Message("user")
            raise ScriptExhausted(
                f"{self.name}: all {len(self._steps)} steps of the script are used, but there is a request {len(self.requests)}."
                f" Its last message is from {last.role!r}: {last.text[:300]!r}. Add a step, or repeat=True."
            )
        step: Any = self._steps[min(self._played_steps, len(self._steps) - 1)]
        self._played_steps += 1
        if callable(step) and not isinstance(step, BaseException):
            step = step(messages, tools)
        if isinstance(step, BaseException):
            raise step
        reply = as_reply(step, f"step {self._played_steps} of {self.name}")
        calls = tuple(
            replace(call, id=call.id or f"call_{self._played_steps}_{number}")
            for number, call in enumerate(reply.calls, 1)
        )
        return replace(reply, calls=calls, stop="tools" if calls and reply.stop == "end" else reply.stop)


# --- steps -------------------------------------------------------------------------------------------------------


def say(text: str) -> Reply:
    """Return a reply with text only."""
    return Reply(text)


def call(name: str, /, **arguments: Any) -> Reply:
    """Return a reply that calls one tool. The id of the call is set when the step is used."""
    return Reply(calls=(ToolCall("", name, arguments),), stop="tools")


def combine_calls(*replies: Reply, text: str = "") -> Reply:
    """Return a reply with several `call(...)`, with text before them."""
    calls = tuple(tool_call for reply in replies for tool_call in reply.calls)
    return Reply(text or " ".join(reply.text for reply in replies if reply.text), calls, stop="tools")


def nonsense_reply() -> Reply:
    """Return a reply of meaningless text."""
    return Reply("Colourless green tensors sleep furiously. </tool> {{ ]] \x00\ufffd")


def unknown_tool(name: str = "launch_rocket") -> Reply:
    """Return a call of a tool that was not offered."""
    return call(name, target="moon")


def malformed_call(tool: str, raw: str = '{"path": "train.py", "text": "import to') -> Reply:
    """Return a call with truncated arguments, as the parser of a provider reports it."""
    return Reply(calls=(make_call("", tool, raw),), stop="tools")


def truncated_reply(text: str = "I will now write the file that") -> Reply:
    """Return a reply that was cut at the output limit."""
    return Reply(text, stop="length")


def refusal_reply(text: str = "I cannot help with that.") -> Reply:
    """Return a reply in which the model refuses."""
    return Reply(text, stop="refusal")


def transient_error(retry_after: float | None = None, message: str = "429 from a scripted provider.") -> Transient:
    """Return a temporary error: the next step answers."""
    return Transient(message, retry_after)


def overflow_error() -> ContextOverflow:
    """Return the error of a provider for a conversation that is too long."""
    return ContextOverflow("A scripted provider found the conversation too long. Shorten it.")


def llm_error(error: type[LLMError] = LLMError, message: str = "A scripted provider failed.") -> LLMError:
    """Return an error of any other class."""
    return error(message)
