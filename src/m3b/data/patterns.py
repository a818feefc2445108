"""File names grouped by pattern: `case_0001.nii.gz ... case_0200.nii.gz` is `case_{0001..0200}.nii.gz x 200`.

Names are grouped by their *shape* (every digit replaced by 0), found for a whole folder in a few calls that run in C:
a walk over hundreds of thousands of files must not cost more than reading their folders does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

MAX_SHAPES = 40
"""More different names than this in one folder are taken to be free (hashes, dates, words): grouped by extension."""

_TABLE = bytes(48 if 48 <= code <= 57 else code for code in range(256))
_ZEROS = re.compile("0+")
_EXTENSION = re.compile(
    r"(\.(?:nii|tar|json|csv|mha|nrrd|ome|txt)\.(?:gz|bz2|xz|zst|tiff?)|\.[A-Za-z][A-Za-z0-9_]{0,9})$", re.I
)


@dataclass(slots=True)
class PatternGroup:
    """Files of one pattern. `ranges` has one entry for each run of digits: (smallest, largest) as they were spelled."""

    pattern: str
    count: int = 0
    ranges: list[tuple[str, str]] = field(default_factory=list)
    example: str = ""

    def add(self, count: int, ranges: Sequence[tuple[str, str]], example: str) -> None:
        """Add `count` files, whose digits span `ranges`."""
        # Of names of one pattern the shorter is the smaller number, and of equal length the text tells.
        if not self.count or (len(example), example) < (len(self.example), self.example):
            self.example = example
        self.count += count
        if not self.ranges:
            self.ranges = list(ranges)
            return
        self.ranges = [
            (low if _before(low, new_range[0]) else new_range[0], new_range[1] if _before(high, new_range[1]) else high)
            for (low, high), new_range in zip(self.ranges, ranges, strict=False)
        ]

    def format_ranges(self) -> str:
        """The pattern with its ranges filled in."""
        parts = self.pattern.split("#")
        text = parts[0]
        for index, part in enumerate(parts[1:]):
            low, high = self.ranges[index] if index < len(self.ranges) else ("", "")
            text += (low if low == high else f"{{{low}..{high}}}") + part
        return text


def _before(first: str, second: str) -> bool:
    """Whether digits stand for a smaller number; of the same length, the text tells."""
    return first <= second if len(first) == len(second) else _number(first) <= _number(second)


def _number(digits: str) -> tuple[int, int]:
    return (int(digits or 0) if len(digits) < 4000 else 0, len(digits))


@lru_cache(maxsize=4096)
def extension(name: str) -> str:
    """`.nii.gz`, `.png` (lower case), or empty: the UID names of DICOM files have none."""
    match = _EXTENSION.search(name)
    return match[1].lower() if match and match.start() > 0 else ""


def collapse(shape: str) -> str:
    """A shape with every run of zeros (digits) as one `#`; a `#` of the name itself as `?`."""
    return _ZEROS.sub("#", shape.replace("#", "?"))


def shapes(names: Sequence[str]) -> Sequence[str]:
    """Each name with its digits as 0, in order."""
    text = "\n".join(names)
    if text.isascii() and text.count("\n") == len(names) - 1:
        return text.encode().translate(_TABLE).decode().split("\n")
    return [name.translate(_DIGITS) for name in names]


_DIGITS = {code: 48 for code in range(48, 58)}


def group_names(names: Sequence[str], joined: str = "") -> list[PatternGroup]:
    """The groups of one folder's names; `joined` is all of them with line ends between, if the caller has that."""
    if not names:
        return []
    if shape := _only_shape(names, joined or "\n".join(names)):
        return [_grouped(collapse(shape), [shape], {shape: names})]
    shaped = shapes(names)
    counts = Counter(shaped)
    merged: dict[str, list[str]] = {}
    for shape in counts:
        merged.setdefault(collapse(shape), []).append(shape)
    if len(merged) > MAX_SHAPES:
        return _by_extension(names)
    members = _members(names, shaped, counts)
    return [_grouped(pattern, variants, members) for pattern, variants in merged.items()]


def _only_shape(names: Sequence[str], text: str) -> str:
    """The shape of all names if they have the same one, found without cutting them apart; else empty."""
    first, last = names[0].translate(_DIGITS), names[-1].translate(_DIGITS)
    if first != last or not first.isascii() or "\n" in first:
        return ""
    encoded = (text + "\n").encode("utf-8", "surrogateescape")
    row = first.encode() + b"\n"
    if len(encoded) != len(row) * len(names) or encoded.translate(_TABLE) != row * len(names):
        return ""
    return first


def _grouped(pattern: str, variants: Sequence[str], members: Mapping[str, Sequence[str]]) -> PatternGroup:
    group = PatternGroup(pattern)
    for shape in variants:
        variant_names = members[shape]
        low = min(variant_names)
        group.add(len(variant_names), _ranges(shape, variant_names, low), low)
    return group


def _members(names: Sequence[str], shaped: Sequence[str], counts: Counter[str]) -> dict[str, Sequence[str]]:
    if len(counts) == 1:
        return {shaped[0]: names}
    members: dict[str, list[str]] = {shape: [] for shape in counts}
    for name, shape in zip(names, shaped, strict=True):
        members[shape].append(name)
    return dict(members)


def _ranges(shape: str, names: Sequence[str], low: str) -> list[tuple[str, str]]:
    """Smallest and largest spelling of each digit run; all names have the runs at the same places."""
    runs = [run.span() for run in _ZEROS.finditer(shape)]
    if len(runs) == 1:
        high = max(names)
        return [(low[slice(*runs[0])], high[slice(*runs[0])])]
    ranges = []
    for start, end in runs:
        values = {name[start:end] for name in names}
        ranges.append((min(values), max(values)))
    return ranges


def _by_extension(names: Iterable[str]) -> list[PatternGroup]:
    groups: dict[str, PatternGroup] = {}
    for name in names:
        end = extension(name)
        group = groups.get(end)
        if group is None:
            group = groups[end] = PatternGroup("*" + end, example=name)
        elif name < group.example:
            group.example = name
        group.count += 1
    return list(groups.values())
