"""Integrity of model folders: the SHA-256 of each file, compared with the list in provenance.json."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from m3b.display import shorten
from m3b.errors import IntegrityError
from m3b.isolation import untrusted

PROVENANCE_FILE = "provenance.json"
USER_EDITABLE_FILES = ("README.md",)
"""Files that users may rewrite: the model card."""

_LOADABLE_SUFFIXES = (".py", ".pyc", ".pth", ".so", ".safetensors", ".sh")
"""Files that Python or predict.py would load if they were present; other new files, such as predictions, are harmless.
"""
_CACHE_FOLDER = "__pycache__"


def sha256_of(file: Path) -> str:
    """Return the hex digest of a file's content.

    Raises:
        OSError: the file cannot be read.
    """
    return untrusted.hash_file(file.parent, file.name)


def hash_files(folder: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 of every file below a folder, except Python's caches and provenance.json."""
    return {name: sha256_of(folder / name) for name in sorted(_list_files(folder)) if name != PROVENANCE_FILE}


def find_changes(
    folder: Path,
    hashes: Mapping[str, str],
    editable: Sequence[str] = USER_EDITABLE_FILES,
    *,
    counts_all_added: bool = False,
) -> list[str]:
    """Return the differences between a folder and its hashes, each as `NAME was changed`; empty if there are none.

    Python's caches are removed first: they would be executed instead of the files that are compared here. Files in
    `editable` may differ. Files that are not in the list only count if they would be loaded or executed, or with
    `counts_all_added`.
    """
    differences = _remove_caches(folder)
    for name, expected in hashes.items():
        file = folder / name
        if name in editable:
            continue
        if file.is_symlink() or not file.is_file():
            differences.append(
                f"{name} is missing" if not os.path.lexists(file) else f"{name} is no longer a regular file"
            )
        elif sha256_of(file) != expected:
            differences.append(f"{name} was changed")
    added_names = (name for name in sorted(_list_files(folder)) if name not in hashes)
    return differences + [
        f"{name} was added"
        for name in added_names
        if counts_all_added or name.endswith(_LOADABLE_SUFFIXES) or (folder / name).is_symlink()
    ]


def verify_integrity(folder: Path) -> None:
    """Compare a model folder with the list of its files; a folder without provenance.json is not compared.

    Raises:
        IntegrityError: the list cannot be read, or files differ from it; the message names them.
    """
    provenance_file = folder / PROVENANCE_FILE
    if not provenance_file.is_file():
        return
    try:
        provenance = untrusted.parse_data_json(untrusted.read_bytes(folder, PROVENANCE_FILE))
        differences = find_changes(folder, {name: str(value) for name, value in provenance.get("files", {}).items()})
    except (OSError, ValueError, AttributeError) as error:
        raise IntegrityError(
            f"the files of {provenance_file} cannot be read ({shorten(error)}); take a fresh copy of the model folder"
        ) from error
    if differences:
        summary = ", ".join(differences[:5]) + (f" and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise IntegrityError(
            f"{folder} is not the model that m3b measured and delivered: {summary}. Take a fresh copy of it. If you made "
            f"these changes yourself, delete {PROVENANCE_FILE}: its metrics belong to the model before the changes."
        )


def _remove_caches(folder: Path) -> list[str]:
    """Remove Python's caches, which are loaded instead of the hashed code; return those that could not be removed."""
    remaining = []
    for cache in sorted(folder.rglob(_CACHE_FOLDER)):
        shutil.rmtree(cache, ignore_errors=True)
        if os.path.lexists(cache):
            remaining.append(f"{cache.relative_to(folder)} holds bytecode that nobody checked")
    return remaining


def _list_files(folder: Path) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != _CACHE_FOLDER]
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        for name in (*files, *links):
            yield os.path.relpath(os.path.join(root, name), folder)
