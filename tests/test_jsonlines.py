"""Files of one object a line: a torn end is cut, damage elsewhere costs its own line alone."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.jsonlines import iter_complete_lines, iter_objects, truncate_torn_line
from m3b.writing import iterate_list, write_list_atomically

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


def test_lists_are_written_and_read_item_by_item(tmp_path: Path) -> None:
    """All measured cases were one text in memory."""
    file = tmp_path / "rows.json"
    items = [{"image": f"{n} \n]", "value": n / 3} for n in range(50)]
    for count in (0, 1, 50):
        write_list_atomically(file, iter(items[:count]))
        assert json.loads(file.read_text()) == items[:count]
        assert list(iterate_list(file)) == items[:count]
    reader = iterate_list(file)
    assert next(reader) == items[0]
    assert file.read_text().count("\n") == 52, "an item is a line"
    file.write_text(json.dumps(items, indent=1))  # as earlier versions wrote it
    assert list(iterate_list(file)) == items
    write_list_atomically(file, items)
    file.write_text(file.read_text()[:-2])
    with pytest.raises(ValueError, match=r"rows\.json ends"):
        list(iterate_list(file))


def test_reading_and_writing_a_list_needs_the_memory_of_an_item(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        write_list_atomically(tmp_path / "rows.json", ({"text": "x" * 10_000} for _ in range(count)))
        assert sum(1 for _ in iterate_list(tmp_path / "rows.json")) == count
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(2_000) < 1.5 * peak(20)
