"""Resumable downloads of data sets: HTTP ranges, checksums, unpacking, and a record of all downloaded files."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from m3b.bench.datasets.registry import get_dataset
from m3b.errors import DataError, OfflineError, UsageError
from m3b.llm.offline import OFFLINE_VARIABLE, is_offline


@dataclass(frozen=True)
class RemoteFile:
    """One file to download.

    Args:
        into: sub-folder of the data set for the content of an archive, or for a file that is no archive.
        checksum: `md5:...` or `sha256:...`; empty if none is published.
    """

    url: str
    into: str = ""
    checksum: str = ""

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


VERSE = "https://s3.bonescreen.de/public/VerSe-complete"
ZENODO_COVID = "https://zenodo.org/records/3757476/files"
DEEPWISE = "http://resource.deepwise.com/xraychallenge"
DET10 = "https://raw.githubusercontent.com/Deepwise-AILab/ChestX-Det10-Dataset/HEAD"
OPENI = "https://openi.nlm.nih.gov/imgs/collections"

SOURCES: dict[str, tuple[RemoteFile, ...]] = {
    "KneeMRI": (RemoteFile("https://zenodo.org/records/14789903/files/volumetric_data.7z"),),
    "VerSe": tuple(
        RemoteFile(f"{VERSE}/dataset-verse{year}{part}.zip")
        for year in (19, 20)
        for part in ("training", "validation", "test")
    ),
    "COVID19": (
        RemoteFile(
            f"{ZENODO_COVID}/COVID-19-CT-Seg_20cases.zip",
            "COVID-19-CT-Seg_20cases",
            "sha256:a5060480eff9315b069b086312dac4872777901fb80d268a5a83edd9f4e7b440",
        ),
        RemoteFile(
            f"{ZENODO_COVID}/Lung_and_Infection_Mask.zip",
            "Lung_and_Infection_Mask",
            "sha256:34f5a573cb8fb53cb15abe81868395d9addf436854826a6fd6e70c2b294f19c3",
        ),
        RemoteFile(
            f"{ZENODO_COVID}/Lung_Mask.zip",
            "Lung_Mask",
            "sha256:f060b0d0299939a6d95ddefdbfa281de1a779c4d230a5adbd32414711d6d8187",
        ),
        RemoteFile(
            f"{ZENODO_COVID}/Infection_Mask.zip",
            "Infection_Mask",
            "sha256:87901c73fdd2230260e61d2dbc57bf56026efc28264006b8ea2bf411453c1694",
        ),
    ),
    "MSD-Pancreas": (
        RemoteFile(
            "https://msd-for-monai.s3-us-west-2.amazonaws.com/Task07_Pancreas.tar",
            checksum="md5:4f7080cfca169fa8066d17ce6eb061e4",
        ),
    ),
    "ChestX-Det10": (
        RemoteFile(f"{DET10}/train.json"),
        RemoteFile(f"{DET10}/test.json"),
        RemoteFile(f"{DEEPWISE}/train_data.zip"),
        RemoteFile(f"{DEEPWISE}/test_data.zip"),
    ),
    "IU-Xray": (
        RemoteFile(f"{OPENI}/NLMCXR_reports.tgz"),
        RemoteFile(f"{OPENI}/NLMCXR_png.tgz", "NLMCXR_png"),
    ),
}

NOTES = {
    "KneeMRI": "Take metadata.csv from https://zenodo.org/records/14789903 as well, and unpack the .7z file with 7z.",
    "VerSe": "About 48 GB of archives. Should this server be down: the same data lie on OSF as nqjyw and t98fz.",
}
"""Remaining manual steps, and notes on a download."""


Progress = Callable[[str, int, int | None], None]
"""Called with the name of the file, the bytes so far, and the total number of bytes if known."""

BLOCK_BYTES = 1 << 20
MAX_TRIES = 5
RECORD_FILE = "FETCHED.json"
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tgz", ".tar.gz")


def describe_manual_download(name: str) -> str:
    """Return instructions for a data set that no program may download: its address and terms."""
    spec = get_dataset(name)
    return (
        f"{spec.name} must be downloaded by you: {spec.url}\nTerms: {spec.terms}\nUnpack it into a folder and give that"
        f" folder to m3b. Without it, `m3b data make {spec.name} DIR` draws a stand-in of the same layout."
    )


def fetch(
    name: str, folder: Path, *, sources: Sequence[RemoteFile] | None = None, progress: Progress | None = None,
    pause_s: float = 2.0,
) -> list[str]:  # fmt: skip
    """Download and unpack a data set; a second call continues where the first one stopped.

    Args:
        sources: files to download instead of the known ones.
        pause_s: wait before the second try after a lost connection; it doubles each time.

    Returns:
        Messages: the downloaded files, those without a published checksum, and remaining manual steps.

    Raises:
        UsageError: the data set cannot be downloaded by a program (the message gives its address), the folder contains
            other files, or there is not enough disk space.
        DataError: the server refuses, the connection stays lost, or a checksum is wrong.
    """
    spec = get_dataset(name)
    remote_files = SOURCES.get(spec.name) if sources is None else sources
    if not remote_files:
        raise UsageError(describe_manual_download(name))
    folder.mkdir(parents=True, exist_ok=True)
    expected_files = {
        RECORD_FILE,
        *(source.file for source in remote_files),
        *(f"{source.file}.part" for source in remote_files),
    }
    if (existing_files := {path.name for path in folder.iterdir()}) and not existing_files & expected_files:
        raise UsageError(f"{folder} is not empty, and contains no download of {spec.name}. Name a new folder.")
    record = _read_record(folder)
    messages = []
    for source in remote_files:
        entry = record.get(source.url)
        if not entry:
            file = folder / source.file
            download(source.url, file, progress=progress, pause_s=pause_s)
            digest = verify_checksum(file, source.checksum)
            entry = {"bytes": file.stat().st_size, **digest}
            unpack(file, folder / source.into)
            record[source.url] = entry
            (folder / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        checksum_text = "checksum right" if source.checksum else f"no published checksum; sha256 {entry.get('sha256')}"
        messages.append(f"{source.file}: {entry['bytes']:,} bytes, {checksum_text}")
    return messages + ([NOTES[spec.name]] if spec.name in NOTES and sources is None else [])


def _read_record(folder: Path) -> dict[str, Any]:
    file = folder / RECORD_FILE
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def download(url: str, file: Path, *, progress: Progress | None = None, pause_s: float = 2.0) -> None:
    """Download `url` to `file` by way of `file.part`, which is continued if it exists.

    Raises:
        DataError: the server answers with a permanent error, or five tries in a row receive no further byte.
    """
    if file.is_file():
        return
    partial_file = file.with_name(file.name + ".part")
    tries = 0
    while True:
        bytes_before = partial_file.stat().st_size if partial_file.is_file() else 0
        try:
            _continue_download(url, partial_file, progress)
            partial_file.replace(file)
            _tag_file(partial_file).unlink(missing_ok=True)
            return
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise DataError(f"{url} answers {error.code} {error.reason}; it may have moved.") from error
            reason = f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
        bytes_after = partial_file.stat().st_size if partial_file.is_file() else 0
        tries = 1 if bytes_after > bytes_before else tries + 1
        if tries >= MAX_TRIES:
            raise DataError(
                f"{url} could not be fetched: {reason}. {bytes_after:,} bytes are kept; call again to go on."
            )
        time.sleep(pause_s * 2 ** (tries - 1))


def _continue_download(url: str, partial_file: Path, progress: Progress | None) -> None:
    """Append the missing bytes in one connection; start again if the file on the server has changed.

    Raises:
        OSError: the connection ended early.
        UsageError: there is not enough disk space.
    """
    received = partial_file.stat().st_size if partial_file.is_file() else 0
    tag = _tag_file(partial_file).read_text(encoding="utf-8") if _tag_file(partial_file).is_file() else ""
    headers = {"User-Agent": "m3b", "Accept-Encoding": "identity"}
    if received and tag:
        headers |= {"Range": f"bytes={received}-", "If-Range": tag}
    try:
        answer = _open(url, headers)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        if str(error.headers.get("Content-Range", "")).endswith(f"/{received}"):
            return  # the file was complete already
        partial_file.unlink()
        raise OSError("the server's file has become shorter") from error
    with answer:
        if answer.status != 206 or not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {received}-"):
            received = 0
        length = answer.headers.get("Content-Length")
        total = received + int(length) if length else None
        free_bytes = shutil.disk_usage(partial_file.parent).free
        if total and total - received > free_bytes:
            raise UsageError(
                f"{partial_file.parent} has {free_bytes:,} bytes left, but {url} needs {total - received:,} more."
            )
        _tag_file(partial_file).write_text(_get_strong_tag(answer.headers), encoding="utf-8")
        with partial_file.open("ab" if received else "wb") as file:
            while block := answer.read(BLOCK_BYTES):
                file.write(block)
                received += len(block)
                if progress:
                    progress(partial_file.name.removesuffix(".part"), received, total)
    if total is not None and received < total:
        raise OSError(f"the connection ended after {received:,} of {total:,} bytes")


def _open(url: str, headers: dict[str, str]) -> Any:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url} is not a web address.")
    if is_offline():
        raise OfflineError(
            f"{url} is on another machine, and {OFFLINE_VARIABLE} is set.", urlsplit(url).hostname or url
        )
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)  # nosec B310  # the scheme was checked


def _tag_file(partial_file: Path) -> Path:
    """Return the file next to the partial file that holds the tag of the server's version."""
    return partial_file.with_name(partial_file.name + ".tag")


