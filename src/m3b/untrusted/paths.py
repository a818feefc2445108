"""One file below a trusted root: opened and read up to a size; links, pipes and devices refused."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from m3b.cleanup import undo_on_error
from m3b.untrusted.json_text import parse_json


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


MAX_TEXT_BYTES = 64 * 2**20
"""Bytes of a JSON or text file that are read at most, unless the caller says otherwise."""

FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A folder on the way: it need not be readable, passing through is enough."""
FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class UnsafePathError(OSError):
    """What stands at a path may not be opened: a link, a pipe, a device, too large, too deep. `strerror` says which."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(errno.EPERM, reason, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def split_name(name: str | Path) -> list[str]:
    """The parts of a name below a root.

    Raises:
        Unsafe: an absolute name, `..` or a NUL byte.
    """
    text = str(name)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if text.startswith("/") or ".." in parts or "\0" in text:
        raise UnsafePathError(text, "not a plain path below its folder")
    return parts


def open_below(root: Path, name: str | Path, flags: int, mode: int = 0o644) -> int:
    """A descriptor of what `name` is below `root`, with no link on the way; the root's own path may hold links.

    Raises:
        Unsafe: a link or a file stands where a folder is needed, or the name leads out.
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
    try:
        return os.open(part, flags, mode, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(part, folder)):
            raise UnsafePathError(full_path, "a link lies on the way; links are not followed here") from None
        if error.errno == errno.ENXIO:
            raise UnsafePathError(full_path, "not a regular file") from None
        raise type(error)(error.errno, error.strerror, str(full_path)) from None


def _is_link(part: str, folder: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def open_file(root: Path, name: str | Path, *, max_bytes: int | None = None) -> io.FileIO:
    """A regular file, open for reading, unbuffered; opening never waits.

    Args:
        max_bytes: bytes that it may have.

    Raises:
        Unsafe: a link, folder, pipe, socket or device, or more bytes than `max_bytes`.
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
            raise UnsafePathError(root / name, f"{status.st_size:,} bytes, more than the {max_bytes:,} that are read")
        return io.FileIO(descriptor, "rb")


def read_bytes(root: Path, name: str | Path, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """The content of a regular file. Raises as `open_file`; a file that grows past `max_bytes` while it is read, too."""
    with open_file(root, name, max_bytes=max_bytes) as file:
        content = bytearray()
        while block := file.read(min(1 << 20, max_bytes + 1 - len(content))):
            content += block
            if len(content) > max_bytes:
                raise UnsafePathError(root / name, f"more than the {max_bytes:,} bytes that are read")
        return bytes(content)


def read_text(root: Path, name: str | Path, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The content as UTF-8, a byte order mark left out and bytes that are none replaced. Raises as `read_bytes`."""
    return read_bytes(root, name, max_bytes).decode("utf-8-sig", "replace")


def read_start(root: Path, name: str | Path, size: int) -> str:
    """Return the first `size` bytes of a file as UTF-8, however long the file is; other bytes are replaced.

    Raises as `open_file`.
    """
    with open_file(root, name) as file:
        content = file.read(size)
    return content.decode("utf-8-sig", "replace")


def read_json(root: Path, name: str | Path, max_bytes: int = MAX_TEXT_BYTES) -> Any:
    """The value that a JSON file holds.

    Raises:
        Unsafe, OSError: as `read_bytes`.
        ValueError: no JSON, not UTF-8, or nested too deeply.
    """
    return parse_json(read_bytes(root, name, max_bytes).decode("utf-8-sig"))


def is_file(root: Path, name: str | Path) -> bool:
    """Whether a regular file stands there that `open_file` would open."""
    try:
        open_file(root, name).close()
    except OSError:
        return False
    return True


def is_folder(root: Path, name: str | Path) -> bool:
    """Whether a folder stands there, and no link on the way."""
    try:
        os.close(open_below(root, name, os.O_RDONLY | os.O_DIRECTORY))
    except OSError:
        return False
    return True


def hash_file(root: Path, name: str | Path) -> str:
    """Hex digest of a regular file. Raises as `open_file`."""
    with open_file(root, name) as file:
        return hashlib.file_digest(io.BufferedReader(file, 1 << 20), "sha256").hexdigest()
