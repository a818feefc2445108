"""The supervisor: watches one confined command from outside (time, memory, processes, disk, output). Single-threaded.

It reads one message from the control pipe: the length in 8 bytes, then a `SupervisorJob` in marshal format (both sides
are the same Python). The next byte (stop) or the end of the pipe (the caller died) ends the command. It answers on the
status pipe with lines of JSON: `{"started": true}` once the command itself runs, then `{"code": ..., "reason": ...,
"wall_s": ...}`, or `{"failed": "..."}` if the command could not be started.
"""

from __future__ import annotations

import marshal
import os
import select
import time

from . import reaper
from .cleanup import remove_private_folder
from .disk import Growth
from .kernel import become_subreaper, raise_priority
from .output import CappedOutput
from .quiet import suppress
from .reaper import Pipes
from .signals import signal
from .tree import (
    ProcessStat,
    count_machine_threads,
    count_oom_kills,
    estimate_memory,
    find_unlinked_files,
    kill_descendants,
    list_descendants,
    reap_children,
)

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .job import SupervisorJob

_POLL_INTERVAL_S = 0.05
_SCAN_INTERVAL_S = 0.2
_KILLED_EXIT_CODE = 137
_REAPER_TIMEOUT_S = 30.0  # maximum time for the reaper to kill the tree


def main(arguments: list[str]) -> int:
    control, status, output, *private_handles = map(
        int, arguments
    )  # the private handles keep the private folder locked as long as this process runs
    for descriptor in (control, status, output, *private_handles):
        os.set_inheritable(descriptor, False)  # the command must not be able to answer in place of the supervisor
    job: SupervisorJob = marshal.loads(_read_message(control))  # nosec B302  # m3b's own process wrote it, over a pipe of its own
    become_subreaper()
    raise_priority()
    growth = Growth(job["watched"], job["disk"], job["files"])
    pipes = Pipes()
    pid = os.fork()
    if pid == 0:
        os.close(control)  # the status pipe stays open: when it closes, the caller knows that the tree is gone
        reaper.run_reaper(job, pipes)
    for descriptor in (pipes.output[1], pipes.lifeline[0], pipes.ready[1], pipes.done[1], *job["keep"]):
        os.close(descriptor)
    supervisor = Supervisor(job, pipes, pid, control, CappedOutput(output, job["output"]), growth)
    answer = supervisor.watch(status)
    remove_private_folder(job["private"])
    _send_status(status, answer)
    return 0


def _read_message(descriptor: int) -> bytes:
    length = int.from_bytes(_read_exactly(descriptor, 8), "little")
    return _read_exactly(descriptor, length)


