"""Copies of images that somebody altered (mirrored, turned, noised) and named after their originals: `x.jpg`, `x_flip_0.jpg`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from m3b.dataset.manifest.model import ValueSource
from m3b.dataset.proposals.roles import ROLE_WORDS

_NAME = re.compile(
    rf"^(?P<original>.+?)[ _.()-]+(?P<word>{'|'.join(sorted(ROLE_WORDS['altered'], key=len, reverse=True))})\d*(?:[ _.()-].*)?$",
    re.IGNORECASE,
)
MIN_WITH_ORIGINAL = 0.5
"""Share of the names of copies whose original must be there: else the word is a part of names for another reason."""


@dataclass(frozen=True)
class AlteredCopies:
    """Images that are altered copies of others by their names.

    Args:
        groups: path of a copy, or of an original -> what both have in common.
        copies: paths of the copies.
        example: name of a copy, and of its original.
        source: gives copies and their original the same text.
    """

    groups: Mapping[str, str]
    copies: tuple[str, ...]
    example: tuple[str, str]
    source: ValueSource


def find_altered_copies(paths: Sequence[str]) -> AlteredCopies | None:
    """Return the altered copies among images, those whose original is missing included; None if there are none."""
    matches = {path: match for path in paths if (match := _NAME.match(_stem(path))) is not None}
    if not matches:
        return None
    stems = {path: _stem(path) for path in paths}
    places = {(path.rpartition("/")[0], stem.casefold()): path for path, stem in stems.items()}
    by_stem = {stem: path for (_, stem), path in places.items()}
    names = {path: match["original"].casefold() for path, match in matches.items()}
    is_near = all((path.rpartition("/")[0], name) in places for path, name in names.items() if name in by_stem)
    with_original = [path for path, name in names.items() if name in by_stem]
    if len(with_original) < MIN_WITH_ORIGINAL * len(matches):
        return None
    copy = with_original[0]
    folder, name = copy.rpartition("/")[0], names[copy]
    originals = {path: stem.casefold() for path, stem in stems.items() if path not in names}
    copied_names = set(names.values())
    groups = names | {path: stem for path, stem in originals.items() if stem in copied_names}
    words = "|".join(
        sorted({match["word"].casefold() for match in matches.values()}, key=lambda word: (-len(word), word))
    )
    return AlteredCopies(
        groups={path: f"{path.rpartition('/')[0]}/{text}" if is_near else text for path, text in groups.items()},
        copies=tuple(names),
        example=(PurePosixPath(copy).name, PurePosixPath(places.get((folder, name), by_stem[name])).name),
        source=ValueSource(
            value="{folder}/{stem}" if is_near else "{stem}",
            find=rf"(?i)^(.+?)(?:[ _.()-]+(?:{words})\d*(?:[ _.()-].*)?)?$",
        ),
    )


def _stem(path: str) -> str:
    """Return what `PurePosixPath(path).stem` is, without an object for each of many paths."""
    name = path.rpartition("/")[2]
    dot = name.rfind(".")
    return name[:dot] if 0 < dot < len(name) - 1 else name
