"""Remove a private folder, whatever modes the script left on what is in it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable


def remove(folder: str) -> None:
    """Delete the folder if it exists; never follows a link out of it, never raises OSError."""

    def open_up(_: Callable[..., object], path: str, error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)

    if folder:
        for _ in range(3):  # each pass opens what the one before could not enter
            shutil.rmtree(folder, onerror=open_up)
            if not os.path.lexists(folder):
                return
