"""Messages between m3b and its reader: the length in four bytes, then JSON. Both sides bound what they take.

Names of files that are no UTF-8 cross with their odd bytes written out (`\\udcff`).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import select
import time
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from m3b import errors
from m3b.untrusted import UnsafePathError

if TYPE_CHECKING:
    from pydantic import TypeAdapter


_ERROR_CLASSES: dict[str, type[Exception]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not errors.OptionError
}
_MAX_MESSAGE_CHARS = 4000


class ReaderError(errors.DataError):
    """What the reader could not read, with the file where it is known, what happened, and what to do."""


def error_to_json(error: BaseException) -> dict[str, Any]:
    """An error as JSON; its class is named where m3b raises it on purpose."""
    name = type(error).__name__
    if isinstance(error, OSError):
        parts = [error.errno, error.strerror, error.filename if isinstance(error.filename, str) else None]
        return {
            "kind": "Unsafe" if isinstance(error, UnsafePathError) else "OSError",
            "parts": parts,
            "text": _truncate(str(error)),
        }
    if isinstance(error, MemoryError):
        return {"kind": "MemoryError", "text": ""}
    if _ERROR_CLASSES.get(name) is type(error):
        return {"kind": name, "text": _truncate(str(error))}
    return {"kind": "", "text": _truncate(f"{name}: {error}" if str(error) else name)}


def error_from_json(packed: Any, activity: str) -> Exception:
    """The error to raise for what `error_to_json` made; whatever else came is a `ReaderError` too."""
    if not isinstance(packed, dict) or not isinstance(packed.get("text"), str):
        return ReaderError(f"{activity} failed, and the reader did not say why. Try again.")
    kind, text = packed.get("kind"), _truncate(packed["text"])
    if kind in ("OSError", "Unsafe"):
        return _make_os_error(kind, packed.get("parts"), text)
    if kind == "MemoryError":
        return MemoryError()
    if isinstance(kind, str) and kind in _ERROR_CLASSES:
        return _ERROR_CLASSES[kind](text)
    return ReaderError(
        f"{activity} failed: {text}. The file that was read last may be damaged; look at it, or leave it out."
    )


def _make_os_error(kind: str, parts: Any, text: str) -> OSError:
    match parts:
        case [_, str(words), str(name)] if kind == "Unsafe":
            return UnsafePathError(name, words)
        case [int(number), str(words), name] if name is None or isinstance(name, str):
            return OSError(number, words, *([name] if name else []))
    return OSError(text)


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}…"


def _decode_base64(content: Any) -> Any:
    if not isinstance(content, str):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None


Blob = Annotated[
    bytes,
    BeforeValidator(_decode_base64),
    PlainSerializer(lambda content: base64.b64encode(content).decode(), return_type=str, when_used="json"),
]


MAX_MESSAGE_BYTES = 512 * 2**20
"""Bytes of one message; whole pictures are below one MiB each."""
_LENGTH_BYTES = 4


class ConnectionClosed(Exception):
    """The other side is gone."""


class MessageTimeout(Exception):
    """Nothing came in time."""


class MalformedMessage(Exception):
    """What came is no message of this protocol."""


@lru_cache(maxsize=256)
def type_adapter(value_type: Any) -> TypeAdapter[Any]:
    """What reads and writes one type."""
    from pydantic import TypeAdapter

    return TypeAdapter(value_type)


def to_json(value_type: Any, value: object) -> Any:
    """A value of this type as plain JSON content."""
    return _to_json_value(
        type_adapter(value_type).dump_python(value)
    )  # pydantic's own JSON mode loses the odd bytes of file names


def _to_json_value(value: object) -> Any:
    """Return content of pydantic's Python mode as JSON content, with texts as they are."""
    if isinstance(value, Enum):
        return _to_json_value(value.value)
    if isinstance(value, Mapping):
        return {_to_json_value(key): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_json_value(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def from_json(value_type: Any, content: Any) -> Any:
    """A value of this type from plain JSON content.

    Raises:
        Garbled: it is none; the message names the place.
    """
    from pydantic import ValidationError

    try:
        return type_adapter(value_type).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise MalformedMessage(f"{location or 'the answer'}: {first['msg']}") from None


def send_message(descriptor: int, message: object) -> None:
    """Write one message whole.

    Raises:
        Closed: nobody reads any more.
        ValueError: it is longer than a message may be.
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
    """The messages that come out of a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def receive(self, wait_s: float | None = None) -> dict[str, Any]:
        """The next message.

        Args:
            wait_s: how long to wait for its first byte; once begun, it must be whole within the same time again.

        Raises:
            Late: it did not come, and nothing of it was taken.
            Closed: the other side is gone.
            Garbled: it is too long, no JSON object, or stopped in the middle.
        """
        if not self._is_ready(wait_s):
            raise MessageTimeout
        deadline = None if wait_s is None else time.monotonic() + max(wait_s, 10.0)
        length = int.from_bytes(self._read_exactly(_LENGTH_BYTES, deadline), "big")
        if length > MAX_MESSAGE_BYTES:
            raise MalformedMessage(f"a message of {length:,} bytes")
        try:
            message = json.loads(self._read_exactly(length, deadline).decode())
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
