"""The user's folder for m3b's state, and a random secret in it that keys masks and pseudonyms."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

KEY_FILE = "pseudonyms.key"
SECRET_BYTES = 32
_received: dict[str, bytes] = {}


def state_folder() -> Path:
    """Return `$XDG_STATE_HOME/m3b` (default `~/.local/state/m3b`).

    Raises:
        OSError: there is no home folder.
    """
    root = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not root.is_absolute():  # the XDG specification ignores relative ones
        try:
            root = Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise OSError(errno.ENOENT, "no home folder is known") from error
        if not root.is_absolute():
            raise OSError(errno.ENOENT, "no home folder is known; HOME is not an absolute path")
    return root / "m3b"


def purpose_key(purpose: Literal["masks", "pseudonyms"]) -> bytes:
    """Return the key for masks or for pseudonyms, derived from the user's secret.

    The reader process has no home folder: it receives the key of masks, never that of pseudonyms.
    """
    return (
        _received.get(purpose) or hashlib.blake2b(_secret_of_user(), person=purpose.encode(), digest_size=32).digest()
    )


def receive_mask_key(key: bytes) -> None:
    """Use a key that m3b's own process sent. Called in the reader process."""
    _received["masks"] = key


def _secret_of_user() -> bytes:
    try:
        return _secret_in(state_folder())
    except OSError:
        return _secret_of_process()


@functools.cache
def _secret_of_process() -> bytes:
    """Return a secret that lasts as long as this process: without a folder for state there is no other."""
    return secrets.token_bytes(SECRET_BYTES)


@functools.cache
def _secret_in(folder: Path) -> bytes:
    """Return the secret in a folder; make it first if there is none, or none that is private. Raises OSError."""
    try:
        return _read(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ELOOP):
            raise
        (folder / KEY_FILE).unlink()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    draft = folder / f".{KEY_FILE}.{secrets.token_hex(8)}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was quicker: its secret counts
            os.link(draft, folder / KEY_FILE)
    finally:
        draft.unlink()
    return _read(folder)


def _read(folder: Path) -> bytes:
    """Return the secret. Raises OSError if it is missing, or another user could have read or written it."""
    handle = os.open(folder / KEY_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        status = os.fstat(file.fileno())
        content = file.read(SECRET_BYTES + 1)
    is_private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077 and status.st_uid == os.getuid()
    if not is_private or len(content) != SECRET_BYTES:
        raise PermissionError(errno.EPERM, "the secret is not a private file of this user", str(folder / KEY_FILE))
    return content
