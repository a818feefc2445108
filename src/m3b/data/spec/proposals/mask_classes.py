"""Several groups of masks on the same images that are a class each: a folder a class, or a word in their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from m3b.data.spec.model import Files
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.group_files import pattern_of
from m3b.data.spec.proposals.language import named, shared, telling, words
from m3b.data.spec.proposals.vocabulary import NO_NAME
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Pairing, Survey

_NAMED = re.compile(r"\(\?P<\w+>")


@dataclass(frozen=True)
class MaskClasses:
    """Groups as one set of masks.

    Args:
        key: which slot of a mask tells its class.
        names: class -> how that slot spells it.
        groups: their ids.
    """

    files: Files
    key: str
    names: Mapping[str, str]
    groups: tuple[str, ...]


def kind_of(group: FileGroup, others: Sequence[FileGroup]) -> str:
    """What tells a group from all of the others: the folder in which each differs, else the words of its name that they lack."""
    level = _level([group, *others])
    if level is not None:
        return group.template.split("/")[level]
    own = words(group.template.rsplit("/", 1)[-1])
    theirs = {word for one in others for word in words(one.template.rsplit("/", 1)[-1])}
    return " ".join(word for word in own if word not in theirs)


def asks_for(ask: Ask, kind: str) -> bool:
    """Whether a request names what a folder or name says, roles such as `mask` aside."""
    mine = " ".join(word for word in words(kind) if word in telling(kind) and word not in NO_NAME)
    return bool(mine) and bool(named([mine], ask.request))


def in_folders(survey: Survey, ask: Ask, pairing: Pairing, rivals: Sequence[FileGroup]) -> MaskClasses | None:
    """The groups whose folders the request names, two or more; None where it names fewer, or names differ elsewhere."""
    groups = _brought_alike(survey, pairing, rivals)
    level = _level(groups)
    if level is None:
        return None
    kinds = {one.id: one.template.split("/")[level] for one in groups}
    chosen = sorted((one for one in groups if asks_for(ask, kinds[one.id])), key=lambda one: kinds[one.id])
    names = {_title(kinds[one.id]): kinds[one.id] for one in chosen}
    if len(names) < 2 or len(names) != len(chosen) or any("{" in kind for kind in names.values()):
        return None
    return MaskClasses(_files(survey, chosen), f"{{folder{level}}}", names, tuple(one.id for one in chosen))


def both_sides(survey: Survey, ask: Ask, pairing: Pairing, rivals: Sequence[FileGroup]) -> MaskClasses | None:
    """Two folders, one a side of the body (`leftMask`, `rightMask`), which a request that speaks of no side wants together."""
    groups = sorted(_brought_alike(survey, pairing, rivals), key=lambda one: one.template)
    level = _level(groups)
    if level is None or len(groups) != 2 or {"left", "right"} & set(words(ask.request)):
        return None
    kinds = [set(_title(one.template.split("/")[level]).split()) for one in groups]
    if kinds[0] ^ kinds[1] != {"left", "right"} or any("{" in one.template.rpartition("/")[0] for one in groups):
        return None  # folders of cases would keep their masks apart
    return MaskClasses(_files(survey, groups), "", {}, tuple(one.id for one in groups))


def _brought_alike(survey: Survey, pairing: Pairing, rivals: Sequence[FileGroup]) -> list[FileGroup]:
    """The masks of a pairing, and those of its rivals that are brought to the images by the same rule."""
    recipe = {one.right: one.left_slots for one in survey.pairings if one.left == pairing.left and one.role == "mask"}
    return [one for one in (survey.group(pairing.right), *rivals) if recipe[one.id] == pairing.left_slots]


def _files(survey: Survey, groups: Sequence[FileGroup]) -> Files:
    each = [pattern_of(survey, one) for one in groups]
    return Files(pattern="re:" + "|".join(f"(?:{_NAMED.sub('(?:', one.pattern.removeprefix('re:'))})" for one in each))


def in_names(survey: Survey, ask: Ask, pairing: Pairing, rivals: Sequence[FileGroup]) -> MaskClasses | None:
    """Groups that differ in one word of their names each, which the request names."""
    me = survey.group(pairing.right)
    spelled: dict[str, str] = {}
    bodies: dict[str, tuple[str, str]] = {}
    for other in rivals:
        for one, beside in ((me, other), (other, me)):
            word = " ".join(w for w in words(one.template) if w not in words(beside.template))
            text = next((w for w in re.findall(r"[^\W\d_]+", one.template) if words(w) == (word,)), "")
            if word.isalpha() and shared(ask.words, word) == 1.0 and text and one.pattern.count(text) == 1:
                spelled[word], bodies[word] = text, (one.pattern.replace(text, "\0"), one.id)
    if len(spelled) < 2 or len({body for body, _ in bodies.values()}) != 1:
        return None
    kinds = "|".join(re.escape(text) for text in spelled.values())
    pattern = next(iter(bodies.values()))[0].replace("\0", f"(?P<kind>{kinds})")
    return MaskClasses(Files(pattern="re:" + pattern), "{kind}", spelled, tuple(id for _, id in bodies.values()))


def _level(groups: Sequence[FileGroup]) -> int | None:
    """The first folder in which no two groups agree; None where there is none."""
    paths = [one.template.split("/")[:-1] for one in groups]
    if len(groups) < 2 or len({len(path) for path in paths}) > 1:
        return None
    return next((at for at in range(len(paths[0])) if len({path[at] for path in paths}) == len(paths)), None)


def _title(kind: str) -> str:
    """A folder's words without its number and without those of what masks are: `2. Hard Exudates`, `leftMask`."""
    apart = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind))
    return " ".join(word for word in apart if words(word)[0] not in NO_NAME).casefold()
