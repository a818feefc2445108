"""Measured joins: which columns of tables name which files, and which files of two groups belong together.

Every column (and pair of columns) is compared with every key of every group (paths, slots and runs of slots, folders, tags) under
every rule of a manifest, all at once by hashed keys. The strictest rule that matches most is kept.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations, product
from pathlib import Path

import polars as pl

from m3b.dataset.manifest.model import Match
from m3b.dataset.manifest.templates import normalize
from m3b.dataset.survey.contents import measure_overlap, read_grid
from m3b.dataset.survey.dicom import KEY_TAGS, Headers
from m3b.dataset.survey.facts import Column, Join, Pairing, SurveyLimits
from m3b.dataset.survey.groups import Group, spread
from m3b.dataset.survey.key_index import (
    MATCHES,
    MAX_CACHED,
    MIN_KEYS,
    EdgeWords,
    End,
    Hit,
    MatchFacts,
    compare_ends,
    fill,
    measure_counts,
    measure_keys,
)
from m3b.dataset.survey.names import IMAGE_FORMATS, TABLE_FORMATS, Piece, to_int
from m3b.dataset.survey.tables import SurveyTable
from m3b.dataset.tables import FILE_COLUMN, LIST_SEPARATOR, ROW_COLUMN

_PATH_MATCHES: tuple[Match, ...] = ("path_tail", "basename", "stem", "normalized", "number")
_TEXT_MATCHES: tuple[Match, ...] = ("exact", "normalized", "number")
_MAX_SPAN = 5
_MAX_ENDS = 40
_MAX_COLUMNS = 60
"""Columns of one table that are compared."""
_MAX_PAIR_COLUMNS = 8
_MAX_TRIPLE_SLOTS = 5
"""Slots of names of which three are compared with three columns."""
_MAX_EXAMPLES = 3
_MIN_SHARE = 0.02
"""Of the files or of the rows: fewer are no join."""
_MIN_ROW_SHARE = 0.5
"""Of the files: places of rows name files only if they name most of them."""
_FEW_KEYS = 10
"""Distinct keys below which a join of many rows with many files is rather two columns of classes."""
_GOOD_SHARE = 0.6
"""Of the files: if one column finds more, pairs of columns are not tried."""
_MIN_PAIR_SHARE = 0.3
"""Of the files: two columns together match a few by chance."""
_MIN_OF_BEST = 0.3
"""Of the files that the best join of a table finds: joins that find less are dropped."""
_MAX_COMPARED_GRIDS = 4
_MANY_FILES = 20_000
"""Files of a group from which on only the keys that tell most files apart are compared with those of other groups."""
_MAX_ENDS_OF_MANY = 4
_MAX_FIXED = 2
"""Folders of one name that keys are put together with, from the top."""


# --- ends of groups ---------------------------------------------------------------------------------------------------


def group_ends(group: Group, headers: Headers | None = None) -> list[End]:
    """Return what the files of a group can be compared by."""
    frame = group.frame
    ends = [End(group.id, "{path}", frame, _PATH_MATCHES)]
    if frame["stem"].n_unique() > 1:
        ends.append(End(group.id, "{stem}", frame, _TEXT_MATCHES, 1))
    name_spans = _spans(group.levels[-1])
    folder_spans: list[tuple[str, tuple[str, ...]]] = []
    for level, pieces in enumerate(group.levels[:-1]):
        folder_spans += (
            [(f"{{folder{level}}}", (f"folder{level}",))]
            if any(piece.slot or piece.choices for piece in pieces)
            else []
        )
        folder_spans += _spans(pieces)
    for template, columns in [*name_spans, *folder_spans]:
        ends.append(_end(group, template, columns, 2 + len(columns)))
    for folder, columns in folder_spans:
        if columns == (folder[1:-1],) or len(folder_spans) <= 3:
            for span, span_columns in [("{stem}", ("stem",)), *name_spans[:6]]:
                end = _end(group, f"{folder}_{span}", (*columns, *span_columns), 6 + len(columns) + len(span_columns))
                end.matches = ("exact", "normalized")  # under `number` a folder without digits would not count
                ends.append(end)
    for level in [level for level, pieces in enumerate(group.levels[:-1]) if _is_fixed(pieces)][:_MAX_FIXED]:
        # numbers that start anew in other folders are told apart by the folder, also where a group lies in one alone
        for span, span_columns in [("{stem}", ("stem",)), *name_spans[:3]]:
            end = _end(group, f"{{folder{level}}}_{span}", (f"folder{level}", *span_columns), 7 + len(span_columns))
            end.matches = ("exact", "normalized")
            ends.append(end)
    if headers is not None and headers.complete:
        tags = frame.select("path").join(headers.frame, on="path", how="left", maintain_order="left")
        for tag in KEY_TAGS:
            if tags[tag].n_unique() > 1:
                name = f"tag.{tag}"
                ends.append(
                    End(group.id, f"{{{name}}}", tags.select(pl.col(tag).alias(name)), _TEXT_MATCHES, 3, (name,))
                )
    unique: dict[str, End] = {}
    for end in ends:
        unique.setdefault(end.template, end)
    return list(unique.values())[:_MAX_ENDS]


def _is_fixed(pieces: Sequence[Piece]) -> bool:
    """Whether a folder has the same name for all files of a group."""
    return bool(pieces) and not any(piece.slot or piece.choices for piece in pieces)


def _spans(pieces: Sequence[Piece]) -> list[tuple[str, tuple[str, ...]]]:
    """Templates of single slots, and of runs of slots with the fixed text between them, also with the rest of their words."""
    places = [at for at, piece in enumerate(pieces) if piece.slot and piece.slot != "*"]
    spans: list[tuple[str, tuple[str, ...]]] = []
    for length in range(1, min(len(places), _MAX_SPAN) + 1):
        for first in range(len(places) - length + 1):
            start, stop = places[first], places[first + length - 1]
            template = "".join(f"{{{piece.slot}}}" if piece.slot else piece.text for piece in pieces[start : stop + 1])
            columns = tuple(piece.slot for piece in pieces[start : stop + 1] if piece.slot)
            spans.append((template, columns))
            before = pieces[start - 1].text if start and not pieces[start - 1].slot else ""
            behind = pieces[stop + 1].text if stop + 1 < len(pieces) and not pieces[stop + 1].slot else ""
            word, ending = re.search(r"[^\W_]+[\W_]*$", before), re.match(r"[^\W_]+(?=[\W_])", behind)
            if word:
                spans.append((word[0] + template, columns))
            if ending:  # the slot is the middle of a word, as in `S01x_1`
                spans.append((f"{word[0] if word else ''}{template}{ending[0]}", columns))
    return spans


def _end(group: Group, template: str, columns: tuple[str, ...], rank: int) -> End:
    return End(group.id, template, group.frame, _TEXT_MATCHES, rank, columns)


# --- tables and groups ------------------------------------------------------------------------------------------------


def column_ends(table: SurveyTable) -> list[End]:
    """Return the columns of a table that may name files."""
    ends: list[End] = []
    for column in table.facts.columns:
        if column.distinct >= 2 and _can_name(column) and len(ends) < _MAX_COLUMNS:
            has_lists = bool(table.frame[column.name].str.contains(LIST_SEPARATOR, literal=True).any())
            template = f"{{{column.name}}}"
            ends.append(End(table.id, template, table.frame, MATCHES, 0, (column.name,), has_lists))
    ends.append(End(table.id, f"{{{ROW_COLUMN}}}", table.frame, ("number",), 5, (ROW_COLUMN,)))
    return ends


def is_nameable(column: str) -> bool:
    """Return whether a template can name a column."""
    return bool(column) and "{" not in column and "}" not in column


def _can_name(column: Column) -> bool:
    if column.name == FILE_COLUMN or not is_nameable(column.name):
        return False
    if column.kind == "number":
        return column.is_integer
    return column.kind in ("id", "path", "text", "category", "list", "date")


def find_joins(
    tables: Sequence[SurveyTable],
    groups: Sequence[Group],
    headers: Mapping[str, Headers],
    limits: SurveyLimits,
    is_late: Callable[[], bool] = lambda: False,
) -> list[Join]:
    """Return the joins of tables with groups of images, those that match most first."""
    images = [group for group in groups if group.format in IMAGE_FORMATS]
    if not tables or not images:
        return []
    by_group = {group.id: group_ends(group, headers.get(group.id)) for group in images}
    by_table = {table.id: column_ends(table) for table in tables}
    file_keys, column_keys = ([end for ends in by.values() for end in ends] for by in (by_group, by_table))
    hits = compare_ends(column_keys, file_keys, limits.keys, is_late)
    group_of = {group.id: group for group in images}
    table_of = {table.id: table for table in tables}
    joins: dict[tuple[str, str], list[Join]] = defaultdict(list)
    partial: dict[tuple[str, str], list[Hit]] = defaultdict(list)
    for hit in hits:
        owners = (hit.first.owner, hit.second.owner)
        partial[owners].append(hit)
        if _may_join(hit):
            join = _measure(hit, table_of[owners[0]], group_of[owners[1]])
            if _is_join(join, hit):
                joins[owners].append(join)
    sure_joins = {
        owners
        for owners, own_joins in joins.items()
        if any(join.files_per_row == 1 and join.files_share > _GOOD_SHARE for join in own_joins)
    }
    candidates = {
        table: [end for end in ends if end.columns != (ROW_COLUMN,)][:_MAX_PAIR_COLUMNS]
        for table, ends in by_table.items()
    }
    keys = _KeyCache(tables, images, [*column_keys, *file_keys])
    pair_finder = _PairFinder(column_keys, file_keys, keys, limits)
    for table in tables:
        for group in images:
            if is_late():
                break
            owners = (table.id, group.id)
            columns = [] if owners in sure_joins else candidates[table.id]
            pairs = pair_finder.find(table, group, columns, partial.get(owners, []))
            rivals = joins.get(owners, [])
            accepted = [
                join for join in pairs if _improves(join, rivals) or (owners in sure_joins and _is_one_to_one(join))
            ]
            if accepted:
                joins[owners] = [*rivals, *accepted]
    return [keys.add_examples(join) for join in _select([join for own_joins in joins.values() for join in own_joins])]


def _may_join(hit: Hit) -> bool:
    """Whether a hit can be a join, before its facts are put together; unknown of a hit of a sample of keys."""
    facts, files = hit.facts, hit.second.size
    if facts is None:
        return hit.keys >= MIN_KEYS or min(hit.first.size, files) < MIN_KEYS
    return facts.files_matched >= _MIN_SHARE * files or facts.rows_matched >= _MIN_SHARE * facts.rows


def _measure(hit: Hit, table: SurveyTable, group: Group) -> Join:
    """The join of a hit, without examples of files that no row names."""
    facts = hit.facts or measure_keys(hit.first.key(hit.match), hit.second.key(hit.match))
    return _make_join(table, group, hit.first.template, hit.second.template, hit.match, facts)


def _make_join(table: SurveyTable, group: Group, key: str, image: str, match: Match, facts: MatchFacts) -> Join:
    return Join(
        table=table.id, group=group.id, key=key, image=image, match=match, files=len(group.frame), **vars(facts)
    )


def _examples(texts: pl.Series) -> tuple[str, ...]:
    return tuple(str(text)[:120] for text in spread(texts.unique(maintain_order=True).to_list(), _MAX_EXAMPLES))


def _cut_tails(row_keys: pl.Series, file_keys: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Keys of `path_tail` cut so that they are equal where they match."""
    depth = to_int(file_keys.str.count_matches("/", literal=True).max())
    deep = row_keys.str.extract(rf"([^/]*(?:/[^/]*){{{depth}}})$", 1)
    row_keys = pl.select(pl.when(deep.is_null()).then(row_keys).otherwise(deep)).to_series()
    levels = row_keys.str.count_matches("/", literal=True).drop_nulls()
    common = to_int(levels.mode().min())
    if common < depth:
        file_keys = file_keys.str.extract(rf"([^/]*(?:/[^/]*){{{common}}})$", 1)
    return row_keys, file_keys


