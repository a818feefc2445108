"""How a file of a data set comes into a copy of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def link_or_copy(source: Path, target: Path, link: Callable[[Path, Path], None] = os.link) -> None:
    """`source` at `target`: linked, or copied where that is refused."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        link(source, target)
    except OSError:
        shutil.copy2(source, target)
