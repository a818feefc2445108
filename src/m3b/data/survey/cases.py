"""Whether two groups lie on the same cases, by what varies in their paths."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from m3b.data.survey.facts import FileKind
from m3b.data.survey.kinds import cut
from m3b.data.survey.name_templates import FREE, NamedFiles
from m3b.data.survey.sides import side_of
from m3b.data.survey.tokens import pieces

Signature = tuple[object, ...]
ANY: Signature = ("?",)
_SAME_CASES = 0.9
READER = re.compile(
    r"(?<![a-z])(reader|rater|observer|annotator|annotation|expert|grader|manual|doctor|radiologist)s?[\W_]*(\d+|[a-z])?(?![a-z])"
    r"|(?<!\d)\d(st|nd|rd|th)(?![a-z])|(?<![a-z])(first|second|third)(?![a-z])", re.I,
)  # fmt: skip
"""How folders are called after who marked what lies in them."""
_MAX_KEYS = 20_000


@dataclass
class Merged:
    """A group in the making. `levels` has "{word}" where folders of different words were put together; `beside` says
    whether masks lie in the folders of images."""

    levels: tuple[str, ...]
    forms: set[str]
    kind: FileKind
    signature: Signature
    files: list[NamedFiles] = field(default_factory=list)
    beside: bool = False

    @property
    def count(self) -> int:
        """Files of it."""
        return sum(one.count for one in self.files)

    def paths(self) -> list[str]:
        """All its paths in order."""
        return sorted(path for one in self.files for path in one.paths())

    def spread(self, most: int) -> list[str]:
        """At most so many of its paths, of each fine group its share, in order."""
        if self.count <= most:
            return self.paths()
        return sorted(path for one in self.files for path in one.spread(max(most * one.count // self.count, 1)))

    @property
    def first(self) -> str:
        """One of its paths, always the same."""
        return min(next(one.paths()) for one in self.files)


def same_cases(one: Merged, other: Merged, *, within: bool) -> bool:
    """Whether nearly all cases of the smaller of two groups are cases of the other, by what varies in their paths."""
    splits = {side_of(level) for level in _differing(one, other)}
    if not within and len(splits) > 1 and "" not in splits:
        return False  # parts of a split; labelsTr and masksTr are both of one part
    fixed = {level for level, (a, b) in enumerate(zip(one.levels, other.levels, strict=True)) if a != b}
    mine, theirs = (case_keys(group, fixed, within=within) for group in (one, other))
    if not within and _of_readers(one, other) and min(mine, theirs, key=len) <= max(mine, theirs, key=len):
        return True  # a second reader may have marked a part of them
    small, large = sorted((len(mine), len(theirs)))
    if not small or small < _SAME_CASES * large:
        return False
    if len(mine & theirs) < _SAME_CASES * small:
        return False
    if _suffixes(one).isdisjoint(_suffixes(other)):
        return True  # the same in two formats
    # Class folders that number their pictures from one look the same as sequences side by side; masks of their own do not.
    masks = one.signature[0] == "mask" and not (one.beside and other.beside)
    return within or masks or one.signature[-1] == 3 or not _running(mine)


def _of_readers(one: Merged, other: Merged) -> bool:
    """Whether both are masks, of which a folder is called after who marked them: `1st_manual` and `2nd_manual`, `rater1`."""
    masks = one.signature[0] == "mask" == other.signature[0]
    return masks and any(READER.search(level) for level in _differing(one, other))


def _suffixes(group: Merged) -> set[str]:
    return {files.suffix.lower() for files in group.files}


def _differing(one: Merged, other: Merged) -> list[str]:
    mine = [{folder for files in group.files for folder, _ in files.members} for group in (one, other)]
    found: set[str] = set()
    for level, (a, b) in enumerate(zip(one.levels, other.levels, strict=True)):
        if a != b:
            found |= {folder[level] for folders in mine for folder in folders}
    return sorted(found)


def _running(keys: Iterable[tuple[str, ...]]) -> bool:
    """Whether keys are small running numbers, which any two folders share."""
    last = [key[-1] for key in keys if key]
    return all(text.isdigit() and int(text[:9] or 0) <= 4 * len(last) + 10 for text in last)


def case_keys(group: Merged, fixed: set[int], *, within: bool) -> set[tuple[str, ...]]:
    """What varies in a group's paths: the folders (all, or those of numbers and hashes) and the pieces of the name.

    `fixed` are the levels in which the groups that are compared differ.
    """
    keys: set[tuple[str, ...]] = set()
    folders = {folder for files in group.files for folder, _ in files.members}
    single = within and len(folders) == group.count > 1
    for files in group.files:
        same = _constant(files)
        for folder, names in files.members:
            place = folder if within else tuple(
                name for level, (name, shape) in enumerate(zip(folder, group.levels, strict=True))
                if name != shape and shape != "{word}" and level not in fixed
            )  # fmt: skip
            if single:
                keys.add(place)
                continue
            for name in names[: _MAX_KEYS - len(keys)]:
                keys.add((*place, *_varying(cut(name)[0], same)))
    return keys


def _constant(files: NamedFiles) -> set[int]:
    """Which pieces of a group's names never vary, where all names have one form and there are several."""
    if files.count < 2 or FREE in files.name:
        return set()
    columns: dict[int, set[str]] = defaultdict(set)
    for _, names in files.members:
        for name in names[:_MAX_KEYS]:
            for at, (_, text) in enumerate(pieces(cut(name)[0])):
                columns[at].add(text)
    return {at for at, texts in columns.items() if len(texts) == 1}


def _varying(stem: str, same: set[int]) -> tuple[str, ...]:
    found = tuple(
        text.lstrip("0") or "0" if kind == "number" else text
        for at, (kind, text) in enumerate(pieces(stem))
        if kind in ("number", "hash", "uid", "date", "side") and at not in same
    )
    return found or (stem,)
