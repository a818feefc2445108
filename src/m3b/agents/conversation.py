"""The conversation of one agent: append-only, so that providers can cache it, until the window is nearly full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from m3b.events import Event, MessageSent, PromptSent, ReplyReceived, ToolReturned
from m3b.llm.tokens import estimate_message_tokens, estimate_tools_tokens
from m3b.messages import ImageContent, Message, ToolCall, ToolSpec

DROPPED_RESULT_NOTE = "[This result was dropped to make room. Call the tool again if it is needed.]"
INTERRUPTED_NOTE = "m3b was interrupted while this ran. Its processes are gone; files that it wrote are still there."
EMPTY_REPLY = "(empty)"
"""Text of a reply without text and calls, since not every provider accepts an empty turn."""
MIN_KEPT_RESULTS = 4
"""Number of the latest tool results that are never dropped."""
MAX_WINDOW_SHARE = 0.92
"""Share of the window that input and output may fill; the rest allows for errors of the token estimate."""


class Conversation:
    """The messages of one agent."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = list(messages)
        self.dropped_results = 0
        self._token_counts: list[int] = []
        """Token counts of the first messages; later messages are counted when the size is needed."""
        self._total_tokens = 0
        self._tool_tokens: tuple[Sequence[ToolSpec], int] = ((), 0)

    @property
    def messages(self) -> Sequence[Message]:
        """All messages in order; change them only through the methods."""
        return self._messages

    def add_user_text(self, text: str, facts: Sequence[Mapping[str, Any]] = ()) -> None:
        """Add a user turn with its facts. Two user turns in a row are joined, since not every provider accepts two."""
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == "user":
            self._replace_message(-1, replace(last, text=f"{last.text}\n\n{text}", facts=(*last.facts, *facts)))
        else:
            self.add_message(Message("user", text, facts=tuple(facts)))

    def add_message(self, message: Message) -> None:
        self._messages.append(message)

    def add_reply(self, text: str, calls: Sequence[ToolCall]) -> None:
        """Add a reply of the model."""
        self.add_message(Message("assistant", text if text.strip() or calls else EMPTY_REPLY, tuple(calls)))

    def add_tool_result(
        self,
        call: ToolCall,
        text: str,
        is_error: bool,
        images: tuple[ImageContent, ...] = (),
        data: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        facts = (data,) if data else ()
        self.add_message(Message("tool", text, call_id=call.id, is_error=is_error, images=images, facts=facts))

    def estimate_tokens(self, tools: Sequence[ToolSpec]) -> int:
        """Return the estimated tokens of a request; each message is measured only once."""
        for message in self._messages[len(self._token_counts) :]:
            self._token_counts.append(estimate_message_tokens(message))
            self._total_tokens += self._token_counts[-1]
        if self._tool_tokens[0] is not tools:
            self._tool_tokens = (tools, estimate_tools_tokens(tools))
        return self._total_tokens + self._tool_tokens[1]

    def _replace_message(self, position: int, message: Message) -> None:
        position %= len(self._messages)
        self._messages[position] = message
        if position < len(self._token_counts):
            before, self._token_counts[position] = self._token_counts[position], estimate_message_tokens(message)
            self._total_tokens += self._token_counts[position] - before

    def drop_old_results(self, tools: Sequence[ToolSpec], window: int, max_output: int) -> int:
        """Replace the oldest tool results by stubs until input plus output fits the window.

        Returns:
            Number of results that were dropped by this call.
        """
        max_tokens = int(window * MAX_WINDOW_SHARE) - max_output
        if self.estimate_tokens(tools) <= max_tokens:
            return 0
        # Dropping more than necessary keeps the prefix stable for several turns.
        target_tokens = max_tokens * 3 // 4
        result_positions = [
            position
            for position, message in enumerate(self.messages)
            if message.role == "tool" and message.text != DROPPED_RESULT_NOTE
        ]
        dropped = 0
        for position in result_positions[: max(0, len(result_positions) - MIN_KEPT_RESULTS)]:
            if self.estimate_tokens(tools) <= target_tokens:
                break
            self._replace_message(position, replace(self.messages[position], text=DROPPED_RESULT_NOTE, images=()))
            dropped += 1
        self.dropped_results += dropped
        return dropped

    def find_unanswered_calls(self) -> list[ToolCall]:
        """Return the calls of the last assistant turn that have no result yet."""
        answered: set[str] = set()
        for message in reversed(self.messages):
            if message.role == "assistant":
                return [call for call in message.calls if call.id not in answered]
            if message.role == "tool":
                answered.add(message.call_id)
        return []

    def find_unchecked_reply(self) -> str | None:
        """Return the closing text at the end of the conversation if it was not checked before an interruption."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant" or last.calls:
            return None
        return "" if last.text == EMPTY_REPLY else last.text

    @classmethod
    def from_events(
        cls,
        events: Iterable[Event],
        *,
        keep_open_calls: bool = False,
        load_images: Callable[[Mapping[str, Any]], tuple[ImageContent, ...]] = lambda facts: (),
    ) -> Conversation:
        """Return the conversation of one role from the journal, to resume it after a crash.

        A call without a result is answered with a note that m3b was interrupted, at the end and at earlier
        interruptions.

        Args:
            keep_open_calls: leave the calls of the last reply unanswered; the caller answers them.
            load_images: returns the images of a result by its facts, as far as they were kept.
        """
        conversation = cls()
        for event in events:
            if isinstance(event, PromptSent | ReplyReceived | MessageSent):
                conversation._close_open_calls()
            match event:
                case ToolReturned():
                    facts = (event.facts,) if event.facts else ()
                    is_error = event.is_error
                    images = load_images(event.facts)
                    conversation.add_message(
                        Message("tool", event.text, call_id=event.id, is_error=is_error, images=images, facts=facts)
                    )
                case PromptSent():
                    if event.system:
                        conversation.add_message(Message("system", event.system))
                    conversation.add_user_text(event.text, event.facts)
                case ReplyReceived():
                    conversation.add_reply(event.text, event.calls)
                case MessageSent():
                    conversation.add_user_text(event.text, event.facts)
        if not keep_open_calls:
            conversation._close_open_calls()
        return conversation

    def _close_open_calls(self) -> None:
        for call in self.find_unanswered_calls():
            self.add_tool_result(call, INTERRUPTED_NOTE, True)
