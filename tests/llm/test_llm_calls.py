"""The arguments of calls: everything certain is repaired, nothing truncated ever is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.llm.calls import parse_arguments

text = st.text(st.characters(codec="utf-8"), max_size=20)
leaves = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | text
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))
objects = st.dictionaries(text, values, max_size=4)


@given(objects)
def test_good_json_is_itself(value: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(value)) == (value, "")
    assert parse_arguments(value) == (value, "")


@given(
    objects, st.sampled_from(["```json\n{}\n```", "```\n{}```", "[{}]", "{}}}", "{}\n</tool_call>", "  {}\n", "{};"])
)
def test_certain_repairs(value: dict[str, Any], frame: str) -> None:
    assert parse_arguments(frame.replace("{}", json.dumps(value), 1)) == (value, "")


@given(objects)
def test_python_literals(value: dict[str, Any]) -> None:
    assert parse_arguments(repr(value)) == (value, "")


@given(objects.filter(bool), st.data())
def test_cut_json_is_never_completed(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    place = data.draw(st.integers(1, len(text) - 1))
    arguments, error = parse_arguments(text[:place])
    assert arguments == {}
    assert error


@given(st.text(max_size=60))
def test_no_text_breaks_it(raw: str) -> None:
    arguments, error = parse_arguments(raw)
    assert isinstance(arguments, dict)
    assert not (arguments and error)
    json.dumps(arguments).encode()


def test_the_error_names_place_and_text() -> None:
    _, error = parse_arguments('{"path": "a.py",\n "text": oops}')
    assert "line 2, column 10" in error
    assert "oops" in error


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ('{"a": 1} {"b": 2}', "more text follows"),
        ('{"a": 1} and then', "more text follows"),
        ("[1, 2]", "a list"),
        ('[{"a": 1}, {"b": 2}]', "a list"),
        ("null", "null"),
        ("3", "a number"),
        ('"text"', "a string"),
        ('{"a": NaN}', "JSON cannot"),
        ("[" * 100_000, "too deep"),
        (b"{}", "a bytes"),
        ("{'a': 1", "double quotes"),
        ("{'a': __import__('os')}", "no JSON"),
        ('{"text": "import to', "ends too early"),
    ],
)
def test_what_is_uncertain_is_refused(raw: Any, message: str) -> None:
    arguments, error = parse_arguments(raw)
    assert arguments == {}
    assert message in error


@pytest.mark.parametrize("raw", [None, "", "  ", "{}", {}])
def test_no_arguments(raw: Any) -> None:
    assert parse_arguments(raw) == ({}, "")


def test_raw_newlines_in_strings_and_double_encoding() -> None:
    assert parse_arguments('{"text": "a\nb\tc"}') == ({"text": "a\nb\tc"}, "")
    assert parse_arguments(json.dumps(json.dumps({"a": 1}))) == ({"a": 1}, "")


def test_lone_surrogates_can_be_sent_on() -> None:
    arguments, error = parse_arguments('{"a": "\\ud800"}')
    assert not error
    json.dumps(arguments, ensure_ascii=False).encode()
