"""The local store of mirrored files: content by its SHA-256, and a read-only folder for each state of a remote folder.

    objects/ab/abcd...        content; the name is its SHA-256
    snapshots/ID/NAME/...     one state of a remote folder: hard links to objects
    snapshots/ID/files.jsonl  its files: key, local path, size, remote fingerprint, SHA-256
    snapshots/ID/origin.json  where it comes from
    partial/                  objects that are being fetched
    index.sqlite              which remote file with which fingerprint is which object

A snapshot never changes: if the remote folder does, the next mirror is another snapshot that shares the objects of all
files that stayed the same. So a run keeps its data, whatever other runs fetch.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from m3b.errors import UsageError
from m3b.isolation.untrusted.paths import hash_file, split_name
from m3b.locking import acquire_lock
from m3b.remote.origin import Origin
from m3b.writing import write_text_atomically

STORE_VARIABLE = "M3B_MIRROR"
OBJECT_TIME = 946_684_800
"""Modification time of all files of the store, in seconds since 1970. Another one shows that a file was changed."""
SNAPSHOTS_FOLDER, FILE_LIST, ORIGIN_FILE = "snapshots", "files.jsonl", "origin.json"
_NO_LINK_ERRORS = (errno.EMLINK, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV)
SNAPSHOT_DIGITS = 16
MAX_PART_AGE_S = 7 * 86_400


class MirroredFile(NamedTuple):
    """A file of a snapshot.

    Args:
        key: its name below the remote folder.
        path: its path below the local folder.
        fingerprint: what the server says of its state (ETag, else size and time).
    """

    key: str
    path: str
    size: int
    fingerprint: str
    sha256: str

    def to_line(self) -> str:
        return json.dumps(list(self), separators=(",", ":")) + "\n"


def choose_folder_name(name: str) -> str:
    """Return the name for the folder with the files of a snapshot; those of the files beside it are taken."""
    return f"{name}-files" if name.casefold() in (FILE_LIST, ORIGIN_FILE) else name


def default_store() -> Path:
    """Return the folder of the store: `$M3B_MIRROR`, else `m3b/mirror` in the user's cache."""
    if folder := os.environ.get(STORE_VARIABLE):
        return Path(folder).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "m3b" / "mirror"


