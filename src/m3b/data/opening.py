"""The boundary to readers of other people's formats: whatever one raises on a damaged file becomes a typed answer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TypeVar

from m3b.isolation.untrusted import announce_opening

Answer = TypeVar("Answer")


class Unreadable(ValueError):
    """A file that its reader gives up on; `code` is a note's code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def attempt(read: Callable[[], Answer], *file: str | os.PathLike[str]) -> Answer:
    """What a reader answers, its warnings unheard.

    Args:
        file: the parts of the path that is opened, which whoever waits for this process is told.

    Raises:
        Unreadable: it raised anything.
    """
    try:
        if file:
            announce_opening(*file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except Unreadable:
        raise
    except MemoryError as error:
        raise Unreadable("large", str(error)) from error
    except OSError as error:
        raise Unreadable("unreadable" if isinstance(error, PermissionError) else "damaged", str(error)) from error
    except Exception as error:  # foreign decoders raise what they like on broken files
        bomb = type(error).__name__ == "DecompressionBombError"  # Pillow's, which is not imported for its name
        raise Unreadable("bomb" if bomb else "damaged", f"{type(error).__name__}: {error}") from error
