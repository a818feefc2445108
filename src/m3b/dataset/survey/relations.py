"""Splits that a folder brings along, names that several files share, and values that go together."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import polars as pl

from m3b.dataset.manifest.templates import normalize, parse_template
from m3b.dataset.survey.dicom import Headers
from m3b.dataset.survey.facts import Container, CrossTable, Join, NameGroups, Slot, SplitFacts, SplitSide
from m3b.dataset.survey.groups import Group, spread
from m3b.dataset.survey.joins import is_nameable
from m3b.dataset.survey.names import IMAGE_FORMATS, to_int
from m3b.dataset.survey.tables import SurveyTable
from m3b.dataset.survey.words import side_of
from m3b.dataset.tables import FILE_COLUMN

_MAX_SIDES = 8
"""Distinct texts of a split."""
_MAX_CROSS = 20
"""Distinct values of each side of a cross table."""
_MAX_COUNTS = 200
_MAX_CROSS_TABLES = 30
_WORD = re.compile(r"[^\W\d_]+")


def find_splits(
    groups: Sequence[Group], tables: Sequence[SurveyTable], joins: Sequence[Join], containers: Sequence[Container]
) -> list[SplitFacts]:
    """Return every division into training, validation and test parts whose words say so."""
    images = [group for group in groups if group.format in IMAGE_FORMATS]
    splits = [split for group in images for split in _slot_splits(group)]
    known_splits = {(split.owner, split.source) for split in splits}
    splits += [
        split for group in images for split in _word_splits(group) if (split.owner, split.source) not in known_splits
    ]
    splits += _family_splits(images)
    splits += _folder_splits(images)
    splits += _table_splits(images, tables, joins)
    splits += _list_splits(images, tables, joins)
    splits += _member_splits(containers)
    return splits


def _sides(counts: Mapping[str, int]) -> tuple[SplitSide, ...]:
    return tuple(SplitSide(text=text, side=side_of(text), count=count) for text, count in counts.items())


def _is_split(texts: Sequence[str]) -> bool:
    """Whether texts name at least two sides, or a test or validation part beside one unnamed rest."""
    sides = [side_of(text) for text in texts]
    return len({side for side in sides if side}) > 1 and sum(not side for side in sides) <= 1


def _slot_splits(group: Group) -> list[SplitFacts]:
    splits = []
    for slot in group.facts.slots:
        texts = [value.text for value in slot.values]
        if not 2 <= slot.distinct <= _MAX_SIDES or not _is_split(texts):
            continue
        sides = _sides({value.text: value.count for value in slot.values})
        covered = sum(side.count for side in sides if side.side) / len(group.frame)
        crossing, examples = _crossing_stems(group, slot.name)
        splits.append(
            SplitFacts(
                source="folder" if slot.level >= 0 else "name",
                owner=group.id,
                group=group.id,
                value=f"{{{slot.name}}}",
                sides=sides,
                covers=round(covered, 4),
                crossing=crossing,
                crossing_examples=examples,
            )
        )
    return splits


def _word_splits(group: Group) -> list[SplitFacts]:
    """Names of folders or files that all differ, and hold a word that means a side (`be1bf6_train/`, `case12_test/`)."""
    splits = []
    for column in (*(f"folder{level}" for level in range(len(group.levels) - 1)), "stem"):
        texts = group.frame[column].unique().to_list()
        words = {text: [word for word in _WORD.findall(text) if side_of(word)] for text in texts if side_of(text)}
        names = {sides_found[0].casefold() for sides_found in words.values() if len(sides_found) == 1}
        sides = {side_of(name) for name in names}
        unnamed = len(texts) - len(words)
        missing = "train" if unnamed and sides and sides <= {"test", "val"} and unnamed >= len(words) else ""
        if (
            len(texts) <= _MAX_SIDES
            or any(len(sides_found) != 1 for sides_found in words.values())
            or (unnamed and not missing)
            or len(sides | {missing} - {""}) < 2
        ):
            continue
        expression = f"(?i)(?:^|[\\W\\d_])({'|'.join(sorted(map(re.escape, names)))})(?:[\\W\\d_]|$)"
        parts = group.frame[column].str.extract(expression, 1)
        counts = Counter(parts.drop_nulls().to_list())
        splits.append(
            SplitFacts(
                source="name" if column == "stem" else "folder",
                owner=group.id,
                group=group.id,
                value=f"{{{column}}}",
                find=expression,
                missing=missing,
                sides=_sides(dict(sorted(counts.items()))),
                covers=1.0 if missing else round(parts.count() / len(parts), 4),
            )
        )
    return splits


def _crossing_stems(group: Group, column: str) -> tuple[int, tuple[str, ...]]:
    """Names of files that lie on several sides."""
    if column == "stem" or column not in {f"folder{level}" for level in range(len(group.levels))}:
        return 0, ()
    stems = group.frame.group_by("stem").agg(pl.col(column).n_unique()).filter(pl.col(column) > 1)["stem"].sort()
    return len(stems), tuple(spread(stems.to_list(), 3))


def _family_splits(images: Sequence[Group]) -> list[SplitFacts]:
    """Groups of one folder whose names differ by a word that means a side (`IMG_001.png`, `IMG_001test.png`)."""
    families: dict[str, list[Group]] = defaultdict(list)
    for group in images:
        if group.family:
            families[group.family].append(group)
    splits = []
    for members in families.values():
        words = {group.id: _name_words(group) for group in members}
        common = set.intersection(*words.values())
        sides = {
            group.id: {word: side_of(word) for word in words[group.id] - common if side_of(word)} for group in members
        }
        sided_groups = [group for group in members if len(sides[group.id]) == 1]
        if (
            not sided_groups
            or len(
                {next(iter(sides[group.id].values())) for group in sided_groups}
                | {"" for group in members if group not in sided_groups}
            )
            < 2
        ):
            continue
        total = sum(len(group.frame) for group in members)
        texts = {next(iter(sides[group.id])): len(group.frame) for group in sided_groups}
        unnamed_files = total - sum(texts.values())
        expression = "|".join(re.escape(text) for text in texts)
        facts = _sides(texts)
        missing = "train" if unnamed_files and {side.side for side in facts} <= {"test", "val"} else ""
        splits.append(
            SplitFacts(
                source="name",
                owner=members[0].id,
                group=",".join(group.id for group in members),
                value="{stem}",
                find=f"(?i)({expression})",
                missing=missing,
                sides=facts,
                covers=1.0 if missing else round(sum(texts.values()) / total, 4),
            )
        )
    return splits


def _name_words(group: Group) -> set[str]:
    words = {word for piece in group.levels[-1] if not piece.slot for word in re.findall(r"[^\W\d_]+", piece.text)}
    for _, column, piece in group.slot_pieces():
        if piece.kind == "word" and group.frame[column].n_unique() == 1:
            words.add(str(group.frame[column][0]))
    return words


def _folder_splits(images: Sequence[Group]) -> list[SplitFacts]:
    """Groups with fixed folders that mean sides: their files are of several forms, so that no slot holds the folder."""
    splits = []
    depth = max((len(group.levels) - 1 for group in images), default=0)
    for level in range(depth):
        fixed: dict[str, list[Group]] = defaultdict(list)
        for group in images:
            if len(group.levels) - 1 > level and len(group.levels[level]) == 1 and not group.levels[level][0].slot:
                for text in group.levels[level][0].choices or (group.levels[level][0].text,):
                    fixed[text].append(group)
        sided_folders = {text: members for text, members in fixed.items() if side_of(text)}
        if len({side_of(text) for text in sided_folders}) < 2:
            continue
        column = f"folder{level}"
        counts = Counter[str]()
        for group in {group.id: group for members in sided_folders.values() for group in members}.values():
            counts.update(group.frame[column].to_list())
        members = sorted(
            {group.id for folder_groups in sided_folders.values() for group in folder_groups},
            key=lambda id: int(id[1:]),
        )
        splits.append(
            SplitFacts(
                source="folder",
                owner=members[0],
                group=",".join(members),
                value=f"{{{column}}}",
                sides=_sides({text: counts[text] for text in sorted(sided_folders)}),
                covers=1.0,
            )
        )
    return splits


def _best_joins(joins: Sequence[Join], images: Sequence[Group]) -> dict[str, Join]:
    """The join of each table that finds most files, images rather than masks."""
    is_mask = {group.id: bool(group.facts.content and group.facts.content.is_mask) for group in images}
    best: dict[str, Join] = {}
    for join in joins:
        names_all_rows = join.rows_share > 0.9 and join.rows_per_file == 1
        if join.chance < 0.5 or join.files_share > 0.9 or names_all_rows:
            rank = (not is_mask[join.group], join.files_share, -join.files_per_row)
            previous = best.get(join.table)
            if previous is None or rank > (not is_mask[previous.group], previous.files_share, -previous.files_per_row):
                best[join.table] = join
    return best


def _table_splits(images: Sequence[Group], tables: Sequence[SurveyTable], joins: Sequence[Join]) -> list[SplitFacts]:
    """Columns whose values are words of sides, also the varying part of the names of stacked files."""
    best = _best_joins(joins, images)
    splits = []
    for table in tables:
        for column in table.facts.columns:
            texts = [value.text for value in column.values]
            if column.name == FILE_COLUMN or not 2 <= column.distinct <= _MAX_SIDES or not _is_split(texts):
                continue
            join = best.get(table.id)
            overlap = _overlap(table, column.name, join)
            is_slot = f"{{{column.name}" in table.facts.files or f"(?P<{column.name}>" in table.facts.files
            splits.append(
                SplitFacts(
                    source="lists" if is_slot else "column",
                    owner=table.id,
                    group=join.group if join else "",
                    value=f"{{{table.id}.{column.name}}}",
                    sides=_sides({value.text: value.count for value in column.values}),
                    covers=round(join.files_share, 4) if join else 0.0,
                    overlap=overlap,
                )
            )
    return splits


def _overlap(table: SurveyTable, column: str, join: Join | None) -> int:
    """Keys that have several texts of the column."""
    if join is None or join.key.count("{") != 1 or join.key[1:-1] not in table.frame.columns:
        return 0
    keys = table.frame.select(key=normalize(pl.col(join.key[1:-1]), join.match), text=pl.col(column))
    return int((keys.drop_nulls().group_by("key").agg(pl.col("text").n_unique())["text"] > 1).sum())


def _list_splits(images: Sequence[Group], tables: Sequence[SurveyTable], joins: Sequence[Join]) -> list[SplitFacts]:
    """Tables whose names mean sides, though they could not be stacked since their columns differ."""
    best = _best_joins(joins, images)
    by_folder: dict[tuple[str, str], list[SurveyTable]] = defaultdict(list)
    for table in tables:
        folder, _, name = table.facts.files.rpartition("/")
        if table.facts.file_count == 1 and side_of(name.rpartition(".")[0]) and table.id in best:
            by_folder[folder, best[table.id].key].append(table)
    splits = []
    for members in by_folder.values():
        counts = {table.facts.files: table.facts.rows for table in members}
        sides = tuple(
            SplitSide(text=path, side=side_of(path.rpartition("/")[2].rpartition(".")[0]), count=rows)
            for path, rows in counts.items()
        )
        if len({side.side for side in sides}) > 1:
            groups = sorted({best[table.id].group for table in members})
            splits.append(
                SplitFacts(
                    source="lists",
                    owner=",".join(table.id for table in members),
                    group=",".join(groups),
                    value="{(file)}",
                    sides=sides,
                )
            )
    return splits


def _member_splits(containers: Sequence[Container]) -> list[SplitFacts]:
    splits = []
    for container in containers:
        sided = [
            member
            for member in container.members
            if member.side and member.length and member.kind in ("images", "masks")
        ]
        if len({member.side for member in sided}) > 1:
            sides = tuple(SplitSide(text=member.key, side=member.side, count=member.length or 0) for member in sided)
            splits.append(
                SplitFacts(source="member", owner=container.group, group=container.group, value="{member}", sides=sides)
            )
    return splits


def find_name_groups(groups: Sequence[Group], splits: Sequence[SplitFacts]) -> list[NameGroups]:
    """Return parts of names that several files of a group share, and how many of them a split of names divides."""
    name_groups = []
    for group in groups:
        if group.format not in IMAGE_FORMATS or len(group.frame) < 4:
            continue
        group_splits = [
            split for split in splits if group.id in split.group.split(",") and split.source in ("folder", "name")
        ]
        for value, texts in _shared_parts(group):
            counts = texts.drop_nulls().value_counts(name="n")
            if not 2 <= len(counts) < 0.95 * len(texts) or len(counts) < 0.02 * len(texts):
                continue
            repeated = counts.filter(pl.col("n") > 1)
            name_groups.append(
                NameGroups(
                    group=group.id,
                    value=value,
                    groups=len(counts),
                    files=int(counts["n"].sum()),
                    largest=to_int(counts["n"].max()),
                    crosses={split.value: _count_crossing(group, texts, split) for split in group_splits},
                    examples=tuple(spread(repeated.sort("n", texts.name)[texts.name].to_list(), 3)),
                )
            )
    return name_groups


def _shared_parts(group: Group) -> list[tuple[str, pl.Series]]:
    parts: list[tuple[str, pl.Series]] = []
    for slot in group.facts.slots:
        if (
            slot.kind in ("number", "hash", "uid", "text", "date")
            and slot.distinct > 3
            and slot.name in group.frame.columns
        ):
            if slot.level < 0 and slot.is_whole:
                continue
            parts.append((f"{{{slot.name}}}", group.frame[slot.name]))
    if any(piece.slot == "*" for piece in group.levels[-1]):
        for beginning in (r"^([^\W\d_]*[0-9]+)", r"^(.+?)[_\-. ][^_\-. ]*$"):
            parts.append((f"{{stem}} find {beginning}", group.frame["stem"].str.extract(beginning, 1).alias("stem")))
    return parts


def _count_crossing(group: Group, texts: pl.Series, split: SplitFacts) -> int:
    column = split.value[1:-1]
    if column not in group.frame.columns:
        return 0
    sides = (
        group.frame[column].str.extract(split.find, 1).fill_null(split.missing) if split.find else group.frame[column]
    )
    frame = pl.DataFrame({"part": texts, "side": sides})
    return int((frame.drop_nulls("part").group_by("part").agg(pl.col("side").n_unique())["side"] > 1).sum())


def find_cross_tables(
    groups: Sequence[Group], tables: Sequence[SurveyTable], joins: Sequence[Join], headers: Mapping[str, Headers]
) -> list[CrossTable]:
    """Return how folders, words and tags of files go with the values of joined columns and with one another."""
    cross_tables: list[CrossTable] = []
    table_of = {table.id: table for table in tables}
    best: dict[tuple[str, str], Join] = {}
    for join in joins:
        if join.files_share > 0.3 and join.files_per_row <= len(table_of[join.table].frame):
            best.setdefault((join.group, join.table), join)
    for group in groups:
        if group.format not in IMAGE_FORMATS or len(group.frame) < 4:
            continue
        parts = {
            f"{{{slot.name}}}": group.frame[slot.name]
            for slot in group.facts.slots
            if _is_class_like(slot, len(group.frame))
        }
        tags = _class_tags(group, headers.get(group.id))
        columns: dict[str, pl.Series] = {}
        for (group_id, table_id), join in best.items():
            if group_id == group.id:
                columns |= _joined_columns(group, table_of[table_id], join)
        for first, values in parts.items():
            for second, second_values in {**columns, **tags}.items():
                cross_tables += _cross(group, first, values, second, second_values)
        for first, values in tags.items():
            for second, second_values in columns.items():
                cross_tables += _cross(group, first, values, second, second_values)
    cross_tables.sort(
        key=lambda table: (-table.agree, -table.one_to_one, int(table.group[1:]), table.rows, table.columns)
    )
    return cross_tables[:_MAX_CROSS_TABLES]


def _is_class_like(slot: Slot, files: int) -> bool:
    return 2 <= slot.distinct <= min(_MAX_CROSS, files // 3)


def _class_tags(group: Group, headers: Headers | None) -> dict[str, pl.Series]:
    if headers is None or not headers.complete:
        return {}
    files = group.frame.select("path").join(headers.frame, on="path", how="left", maintain_order="left")
    tags = ("RescaleIntercept", "PatientSex", "ViewPosition", "Laterality", "Manufacturer", "BodyPartExamined")
    return {f"{{tag.{tag}}}": files[tag] for tag in tags if 2 <= files[tag].drop_nulls().n_unique() <= _MAX_CROSS}


def _joined_columns(group: Group, table: SurveyTable, join: Join) -> dict[str, pl.Series]:
    """Category columns of a table, one value a file."""
    names = [
        column.name
        for column in table.facts.columns
        if column.kind in ("category", "boolean")
        and 2 <= column.distinct <= _MAX_CROSS
        and not column.sensitive
        and column.name != FILE_COLUMN
        and is_nameable(column.name)
    ][:12]
    if not names:
        return {}
    rows = table.frame.select(*names, key=normalize(parse_template(join.key).expression(), join.match)).drop_nulls(
        "key"
    )
    rows = rows.unique("key", keep="first", maintain_order=True)
    files = (
        group.frame.select(key=normalize(parse_template(join.image).expression(), join.match))
        if "{tag." not in join.image
        else None
    )
    if files is None:
        return {}
    cells = files.join(rows, on="key", how="left", maintain_order="left")
    if cells[names].null_count().sum_horizontal()[0] == len(cells) * len(names):
        return {}
    return {f"{{{table.id}.{name}}}": cells[name] for name in names}


def _cross(group: Group, first: str, values: pl.Series, second: str, second_values: pl.Series) -> list[CrossTable]:
    frame = pl.DataFrame({"rows": values, "columns": second_values}).drop_nulls()
    if len(frame) < 4:
        return []
    counts = frame.group_by("rows", "columns").len().sort("rows", "columns")
    agree = int((frame["rows"].str.to_lowercase() == frame["columns"].str.to_lowercase()).sum()) / len(frame)
    cells = tuple((str(row), str(column), int(count)) for row, column, count in counts.head(_MAX_COUNTS).iter_rows())
    shares = [
        int(counts.group_by(side).agg(pl.col("len").max())["len"].sum()) / len(frame) for side in ("rows", "columns")
    ]
    one_to_one = min(shares) if counts["rows"].n_unique() > 1 and counts["columns"].n_unique() > 1 else 0.0
    return [
        CrossTable(
            group=group.id,
            rows=first,
            columns=second,
            counts=cells,
            agree=round(agree, 4),
            one_to_one=round(one_to_one, 4),
        )
    ]
