"""Parts that were cut from larger images of the folder and named after them: `002_01.png` in a folder below `002.png`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from m3b.dataset.manifest.model import ValueSource
from m3b.dataset.proposals.altered_copies import AlteredCopies

MIN_ORIGINALS = 5
"""Larger images from which on names of parts tell them apart; fewer can be examples of classes."""
MAX_SUFFIX_WORDS = 3
_SUFFIX_WORD = r"[ _.-]+[^ _./-]+"


def find_image_parts(paths: Sequence[str], other_paths: Collection[str]) -> AlteredCopies | None:
    """Return which images are parts of the same larger image, if all are named after one and several after the same.

    The folder of a larger image is that of its parts, or differs in one level, which is missing or called otherwise.

    Args:
        paths: the images.
        other_paths: paths of all other images of the folder.
    """
    originals: set[tuple[str, str]] = set()
    for path in other_paths:
        folder, stem = _divide(path)
        originals |= {(place, stem.casefold()) for place in (folder, *_replace_levels(folder, ["*"]))}
    if not originals:
        return None
    for count in range(1, MAX_SUFFIX_WORDS + 1):
        source = ValueSource(value="{folder}/{stem}", find=f"^(.+?){_SUFFIX_WORD * count}$")
        groups = {}
        for path in dict.fromkeys(paths):
            folder, stem = _divide(path)
            match = re.match(f"(.+?){_SUFFIX_WORD * count}$", stem)
            candidates = (folder, *_replace_levels(folder, []), *_replace_levels(folder, ["*"]))
            if match is None or not any((place, match[1].casefold()) in originals for place in candidates):
                break
            groups[path] = f"{folder}/{match[1]}"
        if len(groups) == len(paths) and MIN_ORIGINALS <= len(set(groups.values())) < len(paths):
            example = PurePosixPath(paths[0]).name, PurePosixPath(groups[paths[0]]).name
            return AlteredCopies(groups=groups, copies=tuple(paths), example=example, source=source)
    return None


def _replace_levels(folder: str, replacement: list[str]) -> list[str]:
    """Return a folder once for each of its levels, with a replacement in place of this level."""
    levels = folder.split("/")
    return ["/".join([*levels[:at], *replacement, *levels[at + 1 :]]) for at in range(len(levels))]


def _divide(path: str) -> tuple[str, str]:
    """Return the folder of a path and its name without suffix."""
    folder, _, name = path.rpartition("/")
    return folder, PurePosixPath(name).stem
