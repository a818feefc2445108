"""Mirroring of a remote folder: list it, fetch what the store lacks, and return a local folder.

This runs in m3b's own process, before anything of the data is opened: readers, agents and scripts have neither network
nor credentials, and see an ordinary local folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import AnswerError, UsageError
from m3b.isolation.untrusted.paths import UnsafePathError, open_file
from m3b.locking import acquire_lock
from m3b.remote.addresses import (
    RemoteAddress,
    explain_client_error,
    identify_endpoint,
    list_client_errors,
    open_filesystem,
    parse_address,
)
from m3b.remote.key_paths import assign_paths, tells_case
from m3b.remote.listing import Listing, RemoteFile, describe_largest_folders, list_files
from m3b.remote.origin import MirroredFolder, Origin, format_bytes
from m3b.remote.store import (
    ORIGIN_FILE,
    SNAPSHOTS_FOLDER,
    MirroredFile,
    MirrorStore,
    choose_folder_name,
    default_store,
    explain_index_error,
    read_origin,
)

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

OnProgress = Callable[[str, int, int | None], None]
"""Called with what is done, bytes so far and bytes in total."""

MAX_DOWNLOAD_VARIABLE = "M3B_MAX_DOWNLOAD_GIB"
DEFAULT_MAX_DOWNLOAD_GIB = 50.0
RESERVED_BYTES = 2**30
"""Bytes of the disk that stay free."""
N_THREADS = 16
SMALL_FILE_BYTES = 8 * 2**20
"""Files up to this size are fetched at once; larger ones in parts of this size, which an interruption does not lose."""
COMMIT_SECONDS = 0.5
MAX_ATTEMPTS = 4
MAX_LISTINGS = 3
LOCK_POLL_SECONDS = 0.2
GIB = 2**30
CLIENT_LOGGERS = ("aiobotocore", "asyncssh", "botocore", "fsspec", "gcsfs", "s3fs")


def mirror(
    url: str,
    *,
    store: str | Path | None = None,
    max_download_gib: float | None = None,
    offline: bool = False,
    on_progress: OnProgress | None = None,
) -> MirroredFolder:
    """Return a local folder with the files of a remote one; only what changed since the last time is fetched.

    After an interruption, the same call goes on. Files are compared by what the server says of them (ETag, else size and
    time). The folder is read-only and never changes: another state of the remote folder gets another one.

    Args:
        url: `s3://`, `gs://`, `ssh://`, `file://` or `memory://`, without credentials.
        store: folder of the store; None takes `M3B_MIRROR`, else `~/.cache/m3b/mirror`.
        max_download_gib: GiB that may be fetched; None takes `M3B_MAX_DOWNLOAD_GIB`, else 50.
        offline: ask no server, and return the state of the last time.
        on_progress: called with what is done, bytes so far and bytes in total.

    Raises:
        UsageError: the address cannot be used or read, more than the limit would be fetched, the disk has too little
            room, or nothing was mirrored yet and `offline` is set.
    """
    address = parse_address(url)
    mirror_store = MirrorStore(Path(store) if store is not None else default_store())
    try:
        if offline:
            return _find_latest(mirror_store, address)
        limit_gib = max_download_gib if max_download_gib is not None else read_max_download_gib()
        if not limit_gib > 0:
            raise UsageError(f"--max-download-gib (max_download_gib) is {limit_gib:g}; give a number of GiB above 0.")
        with _lock(mirror_store, address, on_progress or _ignore_progress):
            return _Mirroring(mirror_store, address, limit_gib, on_progress or _ignore_progress).run()
    except sqlite3.Error as error:
        raise explain_index_error(mirror_store.index_file, error) from error
    finally:
        mirror_store.close()


def restore_mirror(origin: Origin, folder: Path, *, offline: bool = False) -> None:
    """Fetch a mirrored folder again that was removed from its store; nothing is done if it is there.

    Args:
        folder: where it was.
        offline: ask no server.

    Raises:
        UsageError: it cannot be fetched, the remote folder has changed since, or the folder is in no store.
    """
    if folder.is_dir() and (folder.parent / ORIGIN_FILE).is_file():
        return
    if folder.parent.parent.name != SNAPSHOTS_FOLDER:
        raise UsageError(f"The run's record is damaged: {folder} was no mirror of {origin.url}. Start a new run.")
    restored = mirror(origin.url, store=folder.parents[2], offline=offline)
    if restored.path != folder:
        raise UsageError(
            f"{folder} was removed, and {origin.url} has changed since it was mirrored (snapshot {origin.snapshot}, now "
            f"{restored.origin.snapshot}). Put the folder back, or start a new run."
        )


def read_max_download_gib() -> float:
    """Return the limit of `M3B_MAX_DOWNLOAD_GIB`, else the default.

    Raises:
        UsageError: it is no positive number.
    """
    text = os.environ.get(MAX_DOWNLOAD_VARIABLE, "").strip()
    if not text:
        return DEFAULT_MAX_DOWNLOAD_GIB
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise UsageError(f"{MAX_DOWNLOAD_VARIABLE} is {text[:40]!r}; give a number of GiB above 0.")
    return value


def _ignore_progress(name: str, n_bytes: int, n_total: int | None) -> None:
    pass


def _find_latest(store: MirrorStore, address: RemoteAddress) -> MirroredFolder:
    latest = store.index.find_latest(str(address))
    if latest is None or not store.get_folder(*latest[:2]).is_dir():
        raise UsageError(
            f"{address} was not mirrored yet, and m3b is offline. Run `m3b data mirror {address}` with the network first."
        )
    snapshot, name, path = latest
    folder = store.get_folder(snapshot, name)
    return MirroredFolder(folder / path, read_origin(folder), ("Offline: the state of the last mirror is used.",))


@contextlib.contextmanager
def _lock(store: MirrorStore, address: RemoteAddress, on_progress: OnProgress) -> Iterator[None]:
    """Hold the lock of an address; wait while another process mirrors it."""
    lock_file = store.partial / f"{_digest(str(address))}.lock"
    while (handle := acquire_lock(lock_file)) is None or not _is_file_of(handle, lock_file):
        if handle is not None:  # the process that held it has removed its file in between
            os.close(handle)
            continue
        on_progress("waiting for another process that mirrors it", 0, None)
        time.sleep(LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        lock_file.unlink(missing_ok=True)
        os.close(handle)


def _is_file_of(handle: int, file: Path) -> bool:
    """Return whether a handle is that of the file that has a path now."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class _Mirroring:
    """One mirroring of one address."""

    def __init__(self, store: MirrorStore, address: RemoteAddress, limit_gib: float, on_progress: OnProgress) -> None:
        self.store, self.address, self.limit_gib, self.on_progress = store, address, limit_gib, on_progress
        self.n_fetched = 0

    def run(self) -> MirroredFolder:
        """List, fetch and list again until nothing changes in between; then make the snapshot."""
        filesystem = open_filesystem_or_explain(self.address)
        client_errors = list_client_errors(self.address.scheme)
        try:
            listing = self._list(filesystem)
            endpoint = identify_endpoint(filesystem, self.address)
            hashes: dict[RemoteFile, str] = {}
            for _ in range(MAX_LISTINGS):
                hashes, missing_files = self._look_up(listing, endpoint, hashes)
                if not missing_files:
                    break
                self._check_limits(listing, missing_files)
                fetcher = _Fetcher(filesystem, self.store, self.address, endpoint, client_errors, self.on_progress)
                hashes.update(fetcher.fetch(missing_files))
                self.n_fetched += len(missing_files)
                listing = self._list(filesystem)
            hashes, missing_files = self._look_up(listing, endpoint, hashes)
        except client_errors as error:
            if self.store.is_own_error(error):
                raise UsageError(
                    f"The store {self.store.folder} cannot be written: {error}. What was fetched is kept; make room or fix it, "
                    "then run the same command again."
                ) from error
            raise explain_client_error(self.address, error) from None
        if missing_files:
            raise UsageError(
                f"{self.address} changes while it is mirrored, or its server sends files of another size than it lists: "
                f"{len(missing_files)} files, such as {missing_files[0].key!r} of {missing_files[0].size:,} bytes. Wait until it is "
                "complete, then run the same command again."
            )
        return self._finish(listing, hashes)

    def _list(self, filesystem: AbstractFileSystem) -> Listing:
        self.on_progress(f"listing {self.address}", 0, None)
        try:
            listing = list_files(filesystem, self.address)
        except FileNotFoundError:
            if self.address.scheme in ("s3", "gs"):
                raise  # the bucket is missing, which its server says
            listing = Listing()
        if not listing.files:
            raise UsageError(_describe_empty_listing(filesystem, self.address, listing))
        return listing

    def _look_up(
        self, listing: Listing, endpoint: str, known_hashes: dict[RemoteFile, str]
    ) -> tuple[dict[RemoteFile, str], list[RemoteFile]]:
        """Return the SHA-256 of the files that the store holds, and the files that it lacks."""
        hashes, missing_files = dict[RemoteFile, str](), list[RemoteFile]()
        for file in listing.files.values():
            sha256 = known_hashes.get(file)
            if sha256 is None and file.fingerprint:
                sha256 = self.store.index.find(f"{endpoint} {file.remote_path}", file.fingerprint)
            if sha256 is not None and self.store.has_object(sha256, file.size):
                hashes[file] = sha256
            else:
                missing_files.append(file)
        return hashes, missing_files

    def _check_limits(self, listing: Listing, missing_files: Sequence[RemoteFile]) -> None:
        missing_bytes = sum(file.size for file in missing_files)
        total_bytes = sum(file.size for file in listing.files.values())
        subject = (
            f"{self.address} holds {len(listing.files):,} files of {format_bytes(total_bytes)}, of which "
            f"{format_bytes(missing_bytes)} are to be fetched"
        )
        if missing_bytes > self.limit_gib * GIB:
            needed_gib = missing_bytes // GIB + 1
            raise UsageError(
                f"{subject}; the limit is {self.limit_gib:g} GiB. Allow it with --max-download-gib {needed_gib} (in Python "
                f"max_download_gib={needed_gib}, for all commands {MAX_DOWNLOAD_VARIABLE}={needed_gib}), or mirror a part of it. "
                f"{describe_largest_folders(listing, self.address)}"
            )
        free_bytes = self.store.get_free_bytes()
        if missing_bytes + RESERVED_BYTES > free_bytes:
            raise UsageError(
                f"{subject}; {self.store.folder} has {format_bytes(free_bytes)} free, of which 1 GiB stays free. Make room, or "
                "name a folder on another disk with --mirror."
            )

    def _finish(self, listing: Listing, hashes: dict[RemoteFile, str]) -> MirroredFolder:
        paths = assign_paths(listing.files, is_case_sensitive=tells_case(self.store.partial))
        files = [
            MirroredFile(key, paths[key], file.size, file.fingerprint, hashes[file])
            for key, file in listing.files.items()
        ]
        url, name = str(self.address), choose_folder_name(self.address.name)
        folder, origin = self.store.write_snapshot(url, name, files)
        self.store.remove_old_parts()
        single_path = next(iter(paths.values())) if listing.is_file else ""
        self.store.index.set_latest(url, origin.snapshot, name, single_path)
        notes = tuple(_describe_peculiarities(listing, paths))
        return MirroredFolder(folder / single_path, origin, notes, self.n_fetched)


