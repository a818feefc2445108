"""The error of this package, which also works as a copy in a project or delivered model, without m3b."""

from __future__ import annotations

try:
    from ...errors import DataError  # noqa: TID252 - that of m3b; a copy of the package has no such parent
except ImportError:

    class DataError(Exception):  # type: ignore[no-redef]
        """An image, mask or array that cannot be used; the message names the file and the reason."""

        def __init__(self, message: str = "", *, code: str = "") -> None:
            super().__init__(message)
            self.code = code


__all__ = ["DataError"]
