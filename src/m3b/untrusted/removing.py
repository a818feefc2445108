"""A folder deleted whatever a script built in it, without recursion and without following a link."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Delete a folder whatever was built in it: however deep, whatever its permissions; links are not followed.

    What cannot be deleted stays; nothing is raised.
    """
    with contextlib.suppress(OSError):
        if not folder.is_symlink() and folder.is_dir():
            os.chmod(folder, 0o700)
            _remove_contents(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            folder.rmdir()
        else:
            folder.unlink()


def _remove_contents(top: int) -> None:
    """Delete all that is below a descriptor, which is closed. Deep folders are moved up to the top first, so that
    neither recursion nor the length of a path grows with the depth."""
    try:
        n_moved, prefix = 0, f".{secrets.token_hex(8)}-"
        while names := os.listdir(top):
            n_before = n_moved
            for name in names:
                n_moved += _remove_entry(top, name, prefix, n_moved)
            if n_moved == n_before and os.listdir(top):
                return  # what is left cannot be deleted
    finally:
        os.close(top)


def _remove_entry(top: int, name: str, prefix: str, n_moved: int) -> int:
    """Delete one entry of the top folder, or move its sub-folders up beside it; returns how many steps were made."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=top)
        return 1
    n_steps = 0
    with contextlib.suppress(OSError):
        os.chmod(name, 0o700, dir_fd=top)
        subfolder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        try:
            for entry in os.listdir(subfolder):
                try:
                    os.unlink(entry, dir_fd=subfolder)
                except OSError:
                    with contextlib.suppress(OSError):
                        os.chmod(entry, 0o700, dir_fd=subfolder, follow_symlinks=True)
                    os.rename(entry, f"{prefix}{n_moved + n_steps}", src_dir_fd=subfolder, dst_dir_fd=top)
                n_steps += 1
        finally:
            os.close(subfolder)
        os.rmdir(name, dir_fd=top)
        n_steps += 1
    return n_steps
