"""Addresses of remote folders: parsing, masking of credentials, and the fsspec file system that reads them.

Credentials come from the usual places of each client (environment, `~/.aws`, `~/.ssh`, application default credentials)
and never from an address, so that no address in a record, log or message can hold one.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from m3b.errors import UsageError
from m3b.writing import to_one_line

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_ADDRESS_START = re.compile(r"[A-Za-z][\w+.:-]*://")
SCHEME_ALIASES = {"s3a": "s3", "gcs": "gs", "sftp": "ssh", "local": "file"}
"""Other names of schemes that are read."""
EXTRAS = {"s3": "s3", "gs": "gcs", "ssh": "ssh", "file": "", "memory": ""}
"""Scheme -> the extra of m3b that it needs; '' if none."""
EXAMPLES = "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, ssh://HOST/FOLDER or file:///FOLDER"
SECRET_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "FSSPEC_S3_KEY", "FSSPEC_S3_SECRET", "FSSPEC_S3_TOKEN",
    "FSSPEC_GCS_TOKEN", "FSSPEC_SSH_PASSWORD",
)  # fmt: skip
"""Environment variables whose values are masked in messages."""
MASK = "***"
_USER_INFO = re.compile(r"(?<=://)[^/\s@]*:[^/\s]*@")
_QUERY = re.compile(r"(://[^\s?\"'<>]*)\?[^\s\"'<>]+")
_KEY_ID = re.compile(r"\b(?:AKIA|ASIA|GOOG1?)[A-Z0-9]{12,}")
MAX_CONNECTIONS = 32
_NEARLY_ADDRESS = re.compile(r"(s3a?|gs|gcs|ssh|sftp|file):(?!//)/*([^/].*)", re.IGNORECASE)
_PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
CONNECT_TIMEOUT_S = 10.0


def mask_secrets(text: str) -> str:
    """Return a text without passwords and queries of addresses, access key ids, and values of secret variables."""
    for name in SECRET_VARIABLES:
        value = os.environ.get(name, "")
        if len(value) >= 4:
            text = text.replace(value, MASK)
    text = _USER_INFO.sub(f"{MASK}@", text)
    return _KEY_ID.sub(MASK, _QUERY.sub(rf"\1?{MASK}", text))


def is_remote(source: object) -> bool:
    """Return whether a data source is an address (`s3://...`) rather than a local path."""
    return isinstance(source, str) and _ADDRESS_START.match(source) is not None


def suggest_address(path: str) -> str:
    """Return a question for a path that does not exist and is nearly an address (`s3:/bucket/x`); '' for other paths."""
    match = _NEARLY_ADDRESS.match(path)
    if match is None:
        return ""
    scheme = SCHEME_ALIASES.get(match[1].lower(), match[1].lower())
    address = f"{scheme}:///{match[2]}" if scheme == "file" else f"{scheme}://{match[2]}"
    return f" Did you mean {mask_secrets(address)}?"


@dataclass(frozen=True)
class RemoteAddress:
    """The address of a remote folder or file, without credentials.

    Args:
        scheme: a key of `EXTRAS`.
        host: bucket, or `user@host:port`; '' for local files.
        path: below the host, without slashes at both ends; '' for all of it.
    """

    scheme: str
    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}/{self.path}".removesuffix("/")

    @property
    def name(self) -> str:
        """The last part of the path, else the host, as the name of a local folder."""
        last_part = self.path.rpartition("/")[2] or self.host.rpartition("@")[2].partition(":")[0] or "data"
        return re.sub(r"[^\w.-]+", "-", last_part, flags=re.ASCII).strip("-.")[:60] or "data"

    @property
    def store_path(self) -> str:
        """The path as the file system of the scheme takes it."""
        if self.scheme in ("s3", "gs"):
            return f"{self.host}/{self.path}".rstrip("/")
        return f"/{self.path}"


def parse_address(text: str) -> RemoteAddress:
    """Return the address of a remote folder or file.

    Raises:
        UsageError: the scheme is unknown, the bucket or host is missing, or there is a password or a query in it.
    """
    scheme, _, rest = text.partition("://")
    scheme = SCHEME_ALIASES.get(scheme.lower(), scheme.lower())
    masked_text = mask_secrets(text)
    if not is_remote(text):
        raise UsageError(_describe_local_path(text))
    if scheme not in EXTRAS:
        raise UsageError(
            f"{masked_text}: m3b reads no folders of {scheme[:20]}://. Give {EXAMPLES}, or mount it and give the folder."
        )
    host, _, path = rest.partition("/")
    user, _, _ = host.rpartition("@")
    port = host.rpartition("@")[2].partition(":")[2]
    has_password = ":" in unquote(user) or (":" in host and "@" in path) or (port and not port.isdecimal())
    if has_password or ((user or port) and scheme in ("s3", "gs")):
        raise UsageError(
            f"{scheme}://{MASK}: credentials do not belong into an address, and a port is a number. "
            f"Leave them out; {CREDENTIAL_SOURCES[scheme]}"
        )
    if "?" in rest:
        raise UsageError(f"{masked_text}: m3b reads no part of an address after `?`. Leave it out.")
    if scheme in ("s3", "gs", "ssh") and not host:
        raise UsageError(f"{masked_text}: there is no {'host' if scheme == 'ssh' else 'bucket'}. Give {EXAMPLES}.")
    if scheme == "memory":
        host, path = "", rest
    if scheme == "file" and host not in ("", "localhost"):
        raise UsageError(f"{masked_text}: file:// names folders of this machine with three slashes, file:///FOLDER.")
    path = "/".join(part for part in path.split("/") if part) if scheme == "file" else path.strip("/")
    return RemoteAddress(scheme, "" if scheme == "file" else host, unquote(path) if scheme == "file" else path)


def _describe_local_path(text: str) -> str:
    """Return why a path of this machine cannot be mirrored, and what to do instead."""
    path = os.path.expanduser(text)
    if os.path.exists(path):
        return (
            f"{text} is on this machine, so that nothing needs to be mirrored: give it to m3b as it is. To copy a slow mount to a "
            f"fast disk, give {Path(path).resolve().as_uri()}."
        )
    return f"{mask_secrets(text)} is no address of a remote folder.{suggest_address(text)} Give {EXAMPLES}."


CREDENTIAL_SOURCES: Mapping[str, str] = {
    "s3": "they are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or from ~/.aws (AWS_PROFILE chooses); for a public "
    "bucket, set FSSPEC_S3_ANON=true.",
    "gs": "`gcloud auth application-default login` or GOOGLE_APPLICATION_CREDENTIALS gives them; for a public bucket, set "
    "FSSPEC_GCS_TOKEN=anon.",
    "ssh": "they are read from the SSH agent, ~/.ssh and ~/.ssh/config.",
    "file": "local folders need none.",
    "memory": "they are not needed.",
}
"""Scheme -> where its client finds credentials."""


def open_filesystem(address: RemoteAddress) -> AbstractFileSystem:
    """Return the fsspec file system of an address; most connect when they are first used.

    Raises:
        UsageError: the extra of its scheme is not installed.
        Exception: of `list_client_errors`, if it connects at once.
    """
    import fsspec

    try:
        if address.scheme == "s3":
            from s3fs import S3FileSystem

            from m3b.remote.http_bounds import make_s3_session_class

            config = {"max_pool_connections": MAX_CONNECTIONS, "http_session_cls": make_s3_session_class()}
            options: dict[str, Any] = {"config_kwargs": config}
            options["max_concurrency"] = 1  # of the parts of a file; more would ask for the size of each file before
            return S3FileSystem(use_listings_cache=False, skip_instance_cache=True, **options)
        if address.scheme == "gs":
            from gcsfs.core import (
                GCSFileSystem,
            )  # `gcsfs.GCSFileSystem` also asks an API for zonal buckets, and waits for it

            _check_storage_reachable()
            from m3b.remote.http_bounds import BoundedResponse

            options = {"session_kwargs": {"response_class": BoundedResponse}}
            return GCSFileSystem(use_listings_cache=False, skip_instance_cache=True, **options)
        if address.scheme == "ssh":
            return _open_ssh(address)
    except ImportError as error:
        extra = EXTRAS[address.scheme]
        raise UsageError(
            f"{address} needs a package that is not installed ({error.name}). Install it with: pip install 'm3b[{extra}]'"
        ) from None
    return fsspec.filesystem(address.scheme, skip_instance_cache=True)


def _check_storage_reachable() -> None:
    """Connect to the server of `gs://` once: its client looks for credentials and tries again for more than a minute.

    Nothing is checked behind a proxy. Raises OSError.
    """
    import fsspec

    if any(os.environ.get(name) for name in _PROXY_VARIABLES):
        return
    config = fsspec.config.conf
    settings = {**config.get("gs", {}), **config.get("gcs", {})}  # in the order of the client
    configured_url = str(settings.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST", ""))
    domain = os.environ.get("GOOGLE_CLOUD_UNIVERSE_DOMAIN") or "googleapis.com"
    url = configured_url if configured_url not in ("", "default") else f"https://storage.{domain}"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), CONNECT_TIMEOUT_S).close()
    except ValueError as error:  # UnicodeError of a name too
        raise OSError(f"{url[:200]} is no address of a server of gs:// ({error})") from error


def _open_ssh(address: RemoteAddress) -> AbstractFileSystem:
    """Return the file system of an SSH host, whose key must be in `~/.ssh/known_hosts`."""
    from sshfs import SSHFileSystem

    user, _, host = address.host.rpartition("@")
    host, _, port = host.partition(":")
    options: dict[str, Any] = {"username": user} if user else {}
    options["sftp_client_kwargs"] = {"path_errors": "surrogateescape"}  # names in another encoding than UTF-8
    if port:
        if not port.isdigit():
            raise UsageError(f"{address}: the port {port!r} is no number.")
        options["port"] = int(port)
    # sshfs accepts any host key unless it is told which ones are known; () means the user's known_hosts
    return SSHFileSystem(host, known_hosts=(), skip_instance_cache=True, **options)


def identify_endpoint(filesystem: AbstractFileSystem, address: RemoteAddress) -> str:
    """Return what tells servers apart that have buckets or paths of the same name, as a short digest."""
    endpoint = ""
    if address.scheme == "s3":
        endpoint = str(filesystem.s3.meta.endpoint_url)
    elif address.scheme == "gs":
        endpoint = str(filesystem.base)
    return hashlib.sha256(f"{address.scheme} {endpoint} {address.host}".encode()).hexdigest()[:16]


def list_client_errors(scheme: str) -> tuple[type[Exception], ...]:
    """Return the exceptions that the client of a scheme raises if the server refuses or cannot be reached."""
    common = (OSError, TimeoutError)
    if scheme == "s3":
        from aiohttp import ClientError as HttpError
        from botocore.exceptions import BotoCoreError, ClientError

        return (*common, BotoCoreError, ClientError, HttpError)
    if scheme == "gs":
        from aiohttp import ClientError as HttpError
        from gcsfs.retry import HttpError as StorageError
        from google.auth.exceptions import GoogleAuthError

        return (*common, HttpError, StorageError, GoogleAuthError)
    if scheme == "ssh":
        from asyncssh import Error, KeyImportError

        return (*common, Error, KeyImportError)
    return common


def explain_client_error(address: RemoteAddress, error: Exception) -> UsageError:
    """Return the error for the user: what the client said, without secrets, and what to do next."""
    kind, detail = type(error).__name__, mask_secrets(str(error)).strip().splitlines()
    reason = to_one_line(detail[0][:300]) if detail else kind
    if kind in ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError"):
        action = f"There are no credentials: {CREDENTIAL_SOURCES[address.scheme]}"
    elif kind == "HostKeyNotVerifiable":
        host = address.host.rpartition("@")[2].partition(":")[0]
        action = f"Check the key of the host, and add it: connect once with `ssh {host}`."
    elif isinstance(error, PermissionError) or kind in ("PermissionDenied", "SFTPPermissionDenied"):
        action = (
            f"Access was refused. Check the credentials and what they may read: {CREDENTIAL_SOURCES[address.scheme]}"
        )
    elif isinstance(error, FileNotFoundError):
        action = "Check bucket, host and folder."
    else:
        action = "Check address and connection, then run the same command again: it goes on with what is missing."
    return UsageError(f"{address} cannot be read: {reason} ({kind}). {action}")