class MirrorStore:
    """The store in a folder, which is created if it is missing and is private to the user.

    Raises:
        UsageError: the folder cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().absolute()
        self.snapshots, self.partial = self.folder / SNAPSHOTS_FOLDER, self.folder / "partial"
        self.index_file = self.folder / "index.sqlite"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for subfolder in (self.folder / "objects", self.snapshots, self.partial):
                subfolder.mkdir(mode=0o700, exist_ok=True)
            for path in (self.folder, self.folder / "objects", self.snapshots, self.partial):
                _require_own_folder(path)
            _create_private_file(self.index_file)
        except OSError as error:
            raise UsageError(
                f"The store of mirrored folders {self.folder} cannot be used: {error}. Name another folder with --mirror "
                f"or {STORE_VARIABLE}."
            ) from error

    @functools.cached_property
    def index(self) -> ObjectIndex:
        """The index, opened when it is first used; raises UsageError if it is damaged."""
        try:
            return ObjectIndex(self.index_file)
        except sqlite3.Error as error:
            raise explain_index_error(self.index_file, error) from error

    def close(self) -> None:
        """Close the index, if it was opened."""
        if "index" in vars(self):
            self.index.close()

    def get_object(self, sha256: str) -> Path:
        return self.folder / "objects" / sha256[:2] / sha256

    def has_object(self, sha256: str, size: int) -> bool:
        """Return whether the content is there and was not touched since it was fetched."""
        return is_untouched(self.get_object(sha256), size)

    def add_object(self, partial_file: Path, sha256: str) -> None:
        """Move a complete file into the store, read-only."""
        target = self.get_object(sha256)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        os.chmod(partial_file, 0o444)
        os.utime(partial_file, (OBJECT_TIME, OBJECT_TIME))
        partial_file.replace(target)

    def is_own_error(self, error: Exception) -> bool:
        """Return whether an error is about files of the store or a full disk, and not about the remote folder."""
        return isinstance(error, OSError) and (
            error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
            or (isinstance(error.filename, str | Path) and Path(error.filename).is_relative_to(self.folder))
        )

    def remove_old_parts(self) -> None:
        """Remove parts of files whose fetch was interrupted long ago, and the locks of processes that were killed then."""
        for file in self.partial.iterdir():
            if not file.is_file() or time.time() - file.stat().st_mtime <= MAX_PART_AGE_S:
                continue
            handle = acquire_lock(file) if file.suffix == ".lock" else None
            if file.suffix != ".lock" or handle is not None:
                file.unlink(missing_ok=True)
            if handle is not None:
                os.close(handle)

    def get_free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free

    def get_folder(self, snapshot: str, name: str) -> Path:
        return self.snapshots / snapshot / name

    def write_snapshot(self, url: str, name: str, files: Iterable[MirroredFile]) -> tuple[Path, Origin]:
        """Make the folder of a state of a remote folder, or repair the one that is there.

        Returns:
            the folder with the files, and its origin.

        Raises:
            UsageError: the snapshot exists and holds files that do not belong to it.
        """
        listed_files = sorted(files)
        digest = digest_file_list(url, listed_files)
        snapshot = digest[:SNAPSHOT_DIGITS]
        folder = self.get_folder(snapshot, name)
        origin = Origin(
            url, snapshot, len(listed_files), sum(file.size for file in listed_files), digest, round(time.time(), 3)
        )
        if folder.is_dir():
            self._repair(folder, listed_files)
            return folder, read_origin(folder)
        temporary = self.snapshots / f".{snapshot}.{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        root = temporary / name
        root.mkdir(parents=True, mode=0o700)
        made_folders = {root}
        for file in listed_files:
            target = root.joinpath(*split_name(file.path))
            if target.parent not in made_folders:
                target.parent.mkdir(parents=True, exist_ok=True)
                made_folders.add(target.parent)
            self._place(file, target)
        with (temporary / FILE_LIST).open("w", encoding="utf-8") as stream:
            stream.write(json.dumps({"url": url}) + "\n")
            stream.writelines(file.to_line() for file in listed_files)
        write_text_atomically(temporary / ORIGIN_FILE, json.dumps(origin.to_json(), indent=1) + "\n")
        os.sync()  # the content of all objects, before anything says that it is there
        try:
            temporary.rename(self.snapshots / snapshot)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            if not folder.is_dir():
                raise
        return folder, origin

    def _place(self, file: MirroredFile, target: Path) -> None:
        """Link an object to a path of a snapshot; copy it if the file system has no more links for it."""
        source = self.get_object(file.sha256)
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINK_ERRORS:
                raise
            shutil.copyfile(source, target)
            os.chmod(target, 0o444)
            os.utime(target, (OBJECT_TIME, OBJECT_TIME))

    def _repair(self, folder: Path, files: list[MirroredFile]) -> None:
        """Put files of a snapshot back that somebody changed or removed."""
        if added_paths := sorted(_list_paths(folder) - {file.path for file in files}):
            raise UsageError(
                f"{folder} is a mirror, and holds {len(added_paths)} files that m3b did not put there, such as "
                f"{added_paths[0]!r}. Move them away; a mirror holds what the remote folder holds."
            )
        for file in files:
            target = folder / file.path
            if not is_untouched(target, file.size):
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary = folder.parent / f".{file.sha256}.{os.getpid()}"
                self._place(file, temporary)
                temporary.replace(target)

    def remove_snapshot(self, snapshot: str) -> int:
        """Remove a snapshot and the objects that no other one uses; return the bytes that became free.

        Raises:
            UsageError: there is no such snapshot, or the index is damaged; then nothing is removed.
        """
        folder = self.snapshots / snapshot
        if not snapshot.isalnum() or not folder.is_dir():
            raise UsageError(f"{self.folder} holds no snapshot {snapshot!r}. `m3b data mirrors` lists them.")
        try:
            self.index.forget(snapshot)
        except sqlite3.Error as error:
            raise explain_index_error(self.index_file, error) from error
        shutil.rmtree(folder)
        free_bytes = 0
        for file in (self.folder / "objects").glob("*/*"):
            status = file.lstat()
            if status.st_nlink == 1:
                free_bytes += status.st_size
                file.unlink()
        return free_bytes

    def list_origins(self) -> tuple[list[tuple[Path, Origin]], list[UsageError]]:
        """Return folder and origin of all snapshots, the earliest first, and what is damaged: snapshots that are left out, the index.

        The index is read to its end.
        """
        origins: list[tuple[Path, Origin]] = []
        problems: list[UsageError] = []
        for snapshot_folder in sorted(path for path in self.snapshots.glob("[!.]*") if path.is_dir()):
            try:
                folder = next(
                    (path for path in snapshot_folder.iterdir() if path.is_dir()), snapshot_folder / "missing"
                )
                origins.append((folder, read_origin(folder)))
            except OSError as error:
                problems.append(UsageError(f"{snapshot_folder} cannot be read: {error.strerror}."))
            except UsageError as error:
                problems.append(error)
        try:
            self.index.check()
        except sqlite3.Error as error:
            problems.append(explain_index_error(self.index_file, error))
        except UsageError as error:
            problems.append(error)
        return sorted(origins, key=lambda item: (item[1].mirrored_at, item[1].snapshot)), problems


def explain_index_error(index_file: Path, error: sqlite3.Error) -> UsageError:
    """Return the error for the user: the index cannot be used, and what to do."""
    return UsageError(
        f"{index_file} cannot be used: {error}. Remove it, and run the same command again: mirrors stay, and what it says of files "
        "is asked again."
    )


def is_untouched(file: Path, size: int) -> bool:
    """Return whether a file of a store has its size and the modification time of all of them."""
    try:
        status = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size and status.st_mtime_ns == OBJECT_TIME * 10**9


def digest_file_list(url: str, files: Iterable[MirroredFile]) -> str:
    """Return the SHA-256 of `files.jsonl`."""
    digest = hashlib.sha256(json.dumps({"url": url}).encode() + b"\n")
    for file in files:
        digest.update(file.to_line().encode())
    return digest.hexdigest()


def read_origin(folder: Path) -> Origin:
    """Return where a folder of a store comes from.

    Raises:
        UsageError: its record is missing or damaged.
    """
    file = folder.parent / ORIGIN_FILE
    try:
        return Origin.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, UsageError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).removesuffix(".")
        raise UsageError(
            f"{file} cannot be read: {reason}. Remove the snapshot with `m3b data mirrors --remove "
            f"{folder.parent.name}`, and mirror again."
        ) from error


def read_file_list(folder: Path) -> Iterator[MirroredFile]:
    """Yield the files of a mirrored folder as they were fetched.

    Raises:
        OSError, ValueError: the list is missing or damaged.
    """
    with (folder.parent / FILE_LIST).open(encoding="utf-8") as stream:
        next(stream, "")
        for line in stream:
            key, path, size, fingerprint, sha256 = json.loads(line)
            yield MirroredFile(str(key), str(path), int(size), str(fingerprint), str(sha256))


def find_changes(folder: Path, origin: Origin, *, with_content: bool = True) -> list[str]:
    """Return how a mirrored folder differs from its origin: files that were changed, are missing or were added.

    Args:
        folder: the local folder, as the record of a run names it.
        with_content: compare SHA-256 of the content, which reads every file; otherwise sizes and times.
    """
    file_list = folder.parent / FILE_LIST
    try:
        with file_list.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != origin.digest:
            return [f"{FILE_LIST} was changed"]
        files = list(read_file_list(folder))
    except (OSError, ValueError) as error:
        return [f"{FILE_LIST} cannot be read: {error}"]
    problems = []
    for file in files:
        path = folder.joinpath(*split_name(file.path))
        if not path.is_file() or path.is_symlink():
            problems.append(f"{file.path} is missing")
        elif not is_untouched(path, file.size) or (with_content and hash_file(folder, file.path) != file.sha256):
            problems.append(f"{file.path} was changed")
    added_paths = sorted(_list_paths(folder) - {file.path for file in files})
    return problems + [f"{path} was added" for path in added_paths]


def _list_paths(folder: Path) -> set[str]:
    paths = set()
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        paths |= {os.path.relpath(os.path.join(parent, name), folder) for name in (*names, *links)}
    return paths


def _require_own_folder(folder: Path) -> None:
    """Raise PermissionError if others could have put files into a folder: what lies there would be taken for remote files."""
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} is a link, belongs to another user, or others may write to it")


def _create_private_file(file: Path) -> None:
    """Create a file that only the user can read, if it is missing; OSError if it is a link."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


