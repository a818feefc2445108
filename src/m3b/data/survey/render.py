"""A survey in a few hundred tokens. Values that name a person are masked, prose is withheld."""

from __future__ import annotations

from collections.abc import Iterable

from m3b.data.phi import Phi, mask, scrub
from m3b.data.survey.facts import Container, Content, FileGroup, Member, Sensitive, Value
from m3b.data.survey.groups import evidence_of
from m3b.data.survey.item_facts import ItemSet
from m3b.data.survey.kinds import IMAGES
from m3b.data.survey.relations import Join, Pairing, Survey
from m3b.data.survey.table_facts import Column, Table
from m3b.writing import to_one_line

_MAX_LINES = 12
_MAX_WORDS = 8


def render(survey: Survey, phi: Phi = "mask") -> str:
    """The survey as text for people and agents.

    Args:
        phi: "mask" shows what names a person as `[masked ...]`, "allow" shows it as it is. Prose is never shown.
    """
    lines = [f"{to_one_line(survey.name)}: {survey.files:,} files in {survey.folders:,} folders, {_size(survey.bytes)}"]
    lines += _section("groups of files", [_group(survey, one) for one in survey.groups if not one.stray])
    lines += _section("arrays of items", items_lines(survey))
    lines += _section("tables", [_table(one, phi) for one in survey.tables])
    lines += _section("annotations", annotation_lines(survey))
    lines += _section("images and masks", [_pairing(one) for one in survey.pairings])
    lines += _section("names that match", [_join(survey, one) for one in _best_joins(survey)])
    lines += _section("splits that the folder brings", _splits(survey))
    lines += _section("what could be patients or sources", _groupings(survey, phi))
    lines += _section("copies", _copies(survey))
    lines += _section("notes", [f"{one.code} x {one.count:,}" + (f", such as {scrub(one.examples[0])}" if one.examples else "")
                                for one in survey.notes])  # fmt: skip
    return "\n".join(lines)


