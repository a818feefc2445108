"""The formats that are known, and which of them a file or folder has, by its name and its first bytes.

Formats of other packages are found by the entry point group `m3b.formats`, whose entries name instances of `Format`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from .base import HEAD_BYTES, Format
from .errors import DataError

ENTRY_POINT_GROUP = "m3b.formats"
FORMATS: dict[str, Format] = {}
"""Name -> format, in the order in which they are asked; those of other packages come first."""


def add_builtin(file_formats: Sequence[Format]) -> None:
    """Add formats of this package."""
    FORMATS.update({candidate.name: candidate for candidate in file_formats})
    _suffix_index.cache_clear()


def register_format(file_format: Format) -> None:
    """Add a format; it is asked before those that are known.

    Raises:
        ValueError: another format has its name.
    """
    if FORMATS.get(file_format.name, file_format) is not file_format:
        raise ValueError(f"There is a file format {file_format.name!r} already; choose another name.")
    if file_format.name not in FORMATS:
        earlier = dict(FORMATS)
        FORMATS.clear()
        FORMATS.update({file_format.name: file_format, **earlier})
    _suffix_index.cache_clear()


def unregister_format(name: str) -> None:
    """Remove a format that was registered."""
    FORMATS.pop(name, None)
    _suffix_index.cache_clear()


@cache
def load_plugins() -> None:
    """Register the formats of installed packages, once; warn of those that cannot be loaded."""
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            register_format(point.load())
        except (ImportError, AttributeError, TypeError, ValueError) as error:  # one broken package does not stop others
            message = (
                f"The file format {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def all_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all formats, longest first."""
    load_plugins()
    known_suffixes = {suffix for candidate in FORMATS.values() for suffix in candidate.suffixes}
    return tuple(sorted(known_suffixes, key=lambda suffix: (-len(suffix), suffix)))


def strip_suffix(name: str) -> str:
    """Return a file name without the suffix of its format, such as `.nii.gz`; of other names without the last one."""
    lower = name.lower()
    suffix = next((suffix for suffix in all_suffixes() if lower.endswith(suffix) and len(lower) > len(suffix)), None)
    return name[: -len(suffix)] if suffix else Path(name).stem


def find_format(head: bytes, name: str) -> Format | None:
    """Return the format of a file by its first bytes and its name; None of unknown ones.

    The name decides if the content fits it or does not say; else the content decides. Containers count by their content
    only if the name has no suffix or that of another format: workbooks are ZIP archives too.
    """
    load_plugins()
    by_name = _format_by_suffix(name)
    if by_name is not None and (not head or not by_name.magic or by_name.has_magic(head)):
        return by_name
    by_content = find_format_by_content(head) if head else None
    if by_content is not None and by_content.is_container and (by_name is None or by_name.is_container) and "." in name:
        return by_name
    return by_content or by_name


def find_format_by_content(head: bytes) -> Format | None:
    """Return the format of a file by its first bytes alone."""
    load_plugins()
    return next(
        (candidate for candidate in FORMATS.values() if not candidate.is_folder and candidate.has_magic(head)), None
    )


@cache
def _suffix_index() -> dict[str, Format]:
    """Return suffix -> format of the files; of several formats with one suffix the first."""
    index: dict[str, Format] = {}
    for candidate in FORMATS.values():
        for suffix in () if candidate.is_folder else candidate.suffixes:
            index.setdefault(suffix, candidate)
    return index


def _format_by_suffix(name: str) -> Format | None:
    """Return the format of the longest suffix that a file name ends with."""
    index, lower = _suffix_index(), name.lower()
    place = lower.find(".")
    while place >= 0:
        if lower[place:] in index:
            return index[lower[place:]]
        place = lower.find(".", place + 1)
    return None


def find_file_format(path: Path) -> Format | None:
    """Return the format of a file that exists; None of unknown ones, pipes and devices."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return find_format(file.read(HEAD_BYTES), path.name)
    except OSError:
        return find_format(b"", path.name)


def get_format(path: str | Path) -> Format:
    """Return the format of a file or folder.

    Raises:
        DataError: it does not exist, or its format is unknown.
    """
    path = Path(path)
    if path.is_dir():
        load_plugins()
        for candidate in FORMATS.values():
            matches_folder = getattr(candidate, "matches_folder", None)
            if candidate.is_folder and matches_folder is not None and matches_folder(path):
                return candidate
        return FORMATS["folder"]
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if not path.is_file():
        raise DataError(f"{path}: a pipe or device, not a regular file")
    known_suffixes = find_file_format(path)
    if known_suffixes is None:
        earlier = " ".join(sorted(all_suffixes()))
        raise DataError(f"{path}: unknown format; known are {earlier} and DICOM files of any name")
    return known_suffixes
