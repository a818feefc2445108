"""Files of one object a line: a torn end is cut, damage elsewhere costs its own line alone."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.jsonlines import iter_complete_lines, iter_objects, truncate_torn_line

OBJECTS = st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OBJECTS, st.data())
def test_what_a_crash_leaves_is_read_and_gone_on_with(
    tmp_path: Path, lines: list[dict[str, int]], data: st.DataObject
) -> None:
    file = tmp_path / "lines.jsonl"
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    cut = content[: data.draw(st.integers(0, len(content)))]
    file.write_bytes(cut)
    complete_lines = lines[: cut.count(b"\n")]
    assert list(iter_objects(file)) == complete_lines
    truncate_torn_line(file)
    assert file.read_bytes() == b"".join(iter_complete_lines(file))
    with file.open("ab") as stream:
        stream.write(b'{"next": 1}\n')
    assert list(iter_objects(file)) == [*complete_lines, {"next": 1}]


def test_a_damaged_line_costs_itself_alone(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b'{"a": 1}\n' + b"\xff\xfe\n" + b"[1]\n" + b"[" * 100_000 + b"\n" + b'{"b": 2}\n')
    assert list(iter_objects(file)) == [{"a": 1}, {"b": 2}]


def test_no_file_has_no_lines(tmp_path: Path) -> None:
    assert list(iter_objects(tmp_path / "lines.jsonl")) == []
