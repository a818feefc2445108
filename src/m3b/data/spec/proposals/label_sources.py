"""The places of a folder that class labels may come from: folders, names, tables, headers, arrays."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from m3b.data.spec.model import FromPath, FromTag
from m3b.data.spec.proposals.array_labels import of_items, of_members
from m3b.data.spec.proposals.flags import counted, is_flag, uncertain
from m3b.data.spec.proposals.image_joins import files_of_others, pairs_of_images
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.label_source import LABEL_WORDS, LabelSource
from m3b.data.spec.proposals.language import telling, words
from m3b.data.spec.proposals.numbering import few, may_be_grades, numbers_cases, runs
from m3b.data.spec.proposals.parted import joined_tables, subject_of
from m3b.data.spec.proposals.vocabulary import GENERIC, NOT_LABELS, PIECES
from m3b.data.spec.sources import SEPARATOR
from m3b.data.survey.relations import Survey
from m3b.data.survey.sides import side_of
from m3b.data.survey.table_facts import Column
from m3b.data.survey.templates import BODY

MAX_CLASSES = 60
FEW = 5
"""Different numbers in names from which on they count something, though they are called after nothing."""
HALF = 0.5
"""A table that names fewer of the images than this, of which fewer than this are there, may be joined by chance."""
MIN_NEAR, MOST_NEAR = 3, 0.05
"""Images, and their share of all, that may be called nearly as rows of a table that name none."""
_NUMBERED_WORD = re.compile(r"([^\W\d_]+)\d+[\W_]+([^\W\d_].*)")


def label_sources(
    survey: Survey, images: ImageSet, named: str = "", asked: Collection[str] = ()
) -> Iterator[LabelSource]:
    """Every place of labels; of a column that a person has `named`, whatever it looks like, that alone.

    Args:
        asked: the words of the request.
    """
    if images.items is not None:
        yield from (one for one in of_items(survey, images.items) if not named or one.named == named)
        return
    if named:
        yield from (one for one in _from_tables(survey, images, named) if one.named == named)
        return
    yield from _from_folders(survey, images)
    yield from _from_names(images)
    yield from _from_tables(survey, images, asked=asked)
    yield from _from_tags(images)
    yield from of_members(survey, images)


def _from_folders(survey: Survey, images: ImageSet) -> Iterator[LabelSource]:
    crossing = {part.slot: part.crossing for part in images.single.parts} if images.single else {}
    for slot, values in images.levels.items():
        weak, only_named = "", numbers_cases(survey, images, slot, values)
        if only_named and not may_be_grades(images, slot, values):
            continue
        if (crossing.get(slot) or 0.0) > 0.2:
            only_named = only_named or not runs(images)
            weak = f"whether {few(values)} are classes, or several images of the same cases: their files have the same names"
        if _of_archive(images, slot, values) or _made_by_machine(images, slot) or _is_the_split(survey, images, slot):
            continue
        kept = {
            value: count for value, count in values.items() if not side_of(value) and not set(words(value)) <= GENERIC
        }
        kept, find = _without_number(kept)
        if "." in slot and all(value.isdigit() for value in kept):
            weak = weak or f"whether {few(values)}, one of several parts of the names of folders, are classes"
        if 2 <= len(kept) <= MAX_CLASSES and sum(kept.values()) >= 0.5 * sum(values.values()):
            level = slot.removeprefix("level")
            strength = 0.55 if any(telling(value) or value.isdigit() for value in kept) else 0.3
            yield LabelSource(kept, (FromPath(value="{" + slot + "}", find=find),), slot, f"the folders at level {int(level) + 1}"
                         if level.isdigit() else f"the folders ({slot})",
                         sum(kept.values()) / sum(values.values()), strength, weak=weak, only_named=only_named)  # fmt: skip


def _made_by_machine(images: ImageSet, slot: str) -> bool:
    """Whether folders are called by hashes or UIDs, which name studies and no classes."""
    return images.single is not None and any(
        one.slot == slot and one.kind in ("hash", "uid") for one in images.single.parts
    )


def _is_the_split(survey: Survey, images: ImageSet, slot: str) -> bool:
    """Whether part of a folder's name divides the files just as another part of it does that tells training from testing."""
    ids = {group.id for group in images.groups}
    counts = sorted(images.levels[slot].values())
    return any(
        one.source == "folders"
        and one.owner in ids
        and one.name.partition(".")[0] == slot.partition(".")[0]
        and sorted(part.present for part in one.parts) == counts
        for one in survey.splits
    )


def _of_archive(images: ImageSet, slot: str, values: dict[str, int]) -> bool:
    """Whether folders are numbered pieces in which images were packed: `images_part_1`, `batch2`."""
    part = next((one for one in images.single.parts if one.slot == slot), None) if images.single is not None else None
    before = part.before.rpartition("/")[2] if part is not None else ""
    called = [[word for word in words(f"{before} {value}") if not word.isdigit()] for value in values]
    numbered = all(any(letter.isdigit() for letter in value) for value in values)
    return numbered and all(some and (some[-1] in PIECES or set(some) <= GENERIC) for some in called)


def _without_number(values: dict[str, int]) -> tuple[dict[str, int], str]:
    """Folder names that all begin with one numbered word (`study1_positive`) without it, and the expression that finds
    the rest; the names as they are, and none, where they do not."""
    found = {value: _NUMBERED_WORD.fullmatch(value) for value in values}
    words_of = {match[1].casefold() for match in found.values() if match}
    if not all(found.values()) or len(words_of) != 1:
        return values, ""
    kept: dict[str, int] = {}
    for value, match in found.items():
        rest = match[2] if match else value
        kept[rest] = kept.get(rest, 0) + values[value]
    return kept, rf"(?i:{words_of.pop()})\d+[\W_]+(.+)"


