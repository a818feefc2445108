"""Folders and files below a trusted root: made and written in one step, never through a link."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.untrusted.paths import FILE_FLAGS, FOLDER_FLAGS, open_step, split_name


def make_folder(root: Path, name: str | Path) -> int:
    """A descriptor of a folder below `root`, made with its parents where missing.

    Raises:
        Unsafe: a link on the way.
        OSError: as `os.mkdir`.
    """
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with undo_on_error(lambda: os.close(folder)):  # the one that is open by then
        for part in split_name(name):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            next_folder = open_step(part, FOLDER_FLAGS, folder, root / name)
            os.close(folder)
            folder = next_folder
    return folder


def write_atomic(root: Path, name: str | Path, content: bytes, *, executable: bool = False) -> None:
    """Put a file there in one step: readers see the old content or the new, never half of it.

    A file that is replaced keeps its permissions, of which those of the owner are given in any case.

    Raises:
        Unsafe: a link on the way; one in the place of the file itself is replaced.
        OSError: as `os.open` and `os.replace`.
    """
    *parents, file_name = split_name(name)
    folder = make_folder(root, "/".join(parents))
    temporary_name = f".{file_name[:100]}.{secrets.token_hex(6)}.tmp"
    try:
        with undo_on_error(_unlink_quietly, temporary_name, folder):
            mode = _file_mode(file_name, folder) | (0o111 if executable else 0)
            descriptor = os.open(
                temporary_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE_FLAGS, 0o600, dir_fd=folder
            )
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(content)
            os.replace(temporary_name, file_name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _unlink_quietly(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _file_mode(name: str, folder: int) -> int:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    return stat.S_IMODE(status.st_mode) & 0o777 | 0o600 if stat.S_ISREG(status.st_mode) else 0o644
