"""The reader process: what it can reach, and what an accident inside it costs."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import threading
import time
from pathlib import Path

import pytest

from m3b.errors import DataError, RunCancelled
from m3b.isolation.reader import WorkerJob, client
from m3b.isolation.reader.remote_errors import ReaderError, error_from_json, error_to_json
from m3b.isolation.reader.self_test import TRIAL_JOB, EscapeTrial, TrialReport, probe_reader
from m3b.isolation.sandbox import choose_sandbox
from m3b.isolation.untrusted import UnsafePathError
from sandbox_kit import LANDLOCK, OFF

BACKENDS = ("bubblewrap", LANDLOCK, OFF)


def files(folder: Path, *contents: bytes) -> tuple[Path, ...]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.bin" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return tuple(paths)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_sees_data_alone(make_reader, tmp_path: Path, backend: str, monkeypatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    data, secret = files(tmp_path / "data", b"x"), files(tmp_path / "home", b"x")
    trial = EscapeTrial(files=(*data, *secret, Path("/proc/1/environ")), folders=(tmp_path / "data", tmp_path / "home"))
    result = make_reader(backend).run_job(TRIAL_JOB, trial)
    assert "SOME_API_KEY" not in result.environment
    if backend == "off":
        return  # a process of its own with a clean environment is all that it is
    assert result.readable_files == data or (
        backend == "bubblewrap" and set(result.readable_files) - set(data) == {Path("/proc/1/environ")}
    )
    assert result.writable_folders == ()
    assert not result.network


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("accident", "reason"),
    [
        ("crash", "a crash, signal 6"),
        ("fill", "memory"),
        ("hang", "no answer after 1 s"),
        ("stall", "no answer after 1 s"),
    ],
)
def test_an_accident_costs_one_file(make_reader, tmp_path: Path, backend: str, accident: str, reason: str) -> None:
    paths = files(tmp_path / "data", b"good", b"bad", b"good", b"bad")
    reader = make_reader(backend)
    trial = EscapeTrial(accident, paths)  # type: ignore[arg-type]
    result = reader.run_job(TRIAL_JOB, trial, stall_timeout_s=1.0 if accident in ("hang", "stall") else 60.0)
    assert result.readable_files == paths
    assert [str(path) in refusal for path, refusal in zip((paths[1], paths[3]), result.refusals, strict=True)] == [
        True,
        True,
    ]
    assert all("ended m3b's reader" in refusal and "Leave this file out" in refusal for refusal in result.refusals)
    assert all(reason in refusal or "MemoryError" in refusal for refusal in result.refusals), result.refusals
    assert reader.starts == 3
    assert reader.run_job(TRIAL_JOB, EscapeTrial()).refusals == ()


def test_what_a_taken_over_decoder_sends_is_refused(make_reader, tmp_path: Path) -> None:
    paths = files(tmp_path / "data", b"bad")
    with contextlib.ExitStack() as stack:  # the pipes of a process that holds many files have high numbers
        for _ in range(100):
            stack.enter_context(paths[0].open("rb"))
        result = make_reader().run_job(TRIAL_JOB, EscapeTrial("babble", paths))
    (refusal,) = result.refusals
    assert str(paths[0]) in refusal
    assert "it sent a message of 4,294,967,295 bytes" in refusal


def test_an_answer_of_endless_values_does_not_grow_in_this_process(make_reader, tmp_path: Path) -> None:
    paths = files(tmp_path / "data", b"bad")
    held_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (refusal,) = make_reader().run_job(TRIAL_JOB, EscapeTrial("bloat", paths)).refusals
    assert "it sent a message of" in refusal
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held_before < 300 * 1024


def test_a_job_that_only_talks_is_cancelled(make_reader, tmp_path: Path) -> None:
    paths = files(tmp_path / "data", b"bad")
    progress: list[tuple[int, int]] = []
    reader = make_reader(is_cancelled=lambda: len(progress) > 1000)
    with pytest.raises(RunCancelled):
        reader.run_job(TRIAL_JOB, EscapeTrial("stall", paths), on_progress=lambda *step: progress.append(step))


def test_a_file_has_ten_times_the_time_in_all(tmp_path: Path) -> None:
    (path,) = files(tmp_path / "data", b"x")
    clock = client._StallClock(0.05, (tmp_path / "data",))
    deadline = time.monotonic() + 5
    while clock.remaining_s and time.monotonic() < deadline:
        clock.note_opening(str(path))
        clock.note_progress(3, 10)
    assert 0.3 < time.monotonic() - deadline + 5 < 3
    (second_file,) = files(tmp_path / "data" / "more", b"x")
    clock.note_opening(str(second_file))
    assert clock.remaining_s
    clock = client._StallClock(0.05, (tmp_path / "data",))
    while clock.remaining_s:
        clock.note_opening(str(tmp_path / "elsewhere"))


def test_too_many_accidents_end_the_request(make_reader, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("m3b.isolation.reader.client.MAX_BROKEN_FILES", 2)
    paths = files(tmp_path / "data", *[b"bad"] * 4)
    with pytest.raises(ReaderError, match=r"2\.bin: reading it ended m3b's reader"):
        make_reader().run_job(TRIAL_JOB, EscapeTrial("crash", paths))


def test_it_is_started_once_and_again_when_it_was_killed(make_reader) -> None:
    reader = make_reader()
    for _ in range(3):
        assert reader.run_job(TRIAL_JOB, EscapeTrial()).environment
    assert reader.starts == 1
    reader.close()
    assert reader.run_job(TRIAL_JOB, EscapeTrial()).environment
    assert reader.starts == 2


def test_a_reader_that_was_killed_while_idle_is_replaced(make_reader) -> None:
    reader = make_reader()
    reader.run_job(TRIAL_JOB, EscapeTrial())
    reader._process._process.stop()
    assert reader.run_job(TRIAL_JOB, EscapeTrial()).environment
    assert reader.starts == 2


def test_waiting_ends_when_the_run_is_cancelled(make_reader, tmp_path: Path) -> None:
    stop = threading.Event()
    paths = files(tmp_path / "data", b"bad")
    reader = make_reader(is_cancelled=stop.is_set)
    with pytest.raises(RunCancelled):
        reader.run_job(TRIAL_JOB, EscapeTrial("hang", paths), on_open=lambda _: stop.set())
    stop.clear()
    assert reader.run_job(TRIAL_JOB, EscapeTrial()).environment


def test_an_answer_of_another_type_is_refused(make_reader) -> None:
    wrong = WorkerJob(TRIAL_JOB.function_path, EscapeTrial, int)
    with pytest.raises(ReaderError, match="sent an invalid answer"):
        make_reader().run_job(wrong, EscapeTrial())


@pytest.mark.parametrize(
    "name",
    ["os:system", "m3b.isolation.reader.self_test:nothing", "m3b.nowhere:x", "m3b.isolation.reader.self_test:Path"],
)
def test_only_functions_of_m3b_answer(make_reader, name: str) -> None:
    with pytest.raises(ReaderError, match="failed"):
        make_reader().run_job(WorkerJob(name, EscapeTrial, TrialReport), EscapeTrial())


def test_errors_cross_by_kind() -> None:
    for error in (
        DataError("no image"),
        FileNotFoundError(2, "No such file", "/x"),
        UnsafePathError("/x", "a link"),
        MemoryError(),
    ):
        back = error_from_json(error_to_json(error), "reading")
        assert type(back) is type(error)
        assert str(back) == str(error)
    assert isinstance(error_from_json(error_to_json(ZeroDivisionError("x")), "reading"), ReaderError)
    for content in (None, 3, {}, {"kind": "SystemExit", "text": "x"}, {"kind": "OSError", "text": "x", "parts": [[]]}):
        assert isinstance(error_from_json(content, "reading"), ReaderError | OSError)


def test_no_process_or_folder_stays(make_reader, tmp_path: Path) -> None:
    reader = make_reader()
    reader.start()
    process = reader._process
    assert process is not None
    scratch, pid = process._scratch.path, process._process.pid
    reader.close()
    assert not scratch.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_row_of_doctor(backend: str) -> None:
    row = probe_reader(backend)
    assert row.works, row
    assert row.detail.startswith("started in" if backend == "off" else f"opens data under {backend}, without network")


def test_a_reader_that_sees_too_much_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real `off` in the place of a sandbox that fails to confine."""
    open_to_all = choose_sandbox("off")
    open_to_all.name = "landlock"  # type: ignore[misc]
    monkeypatch.setattr("m3b.isolation.sandbox.choose_sandbox", lambda mode: open_to_all)
    row = probe_reader()
    assert not row.works
    assert all(words in row.detail for words in ("it reads", "it writes to"))


def test_no_reader_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    row = probe_reader()
    assert not row.works
    assert "Linux" in row.detail
