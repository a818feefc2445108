"""Where DICOM objects go and images come from: an AE title (C-STORE), or an archive with DICOMweb (STOW-RS, WADO-RS)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import DataError, M3bError, UsageError

DICOMWEB_PREFIX = "dicomweb:"
MAX_INSTANCE_BYTES = 2**29
"""Maximum bytes of one instance that is received; larger ones end the association or the request."""
NO_IMAGES = ("SEG", "SR", "RTSTRUCT", "DOC", "PR", "KO")
"""Modalities of objects that are no images."""
TIMEOUT_S = 60.0
_AE_TITLE = r"(?P<title>[^@=\\\s](?:[^@=\\]{0,14}[^@=\\\s])?)"
_NODE = re.compile(_AE_TITLE + r"@(?P<host>[^@\s]+):(?P<port>\d{1,5})")
_ALLOWED = re.compile(_AE_TITLE + r"(?:@(?P<host>[^@\s]+))?")
_UID = r"[0-9.]{1,64}"
_SOURCE = re.compile(rf"(?P<root>https?://.+?)/studies/(?P<study>{_UID})(?:/series/(?P<series>{_UID}))?/?")


class TransferError(M3bError):
    """A destination that cannot be reached or refuses an object; the same objects can be sent again."""


class Destination(ABC):
    """A place that takes DICOM objects."""

    @abstractmethod
    def send(self, files: Sequence[Path], sender: str, on_sent: Callable[[Path], None]) -> None:
        """Send files, and call `on_sent` with each that was taken.

        Args:
            sender: the AE title of this side.

        Raises:
            TransferError: one was not taken; those before it were.
        """


@dataclass(frozen=True)
class StorageNode(Destination):
    """An application entity that takes objects by C-STORE."""

    title: str
    host: str
    port: int

    def send(self, files: Sequence[Path], sender: str, on_sent: Callable[[Path], None]) -> None:
        """Send files in one association."""
        from pynetdicom import AE, build_context

        entity = AE(ae_title=sender)
        entity.connection_timeout = entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = TIMEOUT_S
        headers = {file: _read_meta(file) for file in files}
        kinds = sorted({(meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID) for meta in headers.values()})
        entity.requested_contexts = [build_context(sop_class, syntax) for sop_class, syntax in kinds]
        association = entity.associate(self.host, self.port, ae_title=self.title)
        if not association.is_established:
            reason = "refuses the association" if association.is_rejected else "cannot be reached"
            raise TransferError(f"{self} {reason}.")
        try:
            for file in files:
                try:
                    answer = association.send_c_store(file)
                except (RuntimeError, ValueError) as error:
                    raise TransferError(f"{self} takes no objects of this kind, or is gone.") from error
                status = int(answer.Status) if "Status" in answer else None
                if status is None or (status != 0 and status >> 12 != 0xB):  # 0xBxxx: stored, with a warning
                    code = "no status" if status is None else f"the status 0x{status:04X}"
                    raise TransferError(f"{self} answered an object with {code}.")
                on_sent(file)
        finally:
            association.release()

    def __str__(self) -> str:
        return f"{self.title}@{self.host}:{self.port}"


@dataclass(frozen=True)
class DicomWebArchive(Destination):
    """An archive with DICOMweb, such as `https://host/dicom-web`; requests takes credentials from ~/.netrc."""

    url: str

    def send(self, files: Sequence[Path], sender: str, on_sent: Callable[[Path], None]) -> None:
        """Send files by STOW-RS, one request each."""
        import pydicom
        import requests

        client = self._connect()
        for file in files:
            try:
                answer = client.store_instances([pydicom.dcmread(file)])
            except (requests.RequestException, ValueError) as error:
                raise TransferError(f"{self} did not take an object: {_describe(error)}.") from error
            if answer.get("FailedSOPSequence"):
                reason = answer.FailedSOPSequence[0].get("FailureReason", 0)
                raise TransferError(f"{self} answered an object with the status 0x{int(reason):04X}.")
            on_sent(file)

    def fetch(self, study: str, series: str, folder: Path) -> list[Path]:
        """Write the instances of a series, or of each image series of a study, in a folder each; return these folders.

        Nothing of the images is parsed here.

        Raises:
            DataError: there is no such study or series, or the archive cannot be reached.
            OSError: a file cannot be written.
        """
        import requests

        client = self._connect()
        try:
            all_series = [series] if series else _list_uids(client.search_for_series(study), "SeriesInstanceUID")
            folders = [self._fetch_series(client, study, uid, folder / uid) for uid in all_series]
        except (requests.RequestException, ValueError) as error:
            raise DataError(
                f"{self}: the images cannot be fetched: {_describe(error)}.", code="fetch_failed"
            ) from error
        if not folders:
            raise DataError(f"{self}: there are no images in study {study}.", code="no_images")
        return folders

    def _fetch_series(self, client: Any, study: str, series: str, folder: Path) -> Path:
        """Write the instances as the archive holds them; the client's own retrieval would parse them."""
        import requests

        instances = _list_uids(client.search_for_instances(study, series), "SOPInstanceUID")
        if not instances:
            raise DataError(f"{self}: there is no series {series} in study {study}.", code="no_images")
        folder.mkdir(parents=True, exist_ok=True)
        headers = {"Accept": 'multipart/related; type="application/dicom"; transfer-syntax=*'}
        with requests.Session() as session:
            for number, instance in enumerate(instances, start=1):
                url = f"{self.url}/studies/{study}/series/{series}/instances/{instance}"
                with session.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
                    response.raise_for_status()
                    (folder / f"{number:06d}.dcm").write_bytes(_read_single_part(response))
        return folder

    def _connect(self) -> Any:
        require_package("dicomweb_client")
        from dicomweb_client import DICOMwebClient

        client = DICOMwebClient(self.url, timeout=TIMEOUT_S)
        client.set_http_retry_params(retry=False)
        return client

    def __str__(self) -> str:
        return f"{DICOMWEB_PREFIX}{self.url}"