class _KeyCache:
    """Keys of tables and groups by template and rule, made once; those of many rows are made again."""

    def __init__(self, tables: Sequence[SurveyTable], groups: Sequence[Group], ends: Sequence[End]) -> None:
        self._frames = {table.id: table.frame for table in tables} | {group.id: group.frame for group in groups}
        self._ends = {(end.owner, end.template): end for end in ends}
        self._keys: dict[tuple[str, str, Match], pl.Series] = {}
        self._counts: dict[tuple[str, str, Match], Counter[str]] = {}

    def get_keys(self, owner: str, template: str, match: Match) -> pl.Series:
        """Return the keys, one a text of the end, null if there is none."""
        place = (owner, template, match)
        keys = self._keys.get(place)
        if keys is None:
            end = self._ends.get((owner, template))
            texts = end.texts if end is not None else fill(self._frames[owner], template)
            keys = pl.select(normalize(pl.lit(texts.alias("text")), match).alias("key")).to_series()
            if len(keys) <= MAX_CACHED:
                self._keys[place] = keys
        return keys

    def measure(self, table: str, key: str, group: str, image: str, match: Match) -> MatchFacts:
        """Return what the keys of a table and of a group have in common; few are counted once for all partners."""
        if self._frames[table].height + self._frames[group].height > MAX_CACHED:
            return measure_keys(self.get_keys(table, key, match), self.get_keys(group, image, match))
        return measure_counts(self._count_keys(table, key, match), self._count_keys(group, image, match))

    def _count_keys(self, owner: str, template: str, match: Match) -> Counter[str]:
        place = (owner, template, match)
        if place not in self._counts:
            keys = self.get_keys(owner, template, match)
            self._counts[place] = Counter(dict(keys.drop_nulls().value_counts().iter_rows()))
        return self._counts[place]

    def add_examples(self, join: Join) -> Join:
        """Return a join with examples of files that no row names."""
        if join.files_matched == join.files:
            return join
        rows, files = (
            self.get_keys(owner, template, join.match)
            for owner, template in ((join.table, join.key), (join.group, join.image))
        )
        if join.match == "path_tail":
            rows, files = _cut_tails(rows, files)
        paths = self._frames[join.group]["path"]
        if len(rows) + len(files) > MAX_CACHED:
            unmatched = paths.filter(~files.is_in(rows.drop_nulls().unique().implode()).fill_null(False))
        else:
            named = {*rows.to_list()} - {None}
            unmatched = pl.Series(
                [path for path, key in zip(paths, files, strict=True) if key not in named], dtype=pl.String
            )
        return join.model_copy(update={"unmatched_files": _examples(unmatched)})


