"""Is a model folder still the one that was measured? SHA-256 of each file against the list in its provenance.json."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from m3b import untrusted
from m3b.errors import IntegrityError

PROVENANCE_FILE = "provenance.json"
USER_EDITABLE_FILES = ("README.md",)
"""Files that belong to people, who may rewrite them: the model card."""

_LOADABLE_SUFFIXES = (".py", ".pyc", ".pth", ".so", ".safetensors", ".sh")
"""What Python or predict.py would take in if it lay there; other new files, such as predictions, harm nobody."""
_CACHE_FOLDER = "__pycache__"


def sha256_of(file: Path) -> str:
    """Hex digest of a file's content.

    Raises:
        OSError: it cannot be read.
    """
    return untrusted.hash_file(file.parent, file.name)


def hash_files(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file below a folder; Python's caches and the manifest itself left out."""
    return {name: sha256_of(folder / name) for name in sorted(_list_files(folder)) if name != PROVENANCE_FILE}


def find_changes(folder: Path, hashes: Mapping[str, str], editable: Sequence[str] = USER_EDITABLE_FILES) -> list[str]:
    """What differs between a folder and the hashes of its files, each as `NAME was changed`; empty where nothing does.

    Python's caches are removed first: they would be executed in place of what is compared here. Files in `editable` may
    differ. Of files that are not in the list only those count that would be loaded or executed.
    """
    differences = _remove_caches(folder)
    for name, expected in hashes.items():
        file = folder / name
        if name in editable:
            continue
        if file.is_symlink() or not file.is_file():
            differences.append(
                f"{name} is missing" if not os.path.lexists(file) else f"{name} is no plain file any more"
            )
        elif sha256_of(file) != expected:
            differences.append(f"{name} was changed")
    added_names = (name for name in sorted(_list_files(folder)) if name not in hashes)
    return differences + [
        f"{name} was added" for name in added_names if name.endswith(_LOADABLE_SUFFIXES) or (folder / name).is_symlink()
    ]


def verify_integrity(folder: Path) -> None:
    """Compare a model folder with the list of its files. A folder without provenance.json has none to compare with.

    Raises:
        IntegrityError: the list cannot be read, or files differ from it; the message names them.
    """
    provenance_file = folder / PROVENANCE_FILE
    if not provenance_file.is_file():
        return
    try:
        provenance = untrusted.read_json(folder, PROVENANCE_FILE)
        hashes = {str(name): str(value) for name, value in provenance.get("files", {}).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise IntegrityError(
            f"{provenance_file} cannot be read ({error}); take a fresh copy of the model folder"
        ) from error
    if differences := find_changes(folder, hashes):
        summary = ", ".join(differences[:5]) + (f" and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise IntegrityError(
            f"{folder} is not the model that m3b measured and delivered: {summary}. Take a fresh copy of it. If you made "
            f"these changes yourself, delete {PROVENANCE_FILE}: its figures speak of another model."
        )


def _remove_caches(folder: Path) -> list[str]:
    """Remove Python's caches, which are loaded instead of the code that was hashed; say which would not go."""
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
