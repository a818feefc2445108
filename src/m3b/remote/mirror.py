"""Mirroring of a remote folder: list it, fetch what the store lacks, and return a local folder.

This runs in m3b's own process, before anything of the data is opened: readers, agents and scripts have neither network
nor credentials, and see an ordinary local folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from m3b.errors import UsageError
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
from m3b.remote.origin import MirroredFolder, Origin, format_bytes
from m3b.remote.store import MirroredFile, MirrorStore, default_store, read_origin

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

OnProgress = Callable[[str, int, int | None], None]
"""Called with what is done, bytes so far and bytes in total."""

MAX_DOWNLOAD_VARIABLE = "M3B_MAX_DOWNLOAD_GIB"
DEFAULT_MAX_DOWNLOAD_GIB = 50.0
MAX_FILES = 1_000_000
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


class RemoteFile(NamedTuple):
    """A file as a listing says it.

    Args:
        remote_path: as the file system takes it.
        key: its name below the remote folder.
        fingerprint: the ETag with the size, else size and time; '' if the server says neither ETag nor time.
    """

    remote_path: str
    key: str
    size: int
    fingerprint: str


@dataclass(frozen=True)
class Listing:
    """The files of a remote folder.

    Args:
        is_file: whether the address is that of one file.
        n_links: links, pipes and the like, which are not followed.
        n_unnamed: files whose names end with `/`, which no file system can hold.
    """

    files: dict[str, RemoteFile]
    is_file: bool = False
    n_links: int = 0
    n_unnamed: int = 0


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
    finally:
        mirror_store.index.close()


def restore_mirror(origin: Origin, folder: Path) -> None:
    """Fetch a mirrored folder again that was removed from its store; nothing is done if it is there.

    Args:
        folder: where it was.

    Raises:
        UsageError: it cannot be fetched, or the remote folder has changed since.
    """
    if folder.is_dir() and (folder.parent / "origin.json").is_file():
        return
    restored = mirror(origin.url, store=folder.parents[2])
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
                f"{self.address} changes while it is mirrored: {len(missing_files)} files, such as {missing_files[0].key!r}. "
                "Wait until it is complete, then run the same command again."
            )
        return self._finish(listing, hashes)

    def _list(self, filesystem: AbstractFileSystem) -> Listing:
        self.on_progress(f"listing {self.address}", 0, None)
        listing = list_files(filesystem, self.address)
        if not listing.files:
            raise UsageError(_describe_empty_listing(filesystem, self.address, listing))
        if len(listing.files) > MAX_FILES:
            raise UsageError(
                f"{self.address} holds {len(listing.files):,} files; m3b mirrors at most {MAX_FILES:,}. "
                f"{_describe_largest_folders(listing, self.address)}"
            )
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
                f"{_describe_largest_folders(listing, self.address)}"
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
        url, name = str(self.address), self.address.name
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
    if listing.n_unnamed:
        yield f"{listing.n_unnamed} remote files whose names end with a slash were left out."


def _describe_largest_folders(listing: Listing, address: RemoteAddress) -> str:
    """Return the largest folders of a listing with their addresses and sizes, in a sentence."""
    sizes = Counter[str]()
    for file in listing.files.values():
        if "/" in file.key:
            sizes[file.key.partition("/")[0]] += file.size
    if not sizes:
        return "It has no folders that could be named instead."
    largest = [(f"{address}/{name[:200]}", size) for name, size in sizes.most_common(3)]
    folders = ", ".join(f"{folder!r} ({format_bytes(size)})" for folder, size in largest)
    return f"Its largest folder{'s are' if len(sizes) > 1 else ' is'} {folders}."


def _describe_empty_listing(filesystem: AbstractFileSystem, address: RemoteAddress, listing: Listing) -> str:
    """Return why a listing has no files: nothing is there, the folder is empty, or it holds only what is left out."""
    omitted = {"links and special files": listing.n_links, "names that end with a slash": listing.n_unnamed}
    if any(omitted.values()):
        text = ", ".join(f"{kind} ({count:,})" for kind, count in omitted.items() if count)
        return f"{address} holds only what is left out: {text}. Give the folder with the files themselves."
    if filesystem.exists(address.store_path):
        return f"{address} is there and holds no files. Give the folder that holds them."
    return f"There is nothing at {address}: no file is in a folder of this name. Check it; upper and lower case count."


def list_files(filesystem: AbstractFileSystem, address: RemoteAddress) -> Listing:
    """Return the files below an address, without following links.

    Raises:
        Exception: of `list_client_errors`.
    """
    root = address.store_path
    infos = filesystem.find(root, detail=True, withdirs=False)
    stripped_root = str(filesystem._strip_protocol(root)).rstrip("/")
    files: dict[str, RemoteFile] = {}
    n_links = n_unnamed = 0
    is_file = False
    for path, listed_info in infos.items():
        info = listed_info or filesystem.info(path)  # of a single file, some file systems list the name alone
        kind, size = info.get("type"), info.get("size") or 0
        if not isinstance(size, int) or size < 0:
            raise UsageError(
                f"{address}: the server says that a file has {str(size)[:40]!r} bytes, so its files cannot be mirrored."
            )
        if kind == "directory" or (path.endswith("/") and not size):
            continue
        if kind != "file" or info.get("islink"):
            n_links += 1
            continue
        if path == stripped_root:
            is_file, key = True, path.rpartition("/")[2]
        else:
            key = path[len(stripped_root) + 1 :]
        if not key or key.endswith("/"):
            n_unnamed += 1
            continue
        files[key] = RemoteFile(path, key, int(size), make_fingerprint(info))
    return Listing(files, is_file, n_links, n_unnamed)


def make_fingerprint(info: dict[str, Any]) -> str:
    """Return what a server says of the state of a file: ETag or MD5 and size, else size and time; '' if it says neither."""
    size = info.get("size")
    for name in ("ETag", "etag", "md5Hash"):
        if info.get(name):
            return f"{name.lower()} {str(info[name]).strip(chr(34))} {size}"
    for name in ("LastModified", "mtime", "updated", "created"):
        if info.get(name):
            return f"time {info[name]} {size}"
    return ""


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
            except self.client_errors as error:
                if self.store.is_own_error(error) or isinstance(error, PermissionError) or attempt == MAX_ATTEMPTS:
                    raise
                if isinstance(error, FileNotFoundError):
                    return None
                time.sleep(0.2 * 2**attempt)
        return None

    def _fetch_once(self, file: RemoteFile) -> str | None:
        partial_file = self.store.partial / _digest(f"{self.endpoint} {file.remote_path} {file.fingerprint}")
        if file.size <= SMALL_FILE_BYTES:
            content: bytes = self.filesystem.cat_file(file.remote_path)
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

    def _fetch_parts(self, file: RemoteFile, partial_file: Path) -> Any:
        """Fetch a large file from where an earlier process stopped; return its hash, or None if its size is another one."""
        digest = hashlib.sha256()
        with partial_file.open("ab+") as target:
            if not file.fingerprint or target.tell() > file.size:
                target.truncate(0)
            target.seek(0)
            while block := target.read(SMALL_FILE_BYTES):
                digest.update(block)
            with self.filesystem.open(file.remote_path, "rb", **self.open_options) as source:
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
