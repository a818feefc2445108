"""Paths as an agent writes them, and the folders they may lead to: the run's own folder and read-only material."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from m3b.data.links import WHAT_TO_DO, Inside
from m3b.errors import ToolError
from m3b.isolation import untrusted
from m3b.writing import from_one_line, to_one_line

_FILESYSTEM_ROOT = Path("/")


class Roots:
    """The folders that an agent may access, and their names for the agent.

    Args:
        work: the only writable folder; relative paths start here.
        read: read-only folders, keyed by the agent's name for them, such as `{"data/chest": Path("/mnt/chest")}`.

    Every path that `resolve` returns is a real path (without links) inside one of these folders.
    """

    def __init__(self, work: Path, read: Mapping[str, Path]) -> None:
        self.work = Path(os.path.realpath(work))
        self.read = {name.strip("/"): Path(os.path.realpath(path)) for name, path in read.items()}
        self._reserved_names = {name.split("/")[0] for name in self.read}

    def resolve(self, path: str, *, write: bool = False) -> Path:
        """Return the real path for a path written by the agent; it need not exist.

        Names with escape sequences, as `to_one_line` writes them, are decoded if such a file exists.

        Raises:
            ToolError: the path is empty, contains `..`, leads out of the roots (also by a link), or is read-only and
                `write` is set. The message names the allowed roots or another way.
        """
        if "\\" in path and not write and (decoded := from_one_line(path)) != path:
            real = self.resolve(decoded)
            if real.exists():
                return real
        parts = self._split_path(path)
        name = self._find_root(parts)
        if write and parts and parts[0] in self._reserved_names:
            raise ToolError(
                f"{path}: {parts[0]}/ is read-only. Copy what you need with copy_files and change the copy, "
                "or write somewhere else."
            )
        if name is None:
            base, remaining_parts = self.work, parts
        else:
            base, remaining_parts = self.read[name], parts[name.count("/") + 1 :]
        unresolved = base.joinpath(*remaining_parts)
        try:
            real = Path(os.path.realpath(unresolved))
        except (OSError, ValueError) as error:
            raise ToolError(f"{path!r}: not a usable path ({error}).") from None
        if write and real != unresolved:
            raise ToolError(f"{path}: the path contains a link, and links are not written through. Use a plain path.")
        if real.is_relative_to(base) or (not write and self._innermost_root(real) is not None):
            return real
        raw = name is not None and name.startswith("data/")
        advice = f" Scripts cannot open it either; only the user can help: {WHAT_TO_DO}" if raw else ""
        raise ToolError(
            f"{path}: a link in it leads outside of the allowed folders.{advice} {self._describe_allowed()}"
        )

    def readable_paths(self) -> Inside:
        """Return the set of paths below these folders, for tests with `in`."""
        return Inside((self.work, *self.read.values()))

    def display_path(self, path: Path) -> str:
        """Return a real path as the agent writes it, on one line; for a path outside all roots, its last name only."""
        best: tuple[int, str] | None = None
        for name, base in [("", self.work), *self.read.items()]:
            if path.is_relative_to(base):
                tail = path.relative_to(base).as_posix()
                text = (f"{name}/{tail}" if tail != "." else name) if name else tail
                if best is None or len(base.parts) > best[0]:
                    best = (len(base.parts), text)
        return to_one_line(best[1] if best else path.name)

    def is_writable(self, path: Path) -> bool:
        """Return whether a resolved path lies in the writable folder."""
        return self._innermost_root(path) == self.work

    def _split_path(self, path: str) -> list[str]:
        if not path.strip():
            raise ToolError(f"The path is empty. Use '.' for the working folder. {self._describe_allowed()}")
        if "\0" in path:
            raise ToolError("The path holds a NUL byte; remove it.")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise ToolError(f"{path!r}: characters that no file name can hold.") from None
        if path.startswith("/"):
            path = self._make_relative(path)
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ToolError(
                f"{path}: '..' is not allowed. Write the path from the working folder. {self._describe_allowed()}"
            )
        return parts

    def _make_relative(self, path: str) -> str:
        if ".." in path.split("/"):
            raise ToolError(
                f"{path}: '..' is not allowed. Write the path from the working folder. {self._describe_allowed()}"
            )
        normalised = Path(os.path.normpath(path))
        for candidate in (normalised, Path(os.path.realpath(normalised))):
            if self._innermost_root(candidate) is not None:
                return self.display_path(candidate)
        raise ToolError(f"{path}: outside of the allowed folders. {self._describe_allowed()}")

    def _find_root(self, parts: list[str]) -> str | None:
        for length in range(len(parts), 0, -1):
            name = "/".join(parts[:length])
            if name in self.read:
                return name
        return None

    def _innermost_root(self, real: Path) -> Path | None:
        """Return the innermost root that contains a path, or None."""
        bases = [base for base in (self.work, *self.read.values()) if real.is_relative_to(base)]
        return max(bases, key=lambda base: len(base.parts), default=None)

    def _describe_allowed(self) -> str:
        names = ", ".join(f"{name}/" for name in self.read)
        return "Allowed: paths relative to the working folder" + (f", and read-only {names}" if names else "") + "."


def open_without_links(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a real path without following any link, because a script may have put one there since `resolve`.

    Returns the file descriptor.

    Raises:
        OSError: as `os.open`; `UnsafePathError` for a link.
    """
    return untrusted.open_below(_FILESYSTEM_ROOT, path.relative_to(_FILESYSTEM_ROOT), flags, mode)


@contextmanager
def open_folder(folder: str) -> Iterator[int]:
    """Yield a descriptor of a real folder, to list and stat its contents. Raises OSError as `open_without_links`."""
    descriptor = open_without_links(Path(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def list_entries(path: Path) -> list[untrusted.TreeEntry]:
    """List the entries of a real folder, in no order. A link in the path is refused.

    Raises:
        OSError: as `open_without_links`.
    """
    return untrusted.list_entries(_FILESYSTEM_ROOT, path.relative_to(_FILESYSTEM_ROOT))


def walk(path: Path, *, skip: Collection[str] = ()) -> Iterator[untrusted.TreeEntry]:
    """Yield everything below a real folder; links are listed and not followed. Raises as `untrusted.walk`."""
    return untrusted.walk(_FILESYSTEM_ROOT, path.relative_to(_FILESYSTEM_ROOT), skip=skip)


def open_for_reading(path: Path, display_name: str) -> io.FileIO:
    """Open a regular file for reading, unbuffered.

    Raises:
        ToolError: the path is a folder, a pipe or a device (which could block for ever).
        DataError: this file has crashed a reader process before.
        OSError: as `open_without_links`.
    """
    untrusted.announce_opening(path)
    try:
        return untrusted.open_file(_FILESYSTEM_ROOT, path.relative_to(_FILESYSTEM_ROOT))
    except untrusted.UnsafePathError as error:
        raise ToolError(f"{display_name}: {error.strerror}.") from None


def copy_file(source: Path, root: Path, target: Path) -> int:
    """Copy one regular file to the real path `target` below `root`; return its size in bytes.

    Raises:
        OSError: as `untrusted.copy_file`.
    """
    return untrusted.copy_file(_FILESYSTEM_ROOT, source.relative_to(_FILESYSTEM_ROOT), root, target.relative_to(root))


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file in one step: readers see either the old content or the new content.

    Raises:
        OSError: as `untrusted.write_atomic`.
    """
    untrusted.write_atomic(_FILESYSTEM_ROOT, path.relative_to(_FILESYSTEM_ROOT), content)