def open_filesystem_or_explain(address: RemoteAddress) -> AbstractFileSystem:
    """Return the file system of an address.

    Raises:
        UsageError: its extra is missing, or its server refuses or cannot be reached.
    """
    filesystem_errors: tuple[type[Exception], ...] = (OSError,)
    for logger_name in CLIENT_LOGGERS:  # what they report is raised too, and may hold more than a terminal should show
        logging.getLogger(logger_name).addHandler(logging.NullHandler())
    try:
        with contextlib.suppress(ImportError):
            filesystem_errors = list_client_errors(address.scheme)
        return open_filesystem(address)
    except filesystem_errors as error:
        raise explain_client_error(address, error) from None


def _describe_peculiarities(listing: Listing, paths: dict[str, str]) -> Iterator[str]:
    changed_keys = sorted(key for key, path in paths.items() if key != path)
    if changed_keys:
        key = changed_keys[0]
        yield f"{len(changed_keys)} names cannot be those of local files and were changed, such as {key!r} to {paths[key]!r}."
    if listing.n_links:
        yield f"{listing.n_links} links and special files of the remote folder were left out."
    if listing.n_unreadable:
        yield f"{listing.n_unreadable} folders of the remote folder may not be read, and were left out with all that is in them."
    if listing.n_unnamed:
        yield f"{listing.n_unnamed} remote files whose names end with a slash were left out."