def _section(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  ... {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
    return [f"{title}:", *(f"  {to_one_line(line)}" for line in lines[:_MAX_LINES]), *more]


def items_lines(survey: Survey) -> list[str]:
    """Arrays of items in files of their own with what siblings say of them, a line a set."""
    return [_items(survey, one) for one in survey.items]


def _items(survey: Survey, one: ItemSet) -> str:
    text = (
        f"{one.id} {scrub(one.file)}{f'#{one.key}' if one.key else ''}: {one.rows:,} images in {len(one.files):,} files"
    )
    for slot in one.slots:
        text += f"; {slot.name} {values_line(slot.values)}"
    for array in one.arrays:
        layers = f" of {array.layers} layers" if array.layers > 1 else ""
        held = (
            f", {values_line(array.values)}" if array.role in ("labels", "text") and not evidence_of(array.word) else ""
        )
        text += f"; {scrub(array.file)} ({array.role}{layers}, {array.rows:,} items{held})"
    for table in one.tables:
        text += f"; {', '.join(table.tables)} have a row an item"
    return text


def _size(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.3g} {unit}"


def _hidden(text: str, sensitive: Sensitive, phi: Phi) -> str:
    if sensitive == "free_text":
        return "[prose]"
    return mask(text) if sensitive == "identity" and phi == "mask" else scrub(text) if phi == "mask" else text


def _group(survey: Survey, group: FileGroup) -> str:
    text = f"{group.id} {scrub(group.title)} x {group.count:,}: {group.kind}"
    if group.content:
        text += f", {content_line(group.content)}"
    for container in survey.containers:
        if container.group == group.id and container.members:
            text += f"; {members_line(container)}"
    for series in survey.series:
        if series.group == group.id:
            text += f"; {series.modality}: {series.series:,} series of {series.patients:,} patients"
    words = [
        f"{part.slot} {values_line(part.values)}" for part in group.parts
        if part.kind in ("word", "side", "number") and part.distinct <= 12 and not part.sensitive
    ]  # fmt: skip
    return text + (f"; {'; '.join(words)}" if words else "")


def members_line(container: Container) -> str:
    """The keys of a container with their roles."""
    return f"holds {', '.join(map(_member, container.members[:8]))}"


def _member(one: Member) -> str:
    """Rows, or what samples of it hold: of masks and pictures in containers no preview of a file says it."""
    told = f"{one.rows:,} rows" if one.rows else content_line(one.content) if one.content else ""
    return f"{one.key} ({one.role}{f', {told}' if told else ''})"


def content_line(content: Content) -> str:
    """What the samples of a group hold."""
    if content.failed == content.looked:
        return f"none of {content.looked} opens"
    text = f"{content.dims or '2 or 3'}D {content.values.replace('_', ' ')}"
    if content.shapes:
        text += " " + "x".join(map(str, content.shapes[0].shape)) + (" and others" if len(content.shapes) > 1 else "")
    if content.channels and content.channels != (1,):
        text += f", {' or '.join(map(str, content.channels))} channels"
    if content.frames and content.frames[1] > 1:
        text += f", {content.frames[0]:,} to {content.frames[1]:,} frames"
    if content.levels:
        text += ", values " + ", ".join(f"{one.value:g} ({one.share:.2%})" for one in content.levels[:6])
    if content.values == "lossy_mask":
        text += f" with noise around, to be cut at {content.cut:g}"
    if content.alike is not None and content.alike > 0.9:
        text += ", nearly the same in every case"
    if content.empty:
        text += f", {content.empty} of {content.looked} empty"
    return text + (f", {content.failed} of {content.looked} do not open" if content.failed else "")


def values_line(values: Iterable[Value], most: int = _MAX_WORDS) -> str:
    """A vocabulary, the most frequent first."""
    shown = sorted(values, key=lambda one: (-one.count, one.text))
    text = ", ".join(f"{scrub(one.text)[:40]} x {one.count:,}" for one in shown[:most])
    return text + (f", {len(shown) - most} more" if len(shown) > most else "")


def _table(table: Table, phi: Phi) -> str:
    where = table.path + (f" [{table.sheet}]" if table.sheet else "")
    where += f" at {table.record_path}" if table.record_path not in ("", "[]") else ""
    several = f" and {table.files - 1:,} files like it" if table.files > 1 else ""
    columns = "; ".join(_column(one, phi) for one in table.columns[:_MAX_LINES])
    more = f"; {len(table.columns) - _MAX_LINES} more columns" if len(table.columns) > _MAX_LINES else ""
    return (
        f"{table.id} {scrub(where)}{several}: {table.rows:,} rows{'' if table.exact else ' or more'}; {columns}{more}"
    )


def _column(column: Column, phi: Phi) -> str:
    text = f"{column.name} ({column.type}"
    if column.sensitive:
        return f"{text}, {'prose' if column.sensitive == 'free_text' else 'masked' if phi == 'mask' else 'personal'})"
    if column.type in ("category", "boolean") and column.values:
        return f"{text}: {values_line(column.values, 6)})"
    if column.low is not None and column.high is not None:
        return f"{text} {column.low:g} to {column.high:g})"
    return f"{text}, {column.folded:,} different)"


def annotation_lines(survey: Survey) -> list[str]:
    """Boxes and outlines, a line a source."""
    return [
        f"{one.id} {one.format} ({', '.join(one.shapes)}) in {scrub(one.path)}"
        + (f" and {one.files - 1:,} more: " if one.files > 1 else ": ") +
        f"{one.items:,} marks, {values_line(one.classes)}; names {one.images_named:,} images, {one.images_found:,} of them there"
        + (f" ({one.images})" if one.images else "")
        + "".join(f"; {code} x {count:,}" for code, count in one.faults)
        for one in survey.annotations
    ]  # fmt: skip


def _pairing(one: Pairing) -> str:
    kind = {"one_to_one": "one to one", "many_to_one": "several to one", "per_class": "one a class",
            "per_key": "keys of one file"}[one.kind]  # fmt: skip
    text = f"{one.left} - {one.right} ({one.role}), {kind}: "
    if one.kind == "per_key":
        text += f"{one.left_key} with {one.right_key}, "
    text += f"{one.left_matched:,} of {one.left_files:,} with {one.right_matched:,} of {one.right_files:,}"
    if one.compared and one.same_grid < one.compared:
        text += f"; on another grid in {one.compared - one.same_grid} of {one.compared} compared"
    if one.unmatched_left:
        text += f"; without: {scrub(one.unmatched_left[0])}"
    return text


def _best_joins(survey: Survey) -> list[Join]:
    """For each column of a table the best join to each group."""
    best: dict[tuple[str, str, str], Join] = {}
    images = {group.id for group in survey.groups if group.kind in IMAGES}
    for one in survey.joins:
        if one.right.kind != "column" and one.right.owner in images:
            best.setdefault((one.left.owner, one.left.name, one.right.owner), one)
    return list(best.values())


def _join(survey: Survey, one: Join) -> str:
    right = {"path": "files of", "level": f"folder {one.right.name} of", "part": f"{one.right.name} of",
             "tag": f"{one.right.name} of"}.get(one.right.kind, "")  # fmt: skip
    return (
        f"{one.left.owner}.{one.left.name} = {right} {one.right.owner} by {one.rule}: {one.left_matched:,} of "
        f"{one.left_values:,} values, {one.right_matched:,} of {one.right_values:,}"
        + (f" (by chance {one.chance:.0%})" if one.chance > 0.05 else "")
    )


def _splits(survey: Survey) -> list[str]:
    return [
        f"{one.id} by {one.source} of {one.owner}: "
        + ", ".join(f"{part.name} ({part.side}) {part.present:,} of {part.named:,}" for part in one.parts)
        + (f"; {one.overlap:,} on more than one side" if one.overlap else "")
        for one in survey.splits
    ]


def _groupings(survey: Survey, phi: Phi) -> list[str]:
    return [
        f"{one.group} by {one.ends[0].kind} {one.ends[0].owner}.{one.ends[0].name}: {one.distinct:,} of {one.files:,} files"
        f" ({', '.join(one.evidence)}; {one.strength:.0%}), such as {_hidden(one.examples[0], one.sensitive, phi)}"
        + "".join(f"; {cross.count:,} cross {cross.split}" for cross in one.crosses if cross.count)
        for one in survey.groupings
    ]  # fmt: skip


def _copies(survey: Survey) -> list[str]:
    return [
        f"{one.group} {one.kind}: {one.files:,} files of {one.clusters:,}" + (f" ({one.rule})" if one.rule else "")
        + "".join(f"; {cross.count:,} cross {cross.split}" for cross in one.crosses if cross.count)
        + (f"; {one.label_conflicts:,} in several class folders" if one.label_conflicts else "")
        for one in survey.copies
    ]  # fmt: skip
