"""What a user fixes, applied to what is enumerated: joins and targets that keep to it, with the patients and split that were named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.model import Boxes, Files, Labels, Masks, Table, ValueSource
from m3b.dataset.manifest.overrides import DRAWN, FOLDERS, Overrides, find_files
from m3b.dataset.manifest.patterns import match_any, parse_pattern
from m3b.dataset.manifest.problems import PatternError, list_names
from m3b.dataset.manifest.readers import FolderReaders
from m3b.dataset.proposals.context import PatientChoice, SplitChoice, list_splits, split_by
from m3b.dataset.proposals.image_sets import ImageSet
from m3b.dataset.proposals.request import Request
from m3b.dataset.proposals.targets import Target
from m3b.dataset.survey.facts import Survey, TableFacts
from m3b.dataset.survey.words import side_of
from m3b.dataset.tables import TABLE_SUFFIXES
from m3b.dataset.words.matching import MATCH_SCORE, match_term
from m3b.errors import DataError

MAX_TABLES = 50
"""Tables in which a column is looked for."""
MAX_EXCLUDED_FOLDERS = 20
"""Folders whose masks a manifest names to leave them out."""
_TABLE_COLUMN = re.compile(r"\{([^{}.]+)\.([^{}]*)\}")


def narrow_joins(survey: Survey, overrides: Overrides) -> Survey:
    """Return the survey without joins by another column than the one that names the images."""
    if not overrides.image_column:
        return survey
    tables = {
        table.id
        for table in survey.tables
        if any(column.name == overrides.image_column for column in table.columns)
        and overrides.labels in ("", table.files)
    }
    key = f"{{{overrides.image_column}}}"
    return survey.model_copy(
        update={"joins": tuple(join for join in survey.joins if join.table not in tables or join.key == key)}
    )


def apply_overrides(image_set: ImageSet, target: Target, request: Request) -> Target | None:
    """Return a target as the user's overrides make it; None if it does not keep to them."""
    overrides, readers = request.overrides, image_set.frame.readers
    if (overrides.labels or overrides.label_column) and not _reads_column(image_set, target, overrides, readers):
        return None
    if overrides.patient_column and choose_given_patient(image_set, overrides.patient_column) is None:
        return None
    parts = dict(target.parts)
    if overrides.masks:
        masks = parts.get("masks")
        narrowed = (
            _narrow_masks(masks, find_files(readers.inventory, overrides.masks), readers) if masks is not None else None
        )
        if narrowed is None:
            return None
        parts["masks"] = narrowed
    if overrides.classes:
        renamed = _choose_classes(parts, overrides.classes, request)
        if renamed is None:
            return None
        parts |= renamed
        target = replace(target, classes=overrides.classes, unmatched_request=(), codes=())
    return replace(target, parts=parts)


def _reads_column(image_set: ImageSet, target: Target, overrides: Overrides, readers: FolderReaders) -> bool:
    """Whether the targets come from the table and the column that were named."""
    pairs = [pair for template in target.templates for pair in _TABLE_COLUMN.findall(template)]
    tables = {**image_set.tables, **target.parts.get("tables", {})}
    if overrides.label_column and overrides.label_column not in {column for _, column in pairs}:
        return False
    if not overrides.labels:
        return True
    part = target.parts.get("boxes") or target.parts.get("masks")
    patterns = [pattern for name, _ in pairs if name in tables for pattern in tables[name].patterns]
    if part is not None and part.files:
        patterns += [part.files] if isinstance(part.files, str) else list(part.files)
    if part is not None and part.table in tables:
        patterns += tables[part.table].patterns
    return any(
        len(match_any(readers.inventory.files.select("path").filter(path=overrides.labels), [parse_pattern(pattern)]))
        for pattern in patterns
    )


