"""No confinement: only a clean environment, limits, and the end of the whole tree. Never chosen by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.sandbox import job
from m3b.sandbox.base import Limits, Mounts
from m3b.sandbox.process import Process
from m3b.untrusted import TemporaryFolder


class Unconfined:
    """Runs commands as the user, who can read and change everything that the user can."""

    name = "off"
    level = (
        "off: NOT confined. Scripts read and write whatever you can and reach the network; only the environment is "
        "clean, the limits hold and no process is left behind."
    )

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
        """See `Sandbox.start`; the mounts only say whose growth is watched."""
        mounts = job.resolve_mounts(mounts, cwd)
        folder = TemporaryFolder("sandbox")
        with undo_on_error(folder.close):
            private = str(folder.path)
            supervisor_job = job.make_supervisor_job(
                command,
                cwd=cwd,
                mounts=mounts,
                env=env or {},
                limits=limits or Limits(),
                private=private,
                keep=keep,
                home=private,
                unprivileged=False,
            )
            return Process(supervisor_job, output, folder)
