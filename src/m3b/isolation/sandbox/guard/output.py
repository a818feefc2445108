"""The output file: its first half is fixed and its second half rolls, so that endless output cannot fill the disk."""

from __future__ import annotations

import os
import time

from .quiet import suppress

_REWRITE_S = 0.25


class CappedOutput:
    """Writes to the descriptor `target` at most `size` bytes plus one line that says how much was left out.

    `has_failed` is set if the file can no longer be written, for example on a full disk; that output is lost.
    """

    def __init__(self, target: int, size: int) -> None:
        self._target = target
        self._half = max(1, size // 2)
        self._head = 0
        self._tail = bytearray()
        self._dropped = 0
        self._on_disk = 0  # bytes of the tail that are in the file already, while nothing was dropped
        self._written = 0.0
        self.has_failed = False

    def append(self, data: bytes) -> None:
        """Append a piece of output."""
        head_space = self._half - self._head
        if head_space > 0:
            self._write_at(data[:head_space], self._head)
            self._head += min(head_space, len(data))
            data = data[head_space:]
        if data:
            self._tail += data
            self.flush(force=False)

    def flush(self, force: bool = True) -> None:
        """Update the file; once bytes are dropped and without `force`, at most four times a second."""
        excess = len(self._tail) - self._half
        if excess <= 0 and self._dropped == 0:
            self._write_at(bytes(self._tail[self._on_disk :]), self._head + self._on_disk)
            self._on_disk = len(self._tail)
            return
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess
        now = time.monotonic()
        if force or now - self._written >= _REWRITE_S:
            self._written = now
            content = f"\n[... {self._dropped} bytes of output left out ...]\n".encode() + bytes(self._tail)
            self._write_at(content, self._head)
            with suppress(OSError):
                os.ftruncate(self._target, self._head + len(content))

    def _write_at(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            try:
                done = os.pwrite(self._target, view, offset)
            except OSError:
                self.has_failed = True
                return
            view, offset = view[done:], offset + done
