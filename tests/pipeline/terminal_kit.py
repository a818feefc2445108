"""The command on a terminal of its own: a real pty, with somebody who types."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 120
"""Only a command that hangs waits so long."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")


@dataclass
class Terminal:
    """A process whose standard streams are one terminal of 24 x `columns`."""

    process: subprocess.Popen[bytes]
    master: int
    output: bytes = b""

    @property
    def text(self) -> str:
        """All that was written so far, without colours and moves of the cursor."""
        return ESCAPES.sub("", self.output.decode("utf-8", "replace")).replace("\r\n", "\n")

    def read(self) -> bool:
        """More output; False at its end."""
        ready, _, _ = select.select([self.master], [], [], PATIENCE_S)
        if not ready:
            raise AssertionError(f"nothing came for {PATIENCE_S} s after:\n{self.text[-2000:]}")
        try:
            chunk = os.read(self.master, 65536)
        except OSError:  # Linux says so when the last process has closed its side
            return False
        self.output += chunk
        return bool(chunk)

    def wait_for(self, words: str) -> str:
        while words not in self.text:
            if not self.read():
                raise AssertionError(f"{words!r} was never shown:\n{self.text[-3000:]}")
        return self.text

    def type(self, line: str) -> None:
        os.write(self.master, line.encode() + b"\n")

    def end(self) -> tuple[int, str]:
        """Exit status and everything that was shown."""
        while self.read():
            pass
        return self.process.wait(timeout=PATIENCE_S), self.text


@contextlib.contextmanager
def terminal(command: list[str], *, env: dict[str, str], cwd: Path, columns: int = 100) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    env = {**env, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "24"}
    process = subprocess.Popen(
        command, env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
