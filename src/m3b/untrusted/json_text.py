"""JSON that others wrote: whatever stands in it, parsing it raises nothing but ValueError."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class TooDeep(ValueError):
    """JSON whose lists and objects are nested more deeply than any data is."""

    def __init__(self) -> None:
        super().__init__("nested too deeply")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text as it stands, half characters (`"\\ud800"`) of odd file names included.

    Raises:
        TooDeep: nested too deeply.
        ValueError: no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise TooDeep from None


def parse_data_json(content: str | bytes) -> Any:
    """Return the value of a JSON file of a data set; half characters in it become `?`, so that every text can be written.

    Raises:
        TooDeep: nested too deeply.
        ValueError: no JSON, or no Unicode.
    """
    text = content if isinstance(content, str) else content.decode(json.detect_encoding(content))
    value = parse_json(text.removeprefix("\ufeff"))
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value
