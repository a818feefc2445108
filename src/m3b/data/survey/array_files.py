"""The arrays in NPY, NPZ, HDF5 and MAT files: keys, shapes and types from the headers, values when they are wanted."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from m3b.data.survey.array_members import Format, Inner
from m3b.data.survey.matlab_arrays import as_text, fields_of, turned

MAX_MEMBERS = 100_000
SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".hdf", ".he5", ".mat")
"""Of files whose arrays are read here."""


@contextmanager
def opened_members(path: Path, suffix: str) -> Iterator[tuple[Format, list[Inner]]]:
    """The members of a container of arrays, which is closed behind them.

    Raises:
        ValueError, OSError, KeyError: it cannot be read.
    """
    form, inners, close = _open_members(path, suffix)
    try:
        yield form, inners
    finally:
        close()


def _open_members(path: Path, suffix: str) -> tuple[Format, list[Inner], Callable[[], None]]:
    if suffix in (".h5", ".hdf5", ".hdf", ".he5"):
        return _hdf5(path)
    if suffix == ".mat":
        return _mat(path)
    if zipfile.is_zipfile(path):
        return _npz(path)
    with path.open("rb") as stream:
        shape, _, dtype = _npy_header(stream)
    return "npy", [Inner("", shape, str(dtype), lambda part: _npy(path, part))], lambda: None


def _npz(path: Path) -> tuple[Format, list[Inner], Callable[[], None]]:
    archive = zipfile.ZipFile(path)
    inners = []
    for info in archive.infolist()[:MAX_MEMBERS]:
        if not info.filename.endswith(".npy"):
            continue
        with archive.open(info) as stream:
            shape, fortran, dtype = _npy_header(stream)
        inners.append(Inner(info.filename.removesuffix(".npy"), shape, str(dtype), _reader(archive, info, fortran)))
    return "npz", inners, archive.close


def _reader(archive: zipfile.ZipFile, info: zipfile.ZipInfo, fortran: bool) -> Callable[..., Any]:
    def read(part: tuple[slice, ...] | None) -> Any:
        import numpy as np

        with archive.open(info) as stream:
            shape, _, dtype = _npy_header(stream)
            if dtype.hasobject:
                raise ValueError("Python objects")
            first = shape[0] if shape else 1
            rows = first if part is None or fortran else min(part[0].stop or first, first)
            inner = 1
            for side in shape[1:]:
                inner *= side
            data = stream.read(rows * inner * dtype.itemsize)
        flat = np.frombuffer(data, dtype, count=len(data) // max(dtype.itemsize, 1))
        return flat.reshape((rows, *shape[1:]) if shape else (), order="F" if fortran else "C")

    return read


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    import numpy as np

    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    return tuple(int(side) for side in shape), bool(fortran), dtype


def _npy(path: Path, part: tuple[slice, ...] | None) -> Any:
    import numpy as np

    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array if part is None or array.ndim == 0 else array[part[0]]


def _hdf5(path: Path) -> tuple[Format, list[Inner], Callable[[], None]]:
    import h5py

    file = h5py.File(path, "r")
    inners: list[Inner] = []

    def collect(name: str, item: Any) -> int | None:
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:  # its values lie in other files, which it may name freely
                return None
            said = item.attrs.get("MATLAB_class", b"")
            said = said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)
            inners.append(Inner(name, tuple(map(int, item.shape or ())), str(item.dtype), _h5_reader(item), said))
        return 1 if len(inners) >= MAX_MEMBERS else None

    file.visititems(collect)
    return "hdf5", inners, file.close


def _h5_reader(item: Any) -> Callable[..., Any]:
    def read(part: tuple[slice, ...] | None) -> Any:
        return item[()] if part is None or not item.shape else item[part[0]]

    return read


def _mat(path: Path) -> tuple[Format, list[Inner], Callable[[], None]]:
    import h5py

    if h5py.is_hdf5(path):
        _, inners, close = _hdf5(path)
        return "mat", [as_text(one) or turned(one) for one in inners if not one.key.startswith("#")], close
    from scipy.io import loadmat, whosmat

    inners = []
    for name, shape, kind in whosmat(path):
        if kind == "struct":
            held = loadmat(path, variable_names=[name])[name]
            inners += [
                Inner(key, array.shape, str(array.dtype), _mat_reader(loadmat, path, key))
                for key, array in fields_of(name, held)
            ]
        else:
            inners.append(Inner(name, tuple(map(int, shape)), kind, _mat_reader(loadmat, path, name)))
    return "mat", inners, lambda: None


def _mat_reader(loadmat: Callable[..., Any], path: Path, key: str) -> Callable[..., Any]:
    name = key.partition("/")[0]
    return lambda part: dict(fields_of(name, loadmat(path, variable_names=[name])[name]))[key]
