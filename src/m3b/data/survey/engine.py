"""The survey of a folder, from the walk to the facts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from m3b.data.survey.annotations import annotations_of
from m3b.data.survey.copies import copies_of
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.gathering import Gathered, Gathering, gather
from m3b.data.survey.groups import groupings_of
from m3b.data.survey.joins import joins_of
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.legends import legends_of
from m3b.data.survey.pairings import pairings_of
from m3b.data.survey.relations import Family, Survey
from m3b.data.survey.sibling_arrays import item_sets
from m3b.data.survey.splits import splits_of
from m3b.data.survey.tables import load_tables
from m3b.data.survey.tokens import pieces
from m3b.data.survey.walk import Tree, walk
from m3b.errors import DataError


def survey(root: str | Path, *, limits: SurveyLimits | None = None) -> Survey:
    """Look once at a folder that nobody prepared, and state what is there.

    The same files give the same facts whatever the order in which the file system lists them. Links are not followed;
    whatever cannot be read is counted in a note. The result comes back from `model_dump_json` as it is.

    Args:
        limits: what may be spent; what is left out for that is said in a note.

    Raises:
        DataError: `root` is no folder that can be read.
    """
    top = Path(root)
    try:
        tree = walk(top, limits or SurveyLimits())
    except OSError as error:
        raise DataError(f"{top}: {error.strerror or error}. Name a folder that can be read.") from error
    return of_tree(tree)


def of_tree(tree: Tree) -> Survey:
    """The facts of a walked tree."""
    found = gather(tree)
    tables = load_tables(found)
    annotations = annotations_of(found, tables)
    joins = joins_of(found, tables)
    splits = splits_of(found, tables, joins)
    pairings = pairings_of(found, splits)
    groupings = groupings_of(found, tables, joins, splits)
    copies = copies_of(found, splits)
    items = item_sets(found, tables)
    if tree.late:
        tree.notes.add("time", "", detail=f"stopped after {tree.limits.seconds:g} s; what is missing was not looked at")
    return Survey(
        name=tree.root.name,
        fingerprint=tree.fingerprint,
        limits=tree.limits,
        files=tree.files,
        folders=tree.folder_count,
        bytes=tree.bytes,
        exact=tree.exact,
        groups=tuple(group.fact for group in found.groups),
        families=tuple(_families(found)),
        containers=tuple(group.container for group in found.groups if group.container),
        series=tuple(found.series),
        tables=tuple(table.fact for table in tables),
        annotations=tuple(annotations),
        legends=tuple(legends_of(found)),
        joins=tuple(joins),
        pairings=tuple(pairings),
        splits=tuple(split.fact for split in splits),
        groupings=tuple(groupings),
        copies=tuple(copies),
        items=tuple(items),
        notes=tree.notes.facts(),
    )


def _families(found: Gathering) -> list[Family]:
    """Groups whose templates differ in one word: put together, so that a word can be read as class, channel or role."""
    groups = [group for group in found.groups if group.fact.kind in IMAGES and group.template]
    sets: dict[tuple[str, ...], list[tuple[Gathered, str]]] = {}
    for one, other in combinations(groups, 2):
        differ = _one_word(one.fact.template, other.fact.template)
        if differ:
            slot, mine, theirs = differ
            members = sets.setdefault((slot, one.fact.template.replace(mine, "\0", 1)), [(one, mine)])
            if all(member.id != other.id for member, _ in members):
                members.append((other, theirs))
    return [_family(slot, members) for (slot, _), members in sorted(sets.items()) if len(members) > 1]


def _one_word(one: str, other: str) -> tuple[str, str, str] | None:
    """Where two templates differ, if it is in one piece between the same text: ("level1" or "name", mine, theirs)."""
    mine, theirs = one.split("/"), other.split("/")
    if len(mine) != len(theirs):
        return None
    differing = [at for at, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
    if len(differing) != 1:
        return None
    at = differing[0]
    a, b = ([text for _, text in pieces(level[at])] for level in (mine, theirs))
    if len(a) != len(b):
        return (f"level{at}", mine[at], theirs[at]) if at < len(mine) - 1 else None
    words = [index for index, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(words) != 1:
        return None
    return (f"level{at}" if at < len(mine) - 1 else "name", a[words[0]], b[words[0]])


def _family(slot: str, members: Sequence[tuple[Gathered, str]]) -> Family:
    rests: list[set[str]] = []
    for group, word in members:
        rests.append({path.replace(word, "\0", 1).rpartition(".")[0] or path for path in group.looked})
    union = set().union(*rests)
    shared = sum(1 for rest in union if sum(rest in some for some in rests) > 1)
    return Family(
        slot=slot, groups=tuple(group.id for group, _ in members), values=tuple(word for _, word in members),
        crossing=round(shared / max(len(union), 1), 3),
    )  # fmt: skip