def _narrow_masks(masks: Masks, named: frozenset[str], readers: FolderReaders) -> Masks | None:
    """Return masks without the files that were not named; None if none remains."""
    if not masks.files:
        return None
    files = Files(files=masks.files, exclude=masks.exclude)
    paths = readers.items(files, "masks")["path"].to_list()
    kept_paths = [path for path in paths if path in named]
    if not kept_paths or len(kept_paths) == len(paths):
        return masks if kept_paths else None
    folders = {path.rpartition("/")[0] for path in paths if path not in named}
    if folders & {path.rpartition("/")[0] for path in kept_paths} or len(folders) > MAX_EXCLUDED_FOLDERS:
        return None
    excluded = tuple(f"{folder}/*" for folder in sorted(folders))
    return masks.model_copy(update={"exclude": (*masks.exclude, *excluded)})


def _choose_classes(parts: Mapping[str, Any], classes: tuple[str, ...], request: Request) -> dict[str, Any] | None:
    """Return the parts with the named classes, in their order and by their names; None if one of them is not there."""
    for name in ("labels", "masks", "boxes"):
        part: Labels | Masks | Boxes | None = parts.get(name)
        if part is None:
            continue
        columns = getattr(part, "columns", {}) if name == "labels" else {}
        available = list(columns or part.classes)
        folded = {text.casefold(): text for text in available}
        sources = {
            item: folded.get(item.casefold())
            or max(
                (source for source in available if match_term(item, source) >= MATCH_SCORE),
                key=lambda source: match_term(item, source),
                default=None,
            )
            for item in classes
        }
        if len(available) == len(classes) == 1:
            sources = {classes[0]: available[0]}
        valid_sources = [source for source in sources.values() if source is not None]
        if len(valid_sources) < len(classes) or len(set(valid_sources)) < len(valid_sources):
            return None
        fields = ("classes", "columns") if name == "labels" else ("classes", "per_file", "layers")
        update = {
            field: {
                item: getattr(part, field)[source] for item, source in sources.items() if source in getattr(part, field)
            }
            for field in fields
            if getattr(part, field, None)
        }
        if name == "labels" and not columns:
            update["classes"] = {item: part.classes[source] or (source,) for item, source in sources.items() if source}
        return {name: part.model_copy(update=update)}
    return None


def choose_given_patient(image_set: ImageSet, name: str) -> PatientChoice | None:
    """Return the column of a name that says whose an image is; None if the images have none."""
    columns = [column for column in image_set.columns if column.name == name and column.stats.filled]
    best = max(columns, key=lambda column: (column.source == "table", column.stats.coverage), default=None)
    return PatientChoice(best, {}, 1.0) if best is not None else None


def list_given_splits(image_set: ImageSet, survey: Survey, overrides: Overrides) -> list[SplitChoice]:
    """Return the splits that the user named, best first; none if one shall be drawn."""
    text = overrides.split
    if text == DRAWN:
        return []
    choices = list_splits(image_set, survey)
    if text == FOLDERS:
        return [choice for choice in choices if choice.split.value and "{folder" in choice.split.value.value] or [
            choice
            for choice in choices
            if not _TABLE_COLUMN.search(choice.split.value.value if choice.split.value else "")
        ]
    choices = []
    for column in image_set.columns:
        sides = {value: side for value in column.stats.counts if (side := side_of(value))}
        if column.name == text and sides:
            choices.append(split_by(image_set, ValueSource(value=column.template), sides, column.source, True))
    return choices or list(_split_by_list(image_set, survey, text))


def _split_by_list(image_set: ImageSet, survey: Survey, path: str) -> Iterable[SplitChoice]:
    """A file that lists a part: for testing, unless it is called after training; the rest is the other part."""
    folder, _, file = path.rpartition("/")
    stem, _, suffix = file.partition(".")
    own_side = "train" if side_of(stem) == "train" else "test"
    other_side = "test" if own_side == "train" else "train"
    regex = "".join(
        [
            f"{re.escape(folder)}/" if folder else "",
            f"(?P<list>{re.escape(stem)})",
            re.escape(f".{suffix}" if suffix else ""),
        ]
    )
    joins = [
        join
        for join in survey.joins
        if join.group.partition("#")[0] in image_set.groups and _holds_file(survey.table(join.table), path)
    ]
    for join in sorted(joins, key=lambda join: -join.rows_matched)[:1]:
        facts = survey.table(join.table)
        table = Table.model_validate(
            {
                **facts.model_dump(include={"form", "sheet", "records", "header"}),
                "files": f"re:{regex}",
                "key": join.key,
                "image": join.image,
                "match": join.match,
            }
        )
        name = "part"
        if name not in image_set.tables:
            image_set.frame.join(name, table, ["list"])
            image_set.tables[name] = table
        value = ValueSource(value=f"{{{name}.list}}", missing=f"{stem}_not")
        if image_set.values(value.value).drop_nulls().len():
            yield split_by(image_set, value, {stem: own_side, value.missing or "": other_side}, "lists", True)


