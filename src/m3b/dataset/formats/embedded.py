"""Images that lie inside another file, written to a temporary one for the libraries that open files by name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from .base import HEAD_BYTES, Format
from .catalog import find_format
from .errors import DataError


@contextmanager
def naming_container(folder: str, name: str) -> Iterator[None]:
    """Name a file by its container in errors, not by the temporary folder that it was extracted to."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error).replace(folder, name)) from error


@contextmanager
def decoded_file(content: bytes, container: str, name: str = "") -> Iterator[tuple[Path, Format]]:
    """Write encoded bytes to a temporary file; yield it and its format.

    Args:
        container: the file and item that the bytes come from, for messages.
        name: the file name that the container gives them.
    """
    with tempfile.TemporaryDirectory(prefix="m3b-") as folder:
        base = PurePosixPath(name.replace("\\", "/")).name.replace("\0", "")[-80:] or "image"
        file = Path(folder) / base
        file.write_bytes(content)
        file_format = find_format(content[:HEAD_BYTES], base)
        if file_format is None:
            raise DataError(f"{container}: no image of a known format")
        with naming_container(f"{folder}/{base}", container):
            yield file, file_format