def _read_exactly(descriptor: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = os.read(descriptor, length - len(data))
        if not piece:
            raise SystemExit(1)  # the caller died before it sent the job
        data += piece
    return bytes(data)


def _send_status(status: int, answer: Mapping[str, object]) -> None:
    if "failed" in answer:
        import json  # imported late: it takes long, and only this text needs escapes

        text = json.dumps(answer)
    else:
        fields = ((name, "true" if value is True else repr(value).replace("'", '"')) for name, value in answer.items())
        text = "{" + ", ".join(f'"{name}": {value}' for name, value in fields) + "}"
    with suppress(OSError):  # the caller is dead
        os.write(status, text.encode() + b"\n")


class Supervisor:
    """The state of one watched command."""

    def __init__(
        self, job: SupervisorJob, pipes: Pipes, pid: int, control: int, output: CappedOutput, growth: Growth
    ) -> None:
        self._job, self._pipes, self._reaper, self._control = job, pipes, pid, control
        self._output, self._growth = output, growth
        self._started: float | None = None
        self._reason = ""  # why the tree was killed, if it was
        self._report: bytes | None = None  # the final report of the reaper
        self._parent = os.getppid()
        # The first scan waits for one interval: for a short command, reading all of /proc would be much of its cost.
        self._next_scan, self._next_files = time.monotonic() + _SCAN_INTERVAL_S, 0.0
        self._threads = count_machine_threads()
        self._in_memory = self._on_disk = 0
        self._oom_kills = count_oom_kills()
        self._first_output = bytearray()  # the reason, if the command cannot be started

    def watch(self, status: int) -> dict[str, object]:
        """Serve all descriptors until the process tree of the command is gone; return the final status."""
        began = time.monotonic()
        deadline = began + _REAPER_TIMEOUT_S
        poll = select.poll()
        for descriptor in (self._control, self._pipes.output[0], self._pipes.ready[0], self._pipes.done[0]):
            poll.register(descriptor, select.POLLIN)
        while self._report is None:
            for descriptor, _ in poll.poll(int(_POLL_INTERVAL_S * 1000)):
                if not self._serve_descriptor(descriptor, status):
                    poll.unregister(descriptor)
            self._output.flush(force=False)
            if not self._reason:
                self._check(time.monotonic() - (self._started or began))
                deadline = time.monotonic() + _REAPER_TIMEOUT_S
            elif time.monotonic() > deadline:
                os.kill(self._reaper, signal.SIGKILL)
                break
        clean = kill_descendants(os.getpid())  # nothing is left unless the reaper was killed
        reap_children()
        self._drain()
        return self._final_status(time.monotonic() - (self._started or began), clean)

    def _serve_descriptor(self, descriptor: int, status: int) -> bool:
        """Handle input of a descriptor; return False at its end."""
        data = os.read(descriptor, 1 << 20 if descriptor == self._pipes.output[0] else 1 << 12)
        if descriptor == self._pipes.output[0]:
            self._output.append(data)
            if self._started is None:
                self._first_output += data[: 4096 - len(self._first_output)]
        elif descriptor == self._pipes.ready[0]:
            if data:
                self._started = time.monotonic()
                _send_status(status, {"started": True})
        elif descriptor == self._pipes.done[0]:
            self._report = data
        else:
            self._end_tree("stopped")
        return bool(data)

    def _end_tree(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason
            with suppress(OSError):  # the reaper has ended already
                os.write(self._pipes.lifeline[1], b"k")

    def _check(self, wall_s: float) -> None:
        if os.getppid() != self._parent:
            self._end_tree("stopped")  # the caller died, but a fork of it still holds the control pipe open
        if wall_s > self._job["wall_s"]:
            self._end_tree("wall_time")
        now, threads = time.monotonic(), count_machine_threads()
        if now >= self._next_scan or threads - self._threads > self._job["processes"] // 4:
            self._threads = threads
            self._scan(now)
        if reason := self._growth.step(self._on_disk) or ("disk" if self._output.has_failed else ""):
            self._end_tree(reason)

    def _scan(self, now: float) -> None:
        tree = list_descendants(self._reaper)
        threads = sum(s.threads for s in tree.values())
        if len(tree) > self._job["processes"] or threads > self._job["confinement"]["threads"]:
            self._end_tree("processes")
            return
        if now >= self._next_files:
            self._measure_unlinked_files(tree)
        if estimate_memory(tree, self._in_memory, self._job["memory"]) > self._job["memory"]:
            self._end_tree("memory")
        finished_at = time.monotonic()
        self._next_scan = finished_at + max(_SCAN_INTERVAL_S, 20 * (finished_at - now))

    def _measure_unlinked_files(self, tree: dict[int, ProcessStat]) -> None:
        now = time.monotonic()
        files = find_unlinked_files(tree).values()
        self._in_memory = sum(size for size, in_memory in files if in_memory)
        self._on_disk = sum(size for size, in_memory in files if not in_memory)
        finished_at = time.monotonic()
        self._next_files = finished_at + max(0.5, 20 * (finished_at - now))

    def _drain(self) -> None:
        """Read the rest of the output pipe; its other end is closed once the tree is gone."""
        source = self._pipes.output[0]
        os.set_blocking(source, False)
        with suppress(BlockingIOError):
            while data := os.read(source, 1 << 20):
                self._output.append(data)
                if self._started is None:
                    self._first_output += data[: 4096 - len(self._first_output)]
        self._output.flush()

    def _final_status(self, wall_s: float, clean: bool) -> dict[str, object]:
        report = marshal.loads(self._report) if self._report else None  # nosec B302  # m3b's own process wrote it, over a pipe of its own
        if not self._reason and report is not None and report["status"] is not None:
            if self._started is None and not self._has_launched():
                return {"failed": self._first_output.decode(errors="replace").strip() or "it ended without a message"}
            code = os.waitstatus_to_exitcode(report["status"])
            code = code if code >= 0 else 128 - code
            by_kernel = code == _KILLED_EXIT_CODE and count_oom_kills() > self._oom_kills
            return {"code": code, "reason": "memory" if by_kernel else "exit", "wall_s": wall_s}
        reason = self._reason or "lost"
        if not clean or (report is not None and not report["clean"]):
            reason = "lost"
        return {"code": _KILLED_EXIT_CODE, "reason": reason, "wall_s": wall_s}

    def _has_launched(self) -> bool:
        """Return whether the byte of the launcher is in the pipe, not yet read when the command ended."""
        ready = self._pipes.ready[0]
        os.set_blocking(ready, False)
        with suppress(BlockingIOError):
            return os.read(ready, 1) != b""
        return False
