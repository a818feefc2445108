"""Natural order: case_2 before case_10."""

from __future__ import annotations

import re

_RUN = re.compile(r"(\d+)", re.ASCII)


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key that reads runs of digits as numbers."""
    return tuple((0, int(part)) if part.isdecimal() and part.isascii() else (1, part) for part in _RUN.split(name))
