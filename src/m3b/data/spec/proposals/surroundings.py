"""What every proposal needs beside its targets: whose a case is, what must stay together, the split, what is left out."""

from __future__ import annotations

from dataclasses import replace

from m3b.data.spec.model import FromList, FromMember, FromPath, FromTable, FromTag, LeftOut, SplitRule, Value
from m3b.data.spec.proposals.circumstances import Around, of_items
from m3b.data.spec.proposals.group_files import escaped, files_of
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import is_images
from m3b.data.spec.proposals.joined_groupings import groupings_of
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.scopes import scope_of
from m3b.data.spec.proposals.vocabulary import VIEWS
from m3b.data.survey.grouping_words import where, why
from m3b.data.survey.relations import End, FoundSplit, Grouping, Join, Pairing, Survey
from m3b.data.survey.sides import all_but_test, is_split, sides_of
from m3b.data.survey.table_facts import Table

SURE = 0.8
"""Strength of a grouping from which on it is taken as the patient."""
GIVEN = "given"
"""Evidence of a grouping that a person has named."""
LIKELY = 0.4
"""Strength from which on its members are kept on one side of the split."""

MAX_TOGETHER = 0.25
"""Share of the files from which on a value is no source or case but a visit, a site, or a part of an archive."""
LEADING = 0.35
"""The same for a flat folder, where a leading number is that of a case or counts nothing else."""
ROWLESS = 0.9
"""Share of the files that a table must name for its patients to be taken; the rest is left out."""

UNKNOWN = "patients are unknown: nothing in names, tables or headers tells whose an image is"

SMALL = 0.1
"""Share that may match by chance where columns are taken for those of further views."""

NUMBERED = frozenset(words("image img id file filename picture bild name slide scan case number nr no index study"))
"""Words of columns whose running numbers can be those of the images' names."""


def around(survey: Survey, images: ImageSet) -> Around:
    """What the survey knows of an image set's patients and split."""
    made = Around()
    if images.items is not None:
        of_items(survey, images.items, made)
    else:
        _patients(survey, images, made)
        _split(survey, images, made)
    if made.patient is None:
        made.doubts.append(UNKNOWN)
    return made


def with_patient(around_it: Around, patient: FromTable | None) -> Around:
    """Surroundings with the patient of a table that is joined by way of others, where none was known."""
    if patient is None or around_it.patient is not None:
        return around_it
    told = f"patients: by column {patient.column} of {patient.file}"
    return replace(around_it, patient=patient, evidence=[*around_it.evidence, told],
                   doubts=[one for one in around_it.doubts if one != UNKNOWN])  # fmt: skip


def without_bare_parts(around_it: Around, pairing: Pairing) -> Around:
    """Surroundings without a split of which one part has no masks (a challenge's hidden test part)."""
    bare = pairing.left_files - pairing.left_matched
    division = around_it.division
    if division is None or not bare:
        return around_it
    tested = sum(part.present for part in division.parts if part.side == "test")
    known = next((one for one in pairing.tested if one.split == division.id), None)
    if known is not None:
        tested, bare = known.files, known.files - known.matched
    if tested and bare >= 0.9 * tested and pairing.left_matched <= pairing.left_files - 0.9 * tested:
        told = f"the test part of the data set's own split ({tested}) has no masks: a new one is drawn"
        kept = [one for one in around_it.evidence if not one.startswith("the data set's own split")]
        return replace(around_it, split=SplitRule(), division=None, evidence=[*kept, told])
    return around_it


def _patients(survey: Survey, images: ImageSet, made: Around) -> None:
    seen: set[tuple[object, ...]] = set()
    for one in sorted(groupings_of(survey, images), key=lambda g: (-g.strength, len(g.ends), g.distinct)):
        same = one.ends[0].name.rsplit(".", 1)[-1].casefold(), one.distinct, one.files, one.per_value
        if one.ends[0].kind == "column" and same in seen:
            continue  # the same column of another table
        seen.add(same)
        value = _value(survey, images, one)
        if value is None or one.strength < (LIKELY if _nested(images) or _crosses(one) else LEADING):
            continue
        if images.images.unit == "folder" and one.ends[0].kind == "part" and one.ends[0].name.startswith("name"):
            continue  # numbers of slices
        files = sum(group.count for group in images.groups)
        whole = GIVEN in one.evidence or one.files >= 0.99 * _reached(survey, images, one, files)
        if one.strength >= SURE and whole and made.patient is None:
            made.patient = value
            made.evidence.append(f"patients: {one.distinct} by {where(survey, one)} ({why(one)})")
        elif made.patient is None and len(made.together) < 8 and one.per_value[2] <= MAX_TOGETHER * files:
            made.together = (*made.together, value)
            made.evidence.append(f"kept on one side: {one.distinct} groups by {where(survey, one)} ({why(one)})")


def _nested(images: ImageSet) -> bool:
    """Whether images lie in several folders, in which numbers may start anew."""
    return images.single is None or any(part.slot.startswith("level") for part in images.single.parts)


def _crosses(one: Grouping) -> bool:
    return any(crossing.count for crossing in one.crosses)


