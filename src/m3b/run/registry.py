"""The user's list of runs: the run folders that this user started, and how strongly their scripts were confined.

`$XDG_STATE_HOME/m3b/runs.jsonl` (default `~/.local/state/m3b/runs.jsonl`) holds one JSON object per line. It does not
list folders that merely look like runs, such as those in a downloaded data set. Each registered run folder holds a
random token (`.registered`). An entry counts only for a folder at the registered path with the same token, so a folder
that replaced a run is not taken for that run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from m3b import locking
from m3b.isolation import untrusted
from m3b.isolation.sandbox.choose import STRENGTH
from m3b.isolation.user_secret import state_folder

FORMAT = 1
"""Format of a line; lines of a newer format are ignored."""

NAME, LOCK_NAME, TOKEN_NAME = "runs.jsonl", "runs.lock", ".registered"
MAX_BYTES = 4 << 20
"""Maximum number of bytes that are read from the end of the list."""
MAX_LINE_BYTES = 64 << 10
MAX_LINES = 5_000
"""A longer list is shortened when a run is added: entries of missing folders are removed first, then the oldest."""
LOCK_PATIENCE_S = 10.0

_TOKEN = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True)
class RegisteredRun:
    """One run in the list.

    Args:
        folder: its absolute path.
        token: the content of the folder's `.registered`.
        started: time of its first registration, in seconds since 1970.
        sandbox: name of the sandbox that confined its scripts last.
        data: folders with the data of the run, external sets included.
    """

    folder: Path
    token: str
    started: float
    sandbox: str
    data: tuple[Path, ...] = ()

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def is_there(self) -> bool:
        """Whether the folder at the path is the one that was registered."""
        return _read_token(self.folder) == self.token

    def to_line(self) -> bytes:
        entry = {
            "format": FORMAT, "id": self.id, "folder": str(self.folder), "token": self.token, "started": self.started,
            "sandbox": self.sandbox, "data": [str(folder) for folder in self.data],
        }  # fmt: skip
        return json.dumps(entry).encode() + b"\n"


@dataclass(frozen=True)
class RunRegistry:
    """The content of the list.

    Args:
        runs: in the order of their first registration; each with its latest entry.
        warnings: which lines were ignored, or why the whole file was.
    """

    runs: tuple[RegisteredRun, ...] = ()
    warnings: tuple[str, ...] = ()

    @cached_property
    def _runs_by_id(self) -> dict[str, list[RegisteredRun]]:
        return _group(self.runs, lambda run: run.id)

    @cached_property
    def _runs_by_token(self) -> dict[str, list[RegisteredRun]]:
        return _group(self.runs, lambda run: run.token)

    def existing(self) -> list[RegisteredRun]:
        """Return the runs whose folders still exist at their registered paths."""
        return [run for run in self.runs if run.is_there]

    def find_by_id(self, run_id: str) -> list[RegisteredRun]:
        """Return the existing runs with an id."""
        return [run for run in self._runs_by_id.get(run_id, ()) if run.is_there]

    def at(self, folder: Path) -> RegisteredRun | None:
        """Return the entry of a run folder, also if the path is spelled differently."""
        token = _read_token(folder)
        resolved_folder = os.path.realpath(folder)
        candidates = self._runs_by_token.get(token, ())
        matches = [run for run in candidates if os.path.realpath(run.folder) == resolved_folder]
        return matches[-1] if matches else None

    def data_above(self, folder: Path) -> Path | None:
        """Return the data folder of a registered run that contains a folder or is the folder itself."""
        return enclosing(folder, (data for run in self.runs for data in run.data))


def _group(runs: Iterable[RegisteredRun], get_key: Callable[[RegisteredRun], str]) -> dict[str, list[RegisteredRun]]:
    groups: dict[str, list[RegisteredRun]] = {}
    for run in runs:
        groups.setdefault(get_key(run), []).append(run)
    return groups


def is_registered(folder: Path) -> bool:
    """Whether a folder is one of this user's own registered runs."""
    return read_registry().at(folder) is not None


