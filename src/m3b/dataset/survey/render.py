"""A survey as text, for agents and people: at most `budget` lines, what decides most first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from m3b.data.phi import mask, scrub
from m3b.dataset.survey.facts import (
    Column,
    Content,
    CrossTable,
    DicomFacts,
    FileGroup,
    Join,
    Legend,
    Member,
    Pairing,
    Slot,
    SplitFacts,
    Survey,
    TableFacts,
    ValueCount,
)
from m3b.writing import to_one_line

_MAX_VALUES = 12
_MAX_LINE = 300
_MAX_SHORT_LINE = 260
_MAX_VALUE = 60
"""Characters of a value that is shown among others."""
_SEPARATOR = re.compile(r"[;,] ")
_MORE = re.compile(r"and ([0-9,]+) more")
MAX_SHORT_GROUPS, MAX_SHORT_TABLES = 4, 2
"""Groups of images and tables that a summary has."""
_WHOLE_TEXT = 400
"""Characters of a text file that is shown whole whatever else there is."""


def render(survey: Survey, budget: int = 120) -> str:
    """Return the facts of a folder as plain text.

    Args:
        budget: most lines. Each kind of facts gets a part of it; what is left out is counted.
    """
    sections = [
        (_groups(survey), 0.36),
        (_pairings(survey), 0.08),
        (_tables(survey), 0.22),
        (_joins(survey), 0.10),
        (_annotations(survey), 0.05),
        (_splits(survey), 0.06),
        (_details(survey), 0.12),
        (_texts(survey), 0.20),
        (_notes(survey), 0.05),
    ]
    room = budget - 1
    weights = sum(share for _, share in sections)
    allowed = [min(len(section), max(int(room * share / weights), 1)) for section, share in sections]
    for at, (section, _) in enumerate(sections):  # what short sections leave goes to the first ones
        allowed[at] += min(len(section) - allowed[at], room - sum(allowed))
    lines = [render_head(survey)]
    for (section, _), count in zip(sections, allowed, strict=True):
        lines += _cut(section, count)
    return "\n".join(_fit(line, _MAX_LINE) for line in lines)


def render_head(survey: Survey) -> str:
    """Return name and size of a folder."""
    size = f"{survey.bytes:,}" if survey.exact else f"about {survey.bytes:,}"
    return f"{survey.name}: {survey.files:,} files in {survey.folders:,} sub-folders, {size} bytes"


def summarize(survey: Survey, max_lines: int = 10) -> list[str]:
    """Return what must be known of a folder before anything is asked of it, each fact in one line of bounded length.

    Empty for a folder without images, tables and annotations.
    """
    groups = [group for group in survey.groups if not group.stray]
    images = sorted((group for group in groups if group.content is not None), key=lambda group: -group.count)
    if not (images or survey.tables or survey.annotations or survey.containers):
        return []
    lines = [render_head(survey)]
    for group in images[:MAX_SHORT_GROUPS]:
        details = "; ".join(line.strip() for line in _content_lines(group.content))
        lines.append(
            f"{group.pattern} x{group.count:,} {group.format}{_annotation_count(group)}{_content(group.content)}; {details}".rstrip(
                "; "
            )
        )
    if len(images) > MAX_SHORT_GROUPS:
        remaining = images[MAX_SHORT_GROUPS:]
        lines.append(
            f"{sum(group.count for group in remaining):,} more images under {len(remaining)} more patterns of names"
        )
    for table in survey.tables[:MAX_SHORT_TABLES]:
        columns = sorted(
            table.columns, key=lambda column: (column.role_hint != "patient", not 1 < column.distinct <= _MAX_VALUES)
        )
        head = _table(table)[0].strip().removeprefix(f"{table.id} ")
        lines.append(f"{head}: {'; '.join(_column(column) for column in columns)}")
    names = {group.id: group.pattern for group in survey.groups} | {table.id: table.files for table in survey.tables}
    lines += [line.strip() for line in _annotations(survey, names)[1:2]]
    lines += [f"members {_member(member)}" for container in survey.containers for member in container.members[:4]]
    lines += [f"split by {_split(split, names)}" for split in survey.splits[:1]]
    lines += [f"note {line.strip()}" for line in _notes(survey)[1:2]]
    return [_fit(line, _MAX_SHORT_LINE) for line in lines[:max_lines]]


def _fit(line: str, max_chars: int) -> str:
    """Return a line as others may see it: without what names a person, without breaks and control codes, and cut between two
    values with the number of those that are left out."""
    text = to_one_line(scrub(line))
    if len(text) <= max_chars:
        return text
    separators = [match for match in _SEPARATOR.finditer(text) if match.start() <= max_chars - len(", and 1,000 more")]
    if not separators:
        return f"{text[: max_chars - 4]} ..."
    last = separators[-1]
    left_out = _SEPARATOR.split(text[last.end() :].removesuffix(", ..."))
    counts = [int(match[1].replace(",", "")) if (match := _MORE.match(part)) else 1 for part in left_out]
    return text[: last.start()] + _and_more(sum(counts))


def _shorten(value: str, max_chars: int = _MAX_VALUE) -> str:
    """Return a value without what names a person, its end left out if it is long."""
    text = scrub(value)
    return text if len(text) <= max_chars else f"{text[: max_chars - 4]} ..."


def _cut(lines: list[str], count: int) -> list[str]:
    if len(lines) <= count:
        return lines
    if count <= 0:
        return []
    return [*lines[: count - 1], f"  ... {len(lines) - count + 1} more lines of this kind are left out"]


def _values(values: Sequence[ValueCount], distinct: int = 0) -> str:
    text = ", ".join(f"{_shorten(value.text)} x{value.count}" for value in values[:_MAX_VALUES])
    return text + _and_more(max(distinct, len(values)) - min(len(values), _MAX_VALUES))


def _and_more(n_left_out: int) -> str:
    """Return the end of a list whose last items are left out."""
    return f", and {n_left_out:,} more" if n_left_out > 0 else ""


def _groups(survey: Survey) -> list[str]:
    lines = ["Files (g1, g2, ...: groups of files whose names have one pattern):"]
    groups = [group for group in survey.groups if not group.stray]
    for group in sorted(groups, key=lambda group: (group.content is None, -group.count)):
        lines.append(
            f"  {group.id} {group.pattern} x{group.count:,} {group.format}{_family(group)}{_annotation_count(group)}"
            f"{_content(group.content)}"
        )
        lines += _content_lines(group.content)
        lines += [f"      {text}" for slot in group.slots if (text := _slot(slot))]
        lines += [
            f"      members {_member(member)}"
            for container in survey.containers
            if container.group == group.id
            for member in container.members
        ]
    stray_patterns = [group.pattern for group in survey.groups if group.stray]
    if stray_patterns:
        lines.append(f"  also: {', '.join(stray_patterns[:10])}{_and_more(len(stray_patterns) - 10)}")
    return lines


def _family(group: FileGroup) -> str:
    return f" (family {group.family})" if group.family else ""


def _annotation_count(group: FileGroup) -> str:
    return f" ({group.annotations:,} of them annotations)" if group.annotations else ""


def _content(content: Content | None) -> str:
    if content is None:
        return ""
    parts = [f"{content.dims}D" if content.dims else "2D and 3D"]
    if content.channels != (1,):
        parts.append(
            f"{'/'.join(map(str, content.channels))} channels{'' if content.colour else ' all equal' if 3 in content.channels else ''}"
        )
    parts.append(content.values)
    if content.layers is not None:
        place = content.layers.background
        parts.append(f"{content.layers.count} layers" + (f", {place} is background" if place is not None else ""))
    if content.modality:
        parts.append("/".join(content.modality))
    if content.spacing:
        parts.append("spacing " + " x ".join(f"{side:g}" for side in content.spacing) + " mm")
    parts.append("/".join(content.dtypes))
    return (
        ": " + ", ".join(parts)
        if content.samples > content.failed
        else f": {content.failed} of {content.samples} samples do not open"
    )


def _content_lines(content: Content | None) -> list[str]:
    if content is None or content.samples == content.failed:
        return []
    lines = []
    sizes = ["x".join(map(str, shape.shape)) for shape in content.shapes[:5]]
    is_same = len(content.shapes) == 1
    counted = [f"{size} ({shape.count})" for size, shape in zip(sizes, content.shapes, strict=False)]
    sampled = f"of {content.samples - content.failed} sampled files: {', '.join(sizes if is_same else counted)}"
    extra = ""
    if content.failed:
        extra += f"; {content.failed} of {content.samples} samples do not open"
    if content.truncated:
        extra += f" ({content.truncated} truncated)"
    if content.turned:
        extra += f"; EXIF turns {content.turned} of {content.samples} samples"
    if content.slides:
        extra += f"; {content.slides} of {content.samples} samples are slides"
    if content.frames:
        extra += f"; frames {content.frames[0]}-{content.frames[1]}"
    if content.slope is not None:
        extra += f"; stored numbers x {content.slope:g}"
    lines.append(f"      {'size' if is_same else 'sizes'} {sampled}{extra}")
    if content.levels:
        levels = ", ".join(
            f"{level.value}{f' ({level.colour})' if level.colour else ''} {100 * level.share:.3g} %"
            for level in content.levels[:_MAX_VALUES]
        )
        rest_text = _and_more(len(content.levels) - _MAX_VALUES)
        foreground = (
            f"; foreground {100 * content.foreground[0]:.2g}-{100 * content.foreground[2]:.2g} %"
            if content.foreground
            else ""
        )
        empty = f"; {content.empty} empty" if content.empty else ""
        cut = f"; cut at {content.cut:g}" if content.cut is not None else ""
        lines.append(f"      values {levels}{rest_text}{foreground}{empty}{cut}")
    elif content.low is not None and content.high is not None:
        lines.append(f"      values {content.low:g} to {content.high:g}")
    return lines


def _slot(slot: Slot) -> str:
    if slot.sensitive:
        hidden = tuple(ValueCount(text=mask(value.text), count=value.count) for value in slot.values)
        slot = slot.model_copy(update={"values": hidden})
    hint = f" [{slot.role_hint}]" if slot.role_hint else ""
    crossing = (
        f", same names under several: {100 * slot.crossing:.0f} %"
        if slot.crossing is not None and slot.distinct <= 12
        else ""
    )
    if slot.distinct <= _MAX_VALUES and slot.values:
        return f"{{{slot.name}}}{hint} {_values(slot.values)}{crossing}"
    if slot.low is not None:
        width = f", {slot.width} digits" if slot.width else ""
        return f"{{{slot.name}}}{hint} {slot.distinct:,} numbers {slot.low}-{slot.high}{width}"
    examples = ", ".join(_shorten(value.text) for value in slot.values[:3])
    return f"{{{slot.name}}}{hint} {slot.distinct:,} distinct: {examples}, ..."


def _member(member: Member) -> str:
    length = f", {'about ' if member.lengths_differ else ''}{member.length} items" if member.length else ""
    values = f": {_values(member.values, member.distinct)}" if member.values else ""
    content = f" {member.content.values}" if member.content else ""
    side = f" [{member.side}]" if member.side else ""
    shape = "x".join(map(str, member.shape)) or "scalar"
    return f"{member.key or '(array)'}{side} {shape} {member.dtype} {member.kind}{content}{length}{values}"


def _pairings(survey: Survey) -> list[str]:
    if not survey.pairings:
        return []
    return [
        "Files that belong together:",
        *(f"  {_pairing(pairing)}" for pairing in sorted(survey.pairings, key=_pairing_rank)),
    ]


def _pairing_rank(pairing: Pairing) -> tuple[float, str, str]:
    return (
        -(pairing.images_matched / pairing.image_files + pairing.partners_matched / pairing.partner_files),
        pairing.image_group,
        pairing.partner_group,
    )


def _pairing(pairing: Pairing) -> str:
    several = f", {pairing.per_image[0]}-{pairing.per_image[2]} each" if pairing.per_image[2] > 1 else ""
    extra = f" told apart by {{{pairing.extra_slot}}}" if pairing.extra_slot else ""
    grid = f", same grid {pairing.same_grid} of {pairing.compared}" if pairing.compared else ""
    sizes = f" ({pairing.sizes[0]})" if pairing.sizes else ""
    return (
        f"{pairing.image_group} {pairing.image} = {pairing.partner_group} {pairing.key} ({pairing.match}): "
        f"{pairing.images_matched} of {pairing.image_files} and {pairing.partners_matched} of {pairing.partner_files}"
        f"{several}{extra}{grid}{sizes}"
    )


def _tables(survey: Survey) -> list[str]:
    lines = []
    for table in survey.tables:
        lines += _table(table)
    return ["Tables:", *lines] if lines else []


def _table(table: TableFacts) -> list[str]:
    place = "".join(f" {name} {text!r}" for name, text in (("sheet", table.sheet), ("records", table.records)) if text)
    files = f", {table.file_count} files" if table.file_count > 1 else ""
    notes = f" ({'; '.join(table.notes)[:160]})" if table.notes else ""
    return [
        f"  {table.id} {table.files}{place}: {table.rows:,} rows{files}{notes}",
        *(f"      {_column(column)}" for column in table.columns),
    ]


def _column(column: Column) -> str:
    missing = f", {column.missing} missing" if column.missing else ""
    hint = f" [{column.role_hint}]" if column.role_hint else ""
    masked = f" ({column.sensitive})" if column.sensitive else ""
    if column.values and column.distinct <= _MAX_VALUES:
        return f"{column.name}{hint}{masked} {column.kind}: {_values(column.values)}{missing}"
    if column.low is not None and column.kind == "number":
        comma = ", decimal comma" if column.decimal_comma else ""
        unit = f" {column.unit}" if column.unit else ""
        numbers = f"{column.low:g} to {column.high:g}{unit}{comma}"
        return f"{column.name}{hint}{masked} number: {numbers}, {column.distinct:,} distinct{missing}"
    examples = ", ".join(map(_shorten, column.examples[:3]))
    return f"{column.name}{hint}{masked} {column.kind}: {column.distinct:,} distinct, such as {examples}{missing}"


def _joins(survey: Survey) -> list[str]:
    return ["Columns that name files:", *(f"  {_join(join)}" for join in survey.joins)] if survey.joins else []


def _join(join: Join) -> str:
    several = f", up to {join.rows_per_file} rows a file" if join.rows_per_file > 1 else ""
    several += f", up to {join.files_per_row} files a row" if join.files_per_row > 1 else ""
    chance = f", {100 * join.chance:.0f} % by chance" if join.chance >= 0.2 else ""
    unmatched = f"; files without: {', '.join(join.unmatched_files)}" if join.unmatched_files else ""
    return (
        f"{join.table} {join.key} = {join.group} {join.image} ({join.match}): {join.files_matched} of {join.files} files, "
        f"{join.rows_matched} of {join.rows} rows{several}{chance}{unmatched}"
    )


def _annotations(survey: Survey, names: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return a line on each source of annotations; `names` replace the ids of groups."""
    lines = []
    for source in survey.annotations:
        group = names.get(source.images_group, source.images_group)
        images = (
            f"{source.images_found} of {source.images} images are in {group}"
            if source.images_group
            else f"{source.images} images"
        )
        notes = f"; {'; '.join(source.notes)}" if source.notes else ""
        lines.append(
            f"  {source.format} {source.files[0]}{f' and {source.file_count - 1} more' if source.file_count > 1 else ''}: "
            f"{'/'.join(source.shapes)}, {_values(source.classes)}; {images}{notes}"
        )
    return ["Annotations:", *lines] if lines else []


