"""Self-test of the reader's confinement, run inside it, for `m3b doctor` and the tests."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from m3b.errors import M3bError
from m3b.isolation.reader.worker_job import WorkerJob
from m3b.isolation.untrusted import TemporaryFolder, announce_opening, report_progress

if TYPE_CHECKING:
    from m3b.isolation.sandbox import Probe


@dataclass(frozen=True)
class EscapeTrial:
    """A trial of the confinement: `report` what is possible, or cause an accident with the first file not refused.

    Args:
        files: files to open.
        folders: folders to write to.
    """

    action: Literal["report", "crash", "hang", "fill", "babble", "stall", "bloat"] = "report"
    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TrialReport:
    """What was possible; `refusals` holds the error message of each refused file."""

    environment: tuple[str, ...] = ()
    readable_files: tuple[Path, ...] = ()
    writable_folders: tuple[Path, ...] = ()
    network: bool = False
    refusals: tuple[str, ...] = field(default=())


TRIAL_JOB = WorkerJob("m3b.isolation.reader.self_test:run_trial", EscapeTrial, TrialReport)


def run_trial(trial: EscapeTrial) -> TrialReport:
    """Run a trial. Runs in the reader process."""
    if trial.action != "report":
        return _run_accidents(trial)
    return TrialReport(
        tuple(os.environ),
        tuple(path for path in trial.files if _is_possible(path.read_bytes)),
        tuple(path for path in trial.folders if _is_possible(partial((path / "m3b-trial").write_bytes, b""))),
        _is_possible(_connect),
    )


def probe_reader(mode: str = "auto") -> Probe:
    """Return one line of `m3b doctor`: whether a reader starts and sees only its mounted folders. Never raises."""
    from m3b.isolation.reader.client import Reader
    from m3b.isolation.sandbox import Mounts, Probe, choose_sandbox

    with TemporaryFolder("probe") as scratch:
        visible, hidden = scratch / "seen", scratch / "unseen"
        for folder in (visible, hidden):
            folder.mkdir()
            (folder / "file").write_bytes(b"")
        try:
            sandbox = choose_sandbox(mode)
            with Reader(sandbox, Mounts(read=(visible,))) as reader:
                started_at = time.monotonic()
                report = reader.run_job(
                    TRIAL_JOB, EscapeTrial(files=(visible / "file", hidden / "file"), folders=(visible, hidden))
                )
                startup_s = time.monotonic() - started_at
        except M3bError as error:
            return Probe("reader", False, str(error))
    open_ways = [f"it reads {path}" for path in report.readable_files if path.parent == hidden]
    open_ways += [f"it writes to {path}" for path in report.writable_folders] + [
        "it reaches the network"
    ] * report.network
    if sandbox.name == "off":
        return Probe("reader", True, f"started in {startup_s:.1f} s; NOT confined, a process of its own with limits")
    if report.readable_files[:1] != (visible / "file",):
        return Probe("reader", False, f"under {sandbox.name} it cannot read the data that it is shown")
    if open_ways:
        return Probe("reader", False, f"under {sandbox.name} {' and '.join(open_ways)}")
    return Probe("reader", True, f"opens data under {sandbox.name}, without network; started in {startup_s:.1f} s")


def _is_possible(trial: Callable[[], object]) -> bool:
    try:
        trial()
    except OSError:
        return False
    return True


def _connect() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.connect(("192.0.2.1", 9))  # TEST-NET-1: a route is looked up, nothing is sent


def _run_accidents(trial: EscapeTrial) -> TrialReport:
    from m3b.errors import DataError

    refusals: list[str] = []
    for path in trial.files:
        try:
            announce_opening(path)
        except DataError as error:
            refusals.append(str(error))
            continue
        if path.read_bytes().startswith(b"bad"):
            _cause_accident(trial.action)
    return TrialReport(readable_files=trial.files, refusals=tuple(refusals))


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _cause_accident(accident: str) -> None:
    if accident == "crash":
        os.abort()
    if accident in ("babble", "bloat"):  # what a decoder that was taken over might send
        content = b'{"answer":[' + b"{}," * 9_000_000 + b"{}]}"
        message = b"\xff" * 64 if accident == "babble" else len(content).to_bytes(4, "big") + content
        for descriptor in sorted(map(int, os.listdir("/proc/self/fd"))):
            if descriptor > 2:
                _is_possible(partial(_write_all, descriptor, message))
        os._exit(0)
    allocated, number = [], 0
    while True:
        if accident == "fill":
            allocated.append(bytearray(os.urandom(1 << 20) * 16))
        elif accident == "stall":
            number += 1
            report_progress(1, 10**9)
            announce_opening(f"/nowhere/{number}")
        else:
            time.sleep(60)
