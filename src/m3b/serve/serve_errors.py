"""Errors of the HTTP server: each is a status, a code for programs, and a message without paths of this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping

from starlette.responses import JSONResponse

from m3b.errors import DataError, M3bError, ModelError


class ServeError(M3bError):
    """A request that gets no answer.

    Args:
        status: of HTTP.
        code: the reason for programs, such as `unknown_model`.
        headers: of the answer.
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, dict(headers or {})


def make_busy_error(wait_s: float) -> ServeError:
    """Return the error of a full queue, which says when to come back."""
    seconds = str(max(1, math.ceil(wait_s)))
    message = f"Other requests wait for this model already. Try again in {seconds} s."
    return ServeError(503, "queue_full", message, {"Retry-After": seconds})


def to_serve_error(error: Exception, names: Mapping[str, str]) -> ServeError:
    """Return the error that a client gets for an error of m3b.

    Args:
        names: paths on this machine -> names that the client knows.
    """
    if isinstance(error, ServeError):
        return error
    code = error.code if isinstance(error, DataError | ModelError) else ""
    if isinstance(error, ModelError) and not code:  # its message holds the output of the model's code
        return ServeError(500, "model_failed", "The model gave no valid answer; its process is started again.")
    if isinstance(error, M3bError):
        return ServeError(422, code or "invalid_input", hide_paths(str(error), names))
    return ServeError(500, "internal_error", "The server failed at this request.")


def hide_paths(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names that the client knows instead of paths on this machine; the longest path first."""
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text


def error_response(error: ServeError) -> JSONResponse:
    """Return the answer of an error."""
    content = {"error": {"code": error.code, "message": str(error)}}
    return JSONResponse(content, error.status, headers=error.headers)
