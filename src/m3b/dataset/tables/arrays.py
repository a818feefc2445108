"""One-dimensional arrays of NPY, NPZ, HDF5 and MATLAB files as columns, and Parquet."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from m3b.dataset.tables.model import EMPTY_LIST, LIST_SEPARATOR, TableError, TableInfo, TableLimits

_MAX_COLUMNS_OF_ARRAY = 64
_MAX_MEMBER_BYTES = 512 << 20


def read_arrays(path: Path, *, records: str = "", limits: TableLimits | None = None) -> tuple[pl.DataFrame, TableInfo]:
    """Read the arrays of equal length in a container; of several lengths that of most arrays.

    An array of N rows and up to 64 columns gives the columns `name.0`, `name.1`, ...; one of a structured type those of its fields.

    Args:
        records: an array, or a group or struct of arrays.
    """
    limits = limits or TableLimits()
    suffix = path.suffix.lower()
    readers = {".npy": _iterate_npy, ".npz": _iterate_npz, ".mat": _iterate_mat}
    arrays = dict(readers.get(suffix, _iterate_hdf5)(path))
    info = TableInfo("arrays", records=records, places={name: len(array) for name, array in arrays.items()})
    if records:
        prefix = records.strip("/")
        arrays = {
            name: array
            for name, array in arrays.items()
            if name == prefix or name.startswith((f"{prefix}/", f"{prefix}."))
        }
        if not arrays:
            known_places = ", ".join(f"{name} ({count})" for name, count in info.places.items()) or "none"
            raise TableError(
                f"records: {records!r} is no array of rows; arrays here, with their lengths: {known_places}"
            )
        arrays = {name[len(prefix) :].lstrip("/.") or name.rpartition("/")[2]: array for name, array in arrays.items()}
    if not arrays:
        raise TableError(
            "no array in this file has one dimension, or a few columns, so that it could be read as a table"
        )
    lengths = Counter(len(array) for array in arrays.values())
    length = max(lengths, key=lambda size: (lengths[size], size))
    columns: dict[str, pl.Series] = {}
    max_rows = min(limits.rows, limits.cells // max(1, len(arrays)))
    for name, array in arrays.items():
        if len(array) == length:
            columns.update(_make_columns(name, array[:max_rows]))
    if length > max_rows:
        info.partial = True
        info.notes.append(f"read in part: the first {max_rows:,} rows of {length:,}")
    return pl.DataFrame(columns), info


def read_parquet(path: Path, *, limits: TableLimits | None = None) -> tuple[pl.DataFrame, TableInfo]:
    """Read a Parquet file; columns of bytes are left out, nested ones flattened with dots."""
    limits = limits or TableLimits()
    try:
        lazy = pl.scan_parquet(path)
        schema = lazy.collect_schema()
        column_names = [name for name, dtype in schema.items() if dtype != pl.Binary]
        max_rows = min(limits.rows, max(1, limits.cells // max(1, len(column_names))))
        frame = lazy.select(_drop_bytes(name, schema[name]) for name in column_names).head(max_rows + 1).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TableError(f"this Parquet file cannot be read: {error}") from error
    info = TableInfo("parquet", code_names=_read_class_names(path))
    if frame.height > max_rows:
        frame = frame.head(max_rows)
        info.partial = True
        info.notes.append(f"read in part: the first {max_rows:,} rows")
    if binary := [name for name, dtype in schema.items() if dtype == pl.Binary]:
        info.notes.append(f"columns of bytes are not read: {', '.join(binary)}")
    return _flatten_frame(frame), info


def _drop_bytes(name: str, dtype: Any) -> pl.Expr:
    """Keep the fields of a struct that are no bytes: the layout of hub data sets holds images as `{bytes, path}`."""
    column = pl.col(name)
    if not isinstance(dtype, pl.Struct):
        return column
    fields = [field.name for field in dtype.fields if field.dtype != pl.Binary]
    return pl.struct(column.struct.field(field) for field in fields).alias(name) if fields else pl.lit(None).alias(name)


def _flatten_frame(frame: pl.DataFrame) -> pl.DataFrame:
    while nested := [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Struct)]:
        for name in nested:
            frame = frame.with_columns(pl.col(name).name.prefix_fields(f"{name}.")).unnest(name)
    columns = []
    for name, dtype in frame.schema.items():
        column = frame[name]
        if isinstance(dtype, (pl.List, pl.Array)):
            inner = dtype.inner
            if isinstance(inner, (pl.Struct, pl.List, pl.Array)):
                column = pl.Series(
                    name, [json.dumps(value, default=str, ensure_ascii=False)[:4096] for value in column.to_list()]
                )
            else:
                lists = column.cast(pl.List(pl.String))
                column = pl.select(
                    pl.when(lists.list.len() == 0).then(pl.lit(EMPTY_LIST)).otherwise(lists.list.join(LIST_SEPARATOR))
                ).to_series()
        columns.append(column.cast(pl.String).alias(name))
    return pl.DataFrame(columns)


def _read_class_names(path: Path) -> dict[str, dict[str, str]]:
    """Return the names of class numbers that a data set of the Hugging Face hub declares in its metadata."""
    try:
        metadata = pl.read_parquet_metadata(path)
        features = json.loads(metadata.get("huggingface", "{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, pl.exceptions.PolarsError):
        return {}
    return dict(_list_class_names("", features))


def _list_class_names(column: str, feature: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield column -> code -> name of a feature; those of structures are `column.field`, and lists are called like their items."""
    if isinstance(feature, list) and len(feature) == 1:
        yield from _list_class_names(column, feature[0])
    elif isinstance(feature, dict) and isinstance(feature.get("names"), list):
        yield column, {str(code): str(name) for code, name in enumerate(feature["names"])}
    elif isinstance(feature, dict):
        for name, inner in feature.items():
            place = column if name == "feature" else f"{column}.{name}" if column else name
            yield from _list_class_names(place, inner)


