"""What `contextlib.suppress` does, without the modules that it needs: the guards start with every command."""

from __future__ import annotations


class suppress:
    """Leave the block where one of these exceptions is raised, and go on behind it."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)
