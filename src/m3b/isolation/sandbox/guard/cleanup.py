"""Removal of a private folder, even if a script changed the permissions of its contents."""

from __future__ import annotations

import os

from .quiet import suppress

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Callable


def remove_private_folder(folder: str) -> None:
    """Delete the folder if it exists. Follows no link out of it and raises no OSError."""

    def make_accessible(_: Callable[..., object], path: str, error: object) -> None:
        for candidate in (os.path.dirname(path), path):
            is_inside = candidate == folder or candidate.startswith(
                folder + os.sep
            )  # never change the parent of the private folder
            if is_inside and os.path.isdir(candidate) and not os.path.islink(candidate):
                with suppress(OSError):
                    os.chmod(candidate, 0o700)

    folder = folder.rstrip(os.sep)
    with suppress(OSError, RecursionError):
        if folder:
            _remove_tree(folder)
            return
    import shutil  # imported late: it takes long, and a failed plain removal is rare

    for _ in range(3 if folder else 0):  # each pass makes folders accessible that the previous one could not enter
        shutil.rmtree(folder, onerror=make_accessible)
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
