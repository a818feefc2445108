"""Files of many images with those of some cases only: same keys, shapes and indices, everything else zero or left out.

Arrays (NPY, NPZ, HDF5, MATLAB, pickles, PyTorch, Zarr) have zeros elsewhere, and holes if files can have them; ZIP and TAR archives
have the needed members; Parquet tables have the needed columns, with a black pixel in place of other images.
"""

from __future__ import annotations

import base64
import pickle
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from m3b.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from m3b.dataset.formats.archives import ArchiveFormat
    from m3b.dataset.formats.arrays import ArrayFormat
    from m3b.dataset.formats.parquet import Parquet

Items = set[int] | None
"""Indices along the first axis; None for the whole array."""
BLOCK = 64 << 20
"""Bytes of an HDF5 or NPY array that are copied at a time."""

BLACK_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
"""A PNG."""


def write_subset(source: Path, target: Path, keys: Mapping[str, Items]) -> bool:
    """Write the needed items of a file to `target`, in its format.

    Args:
        keys: arrays, members of an archive or columns of a table -> their items along the first axis.

    Returns:
        False, with nothing written, if the file holds nothing else, so that it can be taken as it is.

    Raises:
        DataError: it cannot be read, or has no such item.
    """
    from m3b.dataset.formats import get_format
    from m3b.dataset.formats.archives import ArchiveFormat
    from m3b.dataset.formats.arrays import ArrayFormat
    from m3b.dataset.formats.parquet import Parquet

    try:
        file_format = get_format(source)
        if isinstance(file_format, ArchiveFormat):
            return _write_members(file_format, source, target, keys)
        if isinstance(file_format, Parquet):
            return _write_rows(file_format, source, target, keys)
        if not isinstance(file_format, ArrayFormat) or source.suffix.lower() not in WRITERS:
            raise DataError(f"a file of the format {file_format.name}; unpack it")
        arrays = file_format.arrays(source)
        selection = {
            name: _normal(arrays[name], items) for name, items in _group_items(file_format, source, keys).items()
        }
        if arrays.keys() == selection.keys() and all(
            items is None or len(items) == _count_items(arrays[name]) for name, items in selection.items()
        ):
            return False
        WRITERS[source.suffix.lower()](source, target, arrays, selection)
    except (DataError, zipfile.BadZipFile, tarfile.TarError, IndexError) as error:
        raise DataError(f"{source.name}: cannot be taken apart: {error}") from error
    return True


def _group_items(file_format: ArrayFormat, source: Path, keys: Mapping[str, Items]) -> dict[str, Items]:
    """By the arrays' own names: a reference may leave out the name of the only one."""
    items_of_array: dict[str, Items] = {}
    for key, items in keys.items():
        selected, _ = file_format.pick(source, key)
        name = next(name for name, array in file_format.arrays(source).items() if array is selected)
        before = items_of_array.get(name, set())
        items_of_array[name] = None if items is None or before is None else before | items
    return items_of_array


def _count_items(array: Any) -> int:
    return int(array.shape[0]) if hasattr(array, "shape") else len(array)


def _normal(array: Any, items: Items) -> Items:
    if items is None:
        return None
    length = _count_items(array)
    if bad := [item for item in items if not -length <= item < length]:
        raise IndexError(f"item {bad[0]} of {length}")
    return {item % length for item in items}


def _write_members(file_format: ArchiveFormat, source: Path, target: Path, keys: Mapping[str, Items]) -> bool:
    """Members that are named, those of named folders, and files of the same stem, which may hold the voxels of a header."""
    names = [member.name for member in file_format.members(source)]
    requested = {key.partition("#")[0].rstrip("/") for key in keys}
    stems = {str(PurePosixPath(name).with_suffix("")) for name in requested}
    selection = [
        name
        for name in names
        if name in requested
        or str(PurePosixPath(name).with_suffix("")) in stems
        or any(str(folder) in requested for folder in PurePosixPath(name).parents)
    ]
    if missing := [
        name
        for name in requested
        if name and name not in selection and not any(n.startswith(f"{name}/") for n in selection)
    ]:
        raise DataError(f"the archive has no {missing[0]}")
    if "" in requested or len(selection) == len(names):
        return False
    with file_format.extracted(source, selection) as folder:
        if file_format.name == "zip":
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in selection:
                    archive.write(folder / name, name)
            return True
        with tarfile.open(target, "w") as shard:
            for name in selection:
                shard.add(folder / name, name, recursive=False)
    return True


