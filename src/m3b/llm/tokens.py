"""A cheap estimate of how many tokens a request holds, without any tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from m3b.messages import Message, Reply, ToolSpec

BYTES_A_TOKEN = 3.5
"""English prose holds about 4 bytes a token, code and JSON about 3; the estimate errs to the high side."""

PER_MESSAGE = 6
PER_CALL = 12
PER_TOOL = 16
PER_IMAGE = 1600
"""What providers charge at most for an image that they have scaled to their usual size."""


def of_text(text: str) -> int:
    """Tokens of a text; bytes rather than letters, so that other scripts are not undercounted."""
    return int(len(text.encode("utf-8", "surrogatepass")) / BYTES_A_TOKEN) + 1 if text else 0


def of_message(message: Message) -> int:
    """Tokens of one turn, its calls included."""
    calls = sum(
        PER_CALL + of_text(call.name) + of_text(json.dumps(call.arguments, ensure_ascii=False, default=str))
        for call in message.calls
    )
    return PER_MESSAGE + of_text(message.text) + calls + PER_IMAGE * len(message.images)


def of_tools(tools: Sequence[ToolSpec]) -> int:
    """Tokens of the tool definitions."""
    return sum(
        PER_TOOL + of_text(tool.name) + of_text(tool.description) + of_text(json.dumps(tool.parameters))
        for tool in tools
    )


def of_request(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """Tokens of a whole request."""
    return sum(of_message(message) for message in messages) + of_tools(tools)


def of_reply(reply: Reply) -> int:
    """Tokens of a reply, for models that do not count them themselves."""
    return of_message(reply.message())
