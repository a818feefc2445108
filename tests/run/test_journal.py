"""The journal: what is written is read back, torn ends are fixed, damage is named, older formats are read."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.events import (
    EVENT_CLASSES,
    ArtifactChecked,
    CandidateMeasured,
    CandidateStarted,
    Event,
    IndexAudited,
    MessageSent,
    ModelsCompared,
    NoteAdded,
    PromptSent,
    ReplyReceived,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
)
from m3b.journal import (
    JOURNAL_FORMAT,
    Journal,
    JournalError,
    JournalReader,
    find_tail_offset,
    read_journal,
    salvage_journal,
)
from m3b.messages import ToolCall, Usage
from m3b.run.state import RunState

JOURNALS = Path(__file__).parent / "journals"

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
AT = st.integers(0, 2**40).map(lambda n: n / 1000)
JSON = st.dictionaries(TEXT, VALUES, max_size=4)
st.register_type_strategy(Usage, st.builds(Usage, st.integers(0, 2**40), output_tokens=st.integers(0, 2**40)))
st.register_type_strategy(ToolCall, st.builds(ToolCall, TEXT, TEXT, JSON, TEXT))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
FIELD_STRATEGIES: dict[type[Event], dict[str, st.SearchStrategy[object]]] = {
    RunStarted: {"origins": st.dictionaries(TEXT, JSON, max_size=2)},
    RunEnded: {"result": JSON},
    ToolCalled: {"arguments": JSON},
    ToolReturned: {"facts": JSON},
    PromptSent: {"facts": st.lists(JSON, max_size=2)},
    MessageSent: {"facts": st.lists(JSON, max_size=2)},
    IndexAudited: {"facts": JSON},
    ModelsCompared: {"earlier": JSON, "new": JSON},
    CandidateStarted: {"settings": JSON},
    CandidateMeasured: {"value": st.none() | st.floats(allow_nan=False, allow_infinity=False)},
}


def events_of(event_type: type[Event]) -> st.SearchStrategy[Event]:
    types = typing.get_type_hints(event_type)
    fields = {
        name: st.from_type(types[name])
        for name in (f.name for f in dataclasses.fields(event_type))
        if name not in ("role", "at")
    }
    texts = {name: TEXT for name in fields if types[name] is str}
    loose = {"value": JSON, "findings": st.lists(VALUES, max_size=2), **FIELD_STRATEGIES.get(event_type, {})}
    strategies = {**fields, **texts, **{name: strategy for name, strategy in loose.items() if name in fields}}
    return st.builds(event_type, **strategies, role=TEXT, at=AT)


EVENTS = st.one_of([events_of(event_class) for event_class in EVENT_CLASSES if event_class.is_journaled])


def read_note_texts(file: Path) -> list[str]:
    return [event.text for event in read_journal(file) if isinstance(event, NoteAdded)]


def fill(file: Path, events: list[Event]) -> None:
    journal = Journal(file, fsync=False)
    for event in events:
        journal.write(event)
    journal.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


# --- the journal -------------------------------------------------------------------------------------------------


@QUICK
@given(st.lists(EVENTS, max_size=8))
def test_any_events_are_read_back(file: Path, events: list[Event]) -> None:
    file.unlink(missing_ok=True)
    fill(file, events)
    assert list(read_journal(file)) == events
    assert file.read_bytes().count(b"\n") == len(events), "one line an event, whatever is in it"


@QUICK
@given(st.lists(EVENTS, min_size=1, max_size=5), st.lists(EVENTS, max_size=3), st.data())
def test_a_torn_journal_goes_on_whole(file: Path, before: list[Event], after: list[Event], data: st.DataObject) -> None:
    """Cut anywhere, as a crash does: whole events stay, the torn one goes, and what follows is whole."""
    file.unlink(missing_ok=True)
    fill(file, before)
    content = file.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    file.write_bytes(content[:at])
    complete_lines = content[:at].count(b"\n")
    fill(file, after)
    assert list(read_journal(file)) == before[:complete_lines] + after
    for line in file.read_bytes().splitlines():
        json.loads(line)


def test_opening_again_appends(file: Path) -> None:
    fill(file, [NoteAdded("1")])
    fill(file, [NoteAdded("2")])
    assert read_note_texts(file) == ["1", "2"]


def test_a_torn_line_longer_than_a_block(file: Path) -> None:
    fill(file, [NoteAdded("1")])
    with file.open("ab") as stream:
        stream.write(b'{"kind": "' + b"x" * 200_000)
    fill(file, [NoteAdded("2")])
    assert read_note_texts(file) == ["1", "2"]


def test_a_file_that_is_one_torn_line(file: Path) -> None:
    file.write_bytes(b"x" * 100_000)
    fill(file, [NoteAdded("2")])
    assert read_note_texts(file) == ["2"]


@pytest.mark.parametrize("line", [b"null", b"[]", b"3", b'"text"', b"{}", b'{"kind": "note"}', b"\xff\xfe", b"{", b"",
                                  b'{"n": 2, "kind": "unheard", "role": "", "at": 1, "data": {}}',
                                  b'{"n": 2, "kind": "note", "role": "", "at": 1, "data": {"text": 3}}',
                                  b'{"n": 2, "kind": "note", "role": "", "at": 1, "data": {"text": "", "more": 3}}',
                                  b'{"n": 9, "kind": "note", "role": "", "at": 1, "data": {"text": ""}}'])  # fmt: skip
def test_a_damaged_line_is_named_with_what_to_do(file: Path, line: bytes) -> None:
    """It used to be left out in silence, and with it perhaps the acceptance of an index."""
    fill(file, [NoteAdded("1")])
    with file.open("ab") as stream:
        stream.write(line + b"\n")
    fill(file, [NoteAdded("2")])
    with pytest.raises(JournalError, match=rf"{file}, line 2, .*head -n 1\b"):
        list(read_journal(file))
    salvage = salvage_journal(file)
    assert [event.text for event in salvage.events if isinstance(event, NoteAdded)] == ["1", "2"], "for showing it"
    assert salvage.damaged_lines == (2,)
    assert salvage.warning == "Line 2 of journal.jsonl is damaged and left out here."
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:1]))
    fill(file, [NoteAdded("2")])
    assert read_note_texts(file) == ["1", "2"], "what the message said to do has helped"


def test_a_reader_goes_on_where_it_stopped_and_starts_at_any_line(file: Path) -> None:
    reader = JournalReader(file)
    assert list(reader.read_new()) == []
    journal = Journal(file, fsync=False)
    for number in range(50):
        journal.write(NoteAdded(f"note {number}"))
    offsets = [offset for offset, _ in reader.read_new()]
    assert len(offsets) == 50
    with file.open("ab") as stream:
        stream.write(b'{"n": 51')
    assert list(reader.read_new()) == [], "the line is incomplete"
    later = [event for _, event in JournalReader(file, offsets[9]).read_new()]
    assert [event.text for event in later if isinstance(event, NoteAdded)] == [f"note {n}" for n in range(10, 50)]


@pytest.mark.parametrize("max_bytes", [1, 100, 1000, 10**9])
def test_the_tail_of_a_journal_begins_with_a_whole_line(file: Path, max_bytes: int) -> None:
    journal = Journal(file, fsync=False)
    for number in range(50):
        journal.write(NoteAdded(f"note {number}"))
    offset = find_tail_offset(file, max_bytes)
    size = file.stat().st_size
    assert offset == 0 if size <= max_bytes else size - offset <= max_bytes
    assert offset in (0, size) or file.read_bytes()[offset - 1 : offset] == b"\n"
    assert len(list(JournalReader(file, offset).read_new())) == file.read_bytes()[offset:].count(b"\n")


def test_a_line_that_is_gone_is_noticed(file: Path) -> None:
    fill(file, [NoteAdded("1"), NoteAdded("2"), NoteAdded("3")])
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[2])
    with pytest.raises(JournalError, match=r"line 2, .* it was written as line 3"):
        list(read_journal(file))


def test_half_a_character_does_not_hurt(file: Path) -> None:
    """A lone surrogate, as a careless decoder leaves it."""
    fill(file, [NoteAdded("a\ud83db")])
    assert read_note_texts(file)[0].startswith("a")


def test_values_that_json_does_not_know(file: Path) -> None:
    fill(file, [ToolReturned("a", "look", "", facts={"path": Path("/x"), "set": {1}})])
    (event,) = read_journal(file)
    assert isinstance(event, ToolReturned)
    assert event.facts["path"] == "/x"


def test_no_journal_is_an_empty_one(file: Path) -> None:
    assert list(read_journal(file)) == []


def test_a_full_disk_keeps_the_journal_whole(file: Path) -> None:
    """In a process of its own, whose files may not grow beyond 1000 bytes."""
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom m3b.events import NoteAdded\nfrom m3b.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for n in range(100):\n"
        "    try:\n        journal.write(NoteAdded(f'{n:<110}'))\n"
        "    except OSError as error:\n        print(n, error.strerror)\n        break\n"
        "journal.write(NoteAdded('-1'))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    refused, error_text = ended.stdout.split(" ", 1)
    assert "too large" in error_text
    numbers = [int(text) for text in read_note_texts(file)]
    assert numbers == [*range(int(refused)), -1], "the one that did not fit is gone, a smaller one fits after it"
    assert file.read_bytes().endswith(b"\n")


def test_the_journal_is_the_owners_alone(file: Path) -> None:
    fill(file, [NoteAdded("")])
    assert file.stat().st_mode & 0o077 == 0


def test_events_are_on_disk_at_once(file: Path) -> None:
    journal = Journal(file)
    journal.write(NoteAdded("1"))
    assert read_note_texts(file) == ["1"]
    journal.close()
    journal.close()


# --- journals of earlier formats ---------------------------------------------------------------------------------


def old(name: str) -> list[Event]:
    return list(read_journal(JOURNALS / name / "journal.jsonl"))


def test_a_journal_of_format_1_is_read() -> None:
    assert JOURNAL_FORMAT == 2, "keep what this version writes beside those of format 1, and a reader for it"
    events = old("format-1-whole")
    assert isinstance(events[-1], RunEnded)
    history = RunState.from_events(events)
    assert list(history.artifacts) == ["selection", "index", "module", "model"]
    assert history.actions == events[-1].result["usage"]["actions"]
    assert history.usage.input_tokens == events[-1].result["usage"]["input_tokens"]


def test_what_format_1_did_not_say_follows_from_the_lines_around() -> None:
    events = old("format-1-stopped")
    assert [event.reason for event in events if isinstance(event, MessageSent)] == ["rejected"]
    checks = [event for event in events if isinstance(event, ArtifactChecked)]
    assert [check.accepted for check in checks] == [True, False]
    history = RunState.from_events(events)
    assert history.role_usage["data_engineer"].iterations == 2
    assert history.actions == 3


def test_a_run_of_format_1_goes_on_in_format_2(tmp_path: Path) -> None:
    """Its journal then holds both."""
    file = tmp_path / "journal.jsonl"
    file.write_bytes((JOURNALS / "format-1-stopped" / "journal.jsonl").read_bytes())
    before = len(old("format-1-stopped"))
    fill(file, [ReplyReceived("going on", usage=Usage(input_tokens=3))])
    *_, last = read_journal(file)
    assert last.data["text"] == "going on"
    assert json.loads(file.read_bytes().splitlines()[-1])["n"] == before + 1
