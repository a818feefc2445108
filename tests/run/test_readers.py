"""KeptReaders of a run are kept from one job to the next, one for each set of folders."""

from __future__ import annotations

from pathlib import Path

from m3b.reader.self_test import TRIAL_JOB, EscapeTrial
from m3b.run.sandbox_executor import ReaderPool
from m3b.sandbox import choose_sandbox


def opened(readers: ReaderPool, folder: Path, *files: Path) -> tuple[Path, ...]:
    return readers.get_reader([folder]).run_job(TRIAL_JOB, EscapeTrial(files=files)).readable_files


def test_a_reader_is_kept_for_its_folders_alone(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
    readers = ReaderPool(choose_sandbox(), lambda: False)
    try:
        assert opened(readers, one, one / "file", other / "file") == (one / "file",)
        (one / "later").mkdir()
        (one / "later/file").write_bytes(b"x")
        assert opened(readers, one, one / "later/file") == (one / "later/file",), "what is put there later is seen"
        kept = readers.get_reader([one])
        assert kept.starts == 1
        assert readers.get_reader([one], [other]) is not kept, "who may write is another"
        assert opened(readers, other, one / "file", other / "file") == (other / "file",)
    finally:
        readers.close()


def test_a_reader_that_crashed_is_another_process_for_the_next_job(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"x")
    (tmp_path / "bad").write_bytes(b"bad")
    readers = ReaderPool(choose_sandbox(), lambda: False)
    try:
        kept = readers.get_reader([tmp_path])
        found = kept.run_job(TRIAL_JOB, EscapeTrial("crash", (tmp_path / "bad", tmp_path / "good")))
        assert "bad" in found.refusals[0]
        assert kept.starts == 2
        assert opened(readers, tmp_path, tmp_path / "good") == (tmp_path / "good",)
        assert readers.get_reader([tmp_path]) is kept
    finally:
        readers.close()
