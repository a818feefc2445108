"""Uploads: multipart bodies streamed to disk within limits, in a folder that is deleted with its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import anyio
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from m3b.serve.serve_errors import ServeError
from m3b.serve.zip_contents import get_suffix, make_unique_name

MAX_FIELD_BYTES = 64 * 1024
MAX_FIELDS = 200


@dataclass(frozen=True)
class UploadLimits:
    """Limits of one request.

    Args:
        max_bytes: of its body.
        max_files: files in it, and members of an archive.
        upload_s: seconds until the whole body is there.
        max_uploads: requests whose body is being received at once; more are refused.
    """

    max_bytes: int = 2 * 2**30
    max_files: int = 2000
    upload_s: float = 600.0
    max_uploads: int = 32


@dataclass(frozen=True)
class UploadedFile:
    """A file of a request: its form field, the client's name for it with a number if it comes again, and where it is."""

    field: str
    client_name: str
    path: Path


@dataclass
class Upload:
    """The content of one request.

    Args:
        fields: form fields without files.
        files: in the order of the body.
        names: paths of this machine -> names of the client.
    """

    fields: dict[str, str] = field(default_factory=dict)
    files: list[UploadedFile] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)


class _BodyWriter:
    """Writes the parts of a multipart body: files to a folder under numbers, fields to memory."""

    def __init__(self, folder: Path, limits: UploadLimits) -> None:
        self.upload, self.is_complete = Upload(), False
        self._folder, self._limits = folder, limits
        self._client_names: set[str] = set()
        self._file: IO[bytes] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._header_name, self._header_value = b"", b""
        self._field_name, self._value = "", b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name, self._header_value = b"", b""

    def on_headers_finished(self) -> None:
        options: Mapping[bytes, bytes] = parse_options_header(self._headers.get(b"content-disposition", b""))[1]
        self._headers = {}
        if b"name" not in options:
            raise ServeError(400, "invalid_form", "A part of the form has no name.")
        self._field_name, self._value = options[b"name"].decode("utf-8", "replace"), b""
        if b"filename" in options:
            self._open_file(options[b"filename"].decode("utf-8", "replace"))
        elif len(self.upload.fields) >= MAX_FIELDS:
            raise ServeError(413, "too_many_fields", f"The form has more than {MAX_FIELDS} fields.")

    def _open_file(self, client_path: str) -> None:
        if len(self.upload.files) >= self._limits.max_files:
            raise ServeError(413, "too_many_files", f"The request has more than {self._limits.max_files} files.")
        number = len(self.upload.files)
        client_name = client_path.replace("\\", "/").rpartition("/")[2][-200:] or f"file {number}"
        path = self._folder / f"{number:05d}{get_suffix(client_name)}"
        client_name = make_unique_name(client_name, self._client_names)
        self._client_names.add(client_name)
        self.upload.files.append(UploadedFile(self._field_name, client_name, path))
        self.upload.names[str(path)] = client_name
        self._file = path.open("wb")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._file.write(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise ServeError(413, "field_too_large", f"A form field has more than {MAX_FIELD_BYTES} bytes.")

    def on_part_end(self) -> None:
        if self._file is None:
            self.upload.fields[self._field_name] = self._value.decode("utf-8", "replace")
        self.close()

    def on_end(self) -> None:
        self.is_complete = True

    def close(self) -> None:
        """Close the file that is being written."""
        if self._file is not None:
            self._file.close()
            self._file = None


async def receive_upload(request: Request, folder: Path, limits: UploadLimits) -> Upload:
    """Return the form of a request, with its files in `folder`. A body that is too large is not read.

    Raises:
        ServeError: no form, too large, too slow, or incomplete.
        starlette.requests.ClientDisconnect: the client is gone.
    """
    content_type, options = parse_options_header(request.headers.get("content-type"))
    if content_type != b"multipart/form-data" or not options.get(b"boundary"):
        raise ServeError(415, "no_form", "Send the images as multipart/form-data.")
    check_content_length(request, limits.max_bytes)
    writer, n_bytes = _BodyWriter(folder, limits), 0
    try:
        parser = MultipartParser(
            options[b"boundary"],
            {
                "on_header_field": writer.on_header_field,
                "on_header_value": writer.on_header_value,
                "on_header_end": writer.on_header_end,
                "on_headers_finished": writer.on_headers_finished,
                "on_part_data": writer.on_part_data,
                "on_part_end": writer.on_part_end,
                "on_end": writer.on_end,
            },
        )
        with anyio.fail_after(limits.upload_s):
            async for chunk in request.stream():
                n_bytes += len(chunk)
                if n_bytes > limits.max_bytes:
                    raise _too_large(limits.max_bytes)
                parser.write(chunk)
    except FormParserError as error:
        raise ServeError(400, "invalid_form", "The body is no valid multipart form.") from error
    except TimeoutError as error:
        message = f"The body was not there after {limits.upload_s:g} s."
        raise ServeError(408, "upload_too_slow", message) from error
    finally:
        writer.close()
    if not writer.is_complete:
        raise ServeError(400, "torn_upload", "The body ends before its last boundary.")
    return writer.upload


def check_content_length(request: Request, max_bytes: int) -> None:
    """Raise ServeError if a request announces a body that is too large, or no valid length."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> ServeError:
    message = f"The body is larger than {max_bytes} bytes, the limit of this server."
    return ServeError(413, "body_too_large", message, {"Connection": "close"})
