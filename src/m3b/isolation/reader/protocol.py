"""Message protocol between m3b and the reader process: the length in four bytes, then JSON.

Both sides limit the length of messages.

In file names that are not UTF-8, the invalid bytes are sent as escapes (`\\udcff`).
"""

from __future__ import annotations

import base64
import json
import os
import select
import time
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_MESSAGE_BYTES = 256 * 2**20
"""Maximum size of one message in bytes; whole pictures are below one MiB each."""
MAX_MESSAGE_NODES = 8 * 2**20
"""Maximum count of values in one message. As Python objects, with the message itself, so many short texts take 1.2 GB, and 2.5 GB if
each has a sign outside of the Basic Multilingual Plane."""
_LENGTH_BYTES = 4


class ConnectionClosed(Exception):
    """The process on the other side has closed the pipe."""


class MessageTimeout(Exception):
    """No message arrived in time."""


class MalformedMessage(Exception):
    """The received bytes are not a message of this protocol."""


@lru_cache(maxsize=256)
def type_adapter(value_type: Any) -> TypeAdapter[Any]:
    """Return the pydantic adapter of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(value_type)


def to_json(value_type: Any, value: object) -> Any:
    """Return a value of this type as JSON content."""
    return _plain(
        type_adapter(value_type).dump_python(value)
    )  # pydantic's JSON mode would lose bytes of file names that are not UTF-8


def _plain(value: object) -> Any:
    """Return content of pydantic's Python mode as JSON content, with texts unchanged."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def from_json(value_type: Any, content: Any) -> Any:
    """Return a value of this type from JSON content.

    Raises:
        MalformedMessage: the content is not of this type; the message names the field.
    """
    from pydantic import ValidationError

    try:
        return type_adapter(value_type).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise MalformedMessage(f"{location or 'the answer'}: {first['msg']}") from None


def send_message(descriptor: int, message: object) -> None:
    """Write one whole message.

    Raises:
        ConnectionClosed: the other side has closed the pipe.
        ValueError: the message is longer than `MAX_MESSAGE_BYTES`.
    """
    content = json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace")
    if len(content) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{len(content):,} bytes are more than one message may hold ({MAX_MESSAGE_BYTES:,})")
    unsent = memoryview(len(content).to_bytes(_LENGTH_BYTES, "big") + content)
    while unsent:
        try:
            unsent = unsent[os.write(descriptor, unsent) :]
        except BrokenPipeError:
            raise ConnectionClosed from None


class MessageReceiver:
    """Receives messages from a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def receive(self, wait_s: float | None = None) -> dict[str, Any]:
        """Return the next message.

        Args:
            wait_s: how long to wait for the first byte; the rest must arrive within the same time (at least 10 s).

        Raises:
            MessageTimeout: no message arrived; nothing was read.
            ConnectionClosed: the other side has closed the pipe.
            MalformedMessage: the message is too long, has too many values, is not a JSON object, or stopped in the middle.
        """
        if not self._is_ready(wait_s):
            raise MessageTimeout
        deadline = None if wait_s is None else time.monotonic() + max(wait_s, 10.0)
        length = int.from_bytes(self._read_exactly(_LENGTH_BYTES, deadline), "big")
        if length > MAX_MESSAGE_BYTES:
            raise MalformedMessage(f"a message of {length:,} bytes")
        content = self._read_exactly(length, deadline)
        if (count := sum(map(content.count, (b"{", b"[", b",", b":")))) > MAX_MESSAGE_NODES:
            raise MalformedMessage(f"a message of {count:,} values")
        try:
            message = json.loads(content.decode())
        except (ValueError, RecursionError) as error:
            raise MalformedMessage(f"no JSON ({error})") from None
        if not isinstance(message, dict):
            raise MalformedMessage("no JSON object")
        return message

    def _is_ready(self, wait_s: float | None) -> bool:
        return bool(self._poll.poll(None if wait_s is None else max(0, int(wait_s * 1000))))

    def _read_exactly(self, length: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < length:
            if deadline is not None and not self._is_ready(deadline - time.monotonic()):
                raise MalformedMessage("a message that stopped in the middle")
            piece = os.read(self._descriptor, min(length - len(data), 1 << 20))
            if not piece:
                raise ConnectionClosed
            data += piece
        return bytes(data)
