"""Arrays in NPY, NPZ, HDF5, MAT, PKL and PT files, and the references `file#key[index]` that name one item of one.

Nothing in a pickle is executed: an unpickler that knows NumPy arrays and plain containers only, and
`torch.load(weights_only=True)` for PyTorch files.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import stat
import threading
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".mat", ".pkl", ".pickle", ".pck", ".pt", ".pth")
_REFERENCE = re.compile(r"^(?P<file>[^#]+)#(?P<key>[^\[\]]*)(?:\[(?P<index>-?\d+)\])?$")
_SAFE = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
    ("collections", "OrderedDict"),
    *(
        (f"{core}.multiarray", name)
        for core in ("numpy.core", "numpy._core")
        for name in ("_reconstruct", "scalar", "_frombuffer")
    ),
    *((f"{core}.numeric", "_frombuffer") for core in ("numpy.core", "numpy._core")),
}


class ArrayError(ValueError):
    """An array file or a reference into one that cannot be used; names the file and the reason."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`file#key[index]`: `key` is empty for a file of one array, `index` None for the whole array."""

    file: str
    key: str = ""
    index: int | None = None


def parse_reference(path: str) -> Reference | None:
    """The parts of `file#key[index]`, or None where the path is a plain one (also one whose name holds a `#`)."""
    found = _REFERENCE.match(path)
    if not found or not found["file"].lower().endswith(SUFFIXES):
        return None
    return Reference(found["file"], found["key"], int(found["index"]) if found["index"] else None)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _SAFE:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}; only NumPy arrays are loaded")
        return super().find_class(module, name)


def load_pickle(file: Path) -> Any:
    """What a pickle of NumPy arrays and plain containers holds; Python 2 pickles included."""
    with file.open("rb") as stream:
        return _Unpickler(io.BytesIO(stream.read()), encoding="latin1").load()


def _load_torch(file: Path) -> Any:
    import torch

    return _plain(torch.load(file, map_location="cpu", weights_only=True))


