"""Listings of remote folders: page by page, folder by folder, and stopped while they grow beyond what m3b mirrors."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from m3b.errors import AnswerError, UsageError
from m3b.remote.addresses import RemoteAddress
from m3b.remote.origin import format_bytes

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

MAX_FILES = 1_000_000
MAX_PATH_CHARACTERS = 4096
"""Length of the path of a file or folder; neither file systems nor buckets have longer ones."""
MAX_FINGERPRINT_CHARACTERS = 512
MAX_LISTING_CHARACTERS = 2**29
"""Length of all paths of a listing together."""
MAX_FILE_BYTES = 2**60
MAX_EMPTY_PAGES = 1000
"""Pages without a file that may follow one another; a bucket with many removed versions has some."""


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


@dataclass
class Listing:
    """The files of a remote folder.

    Args:
        is_file: whether the address is that of one file.
        n_links: links, pipes and the like, which are not followed.
        n_unnamed: files whose names end with `/`, which no file system can hold.
        n_unreadable: folders that may not be listed.
    """

    files: dict[str, RemoteFile] = field(default_factory=dict)
    is_file: bool = False
    n_links: int = 0
    n_unnamed: int = 0
    n_unreadable: int = 0
    n_characters: int = 0


def describe_largest_folders(listing: Listing, address: RemoteAddress) -> str:
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


def list_files(filesystem: AbstractFileSystem, address: RemoteAddress) -> Listing:
    """Return the files below an address, without following links.

    Raises:
        UsageError: there are more than `MAX_FILES`; nothing more is asked then.
        AnswerError: the server's answer is not valid.
        Exception: of `list_client_errors`.
    """
    listing, root = Listing(), address.store_path.rstrip("/")
    try:
        for n_entries, info in enumerate(_iterate_infos(filesystem, address, listing), 1):
            _add_info(listing, info, root)
            if n_entries > MAX_FILES:
                raise UsageError(
                    f"{address} holds more than {MAX_FILES:,} files and folders; m3b mirrors at most {MAX_FILES:,}, and "
                    f"has listed no more. Name a folder in it. {describe_largest_folders(listing, address)}"
                )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise AnswerError(f"the server's listing is not valid ({type(error).__name__}: {error})") from error
    return listing


def _add_info(listing: Listing, info: dict[str, Any], root: str) -> None:
    path, kind, size = str(info["name"]), info["type"], info.get("size") or 0
    if not isinstance(size, int) or not 0 <= size <= MAX_FILE_BYTES:
        raise ValueError(f"a file has {str(size)[:40]!r} bytes")
    if len(path) > MAX_PATH_CHARACTERS:
        raise ValueError(f"a path has {len(path):,} characters, beginning with {path[:100]!r}")
    listing.n_characters += len(path)
    if listing.n_characters > MAX_LISTING_CHARACTERS:
        raise ValueError(f"all paths together have more than {MAX_LISTING_CHARACTERS:,} characters")
    if kind == "directory" or (path.endswith("/") and not size):
        return
    if kind != "file" or info.get("islink"):
        listing.n_links += 1
        return
    is_file = path == root
    key = path.rpartition("/")[2] if is_file else path[len(root) + 1 :]
    if not key or key.endswith("/"):
        listing.n_unnamed += 1
        return
    listing.is_file = listing.is_file or is_file
    fingerprint = make_fingerprint(info)
    if len(fingerprint) > MAX_FINGERPRINT_CHARACTERS:
        raise ValueError(f"the state of {key[:100]!r} has {len(fingerprint):,} characters")
    listing.files[key] = RemoteFile(path, key, size, fingerprint)


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


def _iterate_infos(
    filesystem: AbstractFileSystem, address: RemoteAddress, listing: Listing
) -> Iterator[dict[str, Any]]:
    """Yield name, type, size and state of all files below an address; links and folders may be among them."""
    if address.scheme in ("s3", "gs"):
        prefix = f"{address.path}/" if address.path else ""
        is_empty = True
        for info in _iterate_objects(filesystem, address, prefix):
            is_empty = False
            yield info
        if is_empty and address.path:  # the address of one object, which is the first of those that begin with it
            first = next(_iterate_objects(filesystem, address, address.path), None)
            if first is not None and first["name"] == address.store_path:
                yield first
        return
    root = address.store_path
    info = filesystem.info(root)
    if info["type"] != "directory":
        yield {**info, "name": root.rstrip("/")}
        return
    yield from _walk(filesystem, address, listing)


def _iterate_objects(filesystem: AbstractFileSystem, address: RemoteAddress, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a bucket whose names begin with a prefix, a page after the other."""
    token, n_empty_pages = "", 0
    while n_empty_pages <= MAX_EMPTY_PAGES:
        if address.scheme == "s3":
            continuation = {"ContinuationToken": token} if token else {}
            page = filesystem.call_s3("list_objects_v2", Bucket=address.host, Prefix=prefix, **continuation)
            items, name_key, size_key = page.get("Contents", []), "Key", "Size"
            token = page["NextContinuationToken"] if page.get("IsTruncated") else ""
        else:
            page = filesystem.call(
                "GET", "b/{}/o", address.host, prefix=prefix or None, pageToken=token or None, maxResults=1000, json_out=True
            )  # fmt: skip
            items, name_key, size_key = page.get("items", []), "name", "size"
            token = page.get("nextPageToken") or ""
        for item in items:
            yield {
                **item,
                "name": f"{address.host}/{item[name_key]}",
                "type": "file",
                "size": int(item.get(size_key, 0)),
            }
        n_empty_pages = 0 if items else n_empty_pages + 1
        if not token:
            return
    raise AnswerError(f"the server sent {n_empty_pages:,} pages without a file, and no last one")


