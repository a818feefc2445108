"""Parquet tables with encoded images in a column, as hubs of data sets publish them: `file.parquet#image[17]`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from .base import Format, Image, ImageInfo, Mask, check_memory, load_library, naming_file
from .catalog import find_format_by_content
from .embedded import decoded_file
from .errors import DataError


class Parquet(Format):
    """A table whose images are bytes, or structures of bytes and path. Columns of texts and numbers are for the tables."""

    name = "parquet"
    suffixes = (".parquet",)
    magic = ((0, b"PAR1"),)
    is_container = True

    def image_columns(self, path: Path) -> dict[str, int]:
        """Return the columns that hold encoded images, and the number of rows."""
        return _image_columns(str(path), path.stat().st_mtime_ns)

    def items(self, path: Path, limit: int = 1000) -> tuple[str, ...]:
        with naming_file(path):
            columns = self.image_columns(path)
            return tuple(f"{name}[{row}]" for name, rows in columns.items() for row in range(rows))[:limit]

    def content(self, path: Path, item: str) -> tuple[bytes, str]:
        """Return the encoded image of an item, and the file name that the table gives it or ""."""
        columns = self.image_columns(path)
        match = re.fullmatch(r"([^\[\]]*)\[(\d{1,12})\]", item)
        if not match or (not match[1] and len(columns) != 1) or (match[1] and match[1] not in columns):
            names = ", ".join(columns) or "none"
            raise DataError(f"{path}#{item}: name an image as {path}#column[row]; columns with images: {names}")
        name, row = match[1] or next(iter(columns)), int(match[2])
        if row >= columns[name]:
            raise DataError(f"{path}#{item}: the table has {columns[name]} rows, counted from 0")
        value = _row_value(path, name, row)
        content, file_name = (value.get("bytes"), value.get("path") or "") if isinstance(value, dict) else (value, "")
        if not content:
            raise DataError(f"{path}#{item}: the cell holds no image")
        return bytes(content), str(file_name)

    @contextmanager
    def image_file(self, path: Path, item: str) -> Iterator[tuple[Path, Format]]:
        """Yield an image of the table as a file, and its format."""
        content, name = self.content(path, item)
        with decoded_file(content, f"{path}#{item}", name) as file_and_format:
            yield file_and_format

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with naming_file(path), self.image_file(path, item) as (file, file_format):
            return file_format.probe(file)

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(f"{path}#{item}"), self.image_file(path, item) as (file, file_format):
            return file_format.read(file)

    def read_labels(self, path: Path, item: str = "") -> Mask:
        with naming_file(f"{path}#{item}"), self.image_file(path, item) as (file, file_format):
            return file_format.read_labels(file)

    def describe(self, path: Path) -> str:
        with naming_file(path):
            schema = _open(path).schema_arrow
            columns = self.image_columns(path)
            rows = _open(path).metadata.num_rows
            lines = [f"Parquet table, {rows:,} rows, {len(schema.names)} columns"]
            lines += [f"{name}: images, as {path.name}#{name}[0]" for name in columns]
            lines += [f"{field.name}: {field.type}" for field in schema if field.name not in columns]
            return "\n".join(lines)


def _open(path: Path) -> Any:
    load_library(path, "pyarrow", "'m3b[parquet]'")
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, memory_map=False)


@lru_cache(maxsize=64)
def _image_columns(path: str, modified: int) -> dict[str, int]:
    """Return the columns whose first cell is an encoded image."""
    table = _open(Path(path))
    import pyarrow

    columns = {}
    for field in table.schema_arrow:
        is_binary = pyarrow.types.is_binary(field.type) or pyarrow.types.is_large_binary(field.type)
        is_structure = pyarrow.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        if not (is_binary or is_structure) or not table.metadata.num_rows:
            continue
        batch = next(table.iter_batches(1, columns=[field.name]))
        value = batch.column(0)[0].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if content and find_format_by_content(bytes(content[:4096])) is not None:
            columns[field.name] = int(table.metadata.num_rows)
    return columns


def _row_value(path: Path, column: str, row: int) -> Any:
    table = _open(path)
    first = 0
    for group in range(table.metadata.num_row_groups):
        count = table.metadata.row_group(group).num_rows
        if row < first + count:
            return _group_column(str(path), path.stat().st_mtime_ns, group, column)[row - first].as_py()
        first += count
    raise DataError(f"{path}: row {row} is not there")


@lru_cache(maxsize=2)
def _group_column(path: str, modified: int, group: int, column: str) -> Any:
    """Return a column of a row group, so that its rows are not decoded once each."""
    table = _open(Path(path))
    size = sum(
        table.metadata.row_group(group).column(place).total_uncompressed_size
        for place in range(table.metadata.num_columns)
        if table.metadata.row_group(group).column(place).path_in_schema.split(".")[0] == column
    )
    check_memory(path, (size,), 1)
    return table.read_row_group(group, columns=[column]).column(column)


FORMATS = (Parquet(),)
