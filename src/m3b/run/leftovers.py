"""What a killed process leaves behind: half-written files, copies of test images, temporary folders."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from m3b.run.folder import Run
from m3b.untrusted import Unsafe, is_folder, remove_tree, walk
from m3b.untrusted.temporary import sweep_temporary

SCRATCH = "scratch"
"""Where the Data Engineer's working directory lies while others train; see `m3b.run.training_view`."""
WORK_PART = ".work.part"
"""The working directory of those who train, until it takes the place of the Data Engineer's."""

FROZEN = ".frozen"
"""Below it lies what was handed over while it is looked at."""
IN_RUN = (".staged-*", ".output-*", ".model.part", ".resources.part", ".view.part", FROZEN)
"""Test images staged for predict.py, outputs of checks, copies that were not made to their end."""
IN_LOCKED = (".model.part", "*.accepted")
"""A model that was being copied; an earlier one that was set aside while another was measured, which is done again."""

_REPLACE_TEXT_PATTERN = re.compile(r"\.[\w-]+\.(?:json|html|md)\.\d+")
"""What `m3b.writing.replace_text` writes first."""
_WRITE_WHOLE_PATTERN = re.compile(r"(?:.*/)?\.[^/]{1,100}\.[0-9a-f]{12}\.tmp")
"""What `m3b.untrusted.write_whole` writes first."""


def sweep(run: Run) -> None:
    """Remove what processes that were killed left in the run's folder and among the temporary files of the system.

    Only the process that holds the run's lock may call it.
    """
    for folder, patterns in ((run.folder, IN_RUN), (run.locked, IN_LOCKED)):
        for pattern in patterns:
            for leftover in folder.glob(pattern):
                remove_tree(leftover)
    for folder in _own(run):
        for leftover in folder.glob(".*"):
            if _REPLACE_TEXT_PATTERN.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)
    if not (run.folder / SCRATCH).is_dir():  # else it is whole, and about to take its place
        remove_tree(run.folder / WORK_PART)
    _remove_partial_files(run.work)
    sweep_temporary()


def _own(run: Run) -> list[Path]:
    """The run's folder, and those in it that no script writes to."""
    script_folders = {run.work.name, SCRATCH, WORK_PART}
    subfolders = [
        entry
        for entry in run.folder.iterdir()
        if entry.name not in script_folders and not entry.is_symlink() and entry.is_dir()
    ]
    return [run.folder, *subfolders]


def _remove_partial_files(work: Path) -> None:
    if not is_folder(work.parent, work.name):
        return
    with contextlib.suppress(OSError, Unsafe):
        for entry in list(walk(work)):
            if entry.kind == "file" and _WRITE_WHOLE_PATTERN.fullmatch(entry.name):
                remove_tree(work / entry.name)