def _is_join(join: Join, hit: Hit) -> bool:
    if hit.keys < MIN_KEYS and join.files > 1 and join.rows > 1:
        return False
    if max(join.files_share, join.rows_share) < _MIN_SHARE:
        return False
    if join.key == f"{{{ROW_COLUMN}}}" and join.files_share < _MIN_ROW_SHARE:
        return False
    is_many_to_many = join.rows_per_file > 1 and join.files_per_row > 1
    return not (is_many_to_many and hit.keys < _FEW_KEYS)


def _is_one_to_one(join: Join) -> bool:
    """Whether each row names one file and each file has its row: as sure a join as that of a column of other images."""
    return (
        join.rows == join.rows_matched == join.files == join.files_matched and join.rows_per_file == join.files_per_row
    )


def _improves(join: Join, rivals: Sequence[Join]) -> bool:
    best = max((rival.files_share for rival in rivals if rival.files_per_row == 1), default=0.0)
    is_sure = join.files_per_row == 1 or join.image.startswith("{folder")  # the slices of a folder have one row
    return is_sure and join.files_share > max(best + 0.02, _MIN_PAIR_SHARE)


class _PairFinder:
    """Finds joins by two or three columns: each names a slot of its own, or two together the stem."""

    def __init__(self, columns: Sequence[End], names: Sequence[End], keys: _KeyCache, limits: SurveyLimits) -> None:
        self._keys, self._limits = keys, limits
        self._names = {(end.owner, end.template): end for end in names if _is_part(end)}
        ends = [end for end in columns if end.columns != (ROW_COLUMN,) and end.size <= limits.keys]
        parts = [end for end in self._names.values() if end.size <= limits.keys]
        self._words = EdgeWords(ends, parts)

    def find(self, table: SurveyTable, group: Group, columns: Sequence[End], hits: Sequence[Hit]) -> list[Join]:
        """Return the best joins of several columns of a table with a group.

        Args:
            columns: that may name the stem together.
            hits: of single columns of the table.
        """
        if len(table.frame) > self._limits.keys or len(group.frame) > self._limits.keys:
            return []
        pair_joins: list[Join] = []
        slots: dict[str, list[Hit]] = defaultdict(list)
        for hit in hits:
            is_slot = len(hit.second.columns) == 1 and not hit.second.columns[0].startswith("tag.")
            if is_slot and hit.first.columns != (ROW_COLUMN,) and hit.keys >= MIN_KEYS:
                slots[hit.second.columns[0]].append(hit)
        best = {
            slot: sorted(slot_hits, key=lambda hit: (-hit.keys, hit.first.template))[:3]
            for slot, slot_hits in slots.items()
        }
        tried: set[tuple[str, str]] = set()
        for first, second in permutations(best, 2):
            for a, b in product(best[first], best[second]):
                if a.first.template == b.first.template or _order(group, first) > _order(group, second):
                    continue
                key, image = f"{a.first.template}_{b.first.template}", f"{a.second.template}_{b.second.template}"
                if (key, image) not in tried:
                    tried.add((key, image))
                    pair_joins += self._try_columns(table, group, [a.first, b.first], [a.second, b.second])
        if not any(join.files_per_row == 1 and join.files_share > _GOOD_SHARE for join in pair_joins):
            pair_joins += self._find_triples(table, group, best)
        depth = len(group.levels) - 1  # a folder of slices is called like a file of others
        has_folder = depth and any(piece.slot for piece in group.levels[-2])
        names = [self._get_name(group, "{stem}")]
        names += [self._get_name(group, f"{{folder{depth - 1}}}")] if has_folder else []
        for pair, name in product(permutations(columns, 2), names):
            pair_joins += self._try_columns(table, group, pair, [name])
        return sorted(pair_joins, key=_quality, reverse=True)[:3]

    def _get_name(self, group: Group, template: str) -> End:
        """The end of a group that is the whole stem or folder; a new one if it is the same for all files."""
        return self._names.get((group.id, template)) or End(group.id, template, group.frame, _TEXT_MATCHES)

    def _find_triples(self, table: SurveyTable, group: Group, hits_of_slot: Mapping[str, Sequence[Hit]]) -> list[Join]:
        """Joins by three columns, each of which names a slot of its own: patient, visit and eye."""
        joins = []
        slots = sorted(hits_of_slot, key=lambda slot: (_order(group, slot), slot))[:_MAX_TRIPLE_SLOTS]
        for triple in combinations(slots, 3):
            for hits in product(*(hits_of_slot[slot] for slot in triple)):
                if len({hit.first.template for hit in hits}) == len(hits):
                    joins += self._try_columns(table, group, [hit.first for hit in hits], [hit.second for hit in hits])
        return joins

    def _try_columns(
        self, table: SurveyTable, group: Group, columns: Sequence[End], names: Sequence[End]
    ) -> list[Join]:
        """The join of columns, one after the other, with names, if their first and last words let it match enough files."""
        if not self._words.can_name(columns[0], columns[-1], names[0], names[-1]):
            return []
        key, image = ("_".join(end.template for end in ends) for ends in (columns, names))
        for match in ("exact", "normalized"):
            facts = self._keys.measure(table.id, key, group.id, image, match)
            join = _make_join(table, group, key, image, match, facts)
            if join.files_matched >= MIN_KEYS and join.files_share >= _MIN_SHARE:
                return [join]
        return []


