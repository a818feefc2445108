"""A copy of `contextlib.suppress` without its imports, because the guards start with every command."""

from __future__ import annotations


class suppress:
    """Context manager that suppresses these exceptions."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)
