"""Removal of runs, and of what a run needs no more when it has ended."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from m3b.errors import UsageError
from m3b.isolation.untrusted import UnsafePathError, is_folder, remove_tree
from m3b.run.folder import RunFolder

CACHE_FOLDER = Path("Logout") / "cache"
"""Folder of a training project with decoded cases, which are made again if they are missing."""


def measure_size(folder: Path) -> int:
    """Return the bytes of all files in a folder; links count nothing."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += (Path(parent) / name).lstat().st_size
    return size


def remove_caches(run: RunFolder) -> None:
    """Remove the decoded cases and the copy of the templates of a run that has ended.

    Only the process that holds the run's lock may call this.
    """
    with contextlib.suppress(OSError, UnsafePathError):
        if is_folder(run.work, str(CACHE_FOLDER.parent)):
            remove_tree(run.work / CACHE_FOLDER)
    with contextlib.suppress(OSError, UnsafePathError):
        (run.work / "resources").unlink(missing_ok=True)
        remove_tree(run.resources)


def check_removable(run: RunFolder) -> None:
    """Check that a run can be removed.

    Raises:
        UsageError: a process works on it, or it is no folder of a run.
    """
    if run.is_busy:
        raise UsageError(f"The run {run.display_name} is at work; stop it first (Ctrl-C, or kill its process).")
    if not (run.path / "run.json").is_file() or run.path.is_symlink():
        raise UsageError(f"{run.path} is no run folder.")


def remove_run(run: RunFolder) -> None:
    """Remove a run folder with everything in it; links are removed and not followed.

    Raises:
        UsageError: see `check_removable`, or the folder cannot be removed.
    """
    check_removable(run)
    run.lock()
    try:
        remove_tree(run.path)
    except OSError as error:
        raise UsageError(f"{run.path} cannot be removed: {error.strerror or error}.") from error
    finally:
        run.unlock()
    if run.path.exists():
        raise UsageError(f"{run.path} cannot be removed completely; check its permissions.")
