"""Mirroring from a real S3 server on loopback, from files and from memory."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from m3b.errors import DataError, UsageError
from m3b.locking import acquire_lock
from m3b.remote import listing
from m3b.remote import mirror as mirror_module
from m3b.remote.addresses import parse_address, suggest_address
from m3b.remote.mirror import mirror, restore_mirror
from m3b.remote.store import MirrorStore, find_changes, read_file_list
from m3b.workspace import Workspace
from remote.remote_kit import KEY_ID, SECRET, S3Server, serve_s3

OBJECTS = {f"set/p{number}/image.bin": bytes([number]) * (number + 1) for number in range(6)}


def read_tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def as_local(objects: dict[str, bytes], prefix: str = "set/") -> dict[str, bytes]:
    return {key.removeprefix(prefix): content for key, content in objects.items()}


def test_a_folder_is_mirrored_and_only_what_changed_is_fetched_again(s3: S3Server) -> None:
    s3.put("plain", OBJECTS)
    first = mirror("s3://plain/set")
    assert read_tree(first.path) == as_local(OBJECTS)
    assert (first.n_fetched, first.origin.n_files, first.origin.n_bytes) == (6, 6, 21)
    assert (first.origin.url, first.path.name) == ("s3://plain/set", "set")
    assert not find_changes(first.path, first.origin)

    assert mirror("s3://plain/set").path == first.path
    assert len(s3.gets) == 6

    s3.put("plain", {"set/p1/image.bin": b"another"})
    s3.delete("plain", "set/p2/image.bin")
    second = mirror("s3://plain/set/")
    assert second.path != first.path
    assert second.n_fetched == 1
    assert s3.gets[6:] == ["set/p1/image.bin"]
    expected = {**as_local(OBJECTS), "p1/image.bin": b"another"}
    del expected["p2/image.bin"]
    assert read_tree(second.path) == expected
    assert read_tree(first.path) == as_local(OBJECTS)  # a run that reads it goes on with the same files

    assert read_tree(mirror("s3://plain/set/p3").path) == {"image.bin": OBJECTS["set/p3/image.bin"]}
    assert len(s3.gets) == 7


def test_files_of_a_mirror_are_private_and_read_only(s3: S3Server) -> None:
    s3.put("modes", OBJECTS)
    folder = mirror("s3://modes/set").path
    assert stat.S_IMODE(Path(os.environ["M3B_MIRROR"]).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*.bin")} == {0o444}


def test_hostile_keys_stay_inside(s3: S3Server) -> None:
    objects = {"h/../../up": b"1", "h//abs": b"2", "h/scan": b"3", "h/scan/1": b"4", "h/IMG": b"5", "h/img": b"6",
               "h/" + "n" * 900: b"7",
               "h/q?x#y %41": b"8", "h/marker/": b""}  # fmt: skip
    s3.put("hostile", objects)
    mirrored = mirror("s3://hostile/h")
    files = {file.key: file for file in read_file_list(mirrored.path)}
    assert set(files) == {key[2:] for key in objects} - {"marker/"}
    for key, file in files.items():
        path = mirrored.path / file.path
        assert path.resolve().is_relative_to(mirrored.path.resolve())
        assert path.read_bytes() == objects[f"h/{key}"]
    assert len(mirrored.notes) == 1


def test_an_interrupted_mirror_goes_on(s3: S3Server, tmp_path: Path) -> None:
    objects = {f"many/{number:03d}": bytes([number]) * 100 for number in range(120)}
    s3.put("killed", objects)
    s3.hold_after(60)
    process = subprocess.Popen(
        [sys.executable, "-c", "from m3b.remote.mirror import mirror; mirror('s3://killed/many')"],
        env=os.environ.copy(),
    )
    assert s3.is_held.wait(60)
    index = MirrorStore(tmp_path / "store").index
    for _ in range(600):
        if index.count() >= 30:
            break
        signal.sigtimedwait([], 0.05)
    process.kill()
    process.wait(30)
    n_stored = index.count()
    assert 30 <= n_stored < 120
    s3.release()
    s3.gets.clear()
    mirrored = mirror("s3://killed/many")
    assert read_tree(mirrored.path) == as_local(objects, "many/")
    assert mirrored.n_fetched == 120 - n_stored
    assert len(s3.gets) >= 120 - n_stored


def test_a_large_file_goes_on_where_it_stopped(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mirror_module, "SMALL_FILE_BYTES", 1000)
    content = os.urandom(7500)
    s3.put("large", {"v/volume.bin": content})
    s3.hold_after(3)
    process = subprocess.Popen(
        [sys.executable, "-c", "import m3b.remote.mirror as m; m.SMALL_FILE_BYTES = 1000; m.mirror('s3://large/v')"],
        env=os.environ.copy(),
    )
    assert s3.is_held.wait(60)
    process.kill()
    process.wait(30)
    s3.release()
    (partial_file,) = [path for path in (tmp_path / "store" / "partial").iterdir() if path.suffix != ".lock"]
    partial_bytes = partial_file.stat().st_size
    assert 0 < partial_bytes < 7500
    assert partial_file.read_bytes() == content[:partial_bytes]
    s3.gets.clear()
    assert read_tree(mirror("s3://large/v").path) == {"volume.bin": content}
    assert len(s3.gets) <= (7500 - partial_bytes) // 1000 + 1
    assert not partial_file.exists()


def test_what_somebody_changed_in_a_mirror_is_put_back(s3: S3Server) -> None:
    s3.put("touched", OBJECTS)
    mirrored = mirror("s3://touched/set")
    changed, removed = mirrored.path / "p1/image.bin", mirrored.path / "p2/image.bin"
    changed.chmod(0o644)
    changed.write_bytes(b"!!")
    removed.unlink()
    assert find_changes(mirrored.path, mirrored.origin) == ["p1/image.bin was changed", "p2/image.bin is missing"]
    assert mirror("s3://touched/set").n_fetched == 1
    assert not find_changes(mirrored.path, mirrored.origin)
    (mirrored.path / "added.txt").write_text("")
    assert find_changes(mirrored.path, mirrored.origin) == ["added.txt was added"]
    with pytest.raises(UsageError, match=r"added\.txt"):
        mirror("s3://touched/set")


def test_a_content_that_changed_with_its_time_restored_is_noticed(s3: S3Server) -> None:
    s3.put("forged", OBJECTS)
    mirrored = mirror("s3://forged/set")
    file = mirrored.path / "p1/image.bin"
    status = file.stat()
    file.chmod(0o644)
    file.write_bytes(b"!!")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not find_changes(mirrored.path, mirrored.origin, with_content=False)
    assert find_changes(mirrored.path, mirrored.origin) == ["p1/image.bin was changed"]


def test_removed_snapshots_free_what_no_other_one_uses(s3: S3Server, tmp_path: Path) -> None:
    s3.put("removed", OBJECTS)
    first = mirror("s3://removed/set")
    s3.put("removed", {"set/p5/image.bin": b"a longer content"})
    second = mirror("s3://removed/set")
    store = MirrorStore(tmp_path / "store")
    origins, problems = store.list_origins()
    assert [origin for _, origin in origins] == [first.origin, second.origin]
    assert not problems
    assert store.remove_snapshot(first.origin.snapshot) == 6
    assert not first.path.exists()
    assert not find_changes(second.path, second.origin)
    with pytest.raises(UsageError):
        store.remove_snapshot("../snapshots")


def test_a_removed_mirror_is_restored_if_nothing_changed(s3: S3Server, tmp_path: Path) -> None:
    s3.put("restored", OBJECTS)
    mirrored = mirror("s3://restored/set")
    shutil.rmtree(tmp_path / "store")
    s3.gets.clear()
    with pytest.raises(UsageError, match="offline"):
        restore_mirror(mirrored.origin, mirrored.path, offline=True)
    assert s3.gets == []
    with pytest.raises(UsageError, match="was no mirror"):
        restore_mirror(mirrored.origin, tmp_path / "elsewhere")
    restore_mirror(mirrored.origin, mirrored.path)
    assert not find_changes(mirrored.path, mirrored.origin)
    s3.put("restored", {"set/p0/image.bin": b"new"})
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(UsageError, match="has changed since"):
        restore_mirror(mirrored.origin, mirrored.path)


def test_offline_takes_the_state_of_the_last_time(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("offline", OBJECTS)
    with pytest.raises(UsageError, match="not mirrored yet"):
        mirror("s3://offline/set", offline=True)
    online, single = mirror("s3://offline/set"), mirror("s3://offline/set/p3/image.bin")
    assert single.path.read_bytes() == OBJECTS["set/p3/image.bin"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert mirror("s3://offline/set", offline=True).path == online.path
    assert mirror("s3://offline/set/p3/image.bin", offline=True).path == single.path


def test_limits_are_said_with_what_was_found(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("limits", {"set/small/a": b"1" * 1000, "set/big/b": b"2" * 9000})
    with pytest.raises(
        UsageError, match=r"2 files of 9\.8 KiB.*--max-download-gib 1 .*'s3://limits/set/big' \(8\.8 KiB\)"
    ):
        mirror("s3://limits/set", max_download_gib=1e-6)
    with pytest.raises(UsageError, match="no folders that could be named"):
        mirror("s3://limits/set/big", max_download_gib=1e-6)
    assert s3.gets == []
    for limit in (0, -1, float("nan")):
        with pytest.raises(UsageError, match="above 0"):
            mirror("s3://limits/set", max_download_gib=limit)
    monkeypatch.setattr(MirrorStore, "get_free_bytes", lambda self: 2**30)
    with pytest.raises(UsageError, match="free"):
        mirror("s3://limits/set")
    monkeypatch.setattr(listing, "MAX_FILES", 1)
    with pytest.raises(UsageError, match="at most 1"):
        mirror("s3://limits/set")
    monkeypatch.setenv("M3B_MAX_DOWNLOAD_GIB", "many")
    with pytest.raises(UsageError, match="M3B_MAX_DOWNLOAD_GIB"):
        mirror("s3://limits/set")


def test_a_full_disk_is_that_of_the_store(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: MirrorStore, partial_file: Path, sha256: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    s3.put("full", {"set/a": b"1"})
    with monkeypatch.context() as patch:
        patch.setattr(MirrorStore, "add_object", fail)
        with pytest.raises(UsageError, match=r"store .* cannot be written"):
            mirror("s3://full/set")
    assert len(s3.gets) == 1
    assert read_tree(mirror("s3://full/set").path) == {"a": b"1"}


def test_parts_that_were_left_long_ago_are_removed(s3: S3Server, tmp_path: Path) -> None:
    s3.put("parts", {"set/a": b"1"})
    store = MirrorStore(tmp_path / "store")
    old_part, new_part = store.partial / "old", store.partial / "new"
    old_lock, held_lock = store.partial / "old.lock", store.partial / "held.lock"
    for file in (old_part, new_part, old_lock):
        file.write_bytes(b"part")
    handle = acquire_lock(held_lock)
    assert handle is not None
    for file in (old_part, old_lock, held_lock):
        os.utime(file, (0, 0))
    mirror("s3://parts/set")
    assert sorted(file.name for file in store.partial.iterdir()) == ["held.lock", "new"]
    os.close(handle)


@pytest.mark.parametrize("url", ["s3://no-such-bucket/set", "s3://errors/no-such-folder", "s3://errors/set"])
def test_what_cannot_be_read_is_said_without_secrets(
    s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    s3.put("errors", OBJECTS)
    if url == "s3://errors/set":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError) as raised:
        mirror(url)
    text = f"{raised.value} {caplog.text}"
    assert url in text
    assert SECRET not in text
    assert KEY_ID not in text
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_a_server_that_cannot_be_reached(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(UsageError, match="cannot be read"):
        mirror("s3://unreachable/set")


def test_what_one_server_says_is_not_believed_of_another(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("twice", {"set/a": b"here"})
    assert mirror("s3://twice/set").n_fetched == 1
    assert mirror("s3://twice/set").n_fetched == 0
    with serve_s3() as other_server:  # the same buckets, since moto keeps them in this process
        monkeypatch.setenv("AWS_ENDPOINT_URL", other_server.url)
        assert mirror("s3://twice/set").n_fetched == 1
        assert other_server.gets == ["set/a"]


def test_a_public_bucket_needs_no_credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("public", {"set/a": b"open"})
    s3.get_client().put_object_acl(Bucket="public", Key="set/a", ACL="public-read")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr(fsspec.config, "conf", {})
    monkeypatch.setenv("FSSPEC_S3_ANON", "true")
    fsspec.config.set_conf_env(fsspec.config.conf)  # as the import of fsspec does
    assert read_tree(mirror("s3://public/set").path) == {"a": b"open"}


def test_files_and_memory_need_no_extra(s3: S3Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_bytes(b"A")
    (source / "link").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    mirrored = mirror(source.as_uri())
    assert read_tree(mirrored.path) == {"sub/a.txt": b"A"}
    assert len(mirrored.notes) == 1
    fsspec.filesystem("memory").pipe({"/m3b/x/a": b"1", "/m3b/x/b/c": b"2"})
    assert read_tree(mirror("memory://m3b/x").path) == {"a": b"1", "b/c": b"2"}
    shutil.rmtree(source / "sub")
    with pytest.raises(UsageError, match=r"left out: links and special files \(2\)"):
        mirror(source.as_uri())
    (source / "link").unlink()
    (source / "folder").unlink()
    with pytest.raises(UsageError, match="is there and holds no files"):
        mirror(source.as_uri())
    source.rmdir()
    with pytest.raises(UsageError, match="There is nothing at"):
        mirror(source.as_uri())


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ({"other/a": b"1"}, "There is nothing at s3://empties"),
        ({"set/": b""}, "is there and holds no files"),
        ({"set/x/": b"content"}, r"left out: names that end with a slash \(1\)"),
    ],
)
def test_no_files_for_several_reasons(s3: S3Server, objects: dict[str, bytes], words: str) -> None:
    bucket = f"empties-{len(words)}"
    s3.put(bucket, objects)
    with pytest.raises(UsageError, match=words):
        mirror(f"s3://{bucket}/set")


@pytest.mark.parametrize("setting", ["STORAGE_EMULATOR_HOST", "gs", "gcs"])
def test_a_store_of_google_that_cannot_be_reached_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Its client looked for credentials, and tried again, for more than a minute."""
    gcsfs = pytest.importorskip("gcsfs.core")

    class Untouched:
        def __init__(self, **options: object) -> None:
            raise AssertionError("the client was made")

    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gcsfs, "GCSFileSystem", Untouched)
    if setting == "STORAGE_EMULATOR_HOST":
        monkeypatch.setenv(setting, "http://127.0.0.1:9")
    else:
        monkeypatch.setitem(fsspec.config.conf, setting, {"endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(UsageError, match=r"gs://bucket/x cannot be read"):
        mirror("gs://bucket/x")


def test_paths_of_this_machine_are_no_addresses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{tmp_path.as_uri()}"):
        parse_address(str(tmp_path))
    for path, address in (
        ("s3:/bucket/x", "s3://bucket/x"),
        ("gcs:bucket/x", "gs://bucket/x"),
        ("file:/data/x", "file:///data/x"),
    ):
        with pytest.raises(UsageError, match=f"Did you mean {address}\\?"):
            parse_address(path)
        with pytest.raises(DataError, match=f"Did you mean {address}\\?"):
            Workspace(data=path)
    for path in ("C:/data", "data", "s3://bucket/x"):
        assert suggest_address(path) == ""


def test_a_missing_extra_is_named(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, scheme, extra in (("s3fs", "s3", "s3"), ("gcsfs", "gs", "gcs"), ("sshfs", "ssh", "ssh")):
        for module in (package, f"{package}.core"):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match=rf"m3b\[{extra}\]"):
            mirror(f"{scheme}://host/folder")


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIAABCDEFGHIJKLMNOP:wJalrXUtnFEMI/K7MDENG/bPxRfiCY@bucket/folder",
        "s3://AKIAABCDEFGHIJKLMNOP:wJalrXUtnFEMI@bucket/folder",
        "ssh://bob:pa/K7MDENG@host/folder",
        "ssh://bob%3AK7MDENG@host/folder",
    ],
)
def test_addresses_with_secrets_are_refused_and_not_repeated(address: str) -> None:
    """A secret with a slash went into the error message as a whole."""
    with pytest.raises(UsageError) as refusal:
        parse_address(address)
    assert not re.search("K7MDENG|wJalr", str(refusal.value))


def test_a_store_that_others_may_have_prepared_is_refused(tmp_path: Path) -> None:
    """What lay there was taken for files of the bucket."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "index.sqlite").symlink_to(tmp_path / "elsewhere")
    for folder in (shared, linked):
        with pytest.raises(UsageError, match="--mirror"):
            MirrorStore(folder)
    assert not (tmp_path / "elsewhere").exists()
    assert (MirrorStore(tmp_path / "own").folder / "index.sqlite").stat().st_mode & 0o077 == 0
