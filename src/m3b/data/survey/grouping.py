"""Fine groups put together: class folders, splits and name variants that hold the same kind of thing are one group.

Groups stay apart where what they hold differs (images and masks; a modality each) and where they lie on the same cases
(sequences and views side by side). Which of them differ in one word only is stated as a family.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from m3b.data.survey.cases import ANY, Merged, Signature, same_cases
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.name_templates import NamedFiles
from m3b.data.survey.tokens import pieces

MANY = 99
"""Words by which names of another build differ."""
MOST_PAIRS = 144
_AUGMENTED = ("transform", "aug", "rot", "flip", "copy", "crop", "jitter", "noise", "mirror")


def merge(fine: list[NamedFiles], signature: Callable[[NamedFiles], Signature]) -> list[Merged]:
    """Groups of one kind of content, in the order of their paths."""
    buckets: dict[tuple[object, ...], list[Merged]] = defaultdict(list)
    documents: list[NamedFiles] = []
    pictured: set[tuple[str, ...]] = set()
    for one in fine:
        if one.kind in ("document", "other"):
            documents.append(one)
            continue
        shown = signature(one)
        kind = shown[1] if shown[0] == "kind" else one.kind
        made = Merged(one.levels, {_with_levels(one)}, kind, shown, [one])  # type: ignore[arg-type]
        buckets[kind, len(one.levels)].append(made)
        if one.kind in IMAGES and shown[0] != "mask":
            pictured |= {folder for folder, _ in one.members}
    for made in (made for some in buckets.values() for made in some if made.signature[0] == "mask"):
        made.beside = all(folder in pictured for files in made.files for folder, _ in files.members)
    found: list[Merged] = []
    for key in sorted(buckets, key=str):
        found += _put_together(buckets[key])
    found.sort(key=lambda one: (one.levels, sorted(one.forms)))
    if documents:
        found.append(Merged((), set(), "document", ANY, documents))
    return found


def _with_levels(files: NamedFiles) -> str:
    """The form of a name with the folder's own word, where it is repeated, as `{level}`: `benign/benign (#)`."""
    form = files.name
    for level in files.levels:
        if len(level) >= 3 and level.isalpha() and form.lower().startswith(level.lower()):
            return "{level}" + form[len(level) :]
    return form


def _put_together(groups: list[Merged]) -> list[Merged]:
    for together in (_folders_differ, _one_word_differs, _names_differ, _both_differ):
        groups = _until_stable(groups, together)
    return groups


def _until_stable(groups: list[Merged], together: Callable[[Merged, Merged], bool]) -> list[Merged]:
    at = 0
    while at < len(groups):
        for index in range(at + 1, len(groups)):
            if _alike(groups[at].signature, groups[index].signature) and together(groups[at], groups[index]):
                groups[at] = _union(groups[at], groups.pop(index))
                at = -1
                break
        at += 1
    return groups


def _union(one: Merged, other: Merged) -> Merged:
    levels = tuple(a if a == b else "{word}" for a, b in zip(one.levels, other.levels, strict=True))
    telling = one.signature if one.signature != ANY else other.signature
    beside = one.beside and other.beside
    return Merged(levels, one.forms | other.forms, one.kind, telling, one.files + other.files, beside)


def _alike(one: Signature, other: Signature) -> bool:
    return one == other or ANY in (one, other)


def _apart(one: Merged, other: Merged) -> int:
    """In how many levels two groups differ; a level that holds several words already differs from none."""
    pairs = zip(one.levels, other.levels, strict=True)
    return sum(1 for a, b in pairs if a != b and "{word}" not in (a, b))


def _folders_differ(one: Merged, other: Merged) -> bool:
    """The same names below folders that differ in one word: classes or splits, if not the same cases again."""
    if one.forms.isdisjoint(other.forms) or _apart(one, other) > 1:
        return False
    if one.kind not in IMAGES:
        return True
    return not same_cases(one, other, within=False)


def _names_differ(one: Merged, other: Merged) -> bool:
    """Other names in the same folders: variants, if not the same cases again."""
    if _apart(one, other) or one.kind not in IMAGES:
        return False
    if _shared_folders(one, other) == 0 and "{word}" in (*one.levels, *other.levels):
        return False
    if _augmented(one, other):
        return True
    return not same_cases(one, other, within=True) and not (
        _words_apart(one, other)[1] > 1 and _cases_again(one, other)
    )


def _one_word_differs(one: Merged, other: Merged) -> bool:
    """Names that differ in one word before those that differ in several: of `A-1__CT`, `A-1__PT` and `B-2__CT` the first and the
    last belong together."""
    return _words_apart(one, other)[0] <= 1 and _names_differ(one, other)


def _words_apart(one: Merged, other: Merged) -> tuple[int, int]:
    """In how many words the nearest two forms of names differ, and how many vary over all of them; many where they are of
    another build."""
    mine, theirs = ([_split(form) for form in sorted(group.forms)] for group in (one, other))
    near = min(
        (sum(a != b for a, b in zip(x, y, strict=True)) if len(x) == len(y) else MANY for x in mine for y in theirs),
        default=MANY,
    )
    every = [*mine, *theirs]
    if len({len(form) for form in every}) > 1:
        return near, 0
    return near, sum(1 for column in zip(*every, strict=True) if len(set(column)) > 1)


def _split(form: str) -> list[str]:
    return [text for _, text in pieces(form.replace("#", "0"))]


def _cases_again(one: Merged, other: Merged) -> bool:
    """Whether some names of one group are the cases of some of the other, which as wholes are not the same cases."""
    if len(one.files) * len(other.files) > MOST_PAIRS:
        return False
    mine, theirs = ([Merged(group.levels, {part.name}, group.kind, group.signature, [part]) for part in group.files]
                    for group in (one, other))  # fmt: skip
    return any(same_cases(a, b, within=True) for a in mine for b in theirs)


def _both_differ(one: Merged, other: Merged) -> bool:
    """Other names in other folders of the same depth, which have nothing in common but what they hold."""
    if one.kind not in IMAGES or _apart(one, other) > 1 or _shared_folders(one, other):
        return False
    return not same_cases(one, other, within=False)


def _augmented(one: Merged, other: Merged) -> bool:
    return any(word in form.lower() for form in one.forms ^ other.forms for word in _AUGMENTED)


def _shared_folders(one: Merged, other: Merged) -> int:
    mine = {folder for files in one.files for folder, _ in files.members}
    return len(mine & {folder for files in other.files for folder, _ in files.members})
