"""What an agent says at its end: a JSON object among its words."""

from __future__ import annotations

import json
from typing import Any


def find_object(text: str, key: str = "data_card") -> dict[str, Any] | None:
    """The first JSON object with `key` in a text that may also hold prose or a code fence."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and key in value:
            return value
        at = text.find("{", at + 1)
    return None


def given_up(text: str) -> str:
    """The words for the user of `{"given_up": "<what was found, and what would help>"}`, or nothing."""
    found = find_object(text, "given_up")
    return str(found["given_up"] or "").strip() if found else ""
