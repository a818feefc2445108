"""A reply's words as they come: asking for them, carrying them over, and trouble in the middle of a stream.

A streamed response is put together again into the very body that it would have been without streaming, and read by the
same code; so the reply is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from m3b.errors import Transient
from m3b.messages import Message, Reply, ToolSpec

from .base import LLM, IsCancelled, OnText, OnWait


def ask_llm(
    llm: LLM,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    on_wait: OnWait | None = None,
    cancelled: IsCancelled | None = None,
    on_text: OnText | None = None,
) -> Reply:
    """`llm.ask`, with `on_text` for models that can tell their words as they come; others are asked without."""
    if on_text is None or not getattr(llm, "streams", False):
        return llm.ask(messages, tools, on_wait=on_wait, cancelled=cancelled)
    streaming: Any = llm  # one whose `ask` takes `on_text`
    reply: Reply = streaming.ask(messages, tools, on_wait=on_wait, cancelled=cancelled, on_text=on_text)
    return reply


class TextStream:
    """Carries pieces of text from the thread that reads them to the one that asked.

    `add_piece` is called by the reader. `poll` stands in for `cancelled`: it is asked in the waiting thread, a few times a
    second, and passes on there what came since. A request that was left behind by a cancellation is thus not heard.
    """

    def __init__(self, on_text: OnText | None, cancelled: IsCancelled | None) -> None:
        self._on_text, self._cancelled = on_text, cancelled
        self._pieces: deque[str] = deque()
        self._has_relayed = False

    @property
    def has_listener(self) -> bool:
        """Whether anybody listens."""
        return self._on_text is not None

    @property
    def poll(self) -> IsCancelled | None:
        """What to ask while waiting; None where there is neither a listener nor a way to cancel."""
        return self._poll if self.has_listener else self._cancelled

    def restart(self) -> None:
        """The stream broke off, and the request is made again: what was told is void."""
        self._pieces.append("")

    def add_piece(self, piece: str) -> None:
        """One more piece of the reply's text."""
        if piece:
            self._pieces.append(piece)

    def drain(self) -> None:
        """Pass on what is there, in one piece."""
        if self._on_text is None:
            return
        text = ""
        while self._pieces:
            piece = self._pieces.popleft()
            if piece:
                text += piece
                continue
            text = ""
            if self._has_relayed:
                self._has_relayed = False
                self._on_text("")
        if text:
            self._has_relayed = True
            self._on_text(text)

    def _poll(self) -> bool:
        self.drain()
        return self._cancelled is not None and self._cancelled()


class NotStreamed(Exception):
    """The server answered a request for a stream with something else; it is to be asked without."""


def make_broken_stream_error(model_name: str) -> Transient:
    """The error for a stream that ended before its end."""
    return Transient(f"{model_name}: the stream broke off before the reply was complete. It is asked for again.")