def _write_rows(file_format: Parquet, source: Path, target: Path, keys: Mapping[str, Items]) -> bool:
    import pyarrow
    import pyarrow.parquet

    columns = file_format.image_columns(source)
    items_of_column = {key or next(iter(columns)): items for key, items in keys.items()}
    table = pyarrow.parquet.ParquetFile(source, memory_map=False)
    if all(items is None or len(items) == columns[name] for name, items in items_of_column.items()) and set(
        items_of_column
    ) == set(table.schema_arrow.names):
        return False
    schema = pyarrow.schema([table.schema_arrow.field(name) for name in items_of_column])
    first = 0
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for batch in table.iter_batches(256, columns=list(items_of_column)):
            arrays = []
            for name, items in items_of_column.items():
                cells = [
                    cell if items is None or first + row in items else _black(cell)
                    for row, cell in enumerate(batch.column(name).to_pylist())
                ]
                arrays.append(pyarrow.array(cells, schema.field(name).type))
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            first += batch.num_rows
    return True


def _black(cell: Any) -> Any:
    return {key: BLACK_PIXEL if key == "bytes" else None for key in cell} if isinstance(cell, dict) else BLACK_PIXEL


def runs(items: set[int]) -> list[tuple[int, int]]:
    """Neighbouring indices together, as (first, one past the last)."""
    spans: list[tuple[int, int]] = []
    for item in sorted(items):
        if spans and spans[-1][1] == item:
            spans[-1] = (spans[-1][0], item + 1)
        else:
            spans.append((item, item + 1))
    return spans


def _pieces(array: Any, items: Items) -> list[tuple[int, int]]:
    """The runs of items in blocks that fit into memory."""
    length = _count_items(array)
    item_bytes = max(1, array.dtype.itemsize)
    for size in array.shape[1:]:
        item_bytes *= max(1, int(size))
    step = max(1, BLOCK // item_bytes)
    spans = runs(items) if items is not None else [(0, length)]
    return [(at, min(at + step, last)) for first, last in spans for at in range(first, last, step)]


def _thinned(array: Any, items: Items) -> NDArray[Any]:
    import numpy as np

    values: NDArray[Any] = np.asarray(array)
    if items is None:
        return values
    subset = np.zeros_like(values)
    for first, last in runs(items):
        subset[first:last] = values[first:last]
    return subset


def _npy(source: Path, target: Path, arrays: Mapping[str, Any], selection: Mapping[str, Items]) -> None:
    """Left as holes where nothing is wanted, which costs no room."""
    import numpy as np

    array = arrays[""]
    out = np.lib.format.open_memmap(target, mode="w+", dtype=array.dtype, shape=array.shape)
    for first, last in _pieces(array, selection[""]):
        out[first:last] = array[first:last]
    out.flush()


def _npz(source: Path, target: Path, arrays: Mapping[str, Any], selection: Mapping[str, Items]) -> None:
    import numpy as np

    with zipfile.ZipFile(source) as old:
        packed = {info.filename.removesuffix(".npy"): info.compress_type for info in old.infolist()}
    with zipfile.ZipFile(target, "w", allowZip64=True) as archive:
        for name, items in selection.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = packed.get(name, zipfile.ZIP_STORED)
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, _thinned(arrays[name], items), allow_pickle=False)


def _hdf5(source: Path, target: Path, arrays: Mapping[str, Any], selection: Mapping[str, Items]) -> None:
    """Chunked where it was not, so that what is not wanted takes no room."""
    import h5py

    with h5py.File(target, "w") as out:
        for name, items in selection.items():
            old = arrays[name].open()
            chunks = old.chunks or (1, *old.shape[1:])
            new = out.create_dataset(
                name, shape=old.shape, dtype=old.dtype, chunks=chunks if 0 not in chunks else None,
                compression=old.compression if old.compression in ("gzip", "lzf", "szip") else None,
                compression_opts=old.compression_opts if old.compression == "gzip" else None,
                shuffle=old.shuffle, scaleoffset=None,
            )  # fmt: skip
            if not _raw_chunks(old, new, items):
                for first, last in _pieces(old, items):
                    new[first:last] = old[first:last]


