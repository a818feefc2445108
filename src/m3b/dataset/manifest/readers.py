"""What resolving a manifest reads below a data folder, each once: file lists, tables, headers, names and values of arrays.

Nothing here looks at pixels. The files are untrusted: callers run in the confined reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from m3b.dataset.archives import ARCHIVE_REGEX, local_file, to_reference
from m3b.dataset.inventory import Inventory, with_path_columns
from m3b.dataset.manifest.model import Files, Table
from m3b.dataset.manifest.patterns import match_any, parse_pattern
from m3b.dataset.manifest.problems import PatternError, Problem, list_names
from m3b.dataset.manifest.templates import fold, parse_template
from m3b.dataset.tables import EMPTY_LIST, FILE_COLUMN, LIST_SEPARATOR, ROW_COLUMN, TableError, load_table
from m3b.errors import DataError

if TYPE_CHECKING:
    from m3b.dataset.annotations import AnnotationSet

MAX_VALUES = 2**26
"""Values from which on an array holds images, and nothing that is said of them."""


def split_column(name: str) -> tuple[str, int | None]:
    """Return the array and the column of `labels[3]`; a name without a number in brackets has none."""
    match = re.fullmatch(r"(.+)\[(\d+)\]", name)
    return (match[1], int(match[2])) if match else (name, None)


@dataclass(frozen=True)
class StackedTable:
    """A table of a manifest.

    Args:
        frame: its rows, all cells texts; `FILE_COLUMN`, `ROW_COLUMN` and the slots of its pattern are columns too.
        files: the files that it is stacked of.
        notes: what was remarkable about them.
    """

    frame: pl.DataFrame
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names that a person would call its columns."""
        return [name for name in self.frame.columns if name != FILE_COLUMN]


