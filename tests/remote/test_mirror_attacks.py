"""Servers and folders that lie to a mirror: too much content, listings without end, links in place of files, taken names."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from typer.testing import CliRunner

from m3b.cli.data import app
from m3b.errors import UsageError
from m3b.remote import listing
from m3b.remote import mirror as mirror_module
from m3b.remote.addresses import parse_address
from m3b.remote.mirror import mirror
from m3b.remote.store import FILE_LIST, ORIGIN_FILE, MirrorStore, find_changes
from remote.remote_kit import S3Server

PAGE = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><IsTruncated>true</IsTruncated>
<NextContinuationToken>t</NextContinuationToken>%s</ListBucketResult>"""
ENTRY = b"<Contents><Key>set/%d</Key><Size>%s</Size><ETag>e</ETag></Contents>"
MAX_SENT_BYTES = 64 * 2**20


@pytest.mark.parametrize("key", ["set/small", ""])
def test_a_server_that_sends_without_end_is_stopped(
    s3: S3Server, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole answer, here of 200 MiB, was read into memory."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3.put("flood", {"set/small": b"1" * 10})
    s3.floods[key] = 200
    with pytest.raises(UsageError, match="where less was asked for"):
        mirror("s3://flood/set")
    assert 0 < s3.n_flood_bytes < (1 if key else 6) * MAX_SENT_BYTES
    assert not list((tmp_path / "store" / "objects").rglob("*/*"))
    s3.behave()
    assert mirror("s3://flood/set").n_fetched == 1


def test_a_part_of_a_large_file_is_stopped_too(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "SMALL_FILE_BYTES", 1000)
    s3.put("parts", {"set/large": b"1" * 5000})
    s3.floods["set/large"] = 200
    with pytest.raises(UsageError):
        mirror("s3://parts/set")
    assert s3.n_flood_bytes < 4 * MAX_SENT_BYTES


def test_a_file_of_another_size_than_listed_is_refused(s3: S3Server, tmp_path: Path) -> None:
    s3.put("longer", {"set/small": b"1" * 10})
    s3.floods["set/small"] = 1
    with pytest.raises(UsageError, match="another size than it lists"):
        mirror("s3://longer/set")
    assert not list((tmp_path / "store" / "objects").rglob("*/*"))


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([PAGE % b"".join(ENTRY % (number, b"1") for number in range(100))], "at most 50"),
        ([PAGE % (ENTRY % (1, b"1"))], "at most 50"),
        ([PAGE % b""], "pages without a file"),
        ([PAGE % (ENTRY % (1, b"-5"))], "bytes"),
        ([PAGE % (ENTRY % (1, b"many"))], "cannot be read"),
        ([PAGE % (ENTRY % (1, b"9" * 400))], "bytes"),
        ([b"no XML"], "cannot be read"),
    ],
)
def test_a_listing_without_end_or_sense_is_refused_while_it_is_read(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, pages: list[bytes], reason: str
) -> None:
    monkeypatch.setattr(listing, "MAX_FILES", 50)
    monkeypatch.setattr(listing, "MAX_EMPTY_PAGES", 20)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3.put("endless", {"set/a": b"1"})
    s3.pages = pages
    with pytest.raises(UsageError, match=reason):
        mirror("s3://endless/set")
    assert s3.n_pages <= 51


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "b/set/" + "x" * 5000}, "5,006 characters"),
        ({"ETag": "x" * 5000}, "characters"),
        ({"size": 10**400}, "bytes"),
    ],
)
def test_what_a_listing_says_of_a_file_is_bounded(changes: dict[str, Any], reason: str) -> None:
    info = {"name": "b/set/a", "type": "file", "size": 1, **changes}
    with pytest.raises(ValueError, match=reason):
        listing._add_info(listing.Listing(), info, "b/set")


def test_all_names_of_a_listing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_LISTING_CHARACTERS", 20)
    files = listing.Listing()
    listing._add_info(files, {"name": "b/set/a", "type": "file", "size": 1}, "b/set")
    with pytest.raises(ValueError, match="more than 20 characters"):
        listing._add_info(files, {"name": "b/set/long-name-of-a-file", "type": "file", "size": 1}, "b/set")


