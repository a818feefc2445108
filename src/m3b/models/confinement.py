"""Run the code of a delivered model in the strongest sandbox of this machine, outside of any run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.errors import ModelError, SandboxError
from m3b.isolation.sandbox import Limits, Mounts, Process, Sandbox, choose_sandbox
from m3b.isolation.sandbox.choose import strongest_untried
from m3b.isolation.untrusted import TemporaryFolder

TIMEOUT_S = 3600.0
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of a prediction sleep while they wait for each other: beside other programs, spinning took ten times the processor time
(benchmarks/RESULTS.md, "Template settings")."""
LOG_BYTES = 20_000
"""Bytes kept from the end of a command's output."""
WITHOUT_SANDBOX = (
    "`--unconfined` (Python: load_model(folder, unconfined=True)) runs the model's code with all of your rights: only for "
    "models that you trust."
)


def model_limits(wall_s: float = TIMEOUT_S) -> Limits:
    """Return the limits of a delivered model.

    It may use all memory of the machine and half of the free disk, but no sockets and no shared memory.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return Limits(memory_mib=memory >> 20, disk_mib=max(1024, free >> 21), wall_s=wall_s, output_kib=64, isolated=True)


def start_confined(
    command: Sequence[str],
    *,
    cwd: Path,
    mounts: Mounts,
    output: Path,
    limits: Limits,
    keep: Sequence[int] = (),
    sandbox: Sandbox | None = None,
) -> Process:
    """Start a command in `sandbox`, or in the strongest sandbox that works here.

    Raises:
        SandboxError: no sandbox works; the message says why, and what can be done.
    """

    def start(backend: Sandbox) -> Process:
        return backend.start(command, cwd=cwd, mounts=mounts, output=output, limits=limits, env=WAITING, keep=keep)

    if sandbox is not None:
        return start(sandbox)
    candidate = strongest_untried()
    if candidate is not None:
        try:
            return start(candidate)
        except SandboxError:
            pass  # `choose_sandbox` finds the reason, or another sandbox
    return start(choose_sandbox("auto", otherwise=WITHOUT_SANDBOX))


def run_confined(
    argv: list[str], *, read: Sequence[Path], place: Path, timeout_s: float = TIMEOUT_S
) -> tuple[int, str]:
    """Run one command to its end and return its exit status and output.

    Args:
        read: files and folders that it may read.
        place: the working directory, the only folder that it may write to.

    Raises:
        SandboxError: as `start_confined`.
        ModelError: it ran longer than `timeout_s` seconds.
    """
    with TemporaryFolder("model") as scratch:
        process = start_confined(
            argv,
            cwd=place,
            mounts=Mounts(read=tuple(read), write=(place,)),
            output=scratch / "output",
            limits=model_limits(timeout_s),
        )
        with undo_on_error(process.stop):
            ended = process.wait() or process.stop()
        log = (scratch / "output").read_text(encoding="utf-8", errors="replace")[-LOG_BYTES:]
    if ended.reason == "wall_time":
        raise ModelError(f"{Path(argv[0]).name} was still running after {timeout_s:g} s; give fewer images at once")
    return ended.code, log if ended.reason == "exit" else f"{log}\nm3b ended it: {ended.reason}"
