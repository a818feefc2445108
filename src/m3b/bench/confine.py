"""Running a delivered model on hidden cases: anonymous copies, in the sandbox, without the benchmark's folders."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.sandbox import Limits, Mounts, Sandbox

POLL_S = 0.05
PREDICT_TIMEOUT_S = 3600.0


def make_confined_runner(
    sandbox: Sandbox, model: Path, scratch: Path, wall_s: float = PREDICT_TIMEOUT_S
) -> Callable[..., tuple[int, str]]:
    """A `Run` for `m3b.models.run_predict`: the command sees the model, its images and the folder of its output."""

    def run(argv: list[str], cwd: Path, out: Path) -> tuple[int, str]:
        handle, name = tempfile.mkstemp(dir=scratch, prefix=".output-")
        os.close(handle)
        log = Path(name)
        mounts = Mounts(read=(model.resolve(), cwd), write=(out.parent,))
        process = sandbox.start(
            argv, cwd=cwd, mounts=mounts, output=log, limits=Limits(wall_s=wall_s, isolated=True), env={}
        )
        with undo_on_error(process.stop):
            while (ending := process.wait(POLL_S)) is None:
                pass
        text = log.read_text(encoding="utf-8", errors="replace")
        log.unlink(missing_ok=True)
        return ending.code, text if ending.reason == "exit" else f"{text}\nm3b ended it: {ending.reason}"

    return run
