"""A survey in some ten lines of bounded length: what one must know of a folder before asking anything of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from m3b.data.phi import scrub
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.grouping_words import where, why
from m3b.data.survey.groups import evidence_of
from m3b.data.survey.item_facts import PART
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.relations import Join, Pairing, Survey
from m3b.data.survey.render import annotation_lines, content_line, items_lines, members_line, values_line
from m3b.data.survey.table_facts import Table

MAX_LINES, MAX_LINE = 10, 260
"""Lines, and characters of one: some 650 tokens at most."""
MAX_GROUPS, MAX_SETS, MAX_TABLES, MAX_ANNOTATIONS = 4, 2, 2, 2
MAX_TOLD_VALUES = 6
VOCABULARIES = ("category", "boolean")
LABEL = re.compile("label|class|finding|diagnos|grade|stage|target|type", re.IGNORECASE)
"""Names of columns that are told before others."""
SURE = 0.5
"""Strength from which on a grouping is called by name."""
COPIES = {"exact": "exact copies", "near": "near copies", "named": "copies by their names"}
ODD = ("unreadable", "undecodable", "damaged", "empty", "sparse", "bomb", "large", "link", "cut_off", "time")
"""Codes of notes that may cost cases."""


def ten_lines(survey: Survey) -> list[str]:
    """Images and masks with their values, tables, annotations, own split, patients, and what is odd.

    Values that name a person are masked, prose is not shown.
    """
    lines = [
        *_images(survey),
        *_tables(survey),
        *_annotations(survey),
        *_splits(survey),
        *_patients(survey),
        *_odd(survey),
    ]
    return [one if len(one) <= MAX_LINE else f"{one[: MAX_LINE - 4]} ..." for one in map(scrub, lines)][:MAX_LINES]


def _images(survey: Survey) -> Iterator[str]:
    yield from items_lines(survey)[:MAX_SETS]
    told = {id for one in survey.items for id in (*one.groups, *(id for array in one.arrays for id in array.groups))}
    groups = [one for one in survey.groups if one.kind in IMAGES and not one.stray and one.id not in told]
    groups.sort(key=lambda one: (-one.count, one.template))
    for group in groups[:MAX_GROUPS]:
        yield _group(survey, group)
    if rest := groups[MAX_GROUPS:]:
        yield f"and {sum(one.count for one in rest):,} files of {len(rest)} more templates of names"


def _group(survey: Survey, group: FileGroup) -> str:
    told = f"{group.id} {group.title} x {group.count:,}: "
    series = next((one for one in survey.series if one.group == group.id), None)
    if series is not None:
        told += f"{series.modality}, {series.series:,} series of {series.patients:,} patients, "
    told += content_line(group.content) if group.content else group.kind
    if holds := next((members_line(one) for one in survey.containers if one.group == group.id and one.members), ""):
        told += f"; {holds}"
    pairs = [one for one in survey.pairings if one.right == group.id and one.role == "mask"]
    best = max(pairs, key=lambda one: (one.left_matched, one.same_grid), default=None)
    again = best is not None and any(
        one.left == best.left and one.role == "mask" and survey.group(one.right).template < group.template
        for one in survey.pairings
    )
    return told + (f"; {_pair(best, again=again)}" if best else "")


def _pair(one: Pairing, *, again: bool) -> str:
    told = f"masks of {one.left}{' too' if again else ''}, {one.left_matched:,} of {one.left_files:,} {one.left_units}"
    told += {"many_to_one": ", several each", "per_class": ", one a class", "per_key": " in themselves"}.get(
        one.kind, ""
    )
    return told + (", on another grid" if one.compared and one.same_grid < one.compared else "")


def _tables(survey: Survey) -> Iterator[str]:
    """Tables whose rows name images, the best first; others have nothing to say of a case."""
    images, best = {one.id for one in survey.groups if one.kind in IMAGES}, dict[str, Join]()
    for join in survey.joins:
        if join.left.kind != "column" or join.right.owner not in images or join.chance > SURE:
            continue
        held = best.get(join.left.owner)
        if held is None or _names(join) > _names(held):
            best[join.left.owner] = join
    tables = sorted((one for one in survey.tables if one.id in best), key=lambda one: (-best[one.id].files, one.id))
    for table in tables[:MAX_TABLES]:
        yield _table(survey, table, best[table.id])


def _names(join: Join) -> tuple[int, int]:
    """How well a column names files: all of them, and each by itself."""
    return join.files, join.right_matched


def _table(survey: Survey, table: Table, join: Join) -> str:
    counted = {one.id: one.count for one in survey.groups}
    owner = join.right.owner
    several = f" and {table.files - 1:,} more files" if table.files > 1 else ""
    told = f"{table.path}{several}{f' at {table.record_path}' if table.record_path not in ('', '[]') else ''}: {table.rows:,} rows"
    told += f"; `{join.left.name}` names {join.files:,} of {counted.get(owner, join.files):,} files of {owner}"
    people = {end.name for one in survey.groupings for end in one.ends if end.owner == table.id}
    few = [one for one in table.columns if one.values and not one.sensitive and one.type in VOCABULARIES
           and one.folded > 1 and one.name not in people]  # fmt: skip
    few.sort(key=lambda one: not LABEL.search(one.name))
    return told + "".join(f"; {one.name}: {values_line(one.values, MAX_TOLD_VALUES)}" for one in few)


def _annotations(survey: Survey) -> Iterator[str]:
    yield from annotation_lines(survey)[:MAX_ANNOTATIONS]


def _splits(survey: Survey) -> Iterator[str]:
    for items in survey.items[:1]:
        slot = next((one for one in items.slots if one.name == PART), None)
        yield f"own split by names of {items.id}: {values_line(slot.values)}" if slot else "own split: none"
        return
    best = max(survey.splits, key=lambda one: (one.covers, one.id), default=None)
    if best is not None:
        parts = ", ".join(f"{one.name} {one.present:,}" for one in best.parts)
        over = f"; {best.overlap:,} on more than one side" if best.overlap else ""
        yield f"own split by {best.source}: {parts}{over}"
    elif survey.groups:
        yield "own split: none"


def _patients(survey: Survey) -> Iterator[str]:
    """Of the most images: masks are grouped as their images are."""
    for items in survey.items[:1]:
        names = [f"the arrays {one.file}" for one in items.arrays if evidence_of(one.word)[:1] == ["column_patient"]]
        tables = [survey.table(id) for one in items.tables for id in one.tables[:1]]
        names += [f"the column {column.name!r} of {table.path}" for table in tables for column in table.columns
                  if evidence_of(column.name)[:1] == ["column_patient"]]  # fmt: skip
        yield f"patients: by {names[0]}" if names else f"patients: nothing names those of {items.id}"
        return
    masks = {one.right for one in survey.pairings if one.role == "mask" and one.kind != "per_key"}
    images = [one for one in survey.groups if one.kind in IMAGES and not one.stray and one.id not in masks]
    largest = max(images, key=lambda one: one.count, default=None)
    known = [one for one in survey.groupings if largest is not None and one.group == largest.id]
    best = max(known, key=lambda one: (one.strength, one.files), default=None)
    if largest is None:
        return
    if best is None:
        yield f"patients: nothing names those of {largest.id}"
        return
    sure = "; weak" if best.strength < SURE else ""
    yield f"patients: {best.distinct:,} in {best.files:,} files of {best.group}, by {where(survey, best)} ({why(best)}{sure})"


def _odd(survey: Survey) -> Iterator[str]:
    told = [f"{one.files:,} files are {COPIES[one.kind]} of {one.clusters:,} pictures" for one in survey.copies]
    told += [f"{one.content.failed} of {one.content.looked} looked at in {one.template} do not open"
             for one in survey.groups if one.content and one.content.failed and one.kind in IMAGES]  # fmt: skip
    told += [f"{one.code} x {one.count:,}" for one in survey.notes if one.code in ODD]
    if told:
        yield "odd: " + ", ".join(told)