def enclosing(folder: Path, roots: Iterable[Path]) -> Path | None:
    """Return the first of the roots that is `folder` or contains it, links resolved."""
    resolved_folder = Path(os.path.realpath(folder))
    return next((root for root in roots if resolved_folder.is_relative_to(os.path.realpath(root))), None)


def state_file() -> Path:
    """Return the path of the list.

    Raises:
        OSError: there is no home folder.
    """
    return state_folder() / NAME


# --- reading -----------------------------------------------------------------------------------------------------


_cache: dict[tuple[Any, ...], RunRegistry] = {}


def read_registry() -> RunRegistry:
    """Return the list. A file that cannot be trusted or read counts as empty; `warnings` says why."""
    try:
        file = state_file()
        with _open_list_file(file, os.O_RDONLY) as handle:
            status = os.fstat(handle)
            key = (file, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            registry = _cache.get(key)
            if registry is None:
                content = _read_tail(handle, status.st_size)
                registry = parse(content, str(file), is_tail=status.st_size > MAX_BYTES)
                _cache.clear()
                _cache[key] = registry
            return registry
    except FileNotFoundError:
        return RunRegistry()
    except OSError as error:
        return RunRegistry(warnings=(f"The list of your runs is not used: {_describe_os_error(error)}.",))


def parse(content: bytes, name: str = NAME, *, is_tail: bool = False) -> RunRegistry:
    """Return the runs of a list; damaged and foreign lines are ignored with a warning.

    Args:
        name: name of the file, for warnings.
        is_tail: whether the content is the end of a longer file, so that its first line may be incomplete.
    """
    lines = content.split(b"\n")
    incomplete_line = lines.pop()  # empty if the last line is complete
    if is_tail:
        lines = lines[1:]
    runs: dict[tuple[Path, str], RegisteredRun] = {}
    damaged = [len(lines) + 1] if incomplete_line else []
    for number, line in enumerate(lines, start=1):
        run = _parse_line(line)
        if run is not None:
            first = runs.get((run.folder, run.token), run)
            data = tuple(dict.fromkeys((*first.data, *run.data)))
            runs[run.folder, run.token] = replace(run, started=first.started, data=data)
        elif line.strip():
            damaged.append(number)
    warnings = []
    if damaged:
        first_lines = ", ".join(str(number) for number in damaged[:5])
        scope = "Of the end of" if is_tail else "Of"
        warnings.append(f"{scope} {name}, {len(damaged)} lines cannot be read and are ignored (line {first_lines}).")
    return RunRegistry(tuple(runs.values()), tuple(warnings))


def _parse_line(line: bytes) -> RegisteredRun | None:
    if len(line) > MAX_LINE_BYTES:
        return None
    try:
        entry = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        return None
    folder, token, started, sandbox = (entry.get(key) for key in ("folder", "token", "started", "sandbox"))
    data = entry.get("data", [])
    if not (isinstance(data, list) and all(_is_absolute_path(item) for item in data)):
        return None
    if not (isinstance(token, str) and _TOKEN.fullmatch(token) and isinstance(sandbox, str) and sandbox in STRENGTH):
        return None
    if not (_is_absolute_path(folder) and _is_time(started)):
        return None
    return RegisteredRun(Path(folder), token, float(started), sandbox, tuple(map(Path, data)))


def _is_absolute_path(value: Any) -> TypeGuard[str]:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return os.path.isabs(os.fsencode(value))
    except UnicodeEncodeError:  # surrogates that represent no byte
        return False


def _is_time(value: Any) -> TypeGuard[float]:
    """Return whether a value is a valid time in seconds since 1970."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11 and math.isfinite(value)


def _read_tail(handle: int, size: int) -> bytes:
    os.lseek(handle, max(0, size - MAX_BYTES), os.SEEK_SET)
    content = bytearray()
    while len(content) < MAX_BYTES and (block := os.read(handle, MAX_BYTES - len(content))):
        content += block
    return bytes(content)


def _read_token(folder: Path) -> str:
    """Return the token of a run folder; empty if it has none."""
    try:
        content = untrusted.read_bytes(Path(os.path.realpath(folder)), TOKEN_NAME, 64)
    except (OSError, ValueError):
        return ""
    token = content.decode("ascii", "replace").strip()
    return token if _TOKEN.fullmatch(token) else ""


# --- writing -----------------------------------------------------------------------------------------------------


def register(folder: Path, sandbox: str, data: Sequence[Path] = ()) -> str:
    """Add a run to the user's list, or update its entry.

    Args:
        folder: the run folder, which this process has locked.
        sandbox: name of the sandbox that confines its scripts from now on.
        data: folders with its data.

    Returns:
        Why the run could not be registered, as a sentence for the user; empty if it was.
    """
    folder = Path(os.path.abspath(folder))
    entry = read_registry().at(folder)
    data = tuple(dict.fromkeys(Path(os.path.realpath(place)) for place in data))
    if entry and entry.sandbox == sandbox and set(data) <= set(entry.data):
        return ""
    token = entry.token if entry else secrets.token_hex(16)
    run = RegisteredRun(
        entry.folder if entry else folder, token, entry.started if entry else time.time(), sandbox, data
    )
    try:
        if not entry:
            _write_token(folder, token)
        _append(state_file(), run.to_line())
    except OSError as error:
        return (
            f"This run is not in the list of your runs ({_describe_os_error(error)}): `last` and `m3b runs` do not find it; "
            f"name it by its folder, {folder}."
        )
    return ""


def _write_token(folder: Path, token: str) -> None:
    """Write the token without a temporary file, so that a kill leaves none; an incomplete token counts as none."""
    token_file = folder / TOKEN_NAME
    token_file.unlink(missing_ok=True)
    handle = os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, f"{token}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _append(file: Path, line: bytes) -> None:
    if len(line) > MAX_LINE_BYTES:
        raise OSError(errno.EFBIG, f"an entry of {len(line):,} bytes", str(file))
    file.parent.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        file.parent.mkdir(mode=0o700)
    _check_folder(file.parent)
    with _locked(file.with_name(LOCK_NAME)), _open_list_file(file, os.O_RDWR | os.O_CREAT | os.O_APPEND) as handle:
        size = os.fstat(handle).st_size
        content = _read_tail(handle, size)
        if size > MAX_BYTES or content.count(b"\n") > MAX_LINES:
            _shorten(file, parse(content, is_tail=size > MAX_BYTES), line)
            return
        if content and not content.endswith(b"\n"):  # a crash left the last line incomplete
            line = b"\n" + line
        os.write(handle, line)
        os.fsync(handle)


def _shorten(file: Path, registry: RunRegistry, line: bytes) -> None:
    """Replace the list by the newest runs that still exist, followed by one more line."""
    lines = [run.to_line() for run in registry.existing()[-MAX_LINES // 2 :]]
    untrusted.write_atomic(file.parent, file.name, b"".join([*lines, line]))


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock of the list; wait while another process adds a run."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while (handle := locking.acquire_lock(file)) is None:
        if time.monotonic() > deadline:
            raise OSError(errno.EAGAIN, "another process holds its lock", str(file))
        time.sleep(0.02)
    try:
        yield
    finally:
        os.close(handle)


# --- trust -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open_list_file(file: Path, flags: int) -> Iterator[int]:
    """Open the list, which must be a regular file of this user that nobody else can write.

    Raises:
        OSError: it is something else, or cannot be opened.
    """
    _check_folder(file.parent)
    try:
        handle = os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise untrusted.UnsafePathError(file, "a link, which is not followed") from error
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise untrusted.UnsafePathError(file, "not a regular file")
        _check_owner(file, status)
        yield handle
    finally:
        os.close(handle)


def _check_folder(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise untrusted.UnsafePathError(folder, "not a folder, or a link to one")
    _check_owner(folder, status)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise untrusted.UnsafePathError(path, f"it belongs to another user (number {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise untrusted.UnsafePathError(path, f"others may write to it; `chmod go-w {path}` fixes that")


def _describe_os_error(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