def _from_names(images: ImageSet) -> Iterator[LabelSource]:
    if images.single is None:
        return
    for part in images.single.parts:
        if not part.slot.startswith("name") or part.sensitive or not 2 <= part.distinct <= 20:
            continue
        if part.kind not in ("word", "number") or (part.crossing or 0.0) > 0.2:
            continue
        values = {value.text: value.count for value in part.values if not side_of(value.text)}
        covered = sum(values.values()) / max(images.single.count, 1)
        bare = part.kind == "number" and not set(words(part.before)) - GENERIC
        if bare and part.distinct > FEW:
            continue
        if len(values) < 2 or covered < 0.5 or min(values.values()) < 2:
            continue
        key = "{" + part.slot.replace(".", "_") + "}"
        named = part.before if part.kind == "number" else part.slot
        weak = f"whether the numbers after {part.before!r} in names are classes" if part.kind == "number" else ""
        yield LabelSource(values, (FromPath(value=key),), part.before, f"the names ({named.strip('_- ') or part.slot})", covered,
                     0.35, weak=weak, only_named=bare, only_told=bare)  # fmt: skip


def _from_tables(
    survey: Survey, images: ImageSet, named: str = "", asked: Collection[str] = ()
) -> Iterator[LabelSource]:
    for tables in joined_tables(survey, images):
        join, split, together = tables.join, tables.split(survey, images), tables.together(survey, images)
        patient = tables.patient(survey, images)
        if tables.files < (0.01 if named else 0.3) * sum(group.count for group in images.groups):
            continue
        elsewhere = min(
            files_of_others(survey, images, join), sum(group.count for group in images.groups) - tables.files
        )
        covered = tables.files / max(sum(group.count for group in images.groups) - max(elsewhere, 0), 1)
        told = tables.told
        if elsewhere > 0:
            told = (*told, f"{elsewhere:,} images more are of other columns of {tables.title}, and left out")
        doubt = ""
        if tables.named > 1.2 * tables.matched:
            doubt = f"{tables.title} names {tables.named - tables.matched:,} that are not here"
        apart = ""
        if covered < HALF and tables.matched < HALF * tables.named and not named:
            apart = (f"why {tables.title} names {covered:.0%} of the images alone, and {tables.named - tables.matched:,} that are "
                     "not here: files may have been renamed")  # fmt: skip
        if join.near >= max(MIN_NEAR, MOST_NEAR * sum(group.count for group in images.groups)):
            apart = (f"whether {join.near:,} images without a row are meant by rows of {tables.title} that name no image: their names "
                     f"are nearly the same ({join.near_names[0]!r} and {join.near_names[1]!r})")  # fmt: skip
        apart = tables.unclear or apart or ("" if named else pairs_of_images(survey, images, join, asked))
        flags: dict[str, dict[str, int]] = {}
        for column in tables.first.columns:
            if named and column.name != named:
                continue
            if column.name == join.left.name or (column.sensitive == "identity" and not named):
                continue
            kept = {text: count for text, count in tables.values(column.name).items() if text.strip()}
            if is_flag(column, kept):
                flags[column.name] = kept
            if not 2 <= len(kept) <= MAX_CLASSES or not (named or _may_label(column, kept)):
                continue
            value = tables.column(survey, images, column.name)
            label = bool(set(words(column.name)) & LABEL_WORDS)
            strength = 0.2 if set(words(column.name)) & NOT_LABELS else 0.35
            strength = 0.9 if named else 0.5 if label else strength
            if join.right.kind != "path" and join.right.name != BODY:
                strength -= 0.1
            mark = column.separator or (SEPARATOR if column.lists else "")
            called = column.name if tables.first.header else subject_of(tables.first) or column.name
            yield LabelSource(kept, (value,), called, f"the column {column.name!r} of {tables.title}", covered, strength,
                         separator=mark, doubt=doubt, split=split, together=together,
                         patient=patient, apart=apart, rows=bool(doubt), told=told)  # fmt: skip
        if len(flags) > 1:
            sources = tuple(tables.column(survey, images, name) for name in flags)
            strength = 0.5 if len(flags) > 2 else 0.4
            title = f"{len(flags)} yes/no columns of {tables.title}"
            yield LabelSource(
                counted(flags), sources, "", title, covered, strength, one_hot=True, split=split, doubt=doubt,
                together=together, patient=patient, apart=apart, rows=bool(doubt), told=told,
                uncertain=uncertain(flags),
            )  # fmt: skip


def _may_label(column: Column, values: dict[str, int]) -> bool:
    """Whether a column may hold classes rather than dates, names or measurements."""
    if column.type in ("integer", "number"):
        return column.low is not None and column.low >= 0 and len(values) <= 10
    return column.type not in ("date", "path", "identifier", "empty")


def _from_tags(images: ImageSet) -> Iterator[LabelSource]:
    for tag in images.series.tags if images.series else ():
        values = {value.text: value.count for value in tag.values if value.text.strip()}
        if (
            tag.keyword in ("Modality", "BodyPartExamined", "SeriesDescription")
            and 2 <= len(values) <= 20
            and not tag.sensitive
        ):
            yield LabelSource(
                values, (FromTag(keyword=tag.keyword),), tag.keyword, f"the header field {tag.keyword}", 1.0, 0.2
            )