def _describe_empty_listing(filesystem: AbstractFileSystem, address: RemoteAddress, listing: Listing) -> str:
    """Return why a listing has no files: nothing is there, the folder is empty, or it holds only what is left out."""
    omitted = {
        "links and special files": listing.n_links,
        "names that end with a slash": listing.n_unnamed,
        "folders that you may not read": listing.n_unreadable,
    }
    if any(omitted.values()):
        text = ", ".join(f"{kind} ({count:,})" for kind, count in omitted.items() if count)
        return f"{address} holds only what is left out: {text}. Give the folder with the files themselves."
    if filesystem.exists(address.store_path):
        return f"{address} is there and holds no files. Give the folder that holds them."
    return f"There is nothing at {address}: no file is in a folder of this name. Check it; upper and lower case count."


class _Fetcher:
    """Fetches files in threads, and stores each when it is complete."""

    def __init__(
        self,
        filesystem: AbstractFileSystem,
        store: MirrorStore,
        address: RemoteAddress,
        endpoint: str,
        client_errors: tuple[type[Exception], ...],
        on_progress: OnProgress,
    ) -> None:
        self.filesystem, self.store, self.address, self.endpoint = filesystem, store, address, endpoint
        self.client_errors, self.on_progress = client_errors, on_progress
        self.open_options = {} if address.scheme == "ssh" else {"block_size": SMALL_FILE_BYTES}

    def fetch(self, files: Sequence[RemoteFile]) -> dict[RemoteFile, str]:
        """Return the SHA-256 of files that were fetched; those that vanished are left out.

        Raises:
            Exception: of `list_client_errors`, for the first file that cannot be fetched.
        """
        total_bytes = sum(file.size for file in files)
        done_bytes, hashes = 0, dict[RemoteFile, str]()
        batch: list[tuple[str, str, str]] = []
        last_commit = time.monotonic()
        executor = ThreadPoolExecutor(N_THREADS, thread_name_prefix="m3b-mirror")
        pending: dict[Future[str | None], RemoteFile] = {}
        remaining = iter(files)
        try:
            while True:
                for file in remaining:
                    pending[executor.submit(self._fetch_file, file)] = file
                    if len(pending) >= 4 * N_THREADS:
                        break
                if not pending:
                    break
                for future in wait(pending, COMMIT_SECONDS, FIRST_COMPLETED).done:
                    file, sha256 = pending.pop(future), future.result()
                    done_bytes += file.size
                    if sha256 is not None:
                        hashes[file] = sha256
                        batch.append((f"{self.endpoint} {file.remote_path}", file.fingerprint, sha256))
                if time.monotonic() - last_commit > COMMIT_SECONDS:
                    self.store.index.add(row for row in batch if row[1])
                    batch, last_commit = [], time.monotonic()
                self.on_progress(f"mirroring {self.address}", done_bytes, total_bytes)
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            self.store.index.add(row for row in batch if row[1])
        return hashes

    def _fetch_file(self, file: RemoteFile) -> str | None:
        """Return the SHA-256 of a file that is in the store afterwards; None if the remote file is not there any more."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return self._fetch_once(file)
            except UnsafePathError:  # a link or a pipe took the place of the file
                return None
            except self.client_errors as error:
                is_final = isinstance(error, PermissionError | AnswerError) or self.store.is_own_error(error)
                if is_final or attempt == MAX_ATTEMPTS:
                    raise
                if isinstance(error, FileNotFoundError):
                    return None
                time.sleep(0.2 * 2**attempt)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise AnswerError(f"the server's answer on {file.key!r} is not valid ({reason})") from error
        return None

    def find_partial_file(self, file: RemoteFile) -> Path:
        """Return where a file lies while it is fetched.

        It is of this address alone, whose lock is held: another process may fetch the same file as a part of another address.
        """
        return self.store.partial / _digest(f"{self.address} {self.endpoint} {file.remote_path} {file.fingerprint}")

    def _fetch_once(self, file: RemoteFile) -> str | None:
        partial_file = self.find_partial_file(file)
        if file.size <= SMALL_FILE_BYTES:
            content = self._read_small(file)
            if len(content) != file.size:
                return None
            partial_file.write_bytes(content)
            digest = hashlib.sha256(content)
        else:
            hasher = self._fetch_parts(file, partial_file)
            if hasher is None:
                return None
            digest = hasher
        sha256 = digest.hexdigest()
        self.store.add_object(partial_file, sha256)
        return sha256

    def _read_small(self, file: RemoteFile) -> bytes:
        """Return the content of a file, up to one byte more than it has by the listing; HTTP clients have their own bound."""
        if self.address.scheme in ("s3", "gs"):
            return bytes(self.filesystem.cat_file(file.remote_path))
        with self._open(file) as source:
            content = bytearray()
            while block := source.read(file.size + 1 - len(content)):
                content += block
        return bytes(content)

    def _open(self, file: RemoteFile) -> Any:
        """Open a remote file for reading; of a local one, no part of its path below the mirrored folder may be a link by now."""
        if self.address.scheme == "file":
            folder = Path(file.remote_path.removesuffix(file.key))
            return io.BufferedReader(open_file(folder, file.key), SMALL_FILE_BYTES)
        return self.filesystem.open(file.remote_path, "rb", **self.open_options)

    def _fetch_parts(self, file: RemoteFile, partial_file: Path) -> Any:
        """Fetch a large file from where an earlier process stopped; return its hash, or None if its size is another one."""
        digest = hashlib.sha256()
        with partial_file.open("ab+") as target:
            if not file.fingerprint or target.tell() > file.size:
                target.truncate(0)
            target.seek(0)
            while block := target.read(SMALL_FILE_BYTES):
                digest.update(block)
            with self._open(file) as source:
                source.seek(target.tell())
                while target.tell() <= file.size and (block := source.read(SMALL_FILE_BYTES)):
                    target.write(block)
                    target.flush()
                    digest.update(block)
            size = target.tell()
        if size != file.size:
            partial_file.unlink()
            return None
        return digest
