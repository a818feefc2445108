"""What a killed process leaves behind: half-written files, copies of test images, temporary folders."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from m3b.run.folder import RunFolder
from m3b.untrusted import UnsafePathError, is_folder, remove_tree, walk
from m3b.untrusted.temporary import sweep_temporary

SCRATCH_FOLDER = "scratch"
"""Where the Data Engineer's working directory lies while others train; see `m3b.run.training_view`."""
PARTIAL_WORK_FOLDER = ".work.part"
"""The working directory of those who train, until it takes the place of the Data Engineer's."""

FROZEN_FOLDER = ".frozen"
"""Below it lies what was handed over while it is looked at."""
RUN_LEFTOVER_PATTERNS = (".staged-*", ".output-*", ".model.part", ".resources.part", ".view.part", FROZEN_FOLDER)
"""Test images staged for predict.py, outputs of checks, copies that were not made to their end."""
LOCKED_LEFTOVER_PATTERNS = (".model.part", "*.accepted")
"""A model that was being copied; an earlier one that was set aside while another was measured, which is done again."""

_REPLACE_TEXT_PATTERN = re.compile(r"\.[\w-]+\.(?:json|html|md)\.\d+")
"""What `m3b.writing.write_text_atomically` writes first."""
_WRITE_WHOLE_PATTERN = re.compile(r"(?:.*/)?\.[^/]{1,100}\.[0-9a-f]{12}\.tmp")
"""What `m3b.untrusted.write_whole` writes first."""


def remove_leftovers(run: RunFolder) -> None:
    """Remove what processes that were killed left in the run's folder and among the temporary files of the system.

    Only the process that holds the run's lock may call it.
    """
    for folder, patterns in ((run.path, RUN_LEFTOVER_PATTERNS), (run.locked, LOCKED_LEFTOVER_PATTERNS)):
        for pattern in patterns:
            for leftover in folder.glob(pattern):
                remove_tree(leftover)
    for folder in _list_protected_folders(run):
        for leftover in folder.glob(".*"):
            if _REPLACE_TEXT_PATTERN.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)
    if not (run.path / SCRATCH_FOLDER).is_dir():  # else it is whole, and about to take its place
        remove_tree(run.path / PARTIAL_WORK_FOLDER)
    _remove_partial_files(run.work)
    sweep_temporary()


def _list_protected_folders(run: RunFolder) -> list[Path]:
    """The run's folder, and those in it that no script writes to."""
    script_folders = {run.work.name, SCRATCH_FOLDER, PARTIAL_WORK_FOLDER}
    subfolders = [
        entry
        for entry in run.path.iterdir()
        if entry.name not in script_folders and not entry.is_symlink() and entry.is_dir()
    ]
    return [run.path, *subfolders]


def _remove_partial_files(work: Path) -> None:
    if not is_folder(work.parent, work.name):
        return
    with contextlib.suppress(OSError, UnsafePathError):
        for entry in list(walk(work)):
            if entry.kind == "file" and _WRITE_WHOLE_PATTERN.fullmatch(entry.name):
                remove_tree(work / entry.name)