def _holds_file(facts: TableFacts, path: str) -> bool:
    return len(parse_pattern(facts.files).match(pl.DataFrame({"path": [path]}))) > 0


def describe_unmet(overrides: Overrides, titles: Iterable[str], survey: Survey) -> str:
    """Return why no manifest keeps to what was given, and what was found in its stead."""
    options_text = ", ".join(f"{option} {value}" for option, value in overrides.options.items())
    titles = list(titles)
    if titles:
        return f"No manifest of the folder keeps to {options_text}. Found were: {list_names(titles, 4)}."
    tables = list_names((table.files for table in survey.tables), 8)
    return f"No manifest of the folder keeps to {options_text}: nothing that was named could be joined with images. Tables: {tables}."


# --- names ---


def check_names(overrides: Overrides, inventory: Inventory, readers: FolderReaders) -> None:
    """Check that everything that is named is there.

    Raises:
        DataError: a file, column, folder or split is not there; the message says what there is.
    """
    root = inventory.root
    tables = [path for path in inventory.paths if path.lower().endswith(tuple(TABLE_SUFFIXES))]
    if overrides.labels and overrides.labels not in tables:
        raise DataError(f"--labels: there is no table {overrides.labels!r} below {root}; tables: {list_names(tables)}.")
    columns = _list_columns(readers, [overrides.labels] if overrides.labels else tables[:MAX_TABLES])
    if overrides.labels and not columns:
        raise DataError(f"--labels: {overrides.labels} cannot be read as a table with columns.")
    place = overrides.labels or f"no table below {root}"
    for name in ("image_column", "label_column", "patient_column"):
        column = getattr(overrides, name)
        if column and column not in columns:
            raise DataError(
                f"--{name.replace('_', '-')}: {place} has {'no' if overrides.labels else 'a'} column {column!r}; "
                f"columns: {list_names(columns)}."
            )
    if overrides.masks and not find_files(inventory, overrides.masks):
        folders = sorted({path.rpartition("/")[0] for path in inventory.paths if "/" in path})
        raise DataError(f"--masks: no file is in or matches {overrides.masks!r}; folders: {list_names(folders)}.")
    if overrides.split and overrides.split != DRAWN:
        _check_split(overrides.split, inventory, columns)


def _check_split(split: str, inventory: Inventory, columns: list[str]) -> None:
    if split == FOLDERS:
        levels = sorted({name for path in inventory.paths for name in path.split("/")[:-1]})
        if not {"train", "test"} & {side_of(name) for name in levels}:
            raise DataError(
                f"--split folders: no folder is called after a part (train, test); folders: {list_names(levels)}."
            )
    elif split not in columns and not find_files(inventory, split):
        raise DataError(
            f"--split: {split!r} is no column and no file below {inventory.root}, and neither {FOLDERS!r} nor {DRAWN!r}; "
            f"columns: {list_names(columns)}."
        )


def _list_columns(readers: FolderReaders, paths: Iterable[str]) -> list[str]:
    """The columns of tables; those that cannot be read have none."""
    columns: dict[str, None] = {}
    for path in paths:
        try:
            columns |= dict.fromkeys(
                readers.table(Table(files=_escape(path), key="{(row)}", image="{path}"), "tables").columns
            )
        except (PatternError, DataError):
            continue
    return [name for name in columns if not name.startswith("(")]


def _escape(path: str) -> str:
    """Return a pattern that matches one path."""
    return f"re:{re.escape(path)}" if set(path) & set("{}*,") else path
