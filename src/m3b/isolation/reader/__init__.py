"""The confined reader: one process that opens untrusted files for m3b and returns typed results over a pipe.

`Reader.run_job` sends a `WorkerJob` with its input and returns the output. The process has no network and no keys,
reads the data only, and has limits on memory and time. If a file crashes it, only that file is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from m3b.isolation.reader.worker_job import WorkerJob

if TYPE_CHECKING:
    from m3b.isolation.reader.client import Reader

__all__ = ["Reader", "WorkerJob"]


def __getattr__(name: str) -> object:
    if name == "Reader":  # imported on demand, because it loads the sandbox
        from m3b.isolation.reader.client import Reader

        return Reader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
