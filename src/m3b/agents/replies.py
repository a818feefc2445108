"""What an agent says at its end: a JSON object among its words."""

from __future__ import annotations

import json
from typing import Any


def find_json_object(text: str, key: str = "data_card") -> dict[str, Any] | None:
    """The first JSON object with `key` in a text that may also hold prose or a code fence."""
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        try:
            value, _ = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and key in value:
            return value
        position = text.find("{", position + 1)
    return None


def parse_give_up(text: str) -> str:
    """The words for the user of `{"given_up": "<what was found, and what would help>"}`, or nothing."""
    reply_object = find_json_object(text, "given_up")
    return str(reply_object["given_up"] or "").strip() if reply_object else ""
