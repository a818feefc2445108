"""KeptReaders of a run are kept from one job to the next, one for each set of folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from m3b.isolation.reader.self_test import TRIAL_JOB, EscapeTrial
from m3b.isolation.sandbox import choose_sandbox
from m3b.run.sandbox_executor import ReaderPool


def open_files(readers: ReaderPool, folder: Path, *files: Path) -> tuple[Path, ...]:
    return readers.get_reader([folder]).run_job(TRIAL_JOB, EscapeTrial(files=files)).readable_files


@pytest.mark.confined
def test_a_reader_is_kept_for_its_folders_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "other"
    for folder in (first, second):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
    readers = ReaderPool(choose_sandbox(), lambda: False)
    try:
        assert open_files(readers, first, first / "file", second / "file") == (first / "file",)
        (first / "later").mkdir()
        (first / "later/file").write_bytes(b"x")
        assert open_files(readers, first, first / "later/file") == (first / "later/file",), (
            "what is put there later is seen"
        )
        reader = readers.get_reader([first])
        assert reader.starts == 1
        assert readers.get_reader([first], [second]) is not reader, "who may write is another"
        assert open_files(readers, second, first / "file", second / "file") == (second / "file",)
    finally:
        readers.close()


def test_a_reader_that_crashed_is_another_process_for_the_next_job(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"x")
    (tmp_path / "bad").write_bytes(b"bad")
    readers = ReaderPool(choose_sandbox(), lambda: False)
    try:
        reader = readers.get_reader([tmp_path])
        result = reader.run_job(TRIAL_JOB, EscapeTrial("crash", (tmp_path / "bad", tmp_path / "good")))
        assert "bad" in result.refusals[0]
        assert reader.starts == 2
        assert open_files(readers, tmp_path, tmp_path / "good") == (tmp_path / "good",)
        assert readers.get_reader([tmp_path]) is reader
    finally:
        readers.close()
