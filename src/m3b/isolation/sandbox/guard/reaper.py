"""The parent of the confined command: adopts its orphans, and kills them all when the supervisor says so or dies.

The two processes watch each other. If the supervisor dies, the lifeline closes and the reaper kills the tree. If the
reaper dies, the supervisor inherits the tree and kills it.
"""

from __future__ import annotations

import marshal
import os
import select
import sys

from .kernel import PR_SET_PDEATHSIG, become_subreaper, prctl, raise_priority
from .signals import signal
from .tree import kill_descendants, reap_children

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from typing import NoReturn

    from .job import SupervisorJob


class Pipes:
    """The descriptors between supervisor and reaper, each a (read, write) pair."""

    def __init__(self) -> None:
        self.output = os.pipe()
        self.lifeline = os.pipe()  # supervisor -> reaper: any byte, or end of file, means kill
        self.ready = os.pipe()  # launcher -> supervisor: one byte just before it executes the command
        self.done = os.pipe()  # reaper -> supervisor: {"status": wait status or null, "clean": bool}


def run_reaper(job: SupervisorJob, pipes: Pipes) -> NoReturn:
    """Start the command, wait for its end or for the lifeline, kill all remaining processes, report and exit."""
    for descriptor in (pipes.output[0], pipes.lifeline[1], pipes.ready[0], pipes.done[0]):
        os.close(descriptor)
    become_subreaper()
    raise_priority()
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    os.set_blocking(wakeup_read, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    command = _start_command(job, pipes)
    for descriptor in (pipes.output[1], pipes.ready[1], *job["keep"]):
        os.close(descriptor)
    status = _wait_for_end(command, pipes.lifeline[0], wakeup_read)
    clean = kill_descendants(os.getpid())
    report = marshal.dumps({"status": status, "clean": clean})
    try:
        os.write(pipes.done[1], report)
    except OSError:
        from .cleanup import (
            remove_private_folder,  # imported late: only this rare path needs it
        )

        remove_private_folder(job["private"])  # the supervisor, which usually removes it, is dead
    os._exit(0)


def _wait_for_end(command: int, lifeline: int, wakeup_read: int) -> int | None:
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(wakeup_read, select.POLLIN)
    while True:
        exit_statuses = reap_children()
        if command in exit_statuses:
            return exit_statuses[command]
        for descriptor, _ in poll.poll():
            if descriptor == lifeline:
                return None
            os.read(wakeup_read, 4096)


def _start_command(job: SupervisorJob, pipes: Pipes) -> int:
    config = os.memfd_create("m3b-confinement")  # not an argument: those have a length limit and are visible in ps
    os.write(config, marshal.dumps(dict(job["confinement"])))
    ready = pipes.ready[1]
    launch = [str(config), str(ready)]
    argv = [*job["outer"], *job["launcher"], *launch]
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(config)
        return pid
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(pipes.output[1], 1)
        os.dup2(pipes.output[1], 2)
        os.set_inheritable(config, True)
        os.set_inheritable(ready, True)
        os.set_inheritable(job["guards"], bool(job["outer"]))
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            if not job["outer"]:  # without bubblewrap a second interpreter would only cost time
                from . import launcher

                os._exit(launcher.main(launch))
            os.execve(argv[0], argv, {"PATH": "/usr/bin:/bin"})
    except OSError as error:
        os.write(2, f"cannot start {argv[0] if job['outer'] else 'the command'}: {error}\n".encode())
    except BaseException:  # noqa: BLE001 - this process must end here
        sys.excepthook(*sys.exc_info())  # the supervisor reports it as the reason
    finally:
        os._exit(126)