@dataclass
class FolderReaders:
    """Reads below one data folder; what was read is kept, so that thousands of manifests can be resolved.

    Args:
        inventory: the files of the folder.
    """

    inventory: Inventory
    _items: dict[str, pl.DataFrame] = field(default_factory=dict)
    _tables: dict[str, StackedTable] = field(default_factory=dict)
    _members: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    _values: dict[tuple[str, str], list[str] | str | None] = field(default_factory=dict)
    _contents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _arrays: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _tags: dict[str, dict[str, str | None]] = field(default_factory=dict)
    _annotations: dict[tuple[str, tuple[str, ...]], AnnotationSet] = field(default_factory=dict)
    _is_of_format: dict[tuple[str, str], bool] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The data folder."""
        return self.inventory.root

    def items(self, files: Files, part: str) -> pl.DataFrame:
        """Files, or arrays and their items in them, in natural order.

        Returns:
            Columns `path`, `ref` (`path`, `path#member` or `path#member[3]`), `member` and `index` of containers, and the slots.

        Raises:
            PatternError: a pattern or template cannot be used.
        """
        key = Files.model_dump_json(files, include=set(Files.model_fields))
        if key not in self._items:
            self._items[key] = self._find_items(files, part)
        return self._items[key]

    def _find_items(self, files: Files, part: str) -> pl.DataFrame:
        patterns = [parse_pattern(text, f"{part}.files") for text in files.patterns]
        frame = match_any(self.inventory.files.select("path"), patterns)
        for text in files.exclude:
            excluded = parse_pattern(text, f"{part}.exclude").match(frame.select("path"))
            frame = frame.join(excluded.select("path"), on="path", how="anti", maintain_order="left")
        for template, texts in files.where.items():
            parsed = parse_template(template, f"{part}.where")
            names = parsed.columns
            extended = with_path_columns(self.with_tags(frame, names), names)
            if missing := [name for name in names if name not in extended.columns]:
                extended = extended.with_columns(pl.lit(None, pl.String).alias(name) for name in missing)
            template_text = parsed.expression().str.to_lowercase().str.strip_chars().str.replace_all(r"\s+", " ")
            has_text = extended.select(template_text.is_in([fold(text) for text in texts]).fill_null(False)).to_series()
            frame = frame.filter(has_text)
        if files.member:
            return self._find_members(frame, files.member, part)
        return frame.with_columns(self._references(frame["path"]).alias("ref"))

    def _find_members(self, frame: pl.DataFrame, member: str, part: str) -> pl.DataFrame:
        has_items = member.endswith("[#]")
        pattern = parse_pattern(member.removesuffix("[#]") or "*", f"{part}.member")
        rows: list[tuple[int, str, int]] = []
        for place, path in enumerate(frame["path"].to_list()):
            rows += [
                (place, name, shape[0] if has_items and shape else -1)
                for name, shape in self.members(path).items()
                if not has_items or shape
            ]
        schema = {"place": pl.UInt32, "member": pl.String, "length": pl.Int64}
        members = pattern.match(pl.DataFrame(rows, schema=schema, orient="row"), "member")
        slots = members.select("place", *pattern.slots, "member", "length")
        files = frame.drop([name for name in pattern.slots if name in frame.columns])
        items = slots.join(files.with_row_index("place"), on="place", how="left", maintain_order="left").drop("place")
        items = items.with_columns(self._references(items["path"]).alias("ref"))
        reference = pl.concat_str(pl.col("ref"), pl.lit("#"), pl.col("member"))
        if not has_items:
            return items.with_columns(reference.alias("ref")).drop("length")
        items = items.with_columns(pl.int_ranges(0, pl.col("length")).alias("index")).filter(pl.col("length") > 0)
        items = items.explode("index").with_columns(pl.col("index").cast(pl.String)).drop("length")
        return items.with_columns(pl.concat_str(reference, pl.lit("["), pl.col("index"), pl.lit("]")).alias("ref"))

    def _references(self, paths: pl.Series) -> pl.Series:
        """Paths as an index names them: members of archives with `#`."""
        if not paths.str.contains(ARCHIVE_REGEX).any():
            return paths
        return pl.Series("ref", [to_reference(self.root, path) for path in paths.to_list()], dtype=pl.String)

    def members(self, path: str) -> dict[str, tuple[int, ...]]:
        """The arrays of a container with their shapes; none if it does not open."""
        if path not in self._members and path.lower().endswith(".parquet"):
            self._members[path] = _parquet_members(local_file(self.root, path))
        if path not in self._members:
            from m3b.dataset.reading import open_arrays

            try:
                arrays = open_arrays(local_file(self.root, path))
                self._members[path] = {name: tuple(array.shape) for name, array in arrays.items()}
            except DataError:
                self._members[path] = {}
        return self._members[path]

    def member_values(self, path: str, name: str) -> list[str] | str | None:
        """The values of an array as texts: one a row of a vector, or the one of a scalar; None if there is no such array."""
        key = path, name
        if key not in self._values:
            base, column = split_column(name)
            self._values[key] = self._read_member(path, base, column)
        return self._values[key]

    def _read_member(self, path: str, name: str, column: int | None = None) -> list[str] | str | None:
        import numpy as np

        from m3b.dataset.reading import open_arrays, read_array, read_values

        file = local_file(self.root, path)
        if file.suffix.lower() == ".parquet":
            return _parquet_values(file, name)
        try:
            content = _read_once(self._contents, path, lambda: read_values(file)).get(name)
            if content is None:
                array = _read_once(self._arrays, path, lambda: open_arrays(file)).get(name)
                if array is None or prod(getattr(array, "shape", ())) > MAX_VALUES:
                    return None
                content = read_array(file, name)
        except DataError:
            return None
        array = np.asarray(content)
        if column is not None:
            if array.ndim != 2 or column >= array.shape[1]:
                return None
            array = array[:, column]
        if array.size == 1:
            return _text(array.reshape(-1)[0])
        if array.ndim > 1 and array.size == max(array.shape):
            array = array.reshape(-1)  # a column or row vector, as MAT files have them
        return [_text(item) for item in array] if array.ndim == 1 else None

    def with_tags(self, frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        """Add DICOM header fields (`tag.PatientID`) of each `path` that a frame lacks; null if the header has none."""
        tag_names = [name for name in names if name.startswith("tag.") and name not in frame.columns]
        if not tag_names:
            return frame
        paths = frame["path"].unique(maintain_order=True).to_list()
        for path in paths:
            tags_of_file = self._tags.setdefault(path, {})
            if missing := [name for name in tag_names if name not in tags_of_file]:
                tags_of_file |= self._read_header(path, missing)
        tags = pl.DataFrame(
            {"path": paths, **{name: [self._tags[path][name] for path in paths] for name in tag_names}},
            schema={"path": pl.String, **dict.fromkeys(tag_names, pl.String)},
        )
        return frame.join(tags, on="path", how="left", maintain_order="left")

    def _read_header(self, path: str, names: Sequence[str]) -> dict[str, str | None]:
        import pydicom
        from pydicom.errors import InvalidDicomError

        keywords = [name.removeprefix("tag.") for name in names]
        try:
            header: Any = pydicom.dcmread(
                local_file(self.root, path), stop_before_pixels=True, specific_tags=list(keywords)
            )
        except (OSError, InvalidDicomError, ValueError):
            return dict.fromkeys(names)
        return {
            name: str(header.get(word, "") or "").strip() or None for name, word in zip(names, keywords, strict=True)
        }

    def annotations(self, format: str, paths: tuple[str, ...], part: str) -> AnnotationSet:
        """The annotations of files of one format.

        Raises:
            PatternError: there is no such format, or a file is none of it.
        """
        from m3b.dataset.annotations import ANNOTATIONS

        key = format, paths
        if key not in self._annotations:
            annotation_format = ANNOTATIONS.get(format)
            if annotation_format is None:
                raise PatternError(
                    Problem(
                        code="unknown_format",
                        part=part,
                        finding=f"there is no annotation format {format!r}; there are {list_names(sorted(ANNOTATIONS), 30)}.",
                        remedy="Use one of these, `image` for mask files, or `table`.",
                        values={"format": format},
                    )
                )
            try:
                self._annotations[key] = annotation_format.load(list(paths), self.root)
            except DataError as error:
                raise PatternError(
                    Problem(
                        code="annotations_unreadable",
                        part=part,
                        finding=f"the files cannot be read as {format}: {error}",
                        remedy="Name files of that format, or another format.",
                        values={"files": list(paths)[:12]},
                    )
                ) from error
        return self._annotations[key]

    def select_annotations(self, format: str, paths: Sequence[str]) -> tuple[str, ...]:
        """Return the files that are of an annotation format by their first bytes; all of them if there is no such format."""
        from m3b.dataset.annotations import ANNOTATIONS
        from m3b.dataset.annotations.documents import read_head

        annotation_format = ANNOTATIONS.get(format)
        if annotation_format is None:
            return tuple(paths)
        for path in paths:
            if (format, path) not in self._is_of_format:
                head = read_head(self.root, path)
                is_of_format = bool(head) and annotation_format.detect(local_file(self.root, path), head)
                self._is_of_format[format, path] = is_of_format
        return tuple(path for path in paths if self._is_of_format[format, path])

    def table(self, table: Table, part: str) -> StackedTable:
        """A table, stacked of all files that its pattern matches.

        Raises:
            PatternError: no file matches, or a file holds no such table.
        """
        key = table.model_dump_json(include={"files", "form", "sheet", "records", "header"})
        if key not in self._tables:
            self._tables[key] = self._read_table(table, part)
        return self._tables[key]

    def _read_table(self, table: Table, part: str) -> StackedTable:
        frame = self.inventory.files.select("path")
        files = match_any(frame, [parse_pattern(text, f"{part}.files") for text in table.patterns])
        if not len(files):
            raise PatternError(
                Problem(
                    code="pattern_matches_nothing",
                    part=f"{part}.files",
                    values={"pattern": list(table.patterns)},
                    finding=f"no file matches {' or '.join(map(repr, table.patterns))}.",
                    remedy="Name a table of the folder by its path.",
                )
            )
        slots = {row.pop("path"): row for row in files.iter_rows(named=True)}
        try:
            loaded = load_table(
                self.root,
                {path: {name: text or "" for name, text in row.items()} for path, row in slots.items()},
                form=table.form,
                sheet=table.sheet,
                records=table.records,
                header=table.header,
            )
        except TableError as error:
            raise PatternError(
                Problem(
                    code="table_unreadable",
                    part=f"{part}.files",
                    finding=f"{next(iter(slots))} cannot be read as a table: {error}.",
                    remedy="Name another file, or its sheet or records.",
                    values={"files": list(slots)[:12]},
                )
            ) from error
        frame = loaded.frame
        if FILE_COLUMN not in frame.columns:
            frame = frame.with_columns(pl.lit(next(iter(slots))).alias(FILE_COLUMN))
        elif len(slots) > 1:  # the place of a row in its own file
            place = pl.int_range(pl.len()).over(FILE_COLUMN).cast(pl.String)
            frame = frame.with_columns(place.alias(ROW_COLUMN))
        frame = frame.with_columns(pl.when(pl.all() != "").then(pl.all()).name.keep())
        return StackedTable(frame, tuple(slots), tuple(loaded.info.notes))


def _text(value: Any) -> str:
    """A number or text of an array as a text: whole numbers without a point."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _read_once(
    contents: dict[str, Mapping[str, Any]], path: str, read: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the content of a file; that of the last file is kept, since its members are asked for one after another."""
    if path not in contents:
        contents.clear()
        contents[path] = read()
    return contents[path]


def _parquet_members(file: Path) -> dict[str, tuple[int, ...]]:
    """Columns of a Parquet file that hold images, with their rows."""
    from m3b.dataset.formats import DataError, get_format

    try:
        columns: dict[str, int] = get_format(file).image_columns(file)  # type: ignore[attr-defined]
    except DataError:
        return {}
    return {name: (rows,) for name, rows in columns.items()}


def _parquet_values(file: Path, name: str) -> list[str] | None:
    """A column of a Parquet file as texts; fields of a structure are `column.field`, lists of values have `LIST_SEPARATOR`."""
    base, _, inner = name.partition(".")
    try:
        column = pl.read_parquet(file, columns=[base]).to_series()
    except (pl.exceptions.PolarsError, OSError):
        return None
    if inner and isinstance(column.dtype, pl.Struct):
        column = column.struct.field(inner)
    if isinstance(column.dtype, pl.List):
        lists = ([_text(item) for item in row] if row is not None else [""] for row in column.to_list())
        return [LIST_SEPARATOR.join(items) if items else EMPTY_LIST for items in lists]
    if column.dtype in (pl.Binary, pl.Object) or isinstance(column.dtype, pl.Struct):
        return None
    return ["" if value is None else _text(value) for value in column.to_list()]