def _plain(value: Any) -> Any:
    """Torch tensors as NumPy arrays, containers kept."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return value.detach().cpu().float().numpy() if str(value.dtype) == "torch.bfloat16" else value.detach().numpy()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _from_container(value: Any) -> dict[str, Any]:
    """Named arrays of what a pickle or PT file holds; a bare array, and a list, has the empty name."""
    if isinstance(value, np.ndarray):
        return {"": value}
    if isinstance(value, Mapping):
        flat: dict[str, Any] = {}
        for key, item in value.items():
            for inner, array in _from_container(item).items():
                flat[f"{key}/{inner}" if inner else str(key)] = array
        return flat
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value:
        if all(isinstance(item, np.ndarray) for item in value):
            return {"": value}
        if all(np.isscalar(item) for item in value):
            return {"": np.asarray(value)}
    return {}


def _hdf5_arrays(file: Path) -> dict[str, Any]:
    import h5py

    found: dict[str, Any] = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim:
            if item.external or item.is_virtual:
                raise ArrayError(f"its dataset {name!r} has its values in other files, which are not opened")
            found[name] = item

    h5py.File(file, "r").visititems(collect)  # left open: the datasets read from it item by item
    return found


class _Turned:
    """A dataset of a MATLAB 7.3 file, whose axes HDF5 has in reverse: rows before columns again, items still first."""

    def __init__(self, stored: Any) -> None:
        self.stored, self.dtype, self.ndim = stored, stored.dtype, stored.ndim
        self.shape = (*stored.shape[:-2], *stored.shape[:-3:-1])

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = np.swapaxes(self.stored[()], -1, -2) if self.ndim > 1 else self.stored[()]
        return whole if dtype is None else whole.astype(dtype)

    def __getitem__(self, item: Any) -> Any:
        if self.ndim > 2 and isinstance(item, int | np.integer):
            return np.swapaxes(self.stored[item], -1, -2)
        return self.__array__()[item]


def _mat_arrays(file: Path) -> dict[str, Any]:
    """The numbers of a MATLAB file: of version 7.3, which is HDF5, or of the older form; those of a structure as `name/field`."""
    import h5py

    if h5py.is_hdf5(file):
        return {name: _Turned(item) for name, item in _hdf5_arrays(file).items() if not name.startswith("#")}
    from scipy.io import loadmat

    held = {name: array for name, array in loadmat(file).items() if not name.startswith("__")}
    return {key: array for name, value in held.items() for key, array in _fields(name, value).items()}


def _fields(name: str, held: np.ndarray) -> dict[str, np.ndarray]:
    """An array of numbers by its name; of one structure the arrays of its fields, of anything else none."""
    if held.dtype.names is None:
        return {name: held} if held.dtype.kind in "biuf" else {}
    fields = held.dtype.names if held.size == 1 else ()
    inner = held.reshape(-1)[0] if fields else None
    return {key: array for field in fields for key, array in _fields(f"{name}/{field}", inner[field]).items()}


def _npz_arrays(file: Path) -> dict[str, Any]:
    """Stored (not deflated) members are memory-mapped where they lie; others are loaded on first use."""
    archive = np.load(file, allow_pickle=False)
    with zipfile.ZipFile(file) as bundle:  # once for all: a list of 60,000 members takes a while to read
        members = set(bundle.namelist())
        return {name: _LazyMember(archive, name, *_npz_header(bundle, members, name)) for name in archive.files}


def _npz_header(bundle: zipfile.ZipFile, members: set[str], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with bundle.open(name if name in members else f"{name}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    return shape, dtype


class _LazyMember:
    """One array of an NPZ archive, decoded when it is first touched and then kept."""

    def __init__(self, archive: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._archive, self._name, self.shape, self.dtype = archive, name, shape, dtype
        self._array: np.ndarray | None = None
        self._lock = threading.Lock()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        with self._lock:
            if self._array is None:
                self._array = self._archive[self._name]
        return self._array if dtype is None else self._array.astype(dtype)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, item: Any) -> Any:
        return self.__array__()[item]


@lru_cache(maxsize=16)
def _open(file: str, stamp: tuple[int, int]) -> dict[str, Any]:
    path, suffix = Path(file), Path(file).suffix.lower()
    if suffix == ".npy":
        return {"": np.load(path, mmap_mode="r", allow_pickle=False)}
    if suffix == ".npz":
        return _npz_arrays(path)
    if suffix in (".h5", ".hdf5"):
        return _hdf5_arrays(path)
    if suffix == ".mat":
        return _mat_arrays(path)
    if suffix in (".pt", ".pth") or zipfile.is_zipfile(path):
        return _from_container(_load_torch(path))
    return _from_container(load_pickle(path))


def open_arrays(file: str | Path) -> dict[str, Any]:
    """Every array of a file by name (the empty name where it holds one bare array). Cached until the file changes.

    Values have `shape` and `dtype` (or are lists of arrays) and are read when indexed.
    """
    try:
        state = os.stat(file)
        if not stat.S_ISREG(state.st_mode):
            raise ArrayError("a folder, pipe or device, not a regular file")
        arrays = _open(str(file), (state.st_mtime_ns, state.st_size))
    except Exception as error:  # a damaged file makes its decoder raise nearly anything
        raise ArrayError(f"{file}: cannot be opened as {Path(file).suffix}: {error or type(error).__name__}") from error
    if not arrays:
        raise ArrayError(f"{file}: holds no array")
    return arrays


def pick_array(file: str | Path, key: str = "") -> Any:
    """The array called `key`; without a key the file's only one, or its only one of two dimensions and more."""
    arrays = open_arrays(file)
    if key in arrays:
        return arrays[key]
    if key:
        raise ArrayError(f"{file}: has no array {key!r}; it has {', '.join(map(repr, list(arrays)[:12]))}")
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    images = {name: value for name, value in arrays.items() if len(getattr(value, "shape", ())) >= 2}
    if len(images) > 1 and str(file).lower().endswith(".mat"):  # those of structures have to be named
        images = {name: value for name, value in images.items() if "/" not in name} or images
    if len(images) == 1:
        return next(iter(images.values()))
    raise ArrayError(f"{file}: holds {len(arrays)} arrays ({', '.join(list(arrays)[:12])}); name one as {file}#key")


def read_array(file: str | Path, key: str = "", index: int | None = None) -> np.ndarray:
    """The whole array, or item `index` of its first axis, in its own dtype."""
    array = pick_array(file, key)
    if index is not None:
        if not -len(array) <= index < len(array):
            raise ArrayError(f"{file}#{key}[{index}]: the array has {len(array)} items")
        array = array[index]
    return np.asarray(array[...] if hasattr(array, "id") else array)


def array_shape(file: str | Path, key: str = "", index: int | None = None) -> tuple[int, ...]:
    """Shape of what `read_array` would give, without decoding where the format allows it."""
    array = pick_array(file, key)
    if not hasattr(array, "shape"):
        return tuple(np.shape(array[index or 0])) if index is not None else (len(array), *np.shape(array[0]))
    return tuple(array.shape if index is None else array.shape[1:])