def _get_strong_tag(headers: Any) -> str:
    """Return a strong ETag or the date of the last change; If-Range allows no weak tags (RFC 9110, 13.1.5)."""
    tag = str(headers.get("ETag") or "")
    return tag if tag and not tag.startswith("W/") else str(headers.get("Last-Modified") or "")


def verify_checksum(file: Path, checksum: str) -> dict[str, str]:
    """Return the digests of a file: sha256, and the one of the published checksum.

    Raises:
        DataError: the checksum is wrong; the file is removed, so that the next call downloads it again.
    """
    kind, _, expected = checksum.partition(":")
    hashers = {name: hashlib.new(name) for name in {"sha256", kind or "sha256"}}
    with file.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            for hasher in hashers.values():
                hasher.update(block)
    digests = {name: hasher.hexdigest() for name, hasher in hashers.items()}
    if expected and digests[kind] != expected.lower():
        file.unlink()
        raise DataError(f"{file.name} has the {kind} {digests[kind]}, not {expected}; it was removed. Fetch it again.")
    return digests


def unpack(file: Path, into: Path) -> None:
    """Unpack an archive into `into` and remove it; move any other file there. Nothing is written outside `into`.

    Raises:
        DataError: the archive is damaged, or would write elsewhere; it is removed.
    """
    into.mkdir(parents=True, exist_ok=True)
    if not file.name.lower().endswith(ARCHIVE_SUFFIXES):
        if file.parent != into:
            file.replace(into / file.name)
        return
    try:
        if file.name.lower().endswith(".zip"):
            with zipfile.ZipFile(file) as archive:
                archive.extractall(into)  # nosec B202  # zipfile writes only below the folder
        else:
            with tarfile.open(file) as archive:
                archive.extractall(into, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        file.unlink()
        raise DataError(f"{file.name} does not unpack ({error}); it was removed. Fetch it again.") from error
    file.unlink()
