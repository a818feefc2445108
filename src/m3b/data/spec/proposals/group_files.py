"""The files of a group and of no other, as a pattern, where names of several groups look alike."""

from __future__ import annotations

import re

from m3b.data.spec.model import Files
from m3b.data.spec.patterns import compiled
from m3b.data.spec.proposals.language import words
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Table


def pattern_of(survey: Survey, group: FileGroup) -> Files:
    """The files of a group and of no other: where its pattern also matches another group's files, its folder words are
    written out, and what still matches is excluded. DICOM files of one name are told apart by their headers."""
    tags = {"Modality": group.modality} if group.modality else {}
    if not any(_matches(group.pattern, other) for other in _others(survey, group)):
        return Files(pattern="re:" + group.pattern, tags=tags)
    text = group.pattern
    for part in group.parts:
        slot = f"(?P<{part.slot.replace('.', '_')}>[^/]+?)"
        if part.slot.startswith("level") and part.distinct <= 60 and len(part.values) == part.distinct:
            text = text.replace(
                slot, f"{slot[: slot.index('>') + 1]}{'|'.join(re.escape(v.text) for v in part.values)})"
            )
    still = [other for other in _others(survey, group) if _matches(text, other)]
    exclude: list[str] = []
    for other in still:
        if not _matches(other.pattern, group):
            exclude.append("re:" + other.pattern)
        elif word := _word_of(other, group):
            exclude.append(f"re:{_having(word)}")
        elif word := _word_of(group, other):
            text = f"(?={_having(word)}$){text}"
    return Files(pattern="re:" + text, exclude=tuple(dict.fromkeys(exclude)), tags=tags)


def _others(survey: Survey, group: FileGroup) -> list[FileGroup]:
    return [
        one for one in survey.groups
        if one.id != group.id and not one.stray and (one.modality == group.modality or not (one.modality and group.modality))
    ]  # fmt: skip


def _matches(pattern: str, group: FileGroup) -> bool:
    """Whether a pattern matches a file of a group."""
    regex = compiled("re:" + pattern)
    return any(regex.match(example) is not None for example in group.examples)


def _word_of(one: FileGroup, other: FileGroup) -> str:
    """A word that all names of one group have and none of the other, as far as examples tell; empty where there is none."""
    mine = [set(words(path)) for path in one.examples]
    theirs = {word for path in other.examples for word in words(path)}
    common = set.intersection(*mine) - theirs if mine else set()
    telling = sorted(word for word in common if word.isalpha() and len(word) > 1)
    return next((word for word in telling if all(word in path.casefold() for path in one.examples)), "")


def _having(word: str) -> str:
    """A pattern of paths with a word."""
    return rf"(?i:.*(?<![^\W\d_]){re.escape(word)}(?![^\W\d_]).*)"


def files_of(survey: Survey, table: Table) -> str:
    """The pattern of a table's file, or of all files of its group."""
    if table.files > 1 and table.group:
        return "re:" + survey.group(table.group).pattern
    return escaped(table.path)


def escaped(path: str) -> str:
    """A path as a pattern that matches it alone."""
    if any(mark in path for mark in "{}*"):
        return "re:" + re.escape(path)
    return path
