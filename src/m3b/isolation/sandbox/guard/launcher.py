"""The last step inside the sandbox: limit and confine this process, then execute the command.

The arguments are two descriptors: one to read the `Confinement` from, and one to write a byte to once all is set up.
"""

from __future__ import annotations

import marshal
import os
import resource
import sys

from .kernel import PR_SET_NO_NEW_PRIVS, drop_capabilities, install_filter, prctl
from .quiet import suppress
from .signals import signal
from .tree import count_user_threads

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from .job import Confinement

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit codes as of a shell


def main(arguments: list[str]) -> int:
    config_fd, ready_fd = map(int, arguments)
    with open(config_fd, "rb") as file:
        file.seek(0)  # the file position is shared with the process that wrote it
        confinement: Confinement = marshal.loads(file.read())  # nosec B302  # m3b's own process wrote it, over a pipe of its own
    os.chdir(confinement["cwd"])
    _apply_limits(confinement)
    _confine(confinement)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores both, and the command would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.write(ready_fd, b"+")
    os.close(ready_fd)
    return _exec_command(confinement["command"], confinement["env"])


def _apply_limits(confinement: Confinement) -> None:
    # Some containers forbid it. It only makes the kernel kill this process first when memory runs out.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    rlimits = dict(confinement["rlimits"])
    rlimits["NPROC"] = confinement["threads"] + (0 if _is_exempt() else count_user_threads(os.getuid()))
    for name, value in rlimits.items():
        resource_id = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(resource_id)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(resource_id, (value, value))


def _is_exempt() -> bool:
    """Return whether the kernel does not apply the limit of processes: for the machine's own root."""
    if os.getuid() != 0:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def _confine(confinement: Confinement) -> None:
    if confinement["unprivileged"]:
        drop_capabilities()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    landlock = confinement["landlock"]
    if landlock is not None:
        from . import rules  # imported late, because bubblewrap does not need it

        rules.restrict_process(landlock["read"], landlock["write"], landlock["devices"])
    if confinement["filter"]:
        install_filter(confinement["filter"])


def _exec_command(command: list[str], env: dict[str, str]) -> int:
    try:
        os.execvpe(command[0], command, env)
    except FileNotFoundError:
        print(f"m3b: command not found: {command[0]}", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"m3b: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE
