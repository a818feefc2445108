"""Arrays with some items written in the format that they came in: everything else zero, and holes where files can have them."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

Items = set[int] | None
"""Indices along the first axis; None for the whole array."""
BLOCK = 64 << 20
"""Bytes of an HDF5 or NPY array that are copied at a time."""


def runs(items: set[int]) -> list[tuple[int, int]]:
    """Neighbouring indices together, as (first, one past the last)."""
    found: list[tuple[int, int]] = []
    for item in sorted(items):
        if found and found[-1][1] == item:
            found[-1] = (found[-1][0], item + 1)
        else:
            found.append((item, item + 1))
    return found


def _pieces(array: Any, items: Items) -> list[tuple[int, int]]:
    """The runs of items in blocks that fit into memory."""
    length = len(array)
    each = max(1, array.dtype.itemsize)
    for size in array.shape[1:]:
        each *= max(1, int(size))
    step = max(1, BLOCK // each)
    spans = runs(items) if items is not None else [(0, length)]
    return [(at, min(at + step, last)) for first, last in spans for at in range(first, last, step)]


def _thinned(array: Any, items: Items) -> NDArray[Any]:
    import numpy as np

    whole: NDArray[Any] = np.asarray(array)
    if items is None:
        return whole
    kept = np.zeros_like(whole)
    for first, last in runs(items):
        kept[first:last] = whole[first:last]
    return kept


def _npy(source: Path, target: Path, held: Mapping[str, Any], chosen: Mapping[str, Items]) -> None:
    """Left as holes where nothing is wanted, which costs no room."""
    import numpy as np

    array = held[""]
    out = np.lib.format.open_memmap(target, mode="w+", dtype=array.dtype, shape=array.shape)
    for first, last in _pieces(array, chosen[""]):
        out[first:last] = array[first:last]
    out.flush()


def _npz(source: Path, target: Path, held: Mapping[str, Any], chosen: Mapping[str, Items]) -> None:
    import numpy as np

    with zipfile.ZipFile(source) as old:
        packed = {info.filename.removesuffix(".npy"): info.compress_type for info in old.infolist()}
    with zipfile.ZipFile(target, "w", allowZip64=True) as archive:
        for name, items in chosen.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = packed.get(name, zipfile.ZIP_STORED)
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, _thinned(held[name], items), allow_pickle=False)


def _hdf5(source: Path, target: Path, held: Mapping[str, Any], chosen: Mapping[str, Items]) -> None:
    """Chunked where it was not, so that what is not wanted takes no room."""
    import h5py

    with h5py.File(target, "w") as out:
        for name, items in chosen.items():
            old = held[name]
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


def _mat(source: Path, target: Path, held: Mapping[str, Any], chosen: Mapping[str, Items]) -> None:
    """As HDF5, in which MATLAB 7.3 has rows and columns the other way round."""
    import h5py

    with h5py.File(target, "w") as out:
        for name, items in chosen.items():
            kept = _thinned(held[name], items)
            out.create_dataset(name, data=kept.swapaxes(-1, -2) if kept.ndim > 1 else kept, compression="gzip")


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


def _pickled(source: Path, target: Path, held: Mapping[str, Any], chosen: Mapping[str, Items]) -> None:
    value = _nested({name: _list_or_array(held[name], items) for name, items in chosen.items()})
    with target.open("wb") as stream:
        pickle.dump(value, stream, protocol=4)


def _torch(source: Path, target: Path, held: Mapping[str, Any], chosen: Mapping[str, Items]) -> None:
    import torch

    def tensors(value: Any) -> Any:
        return [tensors(one) for one in value] if isinstance(value, list) else torch.from_numpy(value.copy())

    found = {name: tensors(_list_or_array(held[name], items)) for name, items in chosen.items()}
    torch.save(_nested(found), target)


def _list_or_array(held: Any, items: Items) -> Any:
    import numpy as np

    if isinstance(held, list | tuple):
        return [np.asarray(one) if items is None or n in items else np.zeros_like(one) for n, one in enumerate(held)]
    return np.ascontiguousarray(_thinned(held, items))


def _nested(flat: Mapping[str, Any]) -> Any:
    """`{"a/b": 1}` as `{"a": {"b": 1}}`; the empty name alone is the bare value."""
    if "" in flat:
        return flat[""]
    found: dict[str, Any] = {}
    for name, value in flat.items():
        *above, last = name.split("/")
        inner = found
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


WRITERS = {".npy": _npy, ".npz": _npz, ".h5": _hdf5, ".hdf5": _hdf5, ".mat": _mat, ".pkl": _pickled, ".pickle": _pickled,
            ".pck": _pickled, ".pt": _torch, ".pth": _torch}  # fmt: skip