def _is_part(end: End) -> bool:
    """Whether an end is one slot, folder or stem, of which names are put together."""
    return end.template == "{stem}" or (len(end.columns) == 1 and not end.columns[0].startswith("tag."))


def _order(group: Group, slot: str) -> int:
    return next((at for at, (_, column, _) in enumerate(group.slot_pieces()) if column == slot), 99)


def _quality(join: Join) -> tuple[float, ...]:
    """Joins of most files first, then unique ones, then of most rows, strict ones before loose ones."""
    unique = (join.files_per_row == 1) + (join.rows_per_file == 1)
    return (
        round(join.files_share, 2),
        unique,
        round(join.rows_share, 2),
        -join.chance,
        -MATCHES.index(join.match),
        -len(join.image),
    )


def _select(joins: Sequence[Join]) -> list[Join]:
    """Of the joins of one column with one group the best two, of all those of one table and group the best eight."""
    by_column: dict[tuple[str, str, str], list[Join]] = defaultdict(list)
    for join in sorted(joins, key=_quality, reverse=True):
        by_column[join.table, join.group, join.key].append(join)
    for column, candidates in by_column.items():
        most_rows = max(join.rows_matched for join in candidates)
        if any(
            join.match == "path_tail" and join.files_per_row == 1 and join.rows_matched == most_rows
            for join in candidates
        ):  # rows that name the folder of their file mean no file of the same name elsewhere
            by_column[column] = [join for join in candidates if join.files_per_row == 1]
    by_table: dict[tuple[str, str], list[Join]] = defaultdict(list)
    for (table, group, _), candidates in by_column.items():
        selection = candidates[:1]
        selection += [
            join
            for join in candidates[1:]
            if join.files_share >= candidates[0].files_share and join.match != candidates[0].match
        ][:1]
        by_table[table, group] += selection
    selected = []
    for candidates in by_table.values():
        best = max(join.files_share for join in candidates)
        by_columns = [join for join in candidates if join.key != f"{{{ROW_COLUMN}}}"]
        if any(join.files_share >= _MIN_OF_BEST for join in by_columns):
            candidates = by_columns  # places of rows matter only if no column names the files
        if any(join.chance < 0.1 and join.files_per_row == 1 and join.files_share >= 0.9 * best for join in candidates):
            candidates = [
                join for join in candidates if join.chance < 0.5
            ]  # numbers that name files as any others would
        if any(join.rows_per_file == join.files_per_row == 1 and join.files_share >= 0.5 for join in candidates):
            candidates = [join for join in candidates if join.rows_per_file == 1 or join.chance < 0.3]
        selection = [
            join
            for join in candidates
            if join.files_share >= _MIN_OF_BEST * best
            or (join.rows_share >= 0.5 and join.rows_per_file == 1 and join.chance < 0.5)
        ]
        selected += sorted(selection, key=_quality, reverse=True)[:8]
    return sorted(
        selected,
        key=lambda join: (int(join.table[1:]), int(join.group[1:]), *(-value for value in _quality(join)), join.key),
    )


