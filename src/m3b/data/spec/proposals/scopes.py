"""Which folder's images a table speaks of, where the names in it stand for files of several: `000.png` of both parts of a split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import folder_values
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.vocabulary import GENERIC, SEQUENCES, VIEWS
from m3b.data.survey.kinds import cut
from m3b.data.survey.relations import FolderHits, Join, Survey
from m3b.data.survey.sides import side_of
from m3b.data.survey.table_facts import Table

_SIDES = ("train", "val", "test")
_RUN_TOGETHER = re.compile(r"(training|train|testing|test|validation|valid|val)(?=[a-z]{3})")
_ENUMERATED = re.compile(r"^(?:[a-z]|\d{1,2}|[ivx]{1,4})[.)]\s*(?=[a-z])")
"""What numbers the things of a folder: `a. Training Labels`, `2) Testing`."""


@dataclass(frozen=True)
class Scope:
    """The images that a table speaks of.

    Args:
        folder: below which they lie, as a key of the table's path; empty where its names say it.
        files: images that it names there.
        named: of its names those that find one there.
        told: what shows that, for people.
        unclear: what a person should say, where nothing shows it.
    """

    folder: str
    files: int
    named: int
    told: str = ""
    unclear: str = ""


def scope_of(survey: Survey, table: Table, join: Join) -> Scope:
    """The folder that a table speaks of by where it lies, by what it is called, or by which folder's images it names all."""
    apart = join.folders
    whole = Scope("", join.files, join.left_matched)
    if not apart or _views(apart):
        return whole
    if (own := _own_folder(survey, table, apart)) is not None:
        return own
    chosen, why = _by_name(table, apart), "by its name"
    if chosen is None:
        complete = [one for one in apart if one.matched == one.files]
        partly = all(one.matched < one.files for one in apart if one not in complete)
        chosen = complete[0] if len(complete) == 1 and partly else None
        why = "it names all of them"
    if chosen is not None:
        others = sum(one.matched for one in apart if one is not chosen)
        told = (f"the rows of {table.path} are those of {chosen.folder} alone ({why}); {others:,} images of the same names elsewhere "
                "have none of them")  # fmt: skip
        return Scope(chosen.folder, chosen.matched, chosen.named, told if others else "")
    listed = ", ".join(one.folder for one in apart if one.matched)
    unclear = f"which of the folders {listed} the rows of {table.path} speak of: their files have the same names"
    return Scope("", join.files, join.left_matched, unclear=unclear)


def side_told(path: str) -> str:
    """The side of a split that a table's own name, or else a folder of it, speaks of: train, val, test; empty where of none."""
    own = side_of(cut(path.rpartition("/")[2])[0])
    return own if own in _SIDES else _part_words(path)[0]


def are_parts(path: str, other: str) -> bool:
    """Whether two tables are called as parts of one: alike, but for the side of a split (`train.csv` and `test.csv`,
    `train/radiology/traindata.csv` and `test/radiology/testdata.csv`)."""
    sides = side_told(path), side_told(other)
    if not all(sides) or sides[0] == sides[1]:
        return False
    (_, rest), (_, its) = _part_words(path), _part_words(other)
    return rest.rpartition("/")[2] == its.rpartition("/")[2]


def parts_of_one(survey: Survey, images: ImageSet, one: tuple[Table, Join], other: tuple[Table, Join]) -> bool:
    """Whether another table is a further part: of the same form, joined in the same way, and of other images."""
    (table, join), (further, its) = one, other
    if table.files > 1 or further.files > 1 or not are_parts(table.path, further.path):
        return False
    same = (table.format, table.sheet, table.record_path, table.header, [c.name for c in table.columns]) == (
        further.format, further.sheet, further.record_path, further.header, [c.name for c in further.columns])  # fmt: skip
    ends = (join.left.name, join.right.kind, join.right.name, join.rule) == (
        its.left.name,
        its.right.kind,
        its.right.name,
        its.rule,
    )
    total = sum(group.count for group in images.groups)
    return same and ends and scope_of(survey, table, join).files + scope_of(survey, further, its).files <= total


def _part_words(path: str) -> tuple[str, str]:
    """The one side of a split that the words of a path speak of, and the path without words of sides."""
    sides, rest = [], []
    for piece in [*path.split("/")[:-1], cut(path.rpartition("/")[2])[0]]:
        kept = []
        for word in re.findall(r"[^\W_]+", _ENUMERATED.sub("", piece.casefold())):
            run = _RUN_TOGETHER.match(word)
            side, left = (side_of(run[1]), word[run.end() :]) if run and not side_of(word) else (side_of(word), "")
            if side in _SIDES:
                sides.append(side)
            kept.append(left if side else word)
        rest.append("_".join(word for word in kept if word))
    return (sides[-1] if len(set(sides)) == 1 else ""), "/".join(rest)


def _views(apart: Sequence[FolderHits]) -> bool:
    """Whether the folders are called after views or sequences of one case, of which a row speaks together."""
    known = VIEWS | SEQUENCES
    return all((own := set(words(one.folder.rpartition("/")[2])) - GENERIC) and own <= known for one in apart)


def _own_folder(survey: Survey, table: Table, apart: Sequence[FolderHits]) -> Scope | None:
    """The folder that a table lies in itself, or each table of a group in its own."""
    if table.files == 1:
        mine = next((one for one in apart if table.path.startswith(f"{one.folder}/")), None)
        return Scope(mine.folder, mine.matched, mine.named) if mine else None
    level = apart[0].folder.count("/")
    group = next((one for one in survey.groups if one.id == table.group), None)
    if group is None or group.template.count("/") <= level:
        return None
    values = folder_values(group, level)
    if values is None or not {one.folder.split("/")[level] for one in apart if one.matched} <= set(values):
        return None
    key = "/".join(f"{{folder{at}}}" for at in range(level + 1))
    return Scope(key, sum(one.matched for one in apart), sum(one.named for one in apart))


def _by_name(table: Table, apart: Sequence[FolderHits]) -> FolderHits | None:
    """The folder that is called after the side of a split, or the one word, that a table's name says."""
    side = side_told(table.path)
    if side:
        mine = [one for one in apart if side_of(one.folder.rpartition("/")[2]) == side]
        return mine[0] if len(mine) == 1 else None
    said = set(words(cut(table.path.rpartition("/")[2])[0]))
    called = [one for one in apart if (own := set(words(one.folder.rpartition("/")[2])) - GENERIC) and own <= said]
    return called[0] if len(called) == 1 else None