def _splits(survey: Survey) -> list[str]:
    return (
        ["Splits:", *(f"  {_split(split)}" for split in survey.splits)]
        if survey.splits
        else ["Splits: none by folders, names, lists or columns"]
    )


_TABLE_COLUMN = re.compile(r"\{(t\d+)\.([^{}]+)\}")
"""Column of a table by its id: `{t2.part}`."""


def _split(split: SplitFacts, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a split; `names` replace the ids of groups and tables."""
    listed = " listed" if split.source == "lists" else ""  # lists may name files that are not there
    sides = ", ".join(f"{side.text} ({side.side or '?'}) {side.count}{listed}" for side in split.sides)
    find = f" find {split.find}" if split.find else ""
    missing = f", others {split.missing}" if split.missing else ""
    overlap = f"; {split.overlap} keys on several sides" if split.overlap else ""
    crossing = (
        f"; {split.crossing} names on several sides ({', '.join(split.crossing_examples)})" if split.crossing else ""
    )
    covers = f"covers {100 * split.covers:.0f} %"
    owner = ",".join(names.get(part, part) for part in (split.group or split.owner).split(","))
    value = _TABLE_COLUMN.sub(lambda match: f"{match[2]} of {names[match[1]]}" if names else match[0], split.value)
    return f"{split.source} {owner} {value}{find}: {sides}{missing}; {covers}{overlap}{crossing}"


def _details(survey: Survey) -> list[str]:
    lines = [f"  {_dicom(facts)}" for facts in survey.dicom]
    for name_group in survey.name_groups:
        crosses = "".join(
            f"; {count} of them on several sides of {split}" for split, count in name_group.crosses.items() if count
        )
        lines.append(
            f"  {name_group.group} {name_group.value}: {name_group.files} files share {name_group.groups} values, "
            f"up to {name_group.largest} each ({', '.join(name_group.examples)}){crosses}"
        )
    lines += [f"  {_cross(table)}" for table in survey.cross_tables[:8]]
    if survey.duplicates and survey.duplicates.sets:
        found_sets = survey.duplicates
        lines.append(
            f"  {found_sets.files} files in {found_sets.sets} sets of equal bytes ({found_sets.crossing_folders} across folders), "
            f"such as {', '.join(found_sets.examples[0])}"
        )
    return ["More:", *lines] if lines else []


def _dicom(facts: DicomFacts) -> str:
    problems = [
        f"{count} {name}"
        for name, count in (
            ("localizers", facts.localizers),
            ("doubled SOPInstanceUIDs", facts.duplicates),
            ("series with a missing slice", facts.gaps),
            ("series with a tilted gantry", facts.tilted),
            ("series with several images at one position", facts.phases),
        )
        if count
    ]
    rescales = f"; slope/intercept {_values(facts.rescales)}" if len(facts.rescales) > 1 else ""
    examples = f" ({', '.join(facts.gap_examples[:2])})" if facts.gap_examples else ""
    return (
        f"{facts.group} DICOM {facts.modality}: {facts.series} series of {facts.slices[0]}-{facts.slices[1]} files, "
        f"{facts.studies} studies, {facts.patients} patients{'; ' + ', '.join(problems) if problems else ''}{examples}{rescales}"
    )


def _cross(table: CrossTable) -> str:
    cells = ", ".join(f"{row} & {column} x{count}" for row, column, count in table.counts[:_MAX_VALUES])
    dots = _and_more(len(table.counts) - _MAX_VALUES)
    share = f"equal in {100 * table.agree:.0f} %" if table.agree else f"one to one in {100 * table.one_to_one:.0f} %"
    return f"{table.group} {table.rows} and {table.columns} ({share}): {cells}{dots}"


def _texts(survey: Survey) -> list[str]:
    lines = [f"  {legend}" for legend in map(_legend, survey.legends[:12])]
    if lines:
        lines = ["Codes:", *lines]
    for document in sorted(
        survey.documents,
        key=lambda document: (len(document.text) > _WHOLE_TEXT, document.path.count("/"), document.path),
    ):
        text = [line.strip() for line in document.text.splitlines() if line.strip()]
        lines.append(f"Text of {document.path} ({document.bytes} bytes):")
        lines += _cut([f"  {_shorten(line, _MAX_LINE - 2)}" for line in text], 14)
    return lines


def _legend(legend: Legend) -> str:
    names = ", ".join(f"{code}: {name}" for code, name in legend.names[:20])
    hint = f" [{legend.hint}]" if legend.hint else ""
    return f"{legend.source}{hint}: {names}{_and_more(len(legend.names) - 20)}"


def _notes(survey: Survey) -> list[str]:
    lines = []
    for note in survey.notes:
        examples = f": {', '.join(note.examples[:3])}" if note.examples else ""
        lines.append(f"  {note.code} x{note.count}{examples}{f' ({note.detail})' if note.detail else ''}")
    return ["Notes:", *lines] if lines else []
