"""Parsing of untrusted JSON: whatever it contains, only ValueError is raised."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_BLANKS = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_AFTER_VALUE = " \t\n\r,]"


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


def iterate_json_list(blocks: Iterable[bytes]) -> Iterator[tuple[Any, str]]:
    """Yield each item of a JSON list in UTF-8, and its text; in memory are one item and one block.

    Items before a fault are yielded before the fault is found.

    Raises:
        TooDeep: an item is nested too deeply.
        ValueError: the content is not a JSON list.
    """
    window = _TextWindow(blocks)
    if window.find_mark() != "[":
        raise ValueError("not a list")
    window.place += 1
    mark = window.find_mark()
    while mark != "]":
        yield window.read_value()
        mark = window.find_mark()
        if mark == ",":
            window.place += 1
            window.find_mark()
        elif mark != "]":
            raise ValueError("an item ends without a comma")
    window.place += 1
    if window.find_mark():
        raise ValueError("text after the list")


class _TextWindow:
    """The part of a text that is being parsed.

    Args:
        blocks: the bytes of the text.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._is_complete = False
        self.place = 0

    def find_mark(self) -> str:
        """Go to the next character that is not blank, and return it; '' at the end of the text."""
        while True:
            blanks = _BLANKS.match(self._text, self.place)
            self.place = blanks.end() if blanks else self.place
            if self.place < len(self._text) or self._is_complete:
                return self._text[self.place : self.place + 1]
            self._grow()

    def read_value(self) -> tuple[Any, str]:
        """Return the value that begins here and its text, and go behind it."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self.place)
            except RecursionError:
                raise TooDeep from None
            except ValueError:
                if self._is_complete:
                    raise
            else:
                is_whole = self._text[end : end + 1] in _AFTER_VALUE and end < len(self._text)
                if is_whole or self._is_complete:  # of a number the rest may be in the next block
                    text, self.place = self._text[self.place : end], end
                    return value, text
            self._grow()

    def _grow(self) -> None:
        """Drop the text before this place, and at least double the rest, so that a long value takes linear time."""
        pieces = [self._text[self.place :]]
        size = len(pieces[0])
        min_size = max(2 * size, 1)
        while size < min_size and not self._is_complete:
            block = next(self._blocks, None)
            pieces.append(self._decoder.decode(block or b"", final=block is None))
            self._is_complete = block is None
            size += len(pieces[-1])
        self._text, self.place = "".join(pieces), 0