def _make_columns(name: str, array: np.ndarray) -> dict[str, pl.Series]:
    if array.dtype.names:
        return {field if name in ("", "value") else f"{name}.{field}": _as_texts(array[field]) for field in array.dtype.names
                if array[field].ndim == 1}  # fmt: skip
    if array.ndim == 2:
        return {f"{name}.{place}": _as_texts(array[:, place]) for place in range(array.shape[1])}
    return {name: _as_texts(array)}


def _as_texts(array: np.ndarray) -> pl.Series:
    """Return the elements as texts; whole numbers have no decimals, since MATLAB stores all numbers as floating point."""
    if array.dtype.kind == "b":
        return pl.Series(["true" if value else "false" for value in array.tolist()], dtype=pl.String)
    if array.dtype.kind == "f":
        values = pl.Series(np.ascontiguousarray(array).astype(np.float64 if array.dtype.itemsize > 4 else np.float32))
        finite = values.filter(values.is_finite())
        if len(finite) and bool((finite == finite.round()).all()) and float(finite.abs().max()) < 1e15:  # type: ignore[arg-type]
            return values.fill_nan(None).cast(pl.Int64, strict=False).cast(pl.String)
        return values.fill_nan(None).cast(pl.String)
    if array.dtype.kind in "iu":
        return pl.Series(np.ascontiguousarray(array)).cast(pl.String)
    texts = [_as_text(value) for value in array.tolist()]
    return pl.Series([text or None for text in texts], dtype=pl.String)


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip("\0 ")
    if isinstance(value, np.ndarray):
        return LIST_SEPARATOR.join(_as_text(item) for item in value.ravel()[:1000].tolist())
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value).strip()


def _squeeze(array: np.ndarray) -> np.ndarray | None:
    """Return an array of rows: one dimension, or up to 64 columns; None if it has another shape."""
    if array.dtype.kind not in "biufSUO" and not array.dtype.names:
        return None
    while array.ndim > 1 and 1 in array.shape:
        array = array.squeeze(axis=array.shape.index(1))
    if array.ndim == 1 and len(array):
        return array
    if array.ndim == 2 and 1 < array.shape[1] <= _MAX_COLUMNS_OF_ARRAY and array.shape[0] > array.shape[1]:
        return array
    return None


def _is_column_shape(shape: tuple[int, ...]) -> bool:
    long_sides = [side for side in shape if side != 1]
    return bool(shape) and (len(long_sides) <= 1 or (len(long_sides) == 2 and long_sides[1] <= _MAX_COLUMNS_OF_ARRAY))