def _walk(filesystem: AbstractFileSystem, address: RemoteAddress, listing: Listing) -> Iterator[dict[str, Any]]:
    """Yield everything below a folder; links are not followed, and folders that may not be read are counted."""
    root = address.store_path
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            infos = _list_folder(filesystem, address, folder)
        except FileNotFoundError:
            if folder == root:
                raise
            continue  # removed since it was listed
        except PermissionError:
            if folder == root:
                raise
            listing.n_unreadable += 1
            continue
        for info in infos:
            yield info
            if (
                info["type"] == "directory"
                and not info.get("islink")
                and info["name"].rstrip("/") != folder.rstrip("/")
            ):
                folders.append(info["name"].rstrip("/"))


def _list_folder(filesystem: AbstractFileSystem, address: RemoteAddress, folder: str) -> list[dict[str, Any]]:
    """Return the entries of one folder, not many more than `MAX_FILES`."""
    if address.scheme != "ssh":
        return list(filesystem.ls(folder, detail=True))
    from fsspec.asyn import sync

    infos: list[dict[str, Any]] = sync(filesystem.loop, _list_ssh_folder, filesystem, folder, MAX_FILES + 1)
    return infos


async def _list_ssh_folder(filesystem: AbstractFileSystem, folder: str, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` entries; `SSHFileSystem.ls` would wait for the last one, which a server need not send."""
    from asyncssh.sftp import SFTPNoSuchFile, SFTPPermissionDenied

    infos: list[dict[str, Any]] = []
    n_entries = n_characters = 0
    try:
        async with filesystem._pool.get() as channel, contextlib.aclosing(channel.scandir(folder)) as entries:
            async for entry in entries:
                n_entries, n_characters = n_entries + 1, n_characters + len(entry.filename)
                if n_entries > limit + 2 or n_characters > MAX_LISTING_CHARACTERS:  # `.` and `..` without end, too
                    raise AnswerError(f"the server lists {folder[:100]!r} without end")
                if entry.filename in ("", ".", "..") or "/" in entry.filename:
                    continue
                attributes = filesystem._decode_attributes(entry.attrs)
                infos.append({**attributes, "name": f"{folder.rstrip('/')}/{entry.filename}"})
                if len(infos) >= limit:
                    break
    except SFTPNoSuchFile as error:
        raise FileNotFoundError(str(error)) from error
    except SFTPPermissionDenied as error:
        raise PermissionError(str(error)) from error
    return infos
