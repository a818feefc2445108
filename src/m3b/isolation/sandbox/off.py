"""The backend without confinement: a clean environment, limits, and no process left behind. Used only on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.isolation.sandbox import job
from m3b.isolation.sandbox.base import Limits, Mounts
from m3b.isolation.sandbox.process import Process
from m3b.isolation.untrusted import TemporaryFolder


class Unconfined:
    """Runs commands as the user, with all the user's rights."""

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
        """Start a command as `Sandbox.start`; the mounts only determine which folders are watched for growth."""
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
