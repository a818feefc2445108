"""Is a model folder still the one that was measured? SHA-256 of each file against the list in its provenance.json."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from m3b import untrusted
from m3b.errors import IntegrityError

MANIFEST = "provenance.json"
FREE = ("README.md",)
"""Files that belong to people, who may rewrite them: the model card."""

_LOADABLE_SUFFIXES = (".py", ".pyc", ".pth", ".so", ".safetensors", ".sh")
"""What Python or predict.py would take in if it lay there; other new files, such as predictions, harm nobody."""
_CACHES = "__pycache__"


def sha256_of(file: Path) -> str:
    """Hex digest of a file's content.

    Raises:
        OSError: it cannot be read.
    """
    return untrusted.sha256(file.parent, file.name)


def hashes_of(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file below a folder; Python's caches and the manifest itself left out."""
    return {name: sha256_of(folder / name) for name in sorted(_files(folder)) if name != MANIFEST}


def changes(folder: Path, hashes: Mapping[str, str], free: Sequence[str] = FREE) -> list[str]:
    """What differs between a folder and the hashes of its files, each as `NAME was changed`; empty where nothing does.

    Python's caches are removed first: they would be executed in place of what is compared here. Files in `free` may
    differ. Of files that are not in the list only those count that would be loaded or executed.
    """
    differences = _remove_caches(folder)
    for name, expected in hashes.items():
        file = folder / name
        if name in free:
            continue
        if file.is_symlink() or not file.is_file():
            differences.append(
                f"{name} is missing" if not os.path.lexists(file) else f"{name} is no plain file any more"
            )
        elif sha256_of(file) != expected:
            differences.append(f"{name} was changed")
    added_names = (name for name in sorted(_files(folder)) if name not in hashes)
    return differences + [
        f"{name} was added" for name in added_names if name.endswith(_LOADABLE_SUFFIXES) or (folder / name).is_symlink()
    ]


def verify(folder: Path) -> None:
    """Compare a model folder with the list of its files. A folder without provenance.json has none to compare with.

    Raises:
        IntegrityError: the list cannot be read, or files differ from it; the message names them.
    """
    provenance_file = folder / MANIFEST
    if not provenance_file.is_file():
        return
    try:
        provenance = untrusted.read_json(folder, MANIFEST)
        hashes = {str(name): str(value) for name, value in provenance.get("files", {}).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise IntegrityError(
            f"{provenance_file} cannot be read ({error}); take a fresh copy of the model folder"
        ) from error
    if differences := changes(folder, hashes):
        summary = ", ".join(differences[:5]) + (f" and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise IntegrityError(
            f"{folder} is not the model that m3b measured and delivered: {summary}. Take a fresh copy of it. If you made "
            f"these changes yourself, delete {MANIFEST}: its figures speak of another model."
        )


def _remove_caches(folder: Path) -> list[str]:
    """Remove Python's caches, which are loaded instead of the code that was hashed; say which would not go."""
    remaining = []
    for cache in sorted(folder.rglob(_CACHES)):
        shutil.rmtree(cache, ignore_errors=True)
        if os.path.lexists(cache):
            remaining.append(f"{cache.relative_to(folder)} holds bytecode that nobody checked")
    return remaining


def _files(folder: Path) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != _CACHES]
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        for name in (*files, *links):
            yield os.path.relpath(os.path.join(root, name), folder)
