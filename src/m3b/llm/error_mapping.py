"""A failed request, told as one of m3b's own errors: what happened, whether it may pass, what to do."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from m3b.errors import Authentication, BadRequest, ContextOverflow, LLMError, Refused, Transient

MAX_MESSAGE_CHARACTERS = 600
"""Characters of a provider's message that are passed on."""

_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|(?:exceed\w*|beyond|over|larger than) (?:\w+ ){0,4}context"
    r"|context (?:window|size|length|limit)\W+(?:\w+\W+){0,4}exceed|prompt is too long|input is too long"
    r"|too many tokens|reduce the length of|request too large|request_too_large|token count (?:\S+ ){0,3}exceeds"
    r"|longer than the model'?s? (?:maximum|context)|exceeds? the maximum number of (?:input )?tokens",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)  # for the rate limit itself, so waiting cannot help
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance", re.IGNORECASE)
_CONTENT_FILTER = re.compile(
    r"content_filter|content_policy|content management policy|responsible ?ai ?policy|prohibited_content"
    r"|data_inspection_failed|inappropriate content|requires moderation|input was flagged|usage policy",
    re.IGNORECASE,
)
_MALFORMED_CALL = re.compile(r"tool_use_failed|failed to call a function", re.IGNORECASE)  # the model's slip: ask again
_KIND_BY_STATUS = {408: "time-out", 429: "rate limit", 503: "overload", 504: "time-out", 529: "overload"}
_STATUS_BY_TYPE = {
    "invalid_request_error": 400, "authentication_error": 401, "permission_error": 403, "not_found_error": 404,
    "request_too_large": 413, "rate_limit_error": 429, "rate_limit_exceeded": 429, "api_error": 500,
    "server_error": 500, "timeout_error": 504, "overloaded_error": 529,
}  # fmt: skip
"""What an error that comes within a stream, and so without a status of its own, would have had."""
_SECRETS = re.compile(r"(?i)\b(?:sk|pk|rk|gsk|xai|hf)[-_][A-Za-z0-9_\-*.]{6,}|AIza[\w-]{8,}|(?<=bearer )[^\s\"',]+")
_CONNECTION_ERRORS = ("Timeout", "ConnectionError", "ConnectError", "TransportError", "ProtocolError", "NetworkError")
_DECODING_ERRORS = ("JSONDecodeError", "ResponseValidationError", "DecodingError", "UnicodeDecodeError")


def map_error(
    error: Exception,
    model_name: str,
    key_source: str,
    secrets: Iterable[str] = (),
    *,
    address: str = "",
    has_answered: bool = True,
) -> LLMError | None:
    """Return the m3b error for what an SDK or HTTP library raised, or None for an exception of another kind.

    Works by status code and class name, so that it needs no SDK and serves a user's own function too.

    Args:
        error: the exception.
        model_name: the model's name, for the message.
        key_source: the variable that held the key.
        secrets: texts that must not appear in the message.
        address: the server's, for the message.
        has_answered: whether this server has ever answered. One that has will come back; one that has not is down, or is
            not there at all, and waiting for it is lost time.
    """
    if isinstance(error, LLMError):
        return error
    if address and (reason := _find_connection_failure(error)):
        message = f"{model_name}: no connection to {address} ({reason}). Check the address, the network, and that the server runs."
        return Transient(message, kind="lost connection" if has_answered else "unreachable")
    message = redact(_extract_message(error), secrets)
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or isinstance(status, bool) or status < 400:
        status = _find_status_in_body(getattr(error, "body", None))
    if status:
        return map_status(status, message, model_name, key_source, parse_retry_after(_get_headers(error)))
    class_names = [kind.__name__ for kind in type(error).__mro__]
    if any(name.endswith(_CONNECTION_ERRORS) for name in class_names) or isinstance(
        error, TimeoutError | ConnectionError
    ):
        kind = "time-out" if any("Timeout" in name for name in class_names) else "lost connection"
        from_address = f" from {address}" if address else ""
        message = f"{model_name}: no answer{from_address} ({type(error).__name__}: {message}). Check the network and the address."
        return Transient(message, kind=kind)
    if any(name.endswith(_DECODING_ERRORS) for name in class_names):
        message = f"{model_name}: the answer was no valid JSON ({type(error).__name__}: {message})."
        return Transient(message, kind="garbled answer")
    if any(name in ("OpenAIError", "AnthropicError") for name in class_names):
        return BadRequest(f"{model_name}: {type(error).__name__}: {message}")
    return None


