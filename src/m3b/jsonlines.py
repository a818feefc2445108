"""Files of one JSON object a line that grow while something runs: a crash tears their last line, and that one alone."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from m3b import untrusted


def iter_complete_lines(file: Path) -> Iterator[bytes]:
    """The lines with their breaks, without a last one that is torn or being written; none where there is no file."""
    if not file.is_file():
        return
    with io.BufferedReader(untrusted.open_file(file.parent, file.name)) as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield line


def iter_objects(file: Path) -> Iterator[dict[str, Any]]:
    """The object of each whole line; what is none is left out."""
    for line in iter_complete_lines(file):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def truncate_torn_line(file: Path) -> None:
    """Cut off what a crash left of a last line, so that the next one begins on a line of its own."""
    complete_size = sum(map(len, iter_complete_lines(file)))
    if file.stat().st_size > complete_size:
        os.truncate(file, complete_size)
