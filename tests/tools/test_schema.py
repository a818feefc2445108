from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.errors import ToolError
from m3b.tools.files import Edit, NewFile, edit_files, write_files
from m3b.tools.schema import coerce, coerce_arguments, make_tool_spec
from m3b.tools.script import run_script
from m3b.tools.toolbox import TOOLS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def test_every_tool_has_a_full_schema() -> None:
    assert list(TOOLS) == [
        "list_files", "read_files", "copy_files", "write_files", "edit_files", "run_script", "preview_dirs", "preview_files",
    ]  # fmt: skip
    for name, tool in TOOLS.items():
        spec = make_tool_spec(tool)
        assert spec.name == name
        assert len(spec.description) > 20
        assert "ctx" not in spec.parameters["properties"]
        for parameter in spec.parameters["properties"].values():
            assert parameter["description"]
            assert parameter["type"] in ("string", "integer", "boolean", "array")
        assert json.dumps(spec.parameters) == json.dumps(make_tool_spec(tool).parameters)


def test_schema_of_objects_and_defaults() -> None:
    parameters = make_tool_spec(edit_files).parameters
    assert parameters["required"] == ["path"]
    item = parameters["properties"]["edits"]["items"]
    assert item["required"] == ["old", "new"]
    assert not item["additionalProperties"]
    assert make_tool_spec(run_script).parameters["properties"]["wait_s"]["default"] == 600


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("5", int, 5),
        ("5.0", int, 5),
        (5.0, int, 5),
        ("-3", int, -3),
        ("1e-3", float, 0.001),
        (2, float, 2.0),
        ("true", bool, True),
        ("False", bool, False),
        (1, bool, True),
        (5, str, "5"),
        ("a", list[str], ["a"]),
        ('["a", "b"]', list[str], ["a", "b"]),
        ("[a].png", list[str], ["[a].png"]),
        ('{"path": "a", "content": "b"}', list[NewFile], [{"path": "a", "content": "b"}]),
        ({"old": "a", "new": 1}, list[Edit], [{"old": "a", "new": "1"}]),
        ('[{"old": "a", "new": ""}]', list[Edit], [{"old": "a", "new": ""}]),
        ("[1]", str, "[1]"),
    ],
)
def test_mended(value: Any, hint: Any, expected: Any) -> None:
    coerced = coerce(value, hint, "x")
    assert coerced == expected
    assert type(coerced) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("five", int),
        (5.5, int),
        (True, int),
        ({"a": 1}, str),
        (["a"], str),
        ("yes", bool),
        (2, bool),
        ("x", list[Edit]),
        ([1, {}], list[str]),
        ({"old": "a"}, list[Edit]),
        ({"old": "a", "new": "b", "all": True}, list[Edit]),
    ],
)
def test_refused_where_unsure(value: Any, hint: Any) -> None:
    with pytest.raises(ToolError):
        coerce(value, hint, "x")


@given(value=JSON, hint=st.sampled_from([str, int, float, bool, list[str], list[Edit]]))
def test_coercion_gives_the_type_or_a_tool_error(value: Any, hint: Any) -> None:
    try:
        coerced = coerce(value, hint, "x")
    except ToolError:
        return
    if hint in (str, int, float, bool):
        assert type(coerced) is hint
    else:
        assert isinstance(coerced, list)
        assert all(isinstance(item, str) or set(item) == {"old", "new"} for item in coerced)


def test_unknown_missing_and_null() -> None:
    with pytest.raises(ToolError, match=r"Unknown argument 'file'. Did you mean 'files'"):
        coerce_arguments(write_files, {"file": []})
    with pytest.raises(ToolError, match="'files' is missing: a list of objects"):
        coerce_arguments(write_files, {"files": None})
    assert coerce_arguments(edit_files, {"path": "a", "content": None, "edits": "[]"}) == {"path": "a", "edits": []}
