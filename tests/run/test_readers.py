"""KeptReaders of a run are kept from one job to the next, one for each set of folders."""

from __future__ import annotations

from pathlib import Path

from m3b.reader.trial import TRIAL, EscapeTrial
from m3b.run.readers import KeptReaders
from m3b.sandbox import choose


def opened(readers: KeptReaders, folder: Path, *files: Path) -> tuple[Path, ...]:
    return readers.of([folder]).ask(TRIAL, EscapeTrial(files=files)).opened


def test_a_reader_is_kept_for_its_folders_alone(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
    readers = KeptReaders(choose(), lambda: False)
    try:
        assert opened(readers, one, one / "file", other / "file") == (one / "file",)
        (one / "later").mkdir()
        (one / "later/file").write_bytes(b"x")
        assert opened(readers, one, one / "later/file") == (one / "later/file",), "what is put there later is seen"
        kept = readers.of([one])
        assert kept.starts == 1
        assert readers.of([one], [other]) is not kept, "who may write is another"
        assert opened(readers, other, one / "file", other / "file") == (other / "file",)
    finally:
        readers.close()


def test_a_reader_that_crashed_is_another_process_for_the_next_job(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"x")
    (tmp_path / "bad").write_bytes(b"bad")
    readers = KeptReaders(choose(), lambda: False)
    try:
        kept = readers.of([tmp_path])
        found = kept.ask(TRIAL, EscapeTrial("crash", (tmp_path / "bad", tmp_path / "good")))
        assert "bad" in found.refused[0]
        assert kept.starts == 2
        assert opened(readers, tmp_path, tmp_path / "good") == (tmp_path / "good",)
        assert readers.of([tmp_path]) is kept
    finally:
        readers.close()