def test_addresses_that_overlap_share_no_partial_file(tmp_path: Path) -> None:
    """Two processes wrote the same partial file; one had the other's object open for appending."""
    source = tmp_path / "source"
    names = []
    for address in (source, source / "sub"):
        store, remote = MirrorStore(tmp_path / "store"), parse_address(address.as_uri())
        fetcher = mirror_module._Fetcher(
            LocalFileSystem(), store, remote, "file", (OSError,), lambda name, n_bytes, n_total: None
        )
        file = listing.RemoteFile(str(source / "sub" / "a"), "a", 7, "time 1 7")
        names.append(fetcher.find_partial_file(file).name)
    assert len(set(names)) == 2


class SwappingFileSystem(LocalFileSystem):
    """The file system of this machine, on which somebody replaces a path between two listings.

    Attributes:
        swap, restore: called after the first listing of the folder `sub`, and before the one that follows.
    """

    swap: Any = staticmethod(lambda: None)
    restore: Any = staticmethod(lambda: None)
    n_listed: ClassVar[int] = 0

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        SwappingFileSystem.n_listed += 1
        if SwappingFileSystem.n_listed == 3:
            type(self).restore()
        entries = super().ls(path, detail=detail, **options)
        if SwappingFileSystem.n_listed == 2:
            type(self).swap()
        return entries


@pytest.mark.parametrize("is_restored", [True, False])
@pytest.mark.parametrize("size", [6, 6000])
@pytest.mark.parametrize("swapped", ["file", "folder", "pipe"])
def test_what_is_swapped_for_a_link_after_the_listing_is_not_followed(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str, size: int, is_restored: bool
) -> None:
    """If the file was back for the next listing, the content behind the link was mirrored in its place; a pipe was waited for."""
    monkeypatch.setattr(mirror_module, "SMALL_FILE_BYTES", 1000)
    source, secret = tmp_path / "source", tmp_path / "secret"
    for folder, content in ((source / "sub", b"public"), (secret, b"secret")):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_bytes(content[:1] * size)
    (source / "b.txt").write_bytes(b"B")
    path = source / "sub" if swapped == "folder" else source / "sub" / "a.txt"

    def swap() -> None:
        path.rename(tmp_path / "moved")
        if swapped == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(secret if swapped == "folder" else secret / "a.txt")

    def restore() -> None:
        path.unlink()
        (tmp_path / "moved").rename(path)

    monkeypatch.setattr(SwappingFileSystem, "swap", staticmethod(swap))
    monkeypatch.setattr(SwappingFileSystem, "n_listed", 0)
    if is_restored:
        monkeypatch.setattr(SwappingFileSystem, "restore", staticmethod(restore))
    fsspec.register_implementation("file", SwappingFileSystem, clobber=True)
    try:
        mirrored = mirror(source.as_uri())
    finally:
        fsspec.register_implementation("file", LocalFileSystem, clobber=True)
    files = {path.name: path.read_bytes() for path in mirrored.path.rglob("*") if path.is_file()}
    assert files == {"b.txt": b"B", **({"a.txt": b"p" * size} if is_restored else {})}
    assert len(mirrored.notes) == (0 if is_restored else 1)


@pytest.mark.parametrize("name", [FILE_LIST, ORIGIN_FILE, "Origin.JSON"])
def test_files_and_folders_with_the_names_of_the_stores_own_files(s3: S3Server, tmp_path: Path, name: str) -> None:
    s3.put("names", {f"one/{name}": b"content", f"two/{name}/a.txt": b"A"})
    single, folder = mirror(f"s3://names/one/{name}"), mirror(f"s3://names/two/{name}")
    assert single.path.read_bytes() == b"content"
    assert single.path.name == name
    assert (folder.path / "a.txt").read_bytes() == b"A"
    for mirrored, root in ((single, single.path.parent), (folder, folder.path)):
        assert not find_changes(root, mirrored.origin)
    assert mirror(f"s3://names/one/{name}").n_fetched == 0
    assert mirror(f"s3://names/one/{name}", offline=True).path == single.path


def test_a_folder_that_may_not_be_read_is_counted(s3: S3Server, tmp_path: Path) -> None:
    """It was left out without a word."""

    class GuardedFileSystem(LocalFileSystem):
        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            if path.endswith("/closed"):
                raise PermissionError(path)
            return super().ls(path, detail=detail, **options)

    source = tmp_path / "source"
    (source / "closed").mkdir(parents=True)
    (source / "a.txt").write_bytes(b"A")
    fsspec.register_implementation("file", GuardedFileSystem, clobber=True)
    try:
        mirrored = mirror(source.as_uri())
    finally:
        fsspec.register_implementation("file", LocalFileSystem, clobber=True)
    assert [path.name for path in mirrored.path.iterdir()] == ["a.txt"]
    assert len(mirrored.notes) == 1