# --- groups and groups ------------------------------------------------------------------------------------------------


def find_pairings(
    groups: Sequence[Group], root: Path, limits: SurveyLimits, is_late: Callable[[], bool] = lambda: False
) -> list[Pairing]:
    """Return which files of two groups belong together by their paths."""
    images = [group for group in groups if group.format in IMAGE_FORMATS and len(group.frame) > 1 and _opens(group)]
    sidecars = [group for group in groups if group.format in TABLE_FORMATS and len(group.frame) > 2]
    if len(images) + len(sidecars) < 2 or not images or sum(len(group.frame) for group in groups) > 5 * limits.keys:
        return []
    unique: list[End] = []
    every: list[End] = []
    for group in (*images, *sidecars):
        ends = [end for end in group_ends(group) if end.template != "{path}"]
        if len(group.frame) > _MANY_FILES:
            ends = sorted(ends, key=lambda end: -end.texts.n_unique())[:_MAX_ENDS_OF_MANY]
            for end in ends:
                end.matches = tuple(match for match in end.matches if match != "number")
        every += ends
        if group.format in IMAGE_FORMATS:
            unique += [end for end in ends if end.texts.n_unique() >= 0.98 * end.size]
    hits = compare_ends(unique, every, limits.keys, is_late, between_owners=True)
    group_of = {group.id: group for group in (*images, *sidecars)}
    rank = {group.id: at for at, group in enumerate((*images, *sidecars))}
    by_pair: dict[tuple[str, str], list[Hit]] = defaultdict(list)
    for hit in hits:
        if hit.first.owner != hit.second.owner and hit.keys >= MIN_KEYS:
            by_pair[hit.first.owner, hit.second.owner].append(hit)
    pairings = []
    for (first_id, second_id), pair_hits in by_pair.items():
        first, second = group_of[first_id], group_of[second_id]
        if not _is_image_side(first, second, rank):
            continue
        ranked = sorted(pair_hits, key=lambda hit: (-hit.keys, MATCHES.index(hit.match), *_complexity(hit)))
        candidates = [_measure_pairing(hit, first, second) for hit in ranked[:6]]
        highest_share = max(_pairing_quality(pairing)[0] for pairing in candidates)
        unique_keys = [
            pairing
            for pairing in candidates
            if pairing.images_per_partner == 1 and _pairing_quality(pairing)[0] >= 0.6 * highest_share
        ]
        best = max(unique_keys or candidates, key=_pairing_quality)
        if max(best.images_matched / best.image_files, best.partners_matched / best.partner_files) >= 0.1:
            pairings.append(_with_grids(best, first, second, root) if second.format in IMAGE_FORMATS else best)
    return sorted(pairings, key=lambda pairing: (rank[pairing.image_group], rank[pairing.partner_group]))