def _mat(source: Path, target: Path, arrays: Mapping[str, Any], selection: Mapping[str, Items]) -> None:
    """As HDF5, in which MATLAB 7.3 has rows and columns the other way round."""
    import h5py

    with h5py.File(target, "w") as out:
        for name, items in selection.items():
            subset = _thinned(arrays[name], items)
            out.create_dataset(name, data=subset.swapaxes(-1, -2) if subset.ndim > 1 else subset, compression="gzip")


def _zarr(source: Path, target: Path, arrays: Mapping[str, Any], selection: Mapping[str, Items]) -> None:
    """A chunk an item, and of the attributes of groups the axes of images."""
    import zarr

    for name, items in selection.items():
        old, version = arrays[name], arrays[name].metadata.zarr_format
        for group in reversed(PurePosixPath(name).parents) if name else ():
            attributes = zarr.open_group(str(source / group), mode="r").attrs.asdict()
            kept = (
                {"ome": {"multiscales": attributes.get("ome", {}).get("multiscales")}} if version == 3 else attributes
            )
            axes = {key: value for key, value in kept.items() if key in ("multiscales", "ome")}
            zarr.open_group(str(target / group), mode="a", zarr_format=version).attrs.update(axes)
        new = zarr.create_array(
            str(target / name),
            shape=old.shape,
            dtype=old.dtype,
            chunks=(1, *old.shape[1:]),
            fill_value=0,
            zarr_format=version,
        )
        for first, last in _pieces(old, items):
            new[first:last] = old[first:last]


def _raw_chunks(old: Any, new: Any, items: Items) -> bool:
    """Copy compressed chunks as they are, where each holds a single item; False where they do not."""
    if not old.chunks or old.chunks[0] != 1 or old.compression != new.compression or old.scaleoffset is not None:
        return False
    if old.fletcher32 or new.shuffle != old.shuffle or old.compression not in (None, "gzip", "lzf"):
        return False
    for number in range(old.id.get_num_chunks()):
        place = old.id.get_chunk_info(number).chunk_offset
        if items is None or place[0] in items:
            mask, content = old.id.read_direct_chunk(place)
            new.id.write_direct_chunk(place, content, mask)
    return True


def _pickled(source: Path, target: Path, arrays: Mapping[str, Any], selection: Mapping[str, Items]) -> None:
    value = _nested({name: _list_or_array(arrays[name], items) for name, items in selection.items()})
    with target.open("wb") as stream:
        pickle.dump(value, stream, protocol=4)


def _torch(source: Path, target: Path, arrays: Mapping[str, Any], selection: Mapping[str, Items]) -> None:
    import torch

    def tensors(value: Any) -> Any:
        return [tensors(item) for item in value] if isinstance(value, list) else torch.from_numpy(value.copy())

    subsets = {name: tensors(_list_or_array(arrays[name], items)) for name, items in selection.items()}
    torch.save(_nested(subsets), target)


def _list_or_array(value: Any, items: Items) -> Any:
    import numpy as np

    if isinstance(value, list | tuple):
        return [
            np.asarray(item) if items is None or n in items else np.zeros_like(item) for n, item in enumerate(value)
        ]
    return np.ascontiguousarray(_thinned(value, items))


def _nested(flat: Mapping[str, Any]) -> Any:
    """`{"a/b": 1}` as `{"a": {"b": 1}}`; the empty name alone is the bare value."""
    if "" in flat:
        return flat[""]
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *above, last = name.split("/")
        inner = tree
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return tree


WRITERS = {".npy": _npy, ".npz": _npz, ".h5": _hdf5, ".hdf5": _hdf5, ".mat": _mat, ".pkl": _pickled, ".pickle": _pickled,
            ".pck": _pickled, ".pt": _torch, ".pth": _torch, ".zarr": _zarr}  # fmt: skip