def test_a_damaged_index_is_named(s3: S3Server, tmp_path: Path) -> None:
    s3.put("index", {"set/a": b"1"})
    mirror("s3://index/set")
    file = tmp_path / "store" / "index.sqlite"
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with closing(sqlite3.connect(file)) as connection, pytest.raises(sqlite3.DatabaseError):
        connection.execute("SELECT * FROM objects").fetchall()
    with pytest.raises(UsageError, match=r"index\.sqlite"):
        mirror("s3://index/set")
    file.unlink()
    assert mirror("s3://index/set").n_fetched == 1


DAMAGED_ORIGINS = {
    "empty": b"", "cut off": b'{"url": "file:///x", "snap', "a list": b"[]", "without keys": b"{}", "too deep": b"[" * 100_000,
    "no text": b"\xff\xfe\x00", "no time": b'{"mirrored_at": NaN}', "a late time": b'{"mirrored_at": 1e300}',
    "infinite": b'{"n_files": Infinity}', "below 0": b'{"n_bytes": -5}', "missing": None,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED_ORIGINS)
def test_a_damaged_snapshot_is_named_and_the_others_are_listed(tmp_path: Path, damage: str) -> None:
    """Listing ended with a traceback, or without the other mirrors; a snapshot without its record was left out."""
    store_folder = tmp_path / "store"
    snapshots = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
        snapshots.append(mirror((tmp_path / name).as_uri(), store=store_folder).origin.snapshot)
    record, content = store_folder / "snapshots" / snapshots[0] / "origin.json", DAMAGED_ORIGINS[damage]
    record_json = json.loads(record.read_text())
    record.unlink()
    if content is not None:
        is_change = content.startswith(b"{") and content.endswith(b"}") and content != b"{}"
        record.write_bytes(json.dumps(record_json | json.loads(content)).encode() if is_change else content)
    origins, problems = MirrorStore(store_folder).list_origins()
    assert [origin.snapshot for _, origin in origins] == [snapshots[1]]
    assert [str(record) in str(problem) for problem in problems] == [True]
    listing_result = CliRunner().invoke(app, ["mirrors", "--mirror", str(store_folder)])
    assert listing_result.exit_code == 0
    assert snapshots[1] in listing_result.stdout
    assert listing_result.stderr.count(str(record)) == 1
    removal_result = CliRunner().invoke(
        app, ["mirrors", "--mirror", str(store_folder), "--remove", snapshots[0], "--json"]
    )
    assert (removal_result.exit_code, str(record) in removal_result.stderr) == (0, False)
    assert [entry["snapshot"] for entry in json.loads(removal_result.stdout)["mirrors"]] == [snapshots[1]]


@pytest.mark.parametrize("damage", ["no database", "pages"])
def test_mirrors_are_listed_without_the_index(tmp_path: Path, damage: str) -> None:
    """It ended with a traceback, or with the advice to name another folder."""
    store_folder, source = tmp_path / "store", tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("A")
    snapshot = mirror(source.as_uri(), store=store_folder).origin.snapshot
    index_file = store_folder / "index.sqlite"
    content = index_file.read_bytes()
    index_file.write_bytes(b"none" if damage == "no database" else content[:4096] + b"\xff" * (len(content) - 4096))
    listing_result = CliRunner().invoke(app, ["mirrors", "--mirror", str(store_folder)])
    assert listing_result.exit_code == 0
    assert snapshot in listing_result.stdout
    assert listing_result.stderr.count(str(index_file)) == 1
    removal_result = CliRunner().invoke(app, ["mirrors", "--mirror", str(store_folder), "--remove", snapshot])
    assert isinstance(removal_result.exception, UsageError)
    assert str(index_file) in str(removal_result.exception)
    assert (store_folder / "snapshots" / snapshot).is_dir()
    index_file.unlink()
    for _ in range(2):
        assert mirror(source.as_uri(), store=store_folder).origin.snapshot == snapshot
    assert CliRunner().invoke(app, ["mirrors", "--mirror", str(store_folder), "--remove", snapshot]).exit_code == 0
    assert not (store_folder / "snapshots" / snapshot).exists()


