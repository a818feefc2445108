"""A reply's text as it comes, carried from the thread that reads it to the one that asked.

A streamed response is put together again into the very body that it would have been without streaming, and read by the
same code; so the reply is the same.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .base import IsCancelled, OnText

MIN_SECRET_CHARACTERS = 6


def cut_secret(value: Any, secret: str) -> Any:
    """Return text, or JSON, with `[key]` for a secret; short ones are words such as `none`."""
    if len(secret) < MIN_SECRET_CHARACTERS:
        return value
    if isinstance(value, str):
        return value.replace(secret, "[key]")
    if isinstance(value, dict):
        return {cut_secret(name, secret): cut_secret(item, secret) for name, item in value.items()}
    return [cut_secret(item, secret) for item in value] if isinstance(value, list) else value


class TextStream:
    """Carries pieces of text from the thread that reads them to the one that asked.

    `add_piece` is called by the reader. `poll` stands in for `is_cancelled`: it is called in the waiting thread, a few times
    a second, and passes on there what came since. A request that was left behind by a cancellation is thus not heard.
    """

    def __init__(self, on_text: OnText | None, is_cancelled: IsCancelled | None, secret: str = "") -> None:  # nosec B107
        self._on_text, self._is_cancelled = on_text, is_cancelled
        self._secret, self._held_back = secret, ""
        self._pieces: deque[str] = deque()
        self._has_relayed = False

    @property
    def has_listener(self) -> bool:
        """Whether anybody listens."""
        return self._on_text is not None

    @property
    def poll(self) -> IsCancelled | None:
        """What to call while waiting; None if there is neither a listener nor a way to cancel."""
        return self._poll if self.has_listener else self._is_cancelled

    def restart(self) -> None:
        """Return the stream broke off, and the request is made again: the text so far is void."""
        self._held_back = ""
        self._pieces.append("")

    def add_piece(self, piece: str) -> None:
        """Add a piece of the reply's text; an end that could be the beginning of the secret waits for the next piece."""
        text = cut_secret(self._held_back + piece, self._secret)
        is_cut = len(self._secret) >= MIN_SECRET_CHARACTERS
        ends = range(min(len(text), len(self._secret) - 1) if is_cut else 0, 0, -1)
        held = next((size for size in ends if self._secret.startswith(text[-size:])), 0)
        text, self._held_back = text[: len(text) - held], text[len(text) - held :]
        if text:
            self._pieces.append(text)

    def end(self) -> None:
        """Pass on what is there and was held back."""
        if self._held_back:
            self._pieces.append(self._held_back)
            self._held_back = ""
        self.drain()

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
        return self._is_cancelled is not None and self._is_cancelled()


class NotStreamed(Exception):
    """The server answered a request for a stream with something else; it is asked without."""
