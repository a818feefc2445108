from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.errors import ToolError
from m3b.tools.files import Edit, apply_edits

TEXT = st.text(alphabet="ab\n ", max_size=20)


@given(text=TEXT, old=TEXT, new=TEXT)
def test_replaces_exactly_when_unique(text: str, old: str, new: str) -> None:
    count = sum(text.startswith(old, at) for at in range(len(text))) if old else 0
    edits: list[Edit] = [{"old": old, "new": new}]
    if count == 1:
        assert apply_edits(text, edits, "f") == text.replace(old, new)
    else:
        with pytest.raises(ToolError, match="Nothing was changed"):
            apply_edits(text, edits, "f")


def test_nothing_changes_when_one_fails(desk) -> None:
    desk.use("write_files", files=[{"path": "a.py", "content": "x = 1\ny = 2\n"}])
    result = desk.use("edit_files", path="a.py", edits=[{"old": "x = 1", "new": "x = 3"}, {"old": "z", "new": "w"}])
    assert result.is_error
    assert "edit 2 of 2" in result.text
    assert (desk.work / "a.py").read_text() == "x = 1\ny = 2\n"


def test_says_what_is_nearest_and_where(desk) -> None:
    (desk.work / "a.py").write_text("import os\n    lr = 0.001\nx\nx\n")
    near = desk.use("edit_files", path="a.py", edits=[{"old": "lr = 0.0001", "new": ""}])
    assert "Line 2" in near.text
    assert "lr = 0.001" in near.text
    space = desk.use("edit_files", path="a.py", edits=[{"old": "  lr = 0.001\n  x", "new": ""}])
    assert "Line 2 differs in white space only" in space.text
    ambiguous = desk.use("edit_files", path="a.py", edits=[{"old": "x\n", "new": ""}])
    assert "2 times (lines 3, 4)" in ambiguous.text


def test_edits_and_content(desk) -> None:
    (desk.work / "a.py").write_text("one\ntwo\nthree\n")
    done = desk.use("edit_files", path="a.py", edits=[{"old": "two", "new": "2"}, {"old": "2\nthree", "new": "3"}])
    assert not done.is_error
    assert "line 2" in done.text
    assert (desk.work / "a.py").read_text() == "one\n3\n"
    desk.use("edit_files", path="a.py", content="new\n")
    assert (desk.work / "a.py").read_text() == "new\n"
    assert "nothing changed" in desk.use("edit_files", path="a.py", content="new\n").text
    assert desk.use("edit_files", path="a.py").is_error
    assert desk.use("edit_files", path="a.py", content="", edits=[{"old": "a", "new": "b"}]).is_error


def test_windows_line_ends_are_kept(desk) -> None:
    (desk.work / "a.txt").write_bytes(b"a\r\nb\r\nc\r\n")
    assert not desk.use("edit_files", path="a.txt", edits=[{"old": "a\nb", "new": "x\ny"}]).is_error
    assert (desk.work / "a.txt").read_bytes() == b"x\r\ny\r\nc\r\n"


def test_read_only_and_missing(desk) -> None:
    (desk.data / "a.txt").write_text("a")
    assert "read-only" in desk.use("edit_files", path="data/chest/a.txt", content="b").text
    (desk.work / "train.py").write_text("a")
    assert "Close: train.py" in desk.use("edit_files", path="trian.py", content="b").text
