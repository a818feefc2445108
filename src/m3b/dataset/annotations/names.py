"""Which file an annotated image is: names in annotation files against paths of a folder."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache

Claim = tuple[int, int, int, int]
"""How well an image fits a path: common folders at the end, equal suffixes, words that folders share with the annotation file,
common folders at the start. Greater is better."""

_WORDS = re.compile(r"[a-z]+|\d+")
COMPOUND_SUFFIXES = (".nii.gz", ".tar.gz", ".ome.tif", ".ome.tiff", ".seg.nrrd")
MAX_SUFFIX = 5


def split_suffix(name: str) -> tuple[str, str]:
    """Return stem and suffix of a file name, in lower case; compound suffixes count as one."""
    folded = name.casefold()
    if folded.endswith(COMPOUND_SUFFIXES):
        suffix = next(suffix for suffix in COMPOUND_SUFFIXES if folded.endswith(suffix))
        return folded[: -len(suffix)], suffix
    stem, dot, ending = folded.rpartition(".")
    if not dot or not stem or len(ending) > MAX_SUFFIX or not ending.isalnum() or ending.isdigit():
        return folded, ""
    return stem, f".{ending}"


def clean_name(name: str) -> str:
    """Return a path with `/`, without leading `./` and empty parts."""
    return "/".join(part for part in name.strip().replace("\\", "/").split("/") if part not in ("", "."))


class ImageNames:
    """Finds images by their names.

    Args:
        entries: for each image its keys, and the annotation file that names it.
    """

    def __init__(self, entries: Sequence[tuple[tuple[str, ...], str]]) -> None:
        images_of_source = Counter(source for _, source in entries)
        # the file of one image says nothing that its keys do not say; its folder stands for it
        self._sources = [
            source if images_of_source[source] > 1 else source.rpartition("/")[0] + "/" for _, source in entries
        ]
        self._by_stem: dict[str, list[tuple[int, tuple[str, ...], str]]] = defaultdict(list)
        for number, (keys, _) in enumerate(entries):
            for key in dict.fromkeys(keys):
                folder, _, name = clean_name(key).casefold().rpartition("/")
                stem, suffix = split_suffix(name)
                folders = tuple(folder.split("/")) if folder else ()
                self._by_stem[stem].append((number, folders, suffix))
                if suffix:  # what follows the last dot may belong to the stem
                    self._by_stem[name].append((number, folders, ""))

    def find(self, path: str) -> int | None:
        """Return the image that fits a path best; None if none does, or several fit alike."""
        claims = self._claims(path, frozenset())
        best = max(claims.values(), default=None)
        numbers = [number for number, claim in claims.items() if claim == best]
        return numbers[0] if len(numbers) == 1 else None

    def match(self, paths: Sequence[str]) -> dict[str, int]:
        """Return path -> image; each image belongs to the one path that fits best.

        A key whose folder exists among the paths means that folder, and no other.
        """
        folders = frozenset(part for path in paths for part in path.casefold().split("/")[:-1])
        claims_of_path = {path: self._claims(path, folders) for path in paths}
        best_of_image: dict[int, Claim] = {}
        for claims in claims_of_path.values():
            for number, claim in claims.items():
                if number not in best_of_image or claim > best_of_image[number]:
                    best_of_image[number] = claim
        owners: dict[int, list[str]] = defaultdict(list)
        for path, claims in claims_of_path.items():
            valid = {number: claim for number, claim in claims.items() if claim == best_of_image[number]}
            best = max(valid.values(), default=None)
            numbers = [number for number, claim in valid.items() if claim == best]
            if len(numbers) == 1:
                owners[numbers[0]].append(path)
        return {owner[0]: number for number, owner in owners.items() if len(owner) == 1}

    def _claims(self, path: str, known_folders: frozenset[str]) -> dict[int, Claim]:
        folder, _, name = path.casefold().rpartition("/")
        stem, suffix = split_suffix(name)
        folders = tuple(folder.split("/")) if folder else ()
        claims: dict[int, Claim] = {}
        for number, key_folders, key_suffix in self._by_stem.get(stem, ()):
            common = 0
            for path_part, key_part in zip(reversed(folders), reversed(key_folders), strict=False):
                if path_part != key_part:
                    break
                common += 1
            if not common and key_folders and key_folders[-1] in known_folders:
                continue
            suffix_rank = 2 if key_suffix == suffix else 1 if not key_suffix else 0
            claim = (common, suffix_rank, *_compare_folders(folder, self._sources[number]))
            if number not in claims or claim > claims[number]:
                claims[number] = claim
        if not claims and suffix and name in self._by_stem:
            return {number: (0, 0, 0, 0) for number, _, _ in self._by_stem[name]}
        return claims


@lru_cache(maxsize=65_536)
def _compare_folders(folder: str, source: str) -> tuple[int, int]:
    """Return the words that a folder shares with an annotation file's path, and the folders from the start that they share."""
    source = clean_name(source).casefold() + ("/" if source.endswith("/") else "")
    common = 0
    for path_part, source_part in zip(folder.split("/"), source.split("/")[:-1], strict=False):
        if path_part != source_part:
            break
        common += 1
    return len(set(_WORDS.findall(folder)) & set(_WORDS.findall(source))), common