class ObjectIndex:
    """Which remote file in which state is which object: a SQLite file that several processes may use.

    Raises:
        sqlite3.Error: the file cannot be opened.
    """

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, timeout=60, isolation_level=None)
        self._connection.executescript(
            "CREATE TABLE IF NOT EXISTS objects (address TEXT, fingerprint TEXT, sha256 TEXT, PRIMARY KEY (address, fingerprint))"
            " WITHOUT ROWID;"
            "CREATE TABLE IF NOT EXISTS mirrors (url TEXT PRIMARY KEY, snapshot TEXT, name TEXT, path TEXT, compared_at REAL);"
        )

    def find(self, address: str, fingerprint: str) -> str | None:
        """Return the SHA-256 of a remote file in a state, if it was fetched before."""
        row = self._connection.execute(
            "SELECT sha256 FROM objects WHERE address = ? AND fingerprint = ?",
            (_to_text(address), _to_text(fingerprint)),
        ).fetchone()
        return str(row[0]) if row else None

    def add(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Store address, fingerprint and SHA-256 of files that are in the store."""
        values = [(_to_text(address), _to_text(fingerprint), sha256) for address, fingerprint, sha256 in rows]
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", values)
        finally:
            self._connection.execute("COMMIT")

    def set_latest(self, url: str, snapshot: str, name: str, path: str) -> None:
        """Store which snapshot is the newest of a remote folder; `path` is that of a single file in it, else ''."""
        values = (_to_text(url), snapshot, name, json.dumps(path), time.time())
        self._connection.execute("INSERT OR REPLACE INTO mirrors VALUES (?, ?, ?, ?, ?)", values)

    def find_latest(self, url: str) -> tuple[str, str, str] | None:
        """Return the newest snapshot of a remote folder, the name of its folder, and the path of a single file."""
        row = self._connection.execute(
            "SELECT snapshot, name, path FROM mirrors WHERE url = ?", (_to_text(url),)
        ).fetchone()
        return (str(row[0]), str(row[1]), str(json.loads(row[2]))) if row else None

    def count(self) -> int:
        """Return the number of remote files, each in one state, that the store knows."""
        return int(self._connection.execute("SELECT count(*) FROM objects").fetchone()[0])

    def check(self) -> None:
        """Read all of the file; raise sqlite3.Error if it is damaged."""
        (answer,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise sqlite3.DatabaseError(str(answer).replace("\n", " "))

    def forget(self, snapshot: str) -> None:
        self._connection.execute("DELETE FROM mirrors WHERE snapshot = ?", (snapshot,))

    def close(self) -> None:
        self._connection.close()


def _to_text(address: str) -> str:
    """Return an address that SQLite can hold: without lone surrogates, which stand for bytes that are no UTF-8."""
    return json.dumps(address) if not address.isascii() else address
