"""Labels that stand in the files of the images: arrays beside an array of items, and single values of a file a case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from m3b.data.spec.model import FromMember
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.item_images import cell_of, columns_of, told, value_of
from m3b.data.spec.proposals.label_source import LABEL_WORDS, LabelSource
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.vocabulary import NOT_LABELS
from m3b.data.survey.facts import Member
from m3b.data.survey.groups import evidence_of
from m3b.data.survey.item_facts import ItemSet
from m3b.data.survey.relations import Survey
from m3b.data.survey.sides import side_of

MAX_CLASSES, MAX_NUMBERS = 60, 20
"""Different texts, and different numbers, that may be classes where nothing calls them so."""
CALLED = LABEL_WORDS | {"y"}
"""Words by which arrays of labels are called."""


def may_be_classes(name: str, values: Mapping[str, int]) -> bool:
    """Whether an array of this name and vocabulary may hold classes rather than persons, measurements or sides of a split."""
    if not 2 <= len(values) <= MAX_CLASSES or evidence_of(name):
        return False
    if all(_is_number(text) for text in values):
        whole = all(float(text).is_integer() for text in values)
        return whole and (len(values) <= MAX_NUMBERS or called_labels(name))
    return not any(side_of(text) for text in values)


def called_labels(name: str) -> bool:
    """Whether a name says that its values are labels: `label`, `y_train`, `types`."""
    return bool(set(words(name)) & CALLED)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


def of_members(survey: Survey, images: ImageSet) -> Iterator[LabelSource]:
    """Labels in the very files of the images."""
    if images.member is None:
        return
    if not images.member.rows:
        yield from _of_files(survey, images)
        return
    container = next(one for one in survey.containers if one.group == images.id)
    labels = [one for one in container.members if one.role in ("labels", "text") and _vocabulary(one)]
    mine = images.images.files.member
    for one in labels:
        sides = {other.key: side_of(other.key) for other in labels}
        if "(?P<part>" in mine and all(sides.values()):
            stem = one.key.replace(_side_word(one.key), "{part}", 1)
            values: dict[str, int] = {}
            for other in labels:
                for value in other.values:
                    values[value.text] = values.get(value.text, 0) + value.count
            yield LabelSource(values, (FromMember(key=f"{stem}[#]"),), one.key, f"the arrays {stem}", 1.0, 0.7)
            return
        if one.rows == images.member.rows:
            found = {value.text: value.count for value in one.values}
            yield LabelSource(found, (FromMember(key=f"{one.key}[#]"),), one.key, f"the array {one.key}", 1.0, 0.65)


def _vocabulary(one: Member) -> bool:
    return may_be_classes(one.key, {value.text: value.count for value in one.values})


def _of_files(survey: Survey, images: ImageSet) -> Iterator[LabelSource]:
    """Single values of files that hold one image each."""
    container = next((one for one in survey.containers if one.group == images.id), None)
    if container is None or images.member is None or images.member.keys > 1:
        return
    for one in container.members:
        name = one.key.rpartition("/")[2]
        values = {value.text: value.count for value in one.values if value.text}
        if one.role != "scalar" or one.keys > 1 or not may_be_classes(name, values):
            continue
        covered = sum(values.values()) / max(one.read, min(container.files, survey.limits.headers), 1)
        strength = 0.65 if called_labels(name) else 0.2 if set(words(name)) & NOT_LABELS else 0.35
        yield LabelSource(values, (FromMember(key=one.key),), name, f"the value {one.key!r} of each file", min(covered, 1.0),
                          strength)  # fmt: skip


def of_items(survey: Survey, items: ItemSet) -> Iterator[LabelSource]:
    """Labels of the items of arrays in files of their own: sibling arrays, and columns of tables with a row an item."""
    for one in items.arrays:
        values = {value.text: value.count for value in one.values if value.text}
        name = f"{one.word} {one.key}".strip()
        if one.role in ("labels", "text") and may_be_classes(one.word, values):
            strength = 0.7 if called_labels(name) else 0.4
            yield LabelSource(values, (value_of(one),), one.word, f"the arrays {one.file}" if one.files > 1 else
                              f"the array {one.file}", one.rows / items.rows, strength)  # fmt: skip
    for table in items.tables:
        for column, values in columns_of(survey, table):
            if column.sensitive == "identity" or column.lists or not may_be_classes(column.name, values):
                continue
            called = set(words(column.name))
            strength = 0.2 if called & NOT_LABELS else 0.5 if called & LABEL_WORDS else 0.35
            yield LabelSource(values, (cell_of(survey, items, table, column.name),), column.name,
                              f"the column {column.name!r} of {told(survey, table)}", table.rows / items.rows, strength)  # fmt: skip


def _side_word(key: str) -> str:
    """The part of a key that names its side of the split."""

    pieces = re.split(r"([^A-Za-z]+)", key)
    return next((piece for piece in pieces if piece and piece.isalpha() and side_of(piece)), key)
