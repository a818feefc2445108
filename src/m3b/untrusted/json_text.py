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


def parse_json(content: str | bytes) -> Any:
    """Return the value of a JSON text; half characters (`"\\\\ud800"`) in it become `?`.

    Raises:
        TooDeep: nested too deeply.
        ValueError: no JSON, or no Unicode.
    """
    text = content if isinstance(content, str) else content.decode(json.detect_encoding(content))
    try:
        value = json.loads(text.removeprefix("\ufeff"))
        if _SURROGATE.search(text):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        raise TooDeep from None
    return value
