"""Opening annotation files, which are hostile: sizes are bounded, XML has no entities, JSON is not deep."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from m3b.dataset.annotations.base import NoteBook
from m3b.dataset.archives import local_file, local_place
from m3b.errors import DataError
from m3b.isolation.untrusted import TooDeep, UnsafePathError, announce_opening, open_file, parse_data_json, read_bytes

MAX_DOCUMENT_BYTES = 512 * 2**20
HEAD_BYTES = 4096
Loaded = TypeVar("Loaded")


def read_document(root: Path, path: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Return the content of a file.

    Raises:
        DataError: code `too_large` or `unreadable`.
    """
    announce_opening(str(root), path)
    try:
        if local_file(root, path).lstat().st_size > max_bytes:
            message = f"{path} is larger than {max_bytes // 2**20} MiB. Split it into several files."
            raise DataError(message, code="too_large")
        return read_bytes(*local_place(root, path), max_bytes)
    except (OSError, UnsafePathError) as error:
        raise DataError(f"{path} cannot be opened: {error}.", code="unreadable") from error


def read_head(root: Path, path: str) -> bytes:
    """Return the first `HEAD_BYTES` of a file; nothing if it cannot be opened."""
    try:
        with open_file(*local_place(root, path)) as file:
            return bytes(file.read(HEAD_BYTES))
    except (OSError, UnsafePathError, DataError):
        return b""


def read_text(root: Path, path: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> str:
    """Return a text file without byte order mark.

    Raises:
        DataError: as `read_document`.
    """
    content = read_document(root, path, max_bytes)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "replace")


def read_json(root: Path, path: str) -> Any:
    """Return the value of a JSON file.

    Raises:
        DataError: as `read_document`; code `too_deep` or `damaged`.
    """
    try:
        return parse_data_json(read_document(root, path))
    except TooDeep as error:
        raise DataError(f"{path} is nested too deeply to be read.", code="too_deep") from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}.", code="damaged") from error


def read_xml(root: Path, path: str) -> Any:
    """Return the root element of an XML file.

    Raises:
        DataError: as `read_document`; code `entities` (it declares entities: a bomb, or a reach for other files) or `damaged`.
    """
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    content = read_document(root, path)
    try:
        return fromstring(content)
    except DefusedXmlException as error:
        raise DataError(
            f"{path} declares entities, which m3b does not expand. Remove them.", code="entities"
        ) from error
    except (ParseError, ValueError, LookupError) as error:
        raise DataError(f"{path} is not XML: {error}.", code="damaged") from error


@contextmanager
def parsing(path: str, format_name: str) -> Iterator[None]:
    """Turn whatever a malformed document makes of its reader into a DataError with the code `damaged`; warnings are silent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(f"{path} needs more memory than there is.", code="too_large") from error
    except Exception as error:  # decoders of other libraries raise what they like on damaged files
        detail = f"{type(error).__name__}: {str(error)[:200]}"
        raise DataError(f"{path} cannot be read as {format_name}: {detail}.", code="damaged") from error


def load_each(
    paths: Sequence[str], format_name: str, load: Callable[[str], Loaded], notes: NoteBook
) -> list[tuple[str, Loaded]]:
    """Return what `load` gives for each file; files that cannot be read are noted with the code of their error.

    Raises:
        DataError: of the first file, if no file can be read.
    """
    loaded: list[tuple[str, Loaded]] = []
    first_error: DataError | None = None
    for path in paths:
        try:
            with parsing(path, format_name):
                loaded.append((path, load(path)))
        except DataError as error:
            first_error = first_error or error
            notes.add(f"file_{error.code or 'damaged'}", path)
    if first_error is not None and not loaded:
        raise first_error
    return loaded
