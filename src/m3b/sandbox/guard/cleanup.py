"""Remove a private folder, whatever modes the script left on what is in it."""

from __future__ import annotations

import os

from .quiet import suppress

TYPE_CHECKING = False  # what the module typing says; importing it takes longer than all else here
if TYPE_CHECKING:
    from collections.abc import Callable


def remove_private_folder(folder: str) -> None:
    """Delete the folder if it exists; never follows a link out of it, never raises OSError."""

    def open_up(_: Callable[..., object], path: str, error: object) -> None:
        for candidate in (os.path.dirname(path), path):
            is_inside = candidate == folder or candidate.startswith(
                folder + os.sep
            )  # never touch the folder that ours lies in
            if is_inside and os.path.isdir(candidate) and not os.path.islink(candidate):
                with suppress(OSError):
                    os.chmod(candidate, 0o700)

    folder = folder.rstrip(os.sep)
    with suppress(OSError, RecursionError):
        if folder:
            _remove_tree(folder)
            return
    import shutil  # takes long to import, and what is built in the way of a plain removal is rare

    for _ in range(3 if folder else 0):  # each pass opens what the one before could not enter
        shutil.rmtree(folder, onerror=open_up)
        if not os.path.lexists(folder):
            return


def _remove_tree(folder: str) -> None:
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(folder)