def _find_connection_failure(error: BaseException | None) -> str:
    """Return why no connection was made, in the system's words; empty if there was one."""
    class_names, reason = set(), ""
    while error is not None:
        class_names.add(type(error).__name__)
        reason = (getattr(error, "strerror", None) if isinstance(error, OSError) else None) or str(error) or reason
        error = error.__cause__ or error.__context__
    if "ConnectTimeout" in class_names:
        return "it does not react"
    return redact(reason or "no reason given") if class_names & {"ConnectError", "ProxyError"} else ""


def find_error_in_body(body: Any, model_name: str) -> LLMError | None:
    """Return the error that a response holds although its status says that all is well, if it holds one."""
    if not (status := _find_status_in_body(body)):
        return None
    error = body.get("error", body)
    message = error.get("message") if isinstance(error, dict) else None
    return map_status(status, redact(str(message or error)), model_name, "its usual variable", None)


def _find_status_in_body(body: Any) -> int:
    """Return the status that a body's error stands for: a number as its code, or a known type. 0 if there is none."""
    error = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return 0
    for code in (error.get("code"), error.get("type")):
        if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
            return code
        if isinstance(code, str) and code in _STATUS_BY_TYPE:
            return _STATUS_BY_TYPE[code]
    return 0


def map_status(status: int, message: str, model_name: str, key_source: str, retry_after_s: float | None) -> LLMError:
    """Return the m3b error for a status and the provider's words."""
    heading = f"{model_name}: HTTP {status}: {message}"
    if status in (400, 403, 422, 451) and _CONTENT_FILTER.search(message):
        return Refused(f"{heading} The provider's content filter declined. Rephrase the request, or use another model.")
    if status == 400 and _MALFORMED_CALL.search(message):
        return Transient(heading, retry_after_s, "garbled answer")
    if status in (401, 403):
        return Authentication(f"{heading} The key came from {key_source}; set it to a valid key for this model.")
    too_long = (_TOO_LARGE if status == 429 else _OVERFLOW).search(message)
    if status == 413 or (status in (400, 422, 429, 500) and too_long):
        return ContextOverflow(f"{heading} The conversation is too long for this model; shorten it.")
    if status == 402 or (status in (400, 429) and _NO_CREDIT.search(message)):
        return BadRequest(f"{heading} The account cannot pay for requests; waiting will not help. Check its billing.")
    if status in (408, 409, 425, 429) or (status >= 500 and status != 501):
        return Transient(heading, retry_after_s, _KIND_BY_STATUS.get(status, "server error"))
    if status == 404:
        return BadRequest(f"{heading} Check the model's name and the address (most servers want it to end in /v1).")
    return BadRequest(heading)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without secrets, on one line, and not longer than `MAX_MESSAGE_CHARACTERS`."""
    for secret in secrets:
        if len(secret) >= 6:
            text = text.replace(secret, "[key]")
    text = " ".join(_SECRETS.sub("[key]", text).split())
    return text if len(text) <= MAX_MESSAGE_CHARACTERS else text[:MAX_MESSAGE_CHARACTERS] + "..."


def parse_retry_after(headers: Any, now: float | None = None) -> float | None:
    """Return seconds that `retry-after-ms` or `Retry-After` (a number, or an HTTP date) asks to wait, if they do."""
    get_header = getattr(headers, "get", None)
    if get_header is None:
        return None
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = str(get_header(name) or "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d*)?", value):
            return float(value) * factor
    try:
        import email.utils

        date = email.utils.parsedate_to_datetime(str(get_header("retry-after") or ""))
    except (ValueError, TypeError, IndexError):
        return None
    return max(0.0, date.timestamp() - (time.time() if now is None else now))


def _get_headers(error: Exception) -> Any:
    return getattr(getattr(error, "response", None), "headers", None)


def _extract_message(error: Exception) -> str:
    """Return the provider's own words where the body has them (OpenAI's and Anthropic's shapes), else the exception's."""
    body = getattr(error, "body", None)
    error_body = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error_body, dict) and isinstance(error_body.get("message"), str):
        codes = [str(error_body[key]) for key in ("code", "type") if error_body.get(key)]
        return str(error_body["message"]).rstrip() + (f" ({', '.join(codes)})." if codes else "")
    return str(error) or type(error).__name__
