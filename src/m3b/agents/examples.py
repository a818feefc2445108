"""Which files of a raw data folder are worth a look of m3b's own before the Data Engineer begins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from m3b.llm.rules.words import of_masks
from m3b.tools.natural import natural

PICTURES = (
    ".nii.gz", ".nii", ".mha", ".mhd", ".nrrd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy", ".dcm"
)  # fmt: skip
TEXTS = (".xml", ".txt")
NO_TEXTS = ("readme", "license", "licence", "source", "requirements", "changelog")
MAX_FILES = 20_000
KINDS = 3
SEVERAL = 4
"""From so many text files on they are cases, not notes."""


def example_files(folder: Path, *, masks: bool, texts: bool) -> list[str]:
    """Paths below a folder: one of many text files, an image with its mask or masks, as asked for."""
    if not masks and not texts:
        return []
    files = list(_walk(folder))
    return (_texts(files) if texts else []) + (_masks(files) if masks else [])


def _walk(folder: Path) -> Iterator[str]:
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted((name for name in folders if not name.startswith((".", "__"))), key=natural)
        for name in sorted(names, key=natural):
            seen += 1
            if not name.startswith("."):
                yield Path(place, name).relative_to(folder).as_posix()
        if seen > MAX_FILES:
            return


def _texts(files: list[str]) -> list[str]:
    texts = [name for name in files if name.lower().endswith(TEXTS) and not _note(name)]
    return texts[:1] if len(texts) >= SEVERAL else []


def _note(name: str) -> bool:
    return Path(name).stem.lower().startswith(NO_TEXTS)


def _masks(files: list[str]) -> list[str]:
    """Images and their masks: the first mask of each of at most three folders; of a folder with names of several kinds
    (`a_001`, `b_7`) the first of each kind, since the kinds may come from different places."""
    images = [name for name in files if name.lower().endswith(PICTURES)]
    masks = [name for name in images if of_masks(name)]
    first = list({os.path.dirname(name): name for name in reversed(masks)}.values())[::-1][:3]
    others = [name for name in images if not of_masks(name)]
    if not first or not others:
        return first
    image = _like(others, first[0])
    beside = os.path.dirname(image) == os.path.dirname(first[0])  # then a folder is a case
    shown = [image, *(first[:1] if beside else _of_one_case(first))]
    for other in _of_other_kinds(masks, first[0]):
        shown += [_like(others, other), other]
    return list(dict.fromkeys(shown))


def _of_other_kinds(masks: list[str], first: str) -> list[str]:
    """The first mask of each further kind of name beside `first`; none where there are too many kinds to be kinds."""
    beside = [name for name in masks if os.path.dirname(name) == os.path.dirname(first)]
    kinds = {_kind(name): name for name in reversed(beside)}
    return [name for kind, name in reversed(kinds.items()) if kind != _kind(first)] if len(kinds) <= KINDS else []


def _kind(name: str) -> str:
    """A file's name up to its first number."""
    return re.split(r"\d", os.path.basename(name).lower(), maxsplit=1)[0]


def _like(others: Iterable[str], mask: str) -> str:
    return max(others, key=lambda name: _likeness(name, mask))


def _of_one_case(masks: Iterable[str]) -> list[str]:
    """Masks of folders that lie side by side; those of other cases show nothing new."""
    listed = list(masks)
    tops = {os.path.dirname(os.path.dirname(name)) for name in listed}
    return listed if len(tops) == 1 and len({os.path.basename(name) for name in listed}) == 1 else listed[:1]


def _likeness(one: str, other: str) -> tuple[bool, int, int]:
    numbers = [set(re.findall(r"\d+", os.path.basename(name))) for name in (one, other)]
    return (
        os.path.basename(one) == os.path.basename(other),
        len(numbers[0] & numbers[1]),
        next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one)),
    )
