"""What a reader can do and survives, tried inside it: for `m3b doctor` and the tests."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from m3b.reader.request import Request
from m3b.untrusted import opening


@dataclass(frozen=True)
class Trial:
    """What to try: `report`, or one of the accidents with the first of `files` that is not refused.

    Args:
        files: to open.
        folders: to write to.
    """

    do: Literal["report", "crash", "hang", "fill", "babble"] = "report"
    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Report:
    """What could be done; `refused` holds the words of each file that was refused."""

    environment: tuple[str, ...] = ()
    opened: tuple[Path, ...] = ()
    written: tuple[Path, ...] = ()
    network: bool = False
    refused: tuple[str, ...] = field(default=())


TRIAL = Request("m3b.reader.trial:attempt", Trial, Report)


def attempt(asked: Trial) -> Report:
    """Inside the reader: try it."""
    if asked.do != "report":
        return _accident(asked)
    return Report(
        tuple(os.environ),
        tuple(path for path in asked.files if _works(path.read_bytes)),
        tuple(path for path in asked.folders if _works(partial((path / "m3b-trial").write_bytes, b""))),
        _works(_connect),
    )


def _works(trial: Callable[[], object]) -> bool:
    try:
        trial()
    except OSError:
        return False
    return True


def _connect() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("192.0.2.1", 9))  # TEST-NET-1: a route is looked up, nothing is sent


def _accident(asked: Trial) -> Report:
    from m3b.errors import DataError

    refused: list[str] = []
    for path in asked.files:
        try:
            opening(path)
        except DataError as error:
            refused.append(str(error))
            continue
        if path.read_bytes().startswith(b"bad"):
            _happen(asked.do)
    return Report(opened=asked.files, refused=tuple(refused))


def _happen(what: str) -> None:
    if what == "crash":
        os.abort()
    if what == "babble":  # what a decoder that was taken over might send
        for descriptor in range(3, 64):
            _works(partial(os.write, descriptor, b"\xff" * 64))
        os._exit(0)
    kept = []
    while True:
        if what == "fill":
            kept.append(bytearray(os.urandom(1 << 20) * 16))
        else:
            time.sleep(60)
