"""Files with one JSON object per line that grow during a run; a crash can leave only the last line incomplete."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from m3b.isolation import untrusted


def iter_complete_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines with their line breaks, without an incomplete last one; nothing if there is no file."""
    if not file.is_file():
        return
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield line


def iter_objects(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the object of each complete line; lines without a JSON object are ignored."""
    for line in iter_complete_lines(file):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def truncate_torn_line(file: Path) -> None:
    """Cut off an incomplete last line after a crash, so that the next line begins on its own."""
    complete_size = sum(map(len, iter_complete_lines(file)))
    if file.stat().st_size > complete_size:
        os.truncate(file, complete_size)