def _reached(survey: Survey, images: ImageSet, one: Grouping, files: int) -> int:
    """Files that a grouping must speak of: those that its table names, where that is nearly all; else all."""
    if one.ends[0].kind != "column":
        return files
    joined = best_join(survey, images, one.ends[0].owner)
    return joined.files if joined is not None and joined.files >= ROWLESS * files else files


def _value(survey: Survey, images: ImageSet, one: Grouping) -> Value | None:
    """A grouping as a value of a spec; None where it cannot be said in one."""
    if len(one.ends) != 1:
        parts = [_slot(images, end) for end in one.ends]
        return FromPath(value="/".join(parts)) if all(parts) else None
    end = one.ends[0]
    if end.kind == "tag":
        return FromTag(keyword=end.name)
    if end.kind == "column":
        joined = best_join(survey, images, end.owner)
        return from_column(survey, images, joined, end.name) if joined else None
    if end.kind == "member":
        return FromMember(key=end.name)
    slot = _slot(images, end)
    return FromPath(value=slot) if slot else None


def _slot(images: ImageSet, end: End) -> str:
    """The key of a part or level of the image's path; empty where the set's pattern has no such slot."""
    if end.kind == "level":
        return f"{{folder{end.name}}}"
    if end.kind == "part" and images.single is not None:
        return "{" + end.name.replace(".", "_") + "}"
    return ""


def best_join(survey: Survey, images: ImageSet, table: str) -> Join | None:
    """The join of a table with the images that names most of them, by path rather than by parts."""
    ids = {group.id for group in images.groups}
    found = [
        one for one in survey.joins
        if one.left.owner == table and one.left.kind == "column" and one.right.owner in ids and one.right.kind != "member"
    ]  # fmt: skip
    usable = [one for one in found if image_key(images, one) and (one.chance < 0.5 or _numbers_all(one))]
    most = max((one.files for one in usable), default=0)
    telling = [one for one in usable if 1 in (one.most_left, one.most_right) and 2 * one.files >= most]
    return max(
        telling
        or usable,  # many rows that name many files alike (a folder called as a column says) tell them apart by chance
        key=lambda one: (one.files, round(one.left_share, 2), one.right.kind == "path", -one.chance),
        default=None,
    )


def _numbers_all(one: Join) -> bool:
    """Whether a column that is called after images or cases numbers each of them once: chance would not leave none out."""
    called = set(words(one.left.name.rsplit(".", 1)[-1])) & NUMBERED
    each = one.left_share == one.right_share == 1.0 and one.left_values == one.right_values >= 10
    return bool(called) and each and one.most_left == one.most_right == 1 and one.right.kind == "path"


def image_key(images: ImageSet, join: Join) -> str:
    """The key of an image that a join's right end speaks of; empty where a spec cannot say it."""
    end = join.right
    if end.kind == "path":
        return "{folder}" if images.images.unit == "folder" else "{path}"
    if end.kind == "tag":
        return f"{{tag.{end.name}}}"
    before = ""
    if join.rule == "prefixed" and end.kind == "part" and images.single is not None:
        before = next((part.before.split("/")[-1] for part in images.single.parts if part.slot == end.name), "")
    slot = _slot(images, end)
    return before + slot if slot and not set(before) & set("{}") else slot


def from_column(survey: Survey, images: ImageSet, join: Join, column: str) -> FromTable:
    """A column of a joined table."""
    table = survey.table(join.left.owner)
    folder = scope_of(survey, table, join).folder
    also = tuple(f"{{{one.left.name}}}" for one in beside(survey, images, join))
    return FromTable(
        file=files_of(survey, table), sheet=table.sheet, records=table.record_path if table.format in ("json", "xml", "text") else "",
        header=table.header, row="{" + join.left.name + "}", also=also, image=image_key(images, join), rule=join.rule,
        column=column, within={files_of(survey, table): folder} if folder else {},
    )  # fmt: skip


def beside(survey: Survey, images: ImageSet, join: Join) -> tuple[Join, ...]:
    """Joins of the same table's columns that name other views of each case: the right eye beside the left."""
    views = (one for one in _of_others(survey, join) if one.right == join.right)
    found = [one for one in views if _apart(join, one) and _apart(join, one) <= VIEWS]
    files = join.files + sum(one.files for one in found)
    return tuple(found) if files <= sum(group.count for group in images.groups) else ()


def pairs_of_images(survey: Survey, images: ImageSet, join: Join) -> str:
    """What to ask where a row names several images that no word tells to be views: before and after, left out or both."""
    mine = {group.id for group in images.groups}
    total = sum(group.count for group in images.groups)
    for one in _of_others(survey, join):
        told = bool(_apart(join, one)) and _apart(join, one) <= VIEWS
        here = one.right.owner in mine and join.files + one.files <= total
        there = (
            one.right.owner not in mine
            and not images.images.channels
            and is_images(survey, survey.group(one.right.owner))
        )
        if (here or there) and not told:
            return f"whether the images in the columns {join.left.name!r} and {one.left.name!r} of a row are one case or two"
    return ""


