"""Downloads from a server of our own: ranges, lost connections, changed files, checksums, archives that climb out."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopback_kit import LoopbackServer
from m3b.bench.datasets import DATASET_NAMES, get_dataset
from m3b.bench.datasets.download import (
    NOTES,
    RECORD_FILE,
    SOURCES,
    RemoteFile,
    describe_manual_download,
    download,
    fetch,
)
from m3b.cli.app import app
from m3b.errors import DataError, UsageError

BODY = bytes(range(256)) * 4000


class Server:
    """Files, what was asked for, and how the server misbehaves."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.sent = 0
        self.cut: list[int] = []
        """For the next answers: break off after so many bytes."""
        self.status: list[int] = []
        """For the next answers: only this status."""
        self.ranges = True
        self.tag = '"one"'
        self.url = ""

    def source(self, name: str, body: bytes, *, into: str = "", checksum: str = "") -> RemoteFile:
        self.files[f"/{name}"] = body
        return RemoteFile(f"{self.url}/{name}", into, checksum)


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Keep quiet."""

        def do_GET(self) -> None:
            range_header = self.headers.get("Range", "")
            server.asked.append((self.path, range_header))
            if server.status:
                self.send_error(server.status.pop(0))
                return
            body = server.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            start = 0
            if server.ranges and range_header and self.headers.get("If-Range") == server.tag:
                start = int(re.fullmatch(r"bytes=(\d+)-", range_header)[1])
            if start >= len(body) > 0 and start:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            if server.tag:
                self.send_header("ETag", server.tag)
            self.end_headers()
            part = body[start:]
            if server.cut:
                part = part[: server.cut.pop(0)]
            server.sent += len(part)
            self.wfile.write(part)

    return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()
    http = LoopbackServer(("127.0.0.1", 0), handler(state))
    state.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def get(server: Server, tmp_path: Path) -> Callable[..., list[str]]:
    """Fetch from the server into `tmp_path / "set"`, without waiting between tries."""
    return lambda *sources, **options: fetch("VerSe", tmp_path / "set", sources=sources, pause_s=0.0, **options)


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return stream.getvalue()


def tarred(files: dict[str, bytes], kind: str = "w:gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=kind) as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return stream.getvalue()


def test_archives_are_unpacked_into_their_folders_and_removed(server: Server, get, tmp_path: Path) -> None:
    messages = get(
        server.source("a.zip", zipped({"same.txt": b"1"}), into="images"),
        server.source("b.tgz", tarred({"same.txt": b"2"}), into="masks"),
        server.source("c.tar", tarred({"d/e.txt": b"3"}, "w")),
        server.source("list.json", b"[]", into="lists"),
    )
    contents = {
        str(f.relative_to(tmp_path / "set")): f.read_bytes() for f in (tmp_path / "set").rglob("*") if f.is_file()
    }
    record = json.loads(contents.pop(RECORD_FILE))
    assert contents == {"images/same.txt": b"1", "masks/same.txt": b"2", "d/e.txt": b"3", "lists/list.json": b"[]"}
    assert len(record) == len(messages) == 4
    assert all("no published checksum; sha256" in line for line in messages)


def test_what_is_there_is_not_fetched_again(server: Server, get) -> None:
    sources = [server.source(f"{n}.zip", zipped({f"{n}.txt": b"x"})) for n in "ab"]
    get(sources[0])
    get(*sources)
    get(*sources)
    assert [path for path, _ in server.asked] == ["/a.zip", "/b.zip"]


def test_a_lost_connection_is_taken_up_where_it_broke(server: Server, get, tmp_path: Path) -> None:
    digest = hashlib.sha256(BODY).hexdigest()
    server.cut = [300_000, 200_000]
    progress_calls: list[tuple[str, int, int | None]] = []
    (line,) = get(
        server.source("big.bin", BODY, checksum=f"sha256:{digest}"), progress=lambda *now: progress_calls.append(now)
    )
    assert (tmp_path / "set" / "big.bin").read_bytes() == BODY
    assert [range_header for _, range_header in server.asked] == ["", "bytes=300000-", "bytes=500000-"]
    assert server.sent == len(BODY), "no byte twice"
    assert "checksum right" in line
    assert progress_calls[-1] == ("big.bin", len(BODY), len(BODY))
    assert [done for _, done, _ in progress_calls] == sorted(done for _, done, _ in progress_calls)
    assert sorted(file.name for file in (tmp_path / "set").iterdir()) == [RECORD_FILE, "big.bin"]


def test_a_second_call_goes_on_after_the_first_gave_up(server: Server, get, tmp_path: Path) -> None:
    source = server.source("big.bin", BODY)
    server.cut = [300_000, 0, 0, 0, 0]
    with pytest.raises(DataError, match="300,000 bytes are kept; call again"):
        get(source)
    get(source)
    assert (tmp_path / "set" / "big.bin").read_bytes() == BODY
    assert server.asked[-1] == ("/big.bin", "bytes=300000-")


@pytest.mark.parametrize("change", ["tag", "no ranges", "no tag"])
def test_a_file_that_cannot_be_continued_is_begun_anew(change: str, server: Server, get, tmp_path: Path) -> None:
    source = server.source("big.bin", BODY)
    server.tag = "" if change == "no tag" else server.tag
    server.cut = [300_000, 0, 0, 0, 0]
    with pytest.raises(DataError):
        get(source)
    if change == "tag":
        server.tag, server.files["/big.bin"] = '"two"', BODY[::-1]
    server.ranges = change != "no ranges"
    get(source)
    assert (tmp_path / "set" / "big.bin").read_bytes() == server.files["/big.bin"]


def test_a_part_that_is_already_whole(server: Server, tmp_path: Path) -> None:
    source = server.source("big.bin", BODY)
    (tmp_path / "big.bin.part").write_bytes(BODY)
    (tmp_path / "big.bin.part.tag").write_text(server.tag, encoding="utf-8")
    download(source.url, tmp_path / "big.bin", pause_s=0)
    assert (tmp_path / "big.bin").read_bytes() == BODY
    assert server.sent == 0
    (tmp_path / "more.part").write_bytes(BODY + b"x")
    (tmp_path / "more.part.tag").write_text(server.tag, encoding="utf-8")
    download(source.url, tmp_path / "more", pause_s=0)
    assert (tmp_path / "more").read_bytes() == BODY


def test_trouble_that_passes_is_waited_out_and_other_trouble_is_told(server: Server, get) -> None:
    source = server.source("a.bin", b"abc")
    server.status = [503, 429]
    assert get(source)
    with pytest.raises(DataError, match="404 Not Found; it may have moved"):
        get(RemoteFile(f"{server.url}/gone.zip"))
    server.status = [500] * 9
    with pytest.raises(DataError, match="could not be fetched: 500"):
        get(server.source("b.bin", b"abc"))
    assert len(server.status) == 4, "five tries"


def test_a_wrong_checksum_is_refused_and_the_file_goes(server: Server, get, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.zip has the md5 .*; it was removed"):
        get(server.source("a.zip", zipped({"a": b"1"}), checksum="md5:" + "0" * 32))
    assert not (tmp_path / "set" / "a.zip").exists()
    assert not (tmp_path / "set" / "a").exists()
    good = zipped({"a": b"1"})
    get(server.source("a.zip", good, checksum=f"md5:{hashlib.md5(good).hexdigest()}"))
    assert (tmp_path / "set" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["a.zip", "a.tgz", "a.tar"])
def test_a_damaged_archive_is_removed(name: str, server: Server, get, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not unpack"):
        get(server.source(name, b"this is an error page"))
    assert not (tmp_path / "set" / name).exists()


def test_nothing_is_written_outside(server: Server, get, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not unpack"):
        get(server.source("a.tgz", tarred({"../../evil": b"1"})))
    get(server.source("b.zip", zipped({"../../evil": b"1"})))
    escaped_files = [file for file in tmp_path.rglob("*evil*") if not file.is_relative_to(tmp_path / "set")]
    assert not escaped_files
    assert not (tmp_path.parent / "evil").exists()


def test_other_addresses_are_refused(get) -> None:
    with pytest.raises(UsageError, match="not a web address"):
        get(RemoteFile("file:///etc/passwd"))


def test_every_set_is_open_or_says_where_it_lies(tmp_path: Path) -> None:
    assert set(SOURCES) < set(DATASET_NAMES)
    assert set(NOTES) <= set(SOURCES)
    for name in set(DATASET_NAMES) - set(SOURCES):
        with pytest.raises(UsageError) as refused:
            fetch(name, tmp_path / name)
        spec = get_dataset(name)
        assert spec.url in str(refused.value)
        assert spec.terms in str(refused.value)
        assert not (tmp_path / name).exists()
        assert describe_manual_download(name) == str(refused.value)


def test_the_known_sources_are_well_formed() -> None:
    for sources in SOURCES.values():
        assert len({source.url for source in sources}) == len(sources)
        for source in sources:
            assert re.fullmatch(r"https?://[\w.-]+/\S+\.(zip|tgz|tar|json|7z)", source.url)
            assert re.fullmatch(r"|md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", source.checksum)
            assert not Path(source.into).is_absolute()


def test_the_command_line_makes_and_refuses(tmp_path: Path) -> None:
    run = CliRunner()
    result = run.invoke(
        app, ["data", "make", "ct-kidney", str(tmp_path / "k"), "--cases", "40", "--layout", "official", "--json"]
    )
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["cases"] == len(get_dataset("CT-Kidney").read(tmp_path / "k").cases)
    assert printed["name"] == "CT-Kidney"
    refused = run.invoke(app, ["data", "fetch", "ADNI", str(tmp_path / "a")])
    assert isinstance(refused.exception, UsageError)
    unknown = run.invoke(app, ["data", "make", "mnist", str(tmp_path / "m")])
    assert isinstance(unknown.exception, UsageError)
    assert "chest" in str(unknown.exception)
    assert "IU-Xray" in str(unknown.exception)


def test_the_command_line_fetches(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "VerSe", (server.source("a.zip", zipped({"a.txt": b"1"})),))
    done = CliRunner().invoke(app, ["data", "fetch", "verse", str(tmp_path / "v")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "v" / "a.txt").read_bytes() == b"1"
    assert "sha256" in done.stderr
    assert done.stdout.strip() == str(tmp_path / "v")


def test_a_folder_with_other_files_is_left_alone(server: Server, tmp_path: Path) -> None:
    """An archive that is unpacked there would overwrite what has the same name."""
    source = server.source("a.bin", BODY)
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(UsageError, match="not empty, and contains no download of VerSe"):
        fetch("VerSe", tmp_path, sources=[source])
    assert server.asked == []
    (tmp_path / "a.bin.part").write_bytes(BODY[:100])  # of an attempt that broke off
    fetch("VerSe", tmp_path, sources=[source])
    assert (tmp_path / "a.csv").read_text() == "mine"
