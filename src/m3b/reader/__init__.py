"""One confined process that opens untrusted files for m3b, and answers in typed summaries over a pipe.

`Reader.ask` sends a `Request` with its question and returns the answer. The process has no network, no keys, the data
read-only, and limits on memory and time; a file that ends it costs that file alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from m3b.reader.worker_job import WorkerJob

if TYPE_CHECKING:
    from m3b.reader.client import Reader

__all__ = ["Reader", "WorkerJob"]


def __getattr__(name: str) -> object:
    if name == "Reader":  # imported when asked for: it loads the sandbox
        from m3b.reader.client import Reader

        return Reader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
