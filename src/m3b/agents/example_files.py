"""Choice of files in a raw data folder that m3b previews before the Data Engineer begins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from m3b.data.natural import natural
from m3b.request_words import is_mask_path

IMAGE_SUFFIXES = (
    ".nii.gz", ".nii", ".mha", ".mhd", ".nrrd", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy", ".dcm"
)  # fmt: skip
REPORT_SUFFIXES = (".xml", ".txt")
NOTE_PREFIXES = ("readme", "license", "licence", "source", "requirements", "changelog")
MAX_FILES = 20_000
MAX_NAME_KINDS = 3
MIN_REPORTS = 4
"""Minimum number of text files to be taken for reports of cases; fewer are taken for notes."""


def find_example_files(folder: Path, *, masks: bool, texts: bool) -> list[str]:
    """Return paths below a folder: one of many text files, and an image with its mask or masks, as requested."""
    if not masks and not texts:
        return []
    files = list(_walk_files(folder))
    return (_find_example_report(files) if texts else []) + (_find_example_masks(files) if masks else [])


def _walk_files(folder: Path) -> Iterator[str]:
    file_count = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted((name for name in folders if not name.startswith((".", "__"))), key=natural)
        for name in sorted(names, key=natural):
            file_count += 1
            if not name.startswith("."):
                yield Path(parent, name).relative_to(folder).as_posix()
        if file_count > MAX_FILES:
            return


def _find_example_report(files: list[str]) -> list[str]:
    texts = [name for name in files if name.lower().endswith(REPORT_SUFFIXES) and not _is_note(name)]
    return texts[:1] if len(texts) >= MIN_REPORTS else []


def _is_note(name: str) -> bool:
    return Path(name).stem.lower().startswith(NOTE_PREFIXES)


def _find_example_masks(files: list[str]) -> list[str]:
    """Return images and their masks: the first mask of each of at most three folders.

    In a folder with several kinds of names (`a_001`, `b_7`), it is the first of each kind, since the kinds may come
    from different sources.
    """
    images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES)]
    masks = [name for name in images if is_mask_path(name)]
    first_masks = list({os.path.dirname(name): name for name in reversed(masks)}.values())[::-1][:3]
    source_images = [name for name in images if not is_mask_path(name)]
    if not first_masks or not source_images:
        return first_masks
    image = _most_similar_name(source_images, first_masks[0])
    is_same_folder = os.path.dirname(image) == os.path.dirname(first_masks[0])  # each case then has a folder of its own
    examples = [image, *(first_masks[:1] if is_same_folder else _masks_of_one_case(first_masks))]
    for mask in _masks_of_other_kinds(masks, first_masks[0]):
        examples += [_most_similar_name(source_images, mask), mask]
    return list(dict.fromkeys(examples))


def _masks_of_other_kinds(masks: list[str], first: str) -> list[str]:
    """Return the first mask of each other kind of name in the folder of `first`; none if there are too many kinds."""
    siblings = [name for name in masks if os.path.dirname(name) == os.path.dirname(first)]
    kinds = {_name_kind(name): name for name in reversed(siblings)}
    return (
        [name for kind, name in reversed(kinds.items()) if kind != _name_kind(first)]
        if len(kinds) <= MAX_NAME_KINDS
        else []
    )


def _name_kind(name: str) -> str:
    """Return a file name up to its first number."""
    return re.split(r"\d", os.path.basename(name).lower(), maxsplit=1)[0]


def _most_similar_name(candidates: Iterable[str], mask: str) -> str:
    return max(candidates, key=lambda name: _name_similarity(name, mask))


def _masks_of_one_case(masks: Iterable[str]) -> list[str]:
    """Return the masks of sibling folders with equal names; otherwise only the first, since others add nothing."""
    paths = list(masks)
    grandparents = {os.path.dirname(os.path.dirname(name)) for name in paths}
    return paths if len(grandparents) == 1 and len({os.path.basename(name) for name in paths}) == 1 else paths[:1]


def _name_similarity(first_name: str, second_name: str) -> tuple[bool, int, int]:
    numbers = [set(re.findall(r"\d+", os.path.basename(name))) for name in (first_name, second_name)]
    return (
        os.path.basename(first_name) == os.path.basename(second_name),
        len(numbers[0] & numbers[1]),
        next(
            (
                position
                for position, pair in enumerate(zip(first_name, second_name, strict=False))
                if pair[0] != pair[1]
            ),
            len(first_name),
        ),
    )
