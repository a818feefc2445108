"""A cheap estimate of how many tokens a request holds, without any tokenizer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from m3b.messages import Message, Reply, ToolSpec, Usage

from .base import LLMRequest, ModelFacts

BYTES_PER_TOKEN = 3.5
"""English prose holds about 4 bytes a token, code and JSON about 3; the estimate errs to the high side."""

TOKENS_PER_MESSAGE = 6
TOKENS_PER_CALL = 12
TOKENS_PER_TOOL = 16
MAX_TOKENS_PER_IMAGE = 1600
"""What providers charge at most for an image that they have scaled to their usual size."""


def estimate_text_tokens(text: str) -> int:
    """Return tokens of a text; bytes rather than letters, so that other scripts are not undercounted."""
    return int(len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN) + 1 if text else 0


def estimate_message_tokens(message: Message) -> int:
    """Return tokens of one turn, its calls included."""
    calls = sum(
        TOKENS_PER_CALL
        + estimate_text_tokens(call.name)
        + estimate_text_tokens(json.dumps(call.arguments, ensure_ascii=False, default=str))
        for call in message.calls
    )
    return TOKENS_PER_MESSAGE + estimate_text_tokens(message.text) + calls + MAX_TOKENS_PER_IMAGE * len(message.images)


def estimate_tools_tokens(tools: Sequence[ToolSpec]) -> int:
    """Return tokens of the tool definitions."""
    return sum(
        TOKENS_PER_TOOL
        + estimate_text_tokens(tool.name)
        + estimate_text_tokens(tool.description)
        + estimate_text_tokens(json.dumps(tool.parameters))
        for tool in tools
    )


def estimate_request_tokens(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """Return tokens of a whole request."""
    return sum(estimate_message_tokens(message) for message in messages) + estimate_tools_tokens(tools)


def estimate_usage(request: LLMRequest, reply: Reply, facts: ModelFacts) -> Usage:
    """Return the usage of a request to a model that does not count, priced."""
    input_tokens = estimate_request_tokens(request.messages, request.tools)
    return facts.compute_usage(input_tokens, 0, estimate_message_tokens(reply.to_message()))