def _describe(error: Exception) -> str:
    response = getattr(error, "response", None)
    return f"HTTP status {response.status_code}" if response is not None else type(error).__name__


def _read_meta(file: Path) -> Any:
    from pydicom.filereader import read_file_meta_info

    return read_file_meta_info(file)


def _list_uids(answer: Iterable[Any], name: str) -> list[str]:
    """Return the UIDs of an answer of QIDO-RS, without objects that are no images."""
    from pydicom.dataset import Dataset

    items = [Dataset.from_json(item) for item in answer]
    uids = [str(item[name].value) for item in items if str(item.get("Modality", "")) not in NO_IMAGES and name in item]
    return [uid for uid in uids if re.fullmatch(_UID, uid)]


def _read_single_part(response: Any) -> bytes:
    """Return the content of a multipart answer of one part.

    Raises:
        ValueError: it is no such answer, or too large.
    """
    match = re.search(r'boundary="?([^";]+)"?', response.headers.get("Content-Type", ""))
    body = bytearray()
    for chunk in response.iter_content(2**20):
        body += chunk
        if len(body) > MAX_INSTANCE_BYTES:
            raise ValueError("an instance is too large")
    start = body.find(b"\r\n\r\n") + 4
    end = body.rfind(b"\r\n--" + match[1].encode()) if match is not None else -1
    if start < 4 or end < start:
        raise ValueError("no multipart answer")
    return bytes(body[start:end])


def require_package(name: str) -> None:
    """Raise UsageError if a package of the extra `dicom` is not installed."""
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise UsageError(f"This needs {name}, which is not installed: pip install 'm3b[dicom]'.")


def parse_destination(text: str) -> Destination:
    """Return the destination of `TITLE@HOST:PORT` or `dicomweb:URL`.

    Raises:
        UsageError: it is neither.
    """
    if text.startswith(DICOMWEB_PREFIX):
        return parse_archive(text)
    match = _NODE.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise UsageError(f"{text}: name a destination as TITLE@HOST:PORT, or as dicomweb:URL.")
    require_package("pynetdicom")
    return StorageNode(match["title"], match["host"], int(match["port"]))


def parse_archive(text: str) -> DicomWebArchive:
    """Return the archive of `dicomweb:URL`. Raises UsageError."""
    url = text.removeprefix(DICOMWEB_PREFIX)
    if not re.fullmatch(r"https?://[^\s@]+", url):
        raise UsageError(f"{text}: name an archive as dicomweb:https://HOST/PATH, with credentials in ~/.netrc.")
    require_package("dicomweb_client")
    return DicomWebArchive(url.rstrip("/"))


def parse_source(text: str) -> tuple[DicomWebArchive, str, str]:
    """Return archive, study and series (or "") of `dicomweb:URL/studies/UID[/series/UID]`. Raises UsageError."""
    match = _SOURCE.fullmatch(text.removeprefix(DICOMWEB_PREFIX))
    if match is None:
        raise UsageError(f"{text}: name images as dicomweb:URL/studies/UID, or dicomweb:URL/studies/UID/series/UID.")
    return parse_archive(f"{DICOMWEB_PREFIX}{match['root']}"), match["study"], match["series"] or ""


def parse_allowed(text: str) -> tuple[str, str]:
    """Return title and host (or "") of `TITLE[@HOST]`. Raises UsageError."""
    match = _ALLOWED.fullmatch(text)
    if match is None:
        raise UsageError(f"--allow-ae {text}: name an AE title of at most 16 characters as TITLE or TITLE@HOST.")
    return match["title"], match["host"] or ""