def _opens(group: Group) -> bool:
    """Whether any of the samples of a group opens, as far as it has samples."""
    content = group.facts.content
    return content is None or content.failed < content.samples


def _complexity(hit: Hit) -> tuple[bool, int, str]:
    """Equal templates on both sides first, then simple ones."""
    return hit.first.template != hit.second.template, hit.first.rank + hit.second.rank, hit.first.template


def _is_image_side(first: Group, second: Group, rank: Mapping[str, int]) -> bool:
    """Whether a pairing of these two is wanted: masks and files beside images are partners."""
    masks = [bool(group.facts.content and group.facts.content.is_mask) for group in (first, second)]
    if second.format in TABLE_FORMATS:
        return not masks[0]
    return masks == [False, True] or (masks[0] == masks[1] and rank[first.id] < rank[second.id])


def _measure_pairing(hit: Hit, first: Group, second: Group) -> Pairing:
    image_keys, partner_keys = hit.first.key(hit.match), hit.second.key(hit.match)
    image_matches = image_keys.is_in(partner_keys.drop_nulls().unique().implode()).fill_null(False)
    partner_matches = partner_keys.is_in(image_keys.drop_nulls().unique().implode()).fill_null(False)
    counts = partner_keys.filter(partner_matches).value_counts(name="n")["n"].sort()
    per_image = (int(counts[0]), int(counts[len(counts) // 2]), int(counts[-1])) if len(counts) else (0, 0, 0)
    return Pairing(
        image_group=first.id,
        partner_group=second.id,
        key=hit.second.template,
        image=hit.first.template,
        match=hit.match,
        image_files=len(image_keys),
        images_matched=int(image_matches.sum()),
        partner_files=len(partner_keys),
        partners_matched=int(partner_matches.sum()),
        per_image=per_image,
        images_per_partner=_most(image_keys.filter(image_matches)),
        extra_slot=_extra_slot(second, hit, per_image[2]),
        partner_words=tuple(sorted(_words(second) - _words(first))),
    )


def _most(keys: pl.Series) -> int:
    return to_int(keys.value_counts(name="n")["n"].max()) if len(keys) else 0


def _pairing_quality(pairing: Pairing) -> tuple[float, ...]:
    return (
        round(pairing.images_matched / pairing.image_files + pairing.partners_matched / pairing.partner_files, 3),
        -pairing.images_per_partner,
        -pairing.per_image[1],
        -MATCHES.index(pairing.match),
        pairing.key == pairing.image,
        -pairing.key.count("{") - pairing.image.count("{"),
        -len(pairing.key),
    )


def _words(group: Group) -> set[str]:
    fixed = [piece.text for level in group.levels for piece in level if not piece.slot and not piece.choices]
    return {word.lower() for text in fixed for word in re.findall(r"[^\W\d_]+", text)}


def _extra_slot(group: Group, hit: Hit, max_count: int) -> str:
    if max_count < 2:
        return ""
    used = set(hit.second.columns) | ({"stem"} if "{stem}" in hit.second.template else set())
    columns = [
        column for _, column, _ in group.slot_pieces() if column not in used and group.frame[column].n_unique() > 1
    ]
    keys = [column for column in group.frame.columns if column in used]
    if not keys:
        return min(columns, key=lambda column: (group.frame[column].n_unique(), column), default="")
    varying = group.frame.group_by(keys).agg((pl.col(column).n_unique() > 1).alias(column) for column in columns)
    shares = {column: float(varying[column].cast(pl.Float64).mean() or 0.0) for column in columns}  # type: ignore[arg-type]
    return max(columns, key=lambda column: (shares[column], -group.frame[column].n_unique(), column), default="")


def _with_grids(pairing: Pairing, first: Group, second: Group, root: Path) -> Pairing:
    """Compare the grids of a few pairs by their headers."""
    texts = fill(first.frame, pairing.image), fill(second.frame, pairing.key)
    keys = [pl.select(normalize(pl.lit(text), pairing.match).alias("key")).to_series() for text in texts]
    lefts = pl.DataFrame({"key": keys[0], "left": first.frame["path"]}).drop_nulls("key")
    rights = (
        pl.DataFrame({"key": keys[1], "right": second.frame["path"]})
        .drop_nulls("key")
        .unique("key", maintain_order=True)
    )
    pairs = lefts.join(rights, on="key", maintain_order="left").select("left", "right").rows()
    compared = same_count = turned = 0
    sizes: list[str] = []
    places = [int((at + 0.5) * len(pairs) / _MAX_COMPARED_GRIDS) for at in range(_MAX_COMPARED_GRIDS)] if pairs else []
    for image_path, partner_path in [pairs[place] for place in dict.fromkeys(places)]:
        grids = [read_grid(root, path) for path in (image_path, partner_path)]
        if not all(grids) or len(grids[0]) != len(
            grids[1]
        ):  # a volume of files for each slice has no grid of its own here
            continue
        compared += 1
        if grids[0] == grids[1]:
            same_count += 1
        else:
            turned += len(grids[0]) == 2 and grids[0] == grids[1][::-1]
            sizes.append(f"{image_path} {'x'.join(map(str, grids[0]))}, {partner_path} {'x'.join(map(str, grids[1]))}")
    overlap = None
    if pairing.per_image[2] > 1:
        partners = pl.DataFrame({"key": keys[1], "right": second.frame["path"]}).filter(
            pl.col("key").is_in(keys[0].implode())
        )
        by_image = partners.group_by("key", maintain_order=True).agg(pl.col("right").sort())
        cut = second.facts.content.cut if second.facts.content is not None else None
        overlap = measure_overlap(root, by_image["right"].to_list(), cut)
    return pairing.model_copy(
        update={
            "compared": compared,
            "same_grid": same_count,
            "turned_grid": turned,
            "sizes": tuple(sizes),
            "overlap": overlap,
        }
    )
