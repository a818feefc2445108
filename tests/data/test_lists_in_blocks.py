"""A JSON list that is read block by block holds what the whole text holds, or is refused as the whole text is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.isolation.untrusted import TooDeep, iterate_json_list

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def read_items(content: bytes, size: int) -> list[Any]:
    blocks = (content[start : start + size] for start in range(0, len(content), size))
    return [item for item, text in iterate_json_list(blocks) if json.loads(text) == item]


@given(st.lists(VALUES, max_size=5), st.integers(1, 9), st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_items_are_those_of_the_whole(
    values: list[Any], size: int, indent: int | None, ascii_: bool, mark: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_).encode("utf-8", "replace")
    assert read_items(b"\xef\xbb\xbf" * mark + text, size) == json.loads(text)


@given(st.lists(VALUES, max_size=4), st.integers(0, 60), st.sampled_from(list(',]}[{"1x e-.')), st.integers(1, 9))
def test_a_broken_list_is_refused(values: list[Any], place: int, mark: str, size: int) -> None:
    text = json.dumps(values)
    place %= len(text)
    text = text[:place] + mark + text[place + 1 :]
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    if isinstance(expected, list):
        assert read_items(text.encode(), size) == expected
    else:
        with pytest.raises(ValueError):
            read_items(text.encode(), size)


@pytest.mark.parametrize("content", [b"", b" ", b"{}", b"3", b"[", b"[1", b"[1,", b"[1,]", b"[1] 2", b"[1 2]", b"\xff"])
def test_what_is_no_list_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        read_items(content, 4)


def test_nesting_is_limited() -> None:
    with pytest.raises(TooDeep):
        read_items(b"[" * 200_000, 1 << 18)
