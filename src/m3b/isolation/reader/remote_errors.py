"""Errors of the reader process as JSON: the class is sent by name, never as an object."""

from __future__ import annotations

from typing import Any

from m3b import errors
from m3b.isolation.untrusted import UnsafePathError

_ERROR_CLASSES: dict[str, type[Exception]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not errors.OptionError
}
_MAX_MESSAGE_CHARS = 4000


class ReaderError(errors.DataError):
    """The reader could not read something; the message names the file, if known, what happened, and what to do."""


def error_to_json(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON; the class is named if it is one that m3b raises on purpose."""
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
    """Return the error to raise for the JSON of `error_to_json`; for any other content, a `ReaderError`."""
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
        f"{activity} failed: {text}. The file that was read last may be damaged; check it, or leave it out."
    )


def _make_os_error(kind: str, parts: Any, text: str) -> OSError:
    match parts:
        case [_, str(description), str(name)] if kind == "Unsafe":
            return UnsafePathError(name, description)
        case [int(number), str(description), name] if name is None or isinstance(name, str):
            return OSError(number, description, *([name] if name else []))
    return OSError(text)


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}…"