def _of_others(survey: Survey, join: Join) -> list[Join]:
    """Joins of the same table's other columns with files, surely and by the same rule."""
    return [
        one for one in survey.joins
        if join.right.kind == one.right.kind == "path" and one.left.kind == "column" and one.left.owner == join.left.owner
        and one.left.name != join.left.name and one.rule == join.rule and one.chance < SMALL and one.left_share > SURE
    ]  # fmt: skip


def _apart(join: Join, one: Join) -> set[str]:
    """The words by which two columns' names differ."""
    return set(words(one.left.name)) ^ set(words(join.left.name))


def _split(survey: Survey, images: ImageSet, made: Around) -> None:
    if images.single is None and (split := _folder_split(images)) is not None:
        made.split = split
        sides = ", ".join(f"{value} {count}" for value, count in images.levels[_level_of(split)].items())
        made.evidence.append(f"the data set's own split (folders): {sides}")
        return
    ids = {group.id for group in images.groups}
    ids |= {table.id for table in survey.tables if best_join(survey, images, table.id) is not None}
    for one in survey.splits:
        mine = one.owner in ids or (one.source == "column" and best_join(survey, images, one.owner) is not None)
        if not mine or one.covers < 0.8:
            continue
        split = _division(survey, images, one)
        if split is not None:
            made.split, made.division = split, one
            sides = ", ".join(f"{part.name} {part.present}" for part in one.parts if part.side != "other")
            made.evidence.append(f"the data set's own split ({one.source}): {sides}")
            return


def _folder_split(images: ImageSet) -> SplitRule | None:
    """The split by a folder level of several groups that lie side by side."""
    for slot, values in images.levels.items():
        if is_split(values):
            of = sides_of(values)
            sides: dict[str, tuple[str, ...]] = {
                side: tuple(value for value in values if of[value] == side) for side in ("train", "val", "test")
            }
            return _rule(FromPath(value="{" + slot + "}"), sides)
    return None


def _level_of(split: SplitRule) -> str:
    return split.source.value.strip("{}") if isinstance(split.source, FromPath) else ""


def _division(survey: Survey, images: ImageSet, one: FoundSplit) -> SplitRule | None:
    """A split of the survey in a spec's words."""
    sides = {side: tuple(part.name for part in one.parts if part.side == side and part.present) for side in
             ("train", "val", "test")}  # fmt: skip
    if not sides["train"]:
        sides["train"] = tuple(part.name for part in one.parts if part.present and all_but_test(part.name))
    source: Value | None = None
    if one.source in ("folders", "names") and images.single is not None:
        source = FromPath(value="{" + one.name.replace(".", "_") + "}")
    elif one.source == "members":
        source = FromPath(value="{member}")
    elif one.source == "column":
        join = best_join(survey, images, one.owner)
        source = from_column(survey, images, join, one.name) if join else None
    elif one.source == "lists":
        source = _lists(survey, images, one)
    return _rule(source, sides) if source else None


def _rule(source: Value, sides: dict[str, tuple[str, ...]]) -> SplitRule | None:
    """A split by these texts of a source; without a test part the validation part tests."""
    test, val = (sides["test"], sides["val"]) if sides["test"] else (sides["val"], ())
    return SplitRule(source=source, train=sides["train"], val=val, test=test) if sides["train"] and test else None


def _lists(survey: Survey, images: ImageSet, one: FoundSplit) -> FromList | None:
    """The lists of a split; a part that lies nowhere is what no list names."""
    joins: dict[str, tuple[Table, Join]] = {}
    rest = next((part.name for part in one.parts if not part.where), "")
    for part in one.parts:
        table = next((t for t in survey.tables if t.path == part.where and t.files == 1), None)
        if part.side == "other" or table is None or (table.format != "list" and not rest):
            continue
        found = [j for j in survey.joins if j.left.owner == table.id and image_key(images, j) and
                 j.right.owner in {group.id for group in images.groups}]  # fmt: skip
        best = max(found, key=lambda j: (j.files, j.right.kind == "path"), default=None)
        if best is not None:
            joins[part.name] = (table, best)
    if len(joins) + bool(rest) < 2:
        return None
    table, first = next(iter(joins.values()))
    lists: dict[str, tuple[str, ...]] = {name: (escaped(mine.path),) for name, (mine, _) in joins.items()}
    column = "" if table.format == "list" else first.left.name
    return FromList(lists=lists, column=column, image=image_key(images, first), rule=first.rule, rest=rest)


def leave_out(survey: Survey, used: set[str], reasons: dict[str, str]) -> tuple[LeftOut, ...]:
    """The groups that a proposal does not use, each with a reason."""
    found = []
    for group in survey.groups:
        if group.id in used or group.stray or group.kind in ("table", "list", "json", "xml", "text", "document"):
            continue
        why = reasons.get(group.id, f"no part of this reading: {group.title[:80]}")
        tags = {"Modality": group.modality} if group.modality else {}
        found.append(LeftOut(pattern="re:" + group.pattern, reason=why, tags=tags))
    return tuple(found)