def _iterate_npy(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise TableError(f"this NPY file cannot be read without running code stored in it: {error}") from error
    if _is_column_shape(array.shape) and (column := _squeeze(np.asarray(array))) is not None:
        yield "value", column


def _iterate_npz(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".npy") or member.file_size > _MAX_MEMBER_BYTES:
                    continue
                with archive.open(member) as stream:
                    version = np.lib.format.read_magic(stream)
                    read_header = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape, _, dtype = read_header(stream)
                if dtype.hasobject or not _is_column_shape(shape):
                    continue
                with archive.open(member) as stream:
                    array = np.lib.format.read_array(stream, allow_pickle=False)
                if (column := _squeeze(array)) is not None:
                    yield member.filename.removesuffix(".npy"), column
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(f"this NPZ file is damaged: {error}") from error


def _iterate_hdf5(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    import h5py

    datasets: list[tuple[str, np.ndarray]] = []

    def visit(name: str, item: Any) -> None:
        if (
            not isinstance(item, h5py.Dataset)
            or item.size is None
            or not _is_column_shape(item.shape)
            or item.is_virtual
            or item.external
        ):
            return
        if item.size * item.dtype.itemsize > _MAX_MEMBER_BYTES or name.startswith("#"):
            return
        is_matlab = "MATLAB_class" in item.attrs
        values = item[()]
        if h5py.check_ref_dtype(item.dtype) is h5py.Reference:
            values = np.array([_dereference(file, reference) for reference in np.ravel(values)], dtype=object)
        elif is_matlab and item.attrs["MATLAB_class"] in (b"char", "char"):
            return
        elif h5py.check_string_dtype(item.dtype) is not None:
            values = np.array([_as_text(value) for value in np.ravel(values)], dtype=object)
        elif is_matlab and values.ndim == 2:
            values = values.T
        if (column := _squeeze(np.asarray(values))) is not None:
            datasets.append((name, column))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise TableError(f"this HDF5 file cannot be read: {error}") from error
    yield from datasets


def _dereference(file: Any, reference: Any) -> str:
    """Return the text or number that a cell of a MATLAB 7.3 file refers to."""
    if not reference:
        return ""
    item = file[reference]
    values = item[()]
    if item.attrs.get("MATLAB_class") in (b"char", "char"):
        return "".join(map(chr, np.ravel(values).tolist())) if item.attrs.get("MATLAB_empty") != 1 else ""
    return _as_text(np.asarray(values))


def _iterate_mat(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    with path.open("rb") as stream:
        if stream.read(128)[:20].startswith(b"MATLAB 7.3"):
            yield from _iterate_hdf5(path)
            return
    from scipy.io import loadmat, whosmat

    try:
        names = [
            name
            for name, shape, kind in whosmat(path)
            if kind in ("struct", "cell", "object", "char") or _is_column_shape(shape)
        ]
        content = loadmat(path, variable_names=names, simplify_cells=True, chars_as_strings=True) if names else {}
    except NotImplementedError:
        yield from _iterate_hdf5(path)
        return
    except (ValueError, OSError, TypeError, EOFError, KeyError, IndexError) as error:
        raise TableError(f"this MAT file is damaged: {error}") from error
    for name, value in content.items():
        if not name.startswith("__"):
            yield from _list_matlab(name, value, 0)


def _list_matlab(name: str, value: Any, depth: int) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, dict) and depth < 4:
        for key, item in value.items():
            yield from _list_matlab(f"{name}.{key}", item, depth + 1)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for key in value[0]:
            cells = [item.get(key) for item in value]
            if not any(isinstance(cell, np.ndarray) and cell.size > 1000 for cell in cells):
                column = np.empty(len(cells), dtype=object)
                column[:] = [_as_text(cell) for cell in cells]
                yield f"{name}.{key}", column
    elif isinstance(value, np.ndarray):
        items = value.ravel()[:100] if value.dtype.kind == "O" else ()
        has_images = any(isinstance(item, np.ndarray) and item.size > 1000 for item in items)
        if not has_images and (array := _squeeze(value)) is not None:
            yield name, array