class StorageServer(BaseHTTPRequestHandler):
    """A server that lists and sends objects as Google Cloud Storage does: one small object, of which it may send too much."""

    n_blocks, n_sent_blocks = 0, 0
    pages: ClassVar[list[bytes]] = []
    object_content = b"0123456789"

    def do_GET(self) -> None:
        is_listing = self.path.split("?")[0].endswith("/o")
        pages = type(self).pages
        content = pages[0] if is_listing else type(self).object_content
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if is_listing else "binary/octet-stream")
        self.end_headers()
        self.wfile.write(content)
        for _ in range(0 if is_listing else type(self).n_blocks):
            type(self).n_sent_blocks += 1
            self.wfile.write(b" " * 2**20)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class OtherStorageServer(StorageServer):
    """A server with a bucket, an object and a fingerprint of the same names, and another content."""

    object_content = b"abcdefghij"


@contextmanager
def serve_storage(handler: type[StorageServer]) -> Iterator[str]:
    """Yield the address of a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *arguments: None  # type: ignore[method-assign]  # the client hangs up
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[StorageServer]]:
    pytest.importorskip("gcsfs", reason="the extra `gcs` brings it")
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
    monkeypatch.setenv("M3B_MIRROR", str(tmp_path / "store"))
    item = b'{"kind": "storage#object", "name": "set/a", "size": "10", "etag": "e"}'
    StorageServer.pages = [b'{"kind": "storage#objects", "items": [%s]}' % item]
    StorageServer.n_blocks = StorageServer.n_sent_blocks = 0
    with serve_storage(StorageServer) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield StorageServer


@pytest.mark.parametrize("setting", ["gs", "gcs", "STORAGE_EMULATOR_HOST"])
def test_servers_with_equal_buckets_share_no_files(
    storage: type[StorageServer], monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """An `endpoint_url` of the configuration of fsspec was ignored: files of the first server were taken for the second."""
    first = mirror("gs://bucket/set")
    with serve_storage(OtherStorageServer) as url:
        if setting == "STORAGE_EMULATOR_HOST":
            monkeypatch.setenv(setting, url)
        else:
            monkeypatch.setitem(fsspec.config.conf, setting, {"token": "anon", "endpoint_url": url})
        second = mirror("gs://bucket/set")
    assert (first.path / "a").read_bytes() == StorageServer.object_content
    assert (second.path / "a").read_bytes() == OtherStorageServer.object_content


def test_a_bucket_of_google_is_mirrored(storage: type[StorageServer]) -> None:
    mirrored = mirror("gs://bucket/set")
    assert (mirrored.path / "a").read_bytes() == b"0123456789"
    assert mirror("gs://bucket/set").n_fetched == 0
    assert mirror("gs://bucket/set/a").path.read_bytes() == b"0123456789"


def test_a_bucket_of_google_that_sends_without_end_is_stopped(storage: type[StorageServer]) -> None:
    storage.n_blocks = 200
    with pytest.raises(UsageError, match="where less was asked for"):
        mirror("gs://bucket/set")
    assert storage.n_sent_blocks * 2**20 < MAX_SENT_BYTES


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b'{"items": [], "nextPageToken": "t"}', "pages without a file"),
        (b'{"items": [{"name": "set/a", "size": "1"}], "nextPageToken": "t"}', "at most 50"),
        (b'{"items": [5]}', "not valid"),
        (b"[]", "not valid"),
        (b'{"items": [{"name": "set/a", "size": "many"}]}', "not valid"),
        (b'{"items": [{"name": "set/a", "size": "10", "etag": "\\ud800"}]}', ""),
    ],
)
def test_a_listing_of_google_without_end_or_sense(
    storage: type[StorageServer], monkeypatch: pytest.MonkeyPatch, page: bytes, reason: str
) -> None:
    monkeypatch.setattr(listing, "MAX_FILES", 50)
    monkeypatch.setattr(listing, "MAX_EMPTY_PAGES", 20)
    storage.pages = [page]
    if not reason:  # a text that is no UTF-8
        assert mirror("gs://bucket/set").n_fetched == 1
        return
    with pytest.raises(UsageError, match=reason):
        mirror("gs://bucket/set")
