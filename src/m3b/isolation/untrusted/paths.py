"""Access to one file below a trusted root, up to a maximum size; links, pipes and devices are refused."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from m3b.cleanup import undo_on_error
from m3b.isolation.untrusted.json_text import parse_json


def make_folder(root: Path, name: str | Path) -> int:
    """Create a folder below `root` with its missing parents; return its descriptor.

    Raises:
        UnsafePathError: the path contains a link.
        OSError: as `os.mkdir`.
    """
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with undo_on_error(lambda: os.close(folder)):  # a lambda, because `folder` changes in the loop
        for part in split_name(name):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            next_folder = open_step(part, FOLDER_FLAGS, folder, root / name)
            os.close(folder)
            folder = next_folder
    return folder


def write_atomic(root: Path, name: str | Path, content: bytes, *, executable: bool = False) -> None:
    """Write a file in one step: readers see either the old content or the new content.

    A replaced file keeps its permissions; the owner can always read and write it.

    Raises:
        UnsafePathError: a folder of the path is a link. A link in place of the file itself is replaced.
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


MAX_TEXT_BYTES = 64 * 2**20
"""Default maximum size of a JSON or text file that is read."""
BLOCK_BYTES = 2**18
"""Most bytes of a file that are read at a time."""

FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a folder within a path: it need not be readable."""
FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class UnsafePathError(OSError):
    """A path may not be opened: a link, a pipe, a device, too large or too deep. `strerror` says which."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(errno.EPERM, reason, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def split_name(name: str | Path) -> list[str]:
    """Return the parts of a name below a root.

    Raises:
        UnsafePathError: the name is absolute or contains `..` or a NUL byte.
    """
    text = str(name)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if text.startswith("/") or ".." in parts or "\0" in text:
        raise UnsafePathError(text, "not a plain path below its folder")
    return parts


def open_below(root: Path, name: str | Path, flags: int, mode: int = 0o644) -> int:
    """Open `name` below `root` without following links; return the descriptor. The path of the root may contain links.

    Raises:
        UnsafePathError: there is a link or a file where a folder is needed, or the name leads out of the root.
        OSError: as `os.open`.
    """
    parts, full_path = split_name(name), root / name
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            next_folder = open_step(part, FOLDER_FLAGS, folder, full_path)
            os.close(folder)
            folder = next_folder
        return open_step(parts[-1] if parts else ".", flags | FILE_FLAGS, folder, full_path, mode)
    finally:
        os.close(folder)


def open_step(part: str, flags: int, folder: int, full_path: Path, mode: int = 0) -> int:
    """Open one part of a path in the descriptor `folder`. `full_path` is for messages. Raises as `open_below`."""
    try:
        return os.open(part, flags, mode, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(part, folder)):
            raise UnsafePathError(full_path, "the path contains a link; links are not followed here") from None
        if error.errno == errno.ENXIO:
            raise UnsafePathError(full_path, "not a regular file") from None
        raise type(error)(error.errno, error.strerror, str(full_path)) from None


def _is_link(part: str, folder: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def open_file(root: Path, name: str | Path, *, max_bytes: int | None = None) -> io.FileIO:
    """Open a regular file for reading, unbuffered. Opening never blocks.

    Args:
        max_bytes: maximum size of the file.

    Raises:
        UnsafePathError: a link, folder, pipe, socket or device, or a file of more than `max_bytes` bytes.
        OSError: as `os.open`.
    """
    descriptor = open_below(root, name, os.O_RDONLY)
    with undo_on_error(os.close, descriptor):
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UnsafePathError(root / name, "a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise UnsafePathError(root / name, "not a regular file")
        if max_bytes is not None and status.st_size > max_bytes:
            raise UnsafePathError(root / name, f"{status.st_size:,} bytes, more than the maximum of {max_bytes:,}")
        return io.FileIO(descriptor, "rb")


def read_bytes(root: Path, name: str | Path, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the content of a regular file. Raises as `open_file`, also if the file grows beyond `max_bytes`."""
    return b"".join(read_blocks(root, name, max_bytes))


def read_blocks(root: Path, name: str | Path, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of a regular file in blocks. Raises as `read_bytes`."""
    with open_file(root, name, max_bytes=max_bytes) as file:
        remaining = max_bytes + 1
        while block := file.read(min(BLOCK_BYTES, remaining)):
            remaining -= len(block)
            if not remaining:
                raise UnsafePathError(root / name, f"more than the maximum of {max_bytes:,} bytes")
            yield block


def read_text(root: Path, name: str | Path, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the content as UTF-8 text without byte order mark, invalid bytes replaced. Raises as `read_bytes`."""
    return read_bytes(root, name, max_bytes).decode("utf-8-sig", "replace")


def read_start(root: Path, name: str | Path, size: int) -> str:
    """Return the first `size` bytes of a file of any length as UTF-8 text, with invalid bytes replaced.

    Raises as `open_file`.
    """
    with open_file(root, name) as file:
        content = file.read(size)
    return content.decode("utf-8-sig", "replace")


def read_json(root: Path, name: str | Path, max_bytes: int = MAX_TEXT_BYTES) -> Any:
    """Return the value of a JSON file.

    Raises:
        UnsafePathError, OSError: as `read_bytes`.
        ValueError: the content is not JSON, not UTF-8, or nested too deeply.
    """
    return parse_json(read_bytes(root, name, max_bytes).decode("utf-8-sig"))


def is_file(root: Path, name: str | Path) -> bool:
    """Return whether there is a regular file that `open_file` can open."""
    try:
        open_file(root, name).close()
    except OSError:
        return False
    return True


def is_folder(root: Path, name: str | Path) -> bool:
    """Return whether there is a folder, and no link in its path."""
    try:
        os.close(open_below(root, name, os.O_RDONLY | os.O_DIRECTORY))
    except OSError:
        return False
    return True


def hash_file(root: Path, name: str | Path) -> str:
    """Return the SHA-256 of a regular file as hex digest. Raises as `open_file`."""
    with open_file(root, name) as file:
        return hashlib.file_digest(io.BufferedReader(file, 1 << 20), "sha256").hexdigest()
