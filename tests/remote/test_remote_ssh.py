"""Mirroring over SSH, from a server of asyncssh on loopback: host keys are checked, links are left out."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from m3b.errors import UsageError
from m3b.remote import listing
from m3b.remote import mirror as mirror_module
from m3b.remote.mirror import mirror

asyncssh = pytest.importorskip("asyncssh", reason="the extra `ssh` brings it")
pytest.importorskip("sshfs", reason="the extra `ssh` brings it")


class LyingServer(asyncssh.SFTPServer):  # type: ignore[misc]
    """Lists without end in a folder `endless`, and says that files in `short` have 10 bytes.

    Attributes:
        n_listed, n_read_bytes: what it listed in the one, and sent from the other.
    """

    n_listed = n_read_bytes = 0

    async def scandir(self, path: bytes) -> AsyncIterator[Any]:
        while path.endswith(b"endless") and LyingServer.n_listed < 100_000:
            LyingServer.n_listed += 1
            attributes = asyncssh.SFTPAttrs(permissions=stat.S_IFREG | 0o644, size=1, atime=0, mtime=0)
            yield asyncssh.SFTPName(b"f%d" % LyingServer.n_listed, attrs=attributes)
        async for entry in super().scandir(path):
            if path.endswith(b"short"):
                entry.attrs.size = 10
            yield entry

    def read(self, file_obj: Any, offset: int, size: int) -> bytes:
        content: bytes = super().read(file_obj, offset, size)
        LyingServer.n_read_bytes += len(content)
        return content


@dataclass(frozen=True)
class SshServer:
    """A server on loopback that shows one folder as `/`."""

    port: int
    root: Path
    public_key: str

    @property
    def url(self) -> str:
        return f"ssh://reader@127.0.0.1:{self.port}"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """The server, with a home folder whose key it accepts and whose `known_hosts` names it."""
    root, home = tmp_path / "served", tmp_path / "home" / ".ssh"
    root.mkdir()
    home.mkdir(parents=True, mode=0o700)
    host_key, user_key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    user_key.write_private_key(home / "id_ed25519")
    (home / "id_ed25519").chmod(0o600)
    user_key.write_public_key(tmp_path / "authorized")
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.setenv("M3B_MIRROR", str(tmp_path / "store"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=str(tmp_path / "authorized"),
            sftp_factory=lambda channel: LyingServer(channel, chroot=str(root)),
        )

    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result(60)
    port = acceptor.get_port()
    public_key = host_key.export_public_key().decode().strip()
    (home / "known_hosts").write_text(f"[127.0.0.1]:{port} {public_key}\n")
    yield SshServer(port, root, public_key)

    async def close() -> None:
        acceptor.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(close(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)


def test_a_folder_is_mirrored(ssh: SshServer) -> None:
    folder = ssh.root / "scans" / "p 1"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes(b"A")
    (folder / os.fsdecode(b"\xff.png")).write_bytes(b"B")
    (folder / "empty").write_bytes(b"")
    (ssh.root / "scans" / "link").symlink_to("/etc")
    (ssh.root / "beside.txt").write_bytes(b"C")
    first = mirror(f"{ssh.url}/scans")
    assert {os.fsencode(path.name): path.read_bytes() for path in (first.path / "p 1").iterdir()} == {
        b"a.png": b"A",
        b"\xff.png": b"B",
        b"empty": b"",
    }
    assert first.path.name == "scans"
    assert not (first.path / "link").exists()
    assert len(first.notes) == 1
    assert mirror(f"{ssh.url}/scans").n_fetched == 0
    (folder / "a.png").write_bytes(b"longer")
    assert mirror(f"{ssh.url}/scans").n_fetched == 1
    assert mirror(f"{ssh.url}/beside.txt").path.read_bytes() == b"C"


def test_a_large_file_comes_in_parts(ssh: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "SMALL_FILE_BYTES", 100_000)
    content = os.urandom(450_001)
    (ssh.root / "volumes").mkdir()
    (ssh.root / "volumes" / "ct.nii").write_bytes(content)
    assert (mirror(f"{ssh.url}/volumes").path / "ct.nii").read_bytes() == content


def test_an_unknown_host_is_refused(ssh: SshServer, tmp_path: Path) -> None:
    (ssh.root / "a.txt").write_bytes(b"A")
    other_key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    for known_hosts in ("", f"[127.0.0.1]:{ssh.port} {other_key}"):
        (tmp_path / "home" / ".ssh" / "known_hosts").write_text(known_hosts)
        with pytest.raises(UsageError, match="key of the host"):
            mirror(ssh.url)


def test_a_refused_key_is_said(ssh: SshServer, tmp_path: Path) -> None:
    key_file = tmp_path / "home" / ".ssh" / "id_ed25519"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(key_file)
    with pytest.raises(UsageError, match="Access was refused"):
        mirror(f"{ssh.url}/scans")


def test_a_missing_folder_is_said(ssh: SshServer) -> None:
    with pytest.raises(UsageError, match=r"/nothing"):
        mirror(f"{ssh.url}/nothing")
    with pytest.raises(UsageError, match="port"):
        mirror("ssh://127.0.0.1:ssh/nothing")


def test_a_file_that_is_longer_than_listed_is_not_read_to_its_end(ssh: SshServer) -> None:
    (ssh.root / "short").mkdir()
    (ssh.root / "short" / "a").write_bytes(b"1" * 5_000_000)
    LyingServer.n_read_bytes = 0
    with pytest.raises(UsageError, match="another size than it lists"):
        mirror(f"{ssh.url}/short")
    assert 0 < LyingServer.n_read_bytes < 1000


def test_a_folder_without_end_is_not_listed_to_its_end(ssh: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_FILES", 500)
    (ssh.root / "endless").mkdir()
    LyingServer.n_listed = 0
    with pytest.raises(UsageError, match="at most 500"):
        mirror(f"{ssh.url}/endless")
    assert LyingServer.n_listed < 2000
