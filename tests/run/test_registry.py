"""The user's own list of runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m3b.run import registry
from m3b.run.folder import is_own_model
from m3b.run.registry import RegisteredRun, is_registered, parse, read_registry, register, state_file

TOKEN = "0123456789abcdef" * 2


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    return folder


def ids() -> list[str]:
    return [run.id for run in read_registry().existing()]


def test_where_the_list_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_file() == tmp_path / "state" / "m3b" / "runs.jsonl"
    for ignored in ("", "relative/folder"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert state_file() == tmp_path / "home" / ".local" / "state" / "m3b" / "runs.jsonl"
    monkeypatch.setenv("HOME", "relative")
    with pytest.raises(OSError, match="home"):
        state_file()


def test_a_run_is_added_once_and_found(tmp_path: Path) -> None:
    folder, data = make_run(tmp_path / "a" / "run"), tmp_path / "data"
    data.mkdir()
    assert not is_registered(folder)
    before = time.time()
    assert register(folder, "bubblewrap", [data]) == ""
    assert register(folder, "bubblewrap", [data]) == ""
    (run,) = read_registry().runs
    assert (run.folder, run.sandbox, run.data, run.id) == (folder, "bubblewrap", (data,), "run")
    assert before <= run.started <= time.time()
    assert is_registered(folder)
    assert state_file().stat().st_mode & 0o777 == 0o600
    assert state_file().parent.stat().st_mode & 0o777 == 0o700
    assert len(state_file().read_bytes().splitlines()) == 1


def test_what_changes_is_added_and_the_order_stays(tmp_path: Path) -> None:
    first, second = (make_run(tmp_path / name) for name in ("first", "second"))
    for folder in (first, second):
        register(folder, "bubblewrap", [tmp_path / "data"])
    register(first, "landlock", [tmp_path / "more"])
    entry = read_registry().at(first)
    assert entry is not None
    assert entry.sandbox == "landlock"
    assert entry.data == (tmp_path / "data", tmp_path / "more")
    assert ids() == ["first", "second"]


def test_a_folder_in_the_place_of_a_run_is_not_that_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    register(folder, "off")
    folder.rename(tmp_path / "kept")
    assert ids() == []
    make_run(folder)
    assert not is_registered(folder)
    (folder / registry.TOKEN_NAME).write_text("f" * 32)
    assert not is_registered(folder)
    assert read_registry().find_by_id("run") == []
    assert not is_registered(tmp_path / "kept"), "a moved or copied run is named by path"
    register(folder, "bubblewrap")
    entry = read_registry().at(folder)
    assert entry is not None
    assert (entry.sandbox, ids()) == ("bubblewrap", ["run"])


def test_a_run_is_found_by_another_spelling_of_its_path(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "disk" / "run")
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    register(tmp_path / "link" / "run", "bubblewrap")
    assert is_registered(folder)
    assert is_registered(tmp_path / "disk" / ".." / "link" / "run")
    assert ids() == ["run"]


def test_a_link_in_the_place_of_the_token_is_replaced(tmp_path: Path) -> None:
    folder, victim = make_run(tmp_path / "run"), tmp_path / "victim"
    victim.write_text("mine")
    (folder / registry.TOKEN_NAME).symlink_to(victim)
    assert register(folder, "bubblewrap") == ""
    assert victim.read_text() == "mine"
    assert is_registered(folder)
    assert (folder / registry.TOKEN_NAME).stat().st_mode & 0o777 == 0o600


def test_half_a_token_counts_as_none(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    register(folder, "off")
    os.truncate(folder / registry.TOKEN_NAME, 10)
    assert not is_registered(folder)
    register(folder, "bubblewrap")
    assert ids() == ["run"]


def test_names_that_are_no_utf_8_survive(tmp_path: Path) -> None:
    folder = make_run(Path(os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcller")))
    register(folder, "bubblewrap", [folder.parent / folder.name])
    assert is_registered(folder)


# --- a list that is not to be trusted ------------------------------------------------------------------------------


def test_a_link_in_the_place_of_the_list_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    register(folder, "bubblewrap")
    state_file().rename(tmp_path / "elsewhere.jsonl")
    state_file().symlink_to(tmp_path / "elsewhere.jsonl")
    content = (tmp_path / "elsewhere.jsonl").read_bytes()
    listing = read_registry()
    assert listing.runs == ()
    assert "link" in listing.warnings[0]
    assert "link" in register(make_run(tmp_path / "other"), "off")
    assert (tmp_path / "elsewhere.jsonl").read_bytes() == content, "nothing is written through it"


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    register(folder, "bubblewrap")
    place = state_file().parent
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert (read_registry().runs, len(read_registry().warnings)) == ((), 1)
    assert register(make_run(tmp_path / "other"), "off") != ""


@pytest.mark.parametrize("mode", [0o620, 0o606])
def test_a_list_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    register(make_run(tmp_path / "run"), "bubblewrap")
    state_file().chmod(mode)
    assert read_registry().runs == ()
    assert "chmod" in read_registry().warnings[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_list_of_another_user_is_refused(tmp_path: Path) -> None:
    register(make_run(tmp_path / "run"), "bubblewrap")
    os.chown(state_file(), 65534, 65534)
    assert read_registry().runs == ()
    assert "65534" in read_registry().warnings[0]


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    state_file().parent.mkdir(mode=0o700, parents=True)
    os.mkfifo(state_file(), 0o600)
    assert "not a regular file" in read_registry().warnings[0]


def test_a_list_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert str(tmp_path / "run") in register(make_run(tmp_path / "run"), "bubblewrap")
    assert read_registry().runs == ()
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "relative")
    assert "home" in register(tmp_path / "run", "bubblewrap")


# --- lines that are damaged ----------------------------------------------------------------------------------------


def line(**changes: object) -> bytes:
    entry = json.loads(RegisteredRun(Path("/runs/a"), TOKEN, 1e9, "bubblewrap", (Path("/data"),)).to_line())
    return json.dumps({**entry, **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    "damaged",
    [
        b"\n{\n", b"[]\n", b"3\n", b"\xff\xfe\n", b"[" * 50_000 + b"\n", b"1" * 5_000 + b"\n", line()[:-5] + b"\n",
        line(folder="relative"), line(folder="/a\0b"), line(folder="/\ud800"), line(folder=["/a"]), line(folder=None),
        line(token="short"), line(token=7), line(sandbox="paper"), line(sandbox=["off"]), line(started="soon"),
        line(started=float("nan")), line(started=float("inf")), line(started=True), line(started=-1), line(started=10**400),
        line(data="/data"), line(data=["data"]), line(data=[3]), line(format=99), line(format=None),
        line(extra="x" * registry.MAX_LINE_BYTES),
    ],
)  # fmt: skip
def test_damaged_lines_are_ignored_and_counted(damaged: bytes) -> None:
    listing = parse(line() + damaged + line(folder="/runs/b"))
    assert [run.id for run in listing.runs] == ["a", "b"]
    assert len(listing.warnings) == 1
    assert "1 lines" in listing.warnings[0]


def test_a_torn_last_line_is_ignored_and_the_next_one_is_whole(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "first"), make_run(tmp_path / "second")
    register(first, "bubblewrap")
    with state_file().open("ab") as stream:
        stream.write(line()[:40])
    assert ids() == ["first"]
    register(second, "bubblewrap")
    assert ids() == ["first", "second"]
    assert len(read_registry().warnings) == 1


def test_a_huge_list_is_read_from_its_end_and_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_BYTES", 20_000)
    old, new, newest = (make_run(tmp_path / name) for name in ("old", "new", "newest"))
    register(old, "bubblewrap")
    with state_file().open("ab") as stream:
        stream.write(line(folder="/gone") * 200)
    register(new, "bubblewrap")
    assert state_file().stat().st_size < 2_000, "runs that are gone are dropped"
    register(newest, "bubblewrap")
    assert ids() == ["new", "newest"]
    assert state_file().stat().st_mode & 0o777 == 0o600


def test_a_long_list_loses_the_runs_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_LINES", 20)
    existing_runs = [make_run(tmp_path / f"kept-{number}") for number in range(3)]
    for folder in existing_runs:
        register(folder, "landlock")
    with state_file().open("ab") as stream:
        stream.write(line(folder="/gone") * 30)
    register(make_run(tmp_path / "last"), "bubblewrap")
    assert ids() == ["kept-0", "kept-1", "kept-2", "last"]
    assert len(read_registry().runs) == 4


def test_sparse_gigabytes_cost_no_memory(tmp_path: Path) -> None:
    register(make_run(tmp_path / "run"), "bubblewrap")
    os.truncate(state_file(), 8 << 30)
    began = time.monotonic()
    assert read_registry().runs == ()
    assert time.monotonic() - began < 30, "bounded, however slow the machine is"


def test_many_processes_add_runs_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from m3b.run.registry import register\n"
        "for number in range(10):\n"
        "    place = Path(sys.argv[1]) / f'{sys.argv[2]}-{number}'; place.mkdir(parents=True)\n"
        "    assert register(place, 'bubblewrap') == ''\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(number)]) for number in range(4)]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    assert (len(read_registry().existing()), read_registry().warnings) == (40, ())


paths = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).map(lambda s: f"/{s}")
entries = st.builds(
    RegisteredRun, paths.map(Path), st.text("0123456789abcdef", min_size=32, max_size=32),
    st.floats(0, 1e10), st.sampled_from(["off", "landlock", "bubblewrap"]), st.lists(paths.map(Path), max_size=3).map(tuple),
)  # fmt: skip


@given(st.lists(st.one_of(entries, st.binary(max_size=200)), max_size=8), st.binary(max_size=50))
def test_whole_lines_survive_whatever_lies_between_them(parts: list[RegisteredRun | bytes], torn: bytes) -> None:
    valid_runs = [part for part in parts if isinstance(part, RegisteredRun)]
    content = b"".join(part.to_line() if isinstance(part, RegisteredRun) else part + b"\n" for part in parts)
    listing = parse(content + torn.replace(b"\n", b""))
    assert {(run.folder, run.token) for run in listing.runs} == {(run.folder, run.token) for run in valid_runs}
    for run in listing.runs:
        last = [part for part in valid_runs if (part.folder, part.token) == (run.folder, run.token)][-1]
        assert run.sandbox == last.sandbox


@given(st.binary(max_size=2000), st.booleans())
def test_any_bytes_are_read_without_an_error(content: bytes, is_tail: bool) -> None:
    assert parse(content, is_tail=is_tail).runs == ()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) |
       st.dictionaries(st.sampled_from(["format", "folder", "token", "started", "sandbox", "data"]), inner)))  # fmt: skip
def test_any_json_is_read_without_an_error(value: object) -> None:
    for run in parse(json.dumps(value).encode() + b"\n").runs:
        assert run.folder.is_absolute()


@settings(max_examples=25)
@given(st.binary(max_size=300))
def test_a_run_can_be_added_to_any_list(before: bytes) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", f"{place}/state")
        state_file().parent.mkdir(mode=0o700, parents=True)
        state_file().write_bytes(before)
        state_file().chmod(0o600)
        folder = make_run(Path(place) / "run")
        assert register(folder, "bubblewrap") == ""
        assert ids() == ["run"]


def test_only_models_of_registered_runs_are_own(tmp_path: Path) -> None:
    """A `run.json` beside a model says nothing: it may have come with the model."""
    run = make_run(tmp_path / "run")
    model = run / "model"
    model.mkdir()
    assert not is_own_model(model)
    register(run, "bubblewrap")
    assert is_own_model(model)
    copy = run / "copy"
    copy.mkdir()
    assert not is_own_model(copy)
