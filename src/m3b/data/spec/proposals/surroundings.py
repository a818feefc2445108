"""What every proposal needs beside its targets: whose a case is, what must stay together, the split, what is left out."""

from __future__ import annotations

from dataclasses import replace

from m3b.data.spec.model import FromList, FromMember, FromPath, FromTable, FromTag, LeftOut, SplitRule, Value
from m3b.data.spec.proposals.circumstances import Around, of_items
from m3b.data.spec.proposals.group_files import escaped, files_of
from m3b.data.spec.proposals.image_joins import beside, best_join, files_of_others, image_key, slot_of
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.joined_groupings import groupings_of
from m3b.data.spec.proposals.scopes import scope_of
from m3b.data.survey.grouping_words import where, why
from m3b.data.survey.relations import FoundSplit, Grouping, Join, Pairing, Survey
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
HIDDEN = 0.9
"""Share of a test part that has no label, and of the others that have one, where that part is a challenge's hidden one."""
ROWLESS = 0.9
"""Share of the files that a table must name for its patients to be taken; the rest is left out."""

UNKNOWN = "patients are unknown: nothing in names, tables or headers tells whose an image is"


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
    return replace(around_it, patient=patient, grouped=[*around_it.grouped, told],
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
        return replace(around_it, split=SplitRule(), division=None, divided=[told])
    return around_it


def without_unlabelled_part(survey: Survey, images: ImageSet, around_it: Around, labelled: int) -> Around:
    """Surroundings without a split of which the test part has no labels.

    Args:
        labelled: images that have one.
    """
    if not _hidden(survey, images, labelled):
        return around_it
    told = "the test part of the data set's own split has no labels: a new one is drawn"
    return replace(around_it, split=SplitRule(), division=None, divided=[told] if around_it.divided else [])


def _hidden(survey: Survey, images: ImageSet, known: int) -> int:
    """Images of a test part of which nothing is known, where something is `known` of about as many as there are others."""
    files = sum(group.count for group in images.groups)
    tested = [sum(part.present for part in one.parts if part.side == "test") for one in survey.splits
              if one.source == "folders" and one.owner in {group.id for group in images.groups}]  # fmt: skip
    return max(
        (some for some in tested if files - known >= HIDDEN * some > 0 and known >= HIDDEN * (files - some)), default=0
    )


def _patients(survey: Survey, images: ImageSet, made: Around) -> None:
    seen: set[tuple[object, ...]] = set()
    known = groupings_of(survey, images)
    columns = [one for one in known if one.ends[0].kind == "column" and one.strength >= SURE]
    for one in sorted(known, key=lambda g: (-g.strength, len(g.ends), g.distinct)):
        if (
            one.ends[0].kind == "tag"
            and one.distinct == one.files
            and any(other.distinct < one.distinct for other in columns)
        ):
            continue  # a number of its own for every image, where a table tells patients
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
            made.grouped.append(f"patients: {one.distinct} by {where(survey, one)} ({why(one)})")
        elif made.patient is None and len(made.together) < 8 and one.per_value[2] <= MAX_TOGETHER * files:
            made.together = (*made.together, value)
            made.grouped.append(f"kept on one side: {one.distinct} groups by {where(survey, one)} ({why(one)})")


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
    others = (
        files_of_others(survey, images, joined) + _hidden(survey, images, joined.files) if joined is not None else 0
    )
    return joined.files if joined is not None and joined.files + others >= ROWLESS * files else files


def _value(survey: Survey, images: ImageSet, one: Grouping) -> Value | None:
    """A grouping as a value of a spec; None where it cannot be said in one."""
    if len(one.ends) != 1:
        parts = [slot_of(images, end) for end in one.ends]
        return FromPath(value="/".join(parts)) if all(parts) else None
    end = one.ends[0]
    if end.kind == "tag":
        return FromTag(keyword=end.name)
    if end.kind == "column":
        joined = best_join(survey, images, end.owner)
        return from_column(survey, images, joined, end.name) if joined else None
    if end.kind == "member":
        return FromMember(key=end.name)
    slot = slot_of(images, end)
    return FromPath(value=slot) if slot else None


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


def _split(survey: Survey, images: ImageSet, made: Around) -> None:
    if images.single is None and (split := _folder_split(images)) is not None:
        made.split = split
        sides = ", ".join(f"{value} {count}" for value, count in images.levels[_level_of(split)].items())
        made.divided.append(f"the data set's own split (folders): {sides}")
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
            made.divided.append(f"the data set's own split ({one.source}): {sides}")
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
