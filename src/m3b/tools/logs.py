"""Numbered texts of a run: what scripts printed, and results too long to show."""

from __future__ import annotations

import contextlib
from pathlib import Path

from m3b import untrusted
from m3b.tools.paths import Roots

JOB_LOGS, RESULT_LOGS = "jobs", "results"
_SUFFIX = {JOB_LOGS: ".log", RESULT_LOGS: ".txt"}
_MAX_LOG_NUMBER = 9999
"""Numbers that a file in `work` can claim; a script could name one in the millions."""


def _existing_numbers(root: Path, name: str, kind: str) -> list[int]:
    with contextlib.suppress(OSError):
        files = [Path(entry.name) for entry in untrusted.walk(root, name, max_depth=0)]
        return [int(file.stem) for file in files if file.suffix == _SUFFIX[kind] and file.stem.isdecimal()]
    return []


class LogStore:
    """m3b's own copy of each text, and one below `work/Logout` that agents and their scripts may read.

    m3b itself reads its own copy only: what lies in `work` may have been replaced by a link or a pipe.

    Args:
        roots: its `work` gets the copies.
        folder: where m3b's own copies lie, out of the scripts' reach; None makes a temporary one.
    """

    def __init__(self, roots: Roots, folder: Path | None) -> None:
        self._work = roots.work
        self._temporary = None
        if folder is None:
            self._temporary = untrusted.TemporaryFolder("logs")
            folder = self._temporary.path
        self.folder = folder

    def next_file(self, kind: str) -> tuple[int, Path]:
        """The next free number, and the path of m3b's own copy.

        Raises:
            OSError: the folder cannot be made.
        """
        kind_folder = self.folder / kind
        if kind_folder.is_dir():
            used_numbers = _existing_numbers(kind_folder, "", kind)
        else:  # a run of before m3b kept its own copies goes on with its numbers
            used_numbers = [
                number for number in _existing_numbers(self._work, f"Logout/{kind}", kind) if number <= _MAX_LOG_NUMBER
            ]
            kind_folder.mkdir(parents=True)
        number = max(used_numbers, default=0) + 1
        return number, kind_folder / f"{number:03d}{_SUFFIX[kind]}"

    def display_name(self, log_file: Path) -> str:
        """How agents spell the copy of a text."""
        return f"Logout/{log_file.parent.name}/{log_file.name}"

    def publish(self, log_file: Path, content: bytes) -> str:
        """Put the copy into `work`; returns why that cannot be done, empty where it is.

        A link or pipe in the place of the file is replaced; a link on the way to it is not written through.
        """
        try:
            untrusted.write_atomic(self._work, self.display_name(log_file), content)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def close(self) -> None:
        """Remove what is temporary."""
        if self._temporary is not None:
            self._temporary.close()
