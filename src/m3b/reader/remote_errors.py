"""Errors as they cross the pipe: the kind by name, never an object."""

from __future__ import annotations

from typing import Any

from m3b import errors
from m3b.untrusted import UnsafePathError

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
