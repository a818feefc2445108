"""The error of this package, which also works as a copy in a delivered model, without m3b."""

from __future__ import annotations

try:
    from m3b.errors import DataError
except ImportError:

    class DataError(Exception):  # type: ignore[no-redef]
        """A data card, index or image that cannot be used."""


__all__ = ["DataError"]
