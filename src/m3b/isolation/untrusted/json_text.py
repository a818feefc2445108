"""Parsing of untrusted JSON: whatever it contains, only ValueError is raised."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class TooDeep(ValueError):
    """The JSON is nested more deeply than the parser allows."""

    def __init__(self) -> None:
        super().__init__("nested too deeply")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; lone surrogates (`"\\ud800"`), as in unusual file names, are kept.

    Raises:
        TooDeep: the text is nested too deeply.
        ValueError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise TooDeep from None


def parse_data_json(content: str | bytes) -> Any:
    """Return the value of a JSON file of a data set; lone surrogates become `?`, so that every text can be encoded.

    Raises:
        TooDeep: the content is nested too deeply.
        ValueError: the content is not JSON, or not Unicode.
    """
    text = content if isinstance(content, str) else content.decode(json.detect_encoding(content))
    value = parse_json(text.removeprefix("\ufeff"))
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value
