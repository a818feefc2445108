"""Volumes of one case that a number in their names tells apart as its sequences: `_0000` and `_0001`, `_t1` and `_t2`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from m3b.data.survey.kinds import cut
from m3b.data.survey.name_templates import FREE, NamedFiles
from m3b.data.survey.tokens import MARKS, pieces

MAX_CHANNELS = 8
WHOLE = 0.9
"""Share of the cases that must have every channel."""
_WIDTH = 4
"""Digits of a channel's number in nnU-Net's names: https://github.com/MIC-DKFZ/nnUNet (documentation/dataset_format.md)."""


def channels_apart(files: NamedFiles) -> list[NamedFiles]:
    """A fine group as one a channel where a number tells channels apart, else as it is."""
    if files.kind not in ("nifti", "itk") or FREE in files.name or "{hash}" in files.name or files.count < 2:
        return [files]
    names = [(folder, pieces(cut(name)[0]), name) for folder, some in files.members for name in some]
    if len({len(some) for _, some, _ in names}) > 1:
        return [files]
    for at in range(len(names[0][1]) - 1, 0, -1):
        if _tells_channels(at, [some for _, some, _ in names]) and _all_have(at, names):
            return _parted(files, at, names)
    return [files]


def _tells_channels(at: int, names: Sequence[Sequence[tuple[str, str]]]) -> bool:
    """Whether the numbers at a place are those of channels: the last, of four digits from 0000 on, or of t1 and t2."""
    if names[0][at][0] != "number":
        return False
    texts = {name[at][1] for name in names}
    if not 2 <= len(texts) <= MAX_CHANNELS:
        return False
    if texts == {"1", "2"} and {name[at - 1][1].lower() for name in names} == {"t"}:
        return True
    return at == len(names[0]) - 1 and texts == {f"{number:0{_WIDTH}d}" for number in range(len(texts))}


def _all_have(at: int, names: Sequence[tuple[tuple[str, ...], Sequence[tuple[str, str]], str]]) -> bool:
    cases: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for folder, some, _ in names:
        cases[folder, *some[:at], *some[at + 1 :]].add(some[at][1])
    most = max(map(len, cases.values()))
    return most > 1 and sum(len(texts) == most for texts in cases.values()) >= WHOLE * len(cases)


def _parted(
    files: NamedFiles, at: int, names: Sequence[tuple[tuple[str, ...], Sequence[tuple[str, str]], str]]
) -> list[NamedFiles]:
    found: dict[str, dict[tuple[str, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    forms: dict[str, str] = {}
    for folder, some, name in names:
        text = some[at][1]
        found[text][folder].append(name)
        forms.setdefault(text, "".join(piece if place == at else MARKS.get(kind, piece)
                                       for place, (kind, piece) in enumerate(some)))  # fmt: skip
    made = []
    for text in sorted(found):
        one = NamedFiles(files.levels, forms[text], files.suffix, files.kind)
        for folder, some_names in found[text].items():
            one.add(folder, some_names)
        made.append(one)
    return made
