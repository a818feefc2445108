"""Local paths for the keys of remote files: inside the folder, unique, and readable where the key allows it.

Keys of a bucket are free texts: `../x`, `/etc/passwd`, `a//b`, a file `a` beside `a/b`, or 1,024 bytes without a slash.
Most are ordinary paths and stay as they are. For any other, a part of the path is replaced by a harmless text and a hash
of the key.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

MAX_PART_BYTES = 200
MAX_PATH_BYTES = 1024
MAX_DEPTH = 40
_UNSAFE_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udc7f\udd00-\udfff]")
"""Control characters, marks that change the direction of writing, and surrogates that stand for no byte of a name."""
_HASH_DIGITS = 12


def assign_paths(keys: Iterable[str], *, is_case_sensitive: bool = True) -> dict[str, str]:
    """Return key -> path below the folder of a mirror, with `/` between parts.

    The paths do not depend on the order of the keys, no path is a folder of another one, and none has parts that are
    empty, `.`, `..`, longer than 255 bytes or hold control characters.

    Args:
        keys: names of files relative to the remote folder.
        is_case_sensitive: whether the local file system tells `A` from `a`; if not, neither do the paths.
    """
    fold: Callable[[str], str] = str if is_case_sensitive else _fold_case
    ordered_keys = sorted(set(keys))
    paths = {key: "/".join(_make_parts(key)) for key in ordered_keys}
    folders = {fold(folder) for path in paths.values() for folder in _iter_folders(path)}
    taken: set[str] = set()
    for key, path in paths.items():
        folder, slash, name = path.rpartition("/")
        n_attempts = 0
        while fold(path) in folders or fold(path) in taken:
            n_attempts += 1  # more than once only if somebody chose keys with the hashes of others
            path = paths[key] = f"{folder}{slash}{_add_hash(name, f'{key}/{n_attempts}')}"
        taken.add(fold(path))
    return paths


def _make_parts(key: str) -> list[str]:
    parts = key.split("/")
    if len(parts) > MAX_DEPTH or len(_to_bytes(key)) > MAX_PATH_BYTES:
        return ["long-names", _add_hash(_replace_unsafe(parts[-1]), key)]
    return [_make_part(part, "/".join(parts[: position + 1])) for position, part in enumerate(parts)]


def _make_part(part: str, key: str) -> str:
    """Return a part of a path; the same for all keys with the same beginning."""
    safe_part = _replace_unsafe(part)
    if safe_part != part or safe_part in ("", ".", "..") or len(_to_bytes(part)) > MAX_PART_BYTES:
        return _add_hash(safe_part, key)
    return part


def _replace_unsafe(part: str) -> str:
    """Return a text that can be the name of a file and that only this text stands for."""
    return _UNSAFE_CHARACTERS.sub("_", part).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _add_hash(name: str, key: str) -> str:
    """Return a name that a hash of the key makes unique, with the same suffixes (`.nii.gz`)."""
    stem, suffixes = _split_suffixes(name)
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    limit = MAX_PART_BYTES - _HASH_DIGITS - 1 - len(suffixes)
    short_stem = (stem.strip(".") or "name").encode("utf-8", "surrogateescape")[:limit].decode("utf-8", "ignore")
    return f"{short_stem}~{digest}{suffixes}"


def _split_suffixes(name: str) -> tuple[str, str]:
    """Return the stem and up to two suffixes of letters and digits."""
    match = re.fullmatch(r"(.+?)((?:\.[A-Za-z0-9]{1,10}){0,2})", name, re.DOTALL)
    return (match[1], match[2]) if match else (name, "")


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _fold_case(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _iter_folders(path: str) -> Iterator[str]:
    position = path.find("/")
    while position >= 0:
        yield path[:position]
        position = path.find("/", position + 1)


def tells_case(folder: Path) -> bool:
    """Return whether the file system of a folder tells `A` from `a`."""
    with TemporaryDirectory(dir=folder, prefix=".case-") as probe:
        Path(probe, "a").touch()
        return not Path(probe, "A").exists()
