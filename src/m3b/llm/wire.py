"""What both wires need: text, names and ids that no provider refuses."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from typing import Any

from m3b.messages import ImageContent, Message, StopReason, ToolCall

EMPTY_TEXT = "(empty)"
"""Stands for a text that is empty, which some providers refuse."""

_INVALID_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def remove_surrogates(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 request can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def encode_base64(image: ImageContent) -> str:
    """The image's bytes as base64."""
    return base64.b64encode(image.data).decode("ascii")


def describe_omitted_images(message: Message) -> str:
    """The text of a turn for a model that sees nothing: it is told that there was something to see."""
    text = remove_surrogates(message.text)
    if not message.images:
        return text
    count = len(message.images)
    images_text = "One image is" if count == 1 else f"{count} images are"
    return f"{text}\n[{images_text} left out here: this model does not take images.]".lstrip()


def sanitize_tool_name(call: ToolCall) -> str:
    """The tool's name as every provider takes it; a model may have invented one that none does."""
    return _INVALID_NAME_CHARACTER.sub("_", call.name)[:64] or "unknown"


def sanitize_call_id(call_id: str) -> str:
    """A call's id as every provider takes it, the same for the call and its answer."""
    return _INVALID_NAME_CHARACTER.sub("_", call_id)[:64] or "call_0"


def get_replay_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments to replay; a malformed call is replayed without any, so that the conversation stays valid."""
    if call.parse_error:
        return {}
    safe: dict[str, Any] = json.loads(remove_surrogates(json.dumps(call.arguments, ensure_ascii=False, default=str)))
    return safe


def format_tool_answer(text: str, is_error: bool, marks_errors: bool) -> str:
    """A tool's answer; where the wire cannot mark an error, its text does."""
    text = remove_surrogates(text) or EMPTY_TEXT
    return text if marks_errors or not is_error or text.lower().startswith("error") else f"Error: {text}"


def map_stop_reason(reason: Any, table: dict[str, StopReason], has_calls: bool) -> StopReason:
    """Why the model stopped; calls are acted on even where a server says that the turn just ended."""
    stop = table.get(str(reason), "end")
    if stop in ("end", "tools"):
        return "tools" if has_calls else "end"
    return stop


def decode_json_text(answer: Any) -> Any:
    """A response that came as text, because it was sent under another content type than JSON, read as JSON where it is
    some; anything else as it is."""
    if isinstance(answer, str):
        with contextlib.suppress(ValueError):
            return json.loads(answer)
    return answer
