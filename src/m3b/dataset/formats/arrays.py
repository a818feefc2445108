"""NumPy, HDF5 and MATLAB files: one array a case, or one array for all cases, whose items are `file#key[3]`.

Arrays say nothing about their axes. `image_from_array` takes few channels first or last, and slices on the axis that
differs from two equal ones or is less than half as long as the others; all other volumes stay as they are stored.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import zipfile
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .base import (
    Format,
    Image,
    ImageInfo,
    Mask,
    check_memory,
    labels_from_image,
    naming_file,
    smallest_label_type,
)
from .errors import DataError
from .sidecars import check_plain_file
from .values import looks_like_hounsfield

_ITEM = re.compile(r"(?P<key>[^\[\]]*)(?:\[(?P<index>-?\d{1,12})\])?")
MAX_LISTED_KEYS = 12
MAX_TEXTS = 2**20
"""Texts of one array that are read."""
MAX_HDF5_OBJECTS = 200_000
"""Groups and datasets of one HDF5 file, some twenty seconds to read."""
ATTRIBUTE = "@"
"""Sign between the key of an array or group and the name of its attribute: `label@names`."""


def parse_item(item: str) -> tuple[str, int | None] | None:
    """Return key and index of `key`, `key[3]` or `[3]`; None of other texts."""
    match = _ITEM.fullmatch(item)
    return (match["key"], int(match["index"]) if match["index"] else None) if match else None


def attribute_names(key: str, attributes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the lists of names in the attributes of an array or group, as `key@attribute`.

    A list, a JSON list, and an object or several attributes of codes and names (`"0": "normal"`, `class_1 = "abnormal"`) whose
    names are then written as `0=normal`.
    """
    names: dict[str, np.ndarray] = {}
    numbered: dict[str, str] = {}
    for name, value in attributes.items():
        texts = _read_names(value)
        if texts:
            names[f"{key}{ATTRIBUTE}{name}"] = np.array(texts, dtype=str)
        elif (code := re.search(r"(?<!\d)(\d{1,3})$", str(name))) and isinstance(_as_text(value), str):
            numbered[str(int(code[1]))] = _as_text(value)
    if len(numbered) > 1:
        names.setdefault(
            f"{key}{ATTRIBUTE}", np.array([f"{code}={text}" for code, text in numbered.items()], dtype=str)
        )
    return names


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _read_names(value: Any) -> list[str]:
    """Return the names that the value of an attribute lists; none if it is anything else."""
    if isinstance(value := _as_text(value), str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    if isinstance(value, Mapping):
        pairs = [(str(code), name) for code, name in value.items()]
        if all(isinstance(name, int) and not isinstance(name, bool) for _, name in pairs):
            pairs = [(str(name), code) for code, name in pairs]
        is_coded = all(re.fullmatch(r"-?\d{1,4}", code) and isinstance(name, str) for code, name in pairs)
        return [f"{code}={name}" for code, name in pairs] if is_coded else []
    if not isinstance(value, (list, tuple, np.ndarray)) or np.ndim(value) != 1:
        return []
    texts = [_as_text(text) for text in list(value)[:MAX_TEXTS]]
    return texts if len(texts) > 1 and all(isinstance(text, str) for text in texts) else []


class ArrayFormat(Format):
    """A file of named arrays. Without a key the only array is meant, or the only one with two axes or more."""

    is_container = True

    @abstractmethod
    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        """Return the arrays by name, "" for a bare one. They have `shape` and `dtype`, and are read when indexed."""

    def read_values(self, path: Path) -> Mapping[str, np.ndarray]:
        """Return texts and single values by name that `open_arrays` leaves out: labels, identifiers, names of classes."""
        return {}

    def values(self, path: Path) -> Mapping[str, np.ndarray]:
        """Return `read_values` of a file that was checked, cached until the file changes. Raises DataError."""
        with naming_file(path):
            check_plain_file(path)
            state = os.stat(path)
            return read_values_cached(self, str(path), state.st_mtime_ns, state.st_size)

    def arrays(self, path: Path) -> Mapping[str, Any]:
        """Return `open_arrays`, cached until the file changes. Raises DataError if there is none."""
        with naming_file(path):
            check_plain_file(path)
            state = os.stat(path)
            arrays = open_cached(self, str(path), state.st_mtime_ns, state.st_size)
        if not arrays:
            raise DataError(f"{path}: holds no array of numbers")
        return arrays

    def pick(self, path: Path, item: str = "") -> tuple[Any, int | None]:
        """Return the array that an item names, and the index of the item."""
        parsed = parse_item(item)
        if parsed is None:
            raise DataError(f"{path}#{item}: cannot be understood; write {path}#key or {path}#key[3]")
        key, index = parsed
        arrays = self.arrays(path)
        if key in arrays:
            return arrays[key], index
        if key:
            known_keys = ", ".join(map(repr, list(arrays)[:MAX_LISTED_KEYS]))
            raise DataError(f"{path}: has no array {key!r}; it has {known_keys}")
        if len(arrays) == 1:
            return next(iter(arrays.values())), index
        images = {name: array for name, array in arrays.items() if len(getattr(array, "shape", ())) >= 2}
        if len(images) > 1:  # those of structures and groups have to be named
            images = {name: array for name, array in images.items() if "/" not in name} or images
        if len(images) == 1:
            return next(iter(images.values())), index
        raise DataError(
            f"{path}: holds {len(arrays)} arrays ({', '.join(list(arrays)[:MAX_LISTED_KEYS])}); name one as {path}#key"
        )

    def read_array(self, path: Path, item: str = "") -> np.ndarray:
        """Return the whole array, or one item of its first axis, in its own dtype."""
        with naming_file(f"{path}#{item}" if item else path):
            array, index = self.pick(path, item)
            if index is not None:
                count = array.shape[0] if hasattr(array, "shape") else len(array)
                if not -count <= index < count:
                    raise DataError(f"{path}#{item}: the array has {count} items")
                if hasattr(array, "shape"):
                    check_memory(path, array.shape[1:], array.dtype.itemsize)
                array = array[index]
            elif hasattr(array, "shape"):
                hint = f"name one item as {path}#key[0]" if len(array.shape) > 2 else ""
                check_memory(path, array.shape, array.dtype.itemsize, hint)
            return np.asarray(array)

    def array_shape(self, path: Path, item: str = "") -> tuple[tuple[int, ...], Any]:
        """Return shape and dtype of what `read_array` gives, without decoding if the format allows it."""
        with naming_file(path):
            array, index = self.pick(path, item)
            if not hasattr(array, "shape"):
                first = np.asarray(array[index or 0])
                return (first.shape if index is not None else (len(array), *first.shape)), first.dtype
            return tuple(int(size) for size in (array.shape if index is None else array.shape[1:])), array.dtype

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        shape, dtype = self.array_shape(path, item)
        sizes, channels = image_axes(shape, dtype, _full_name(path, item))
        kind = np.dtype(dtype)
        return ImageInfo(
            self.name,
            sizes,
            channels,
            "uint8" if kind.kind == "b" else str(kind.newbyteorder("=")),
            len(sizes),
            bits_stored=8 * kind.itemsize,
            stored_range=(0.0, 255.0) if kind == np.uint8 else None,
        )

    def read(self, path: Path, item: str = "") -> Image:
        name = _full_name(path, item)
        with naming_file(name):
            return image_from_array(self.read_array(path, item), name)

    def read_labels(self, path: Path, item: str = "") -> Mask:
        name = _full_name(path, item)
        with naming_file(name):
            return labels_from_image(image_from_array(self.read_array(path, item), name), name)

    def write_labels(self, array: np.ndarray, reference: Path, stem: Path, item: str = "") -> Path | None:
        """Write NPY in the array's own axes, if its shape tells them again."""
        array = array.astype(smallest_label_type(int(array.max(initial=0))))
        candidates = (array, *((np.moveaxis(array, -1, axis) for axis in (0, 1)) if array.ndim == 3 else ()))
        for candidate in candidates:
            again = image_from_array(candidate, str(reference)).array
            if again.shape == (1, *array.shape) and np.array_equal(again[0], array):
                np.save(Path(f"{stem}.npy"), candidate)
                return Path(f"{stem}.npy")
        return None

    def items(self, path: Path, limit: int = 1000) -> tuple[str, ...]:
        arrays = self.arrays(path)
        return tuple(name for name, array in arrays.items() if len(getattr(array, "shape", (0, 0))) >= 2)[:limit]

    def describe(self, path: Path) -> str:
        arrays = self.arrays(path)
        lines = [f"{self.name} file, {len(arrays)} array{'s' if len(arrays) != 1 else ''}"]
        for name, array in list(arrays.items())[: 3 * MAX_LISTED_KEYS]:
            shape = " x ".join(map(str, array.shape)) if hasattr(array, "shape") else f"{len(array)} arrays"
            lines.append(f"{name or '(one array)'}: {shape}, {getattr(array, 'dtype', 'list')}")
        if len(arrays) > 3 * MAX_LISTED_KEYS:
            lines.append(f"... {len(arrays) - 3 * MAX_LISTED_KEYS} more")
        return "\n".join(lines)


@lru_cache(maxsize=16)
def open_cached(file_format: ArrayFormat, path: str, modified: int, size: int) -> Mapping[str, Any]:
    return file_format.open_arrays(Path(path))


@lru_cache(maxsize=2)
def read_values_cached(file_format: ArrayFormat, path: str, modified: int, size: int) -> Mapping[str, np.ndarray]:
    return file_format.read_values(Path(path))


def _full_name(path: Path, item: str) -> str:
    return f"{path}#{item}" if item else str(path)


# --- axes ---------------------------------------------------------------------------------------------------------


def image_from_array(array: np.ndarray, name: str) -> Image:
    """Return a bare array as an image, with its axes by its shape. Raises DataError if it can be no image."""
    if array.dtype == bool:
        array = array.astype(np.uint8)
    image_axes(array.shape, array.dtype, name)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    while array.ndim > 4 and 1 in array.shape:
        array = np.squeeze(array, axis=array.shape.index(1))
    stored_range = (0.0, 255.0) if array.dtype == np.uint8 else None
    if array.ndim == 2:
        return Image(array[None], None, 2, stored_range=stored_range)
    if array.ndim == 3 and (channel_axis := _channel_axis(array.shape)) is not None:
        planes = np.moveaxis(array, channel_axis, 0)[:3]
        return Image(np.ascontiguousarray(planes), None, 2, stored_range=stored_range)
    if array.ndim == 3:
        volume = np.moveaxis(array, _slice_axis(array.shape), -1)[None]
    else:
        if array.shape[-1] <= 4 < array.shape[0]:
            array = np.moveaxis(array, -1, 0)
        volume = np.moveaxis(array, _slice_axis(array.shape[1:]) + 1, -1)
    modality = "ct" if looks_like_hounsfield(volume) else ""
    return Image(volume, None, 3, modality, stored_range=stored_range)


def image_axes(shape: tuple[int, ...], dtype: Any, name: str) -> tuple[tuple[int, ...], int]:
    """Return the spatial shape and the channels that `image_from_array` gives. Raises DataError if it can be no image."""
    if np.dtype(dtype).kind not in "biuf" or len(shape) < 2 or 0 in shape:
        raise DataError(f"{name}: an array of {dtype} and shape {tuple(shape)} is no image")
    sizes = list(shape)
    while len(sizes) > 4 and 1 in sizes:
        sizes.remove(1)
    if len(sizes) > 4:
        raise DataError(f"{name}: shape {tuple(shape)} has too many axes; name one item as {name}#[0]")
    if len(sizes) == 2:
        return (sizes[0], sizes[1]), 1
    if len(sizes) == 3 and (channel_axis := _channel_axis(tuple(sizes))) is not None:
        return tuple(size for axis, size in enumerate(sizes) if axis != channel_axis), min(3, sizes[channel_axis])
    if len(sizes) == 4 and sizes[-1] <= 4 < sizes[0]:
        sizes = [sizes[-1], *sizes[:-1]]
    channels = sizes.pop(0) if len(sizes) == 4 else 1
    slices = sizes.pop(_slice_axis(tuple(sizes)))
    return (*sizes, slices), channels


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return the axis of colours of a picture; None of a volume."""
    if shape[-1] in (1, 3, 4) and min(shape[:2]) > 4:
        return 2
    return 0 if shape[0] in (1, 3, 4) and min(shape[1:]) > 4 else None


def _slice_axis(shape: tuple[int, ...]) -> int:
    """Return the axis of slices: the one beside two equal ones, or less than half as long as both others; else the last."""
    for axis in (0, 1):
        first, second = (shape[other_axis] for other_axis in range(3) if other_axis != axis)
        if 2 * shape[axis] < min(first, second) or (axis == 0 and first == second != shape[axis]):
            return axis
    return 2


# --- formats ------------------------------------------------------------------------------------------------------


class Npy(ArrayFormat):
    """One array of NumPy, mapped into memory."""

    name = "npy"
    suffixes = (".npy",)
    magic = ((0, b"\x93NUMPY"),)

    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        return {"": np.load(path, mmap_mode="r", allow_pickle=False)}


class Npz(ArrayFormat):
    """Named arrays of NumPy, decoded when they are used; their size in memory counts, not how well they were compressed."""

    name = "npz"
    suffixes = (".npz",)

    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        with zipfile.ZipFile(path) as bundle:  # once for all: a list of 60,000 members takes a while to read
            names = [name for name in bundle.namelist() if name.endswith(".npy")]
            return {name.removesuffix(".npy"): NpzMember(path, name, *_npy_header(bundle, name)) for name in names}


def _npy_header(bundle: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with bundle.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    return shape, dtype


class NpzMember:
    """One array of an NPZ archive, decoded when it is first used and then kept."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._path, self._name, self.shape, self.dtype = path, name, shape, dtype
        self._array: np.ndarray | None = None
        self._lock = threading.Lock()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        with self._lock:
            if self._array is None:
                check_memory(f"{self._path}#{self._name.removesuffix('.npy')}", self.shape, self.dtype.itemsize)
                with zipfile.ZipFile(self._path) as bundle, bundle.open(self._name) as stream:
                    self._array = np.lib.format.read_array(stream, allow_pickle=False)
        return self._array if dtype is None else self._array.astype(dtype)

    def __len__(self) -> int:
        return int(self.shape[0]) if self.shape else 0

    def __getitem__(self, item: Any) -> Any:
        return self.__array__()[item]


class Hdf5(ArrayFormat):
    """HDF5; datasets that lie in other files are refused."""

    name = "hdf5"
    suffixes = (".h5", ".hdf5", ".hdf", ".he5")
    magic = ((0, b"\x89HDF\r\n\x1a\n"),)

    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        return _hdf5_arrays(path)

    def read_values(self, path: Path) -> Mapping[str, np.ndarray]:
        import h5py

        values: dict[str, np.ndarray] = {}
        with h5py.File(path, "r") as store:
            values.update(attribute_names("", store.attrs))
            for raw_name, is_dataset in _list_objects(path, store):
                name = os.fsdecode(raw_name)
                object_id = h5py.h5o.open(store.id, raw_name)
                if h5py.h5a.get_num_attrs(object_id):
                    values.update(attribute_names(name, h5py.AttributeManager(h5py.HLObject(object_id))))
                if not is_dataset or _lies_elsewhere(object_id) or math.prod(object_id.shape) > MAX_TEXTS:
                    continue
                if object_id.get_type().get_class() == h5py.h5t.STRING and h5py.check_string_dtype(object_id.dtype):
                    values[name] = np.asarray(h5py.Dataset(object_id).asstr(errors="replace")[()], dtype=str)
                elif not object_id.shape and object_id.dtype.kind in "biuf":
                    values[name] = np.asarray(h5py.Dataset(object_id)[()])
        return values


class Hdf5Dataset:
    """A dataset of an HDF5 file, opened when it is read: each open one takes 20 KB of memory."""

    def __init__(self, store: Any, raw_name: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._store, self._raw_name, self.shape, self.dtype = store, raw_name, shape, dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[()] if dtype is None else self[()].astype(dtype))

    def __getitem__(self, item: Any) -> Any:
        return self.open()[item]

    def open(self) -> Any:
        """Return the dataset of h5py."""
        import h5py

        return h5py.Dataset(h5py.h5d.open(self._store.id, self._raw_name))


def _list_objects(path: Path, store: Any) -> list[tuple[bytes, bool]]:
    """Return the stored names of the groups and datasets of an HDF5 file, and which are datasets. Links are not followed.

    Raises:
        DataError: there are more than `MAX_HDF5_OBJECTS`.
    """
    import h5py

    objects: list[tuple[bytes, bool]] = []

    def collect(name: bytes, info: Any) -> bool | None:
        objects.append((name, info.type == h5py.h5o.TYPE_DATASET))
        return True if len(objects) > MAX_HDF5_OBJECTS else None  # ends the visit

    if h5py.h5o.visit(store.id, collect, info=True):
        raise DataError(
            f"{path}: holds more than {MAX_HDF5_OBJECTS:,} groups and datasets; store cases as one array, or in several files"
        )
    return objects


def _lies_elsewhere(dataset_id: Any) -> bool:
    """Whether the values of an HDF5 dataset are those of other files or datasets."""
    import h5py

    creation = dataset_id.get_create_plist()
    return bool(creation.get_layout() == h5py.h5d.VIRTUAL or creation.get_external_count())


def _hdf5_arrays(path: Path) -> dict[str, Any]:
    import h5py

    arrays: dict[str, Any] = {}
    store = h5py.File(path, "r")  # stays open: the datasets are read from it item by item
    for raw_name, is_dataset in _list_objects(path, store):
        if not is_dataset:
            continue
        dataset_id, name = h5py.h5d.open(store.id, raw_name), os.fsdecode(raw_name)
        if dataset_id.shape and dataset_id.dtype.kind in "biuf":
            if _lies_elsewhere(dataset_id):
                raise DataError(f"{path}: its dataset {name!r} has its values in other files, which are not opened")
            arrays[name] = Hdf5Dataset(store, raw_name, dataset_id.shape, dataset_id.dtype)
    return arrays


class Matlab(ArrayFormat):
    """MATLAB files; those of version 7.3 are HDF5 with reversed axes. Numbers of a structure are `name/field`."""

    name = "matlab"
    suffixes = (".mat",)
    magic = ((0, b"MATLAB 5.0"), (0, b"MATLAB 7.3"))

    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        import h5py

        if h5py.is_hdf5(path):
            return {name: MatlabDataset(item) for name, item in _hdf5_arrays(path).items() if not name.startswith("#")}
        from scipy.io import loadmat, whosmat

        for name, shape, _ in whosmat(path):
            check_memory(f"{path}#{name}", shape, 8)
        variables = {name: array for name, array in loadmat(path).items() if not name.startswith("__")}
        return _with_items_first(
            {key: array for name, value in variables.items() for key, array in _structure_arrays(name, value).items()}
        )

    def read_values(self, path: Path) -> Mapping[str, np.ndarray]:
        import h5py
        from scipy.io import loadmat

        if h5py.is_hdf5(path):
            texts: dict[str, list[str]] = {}
            with h5py.File(path, "r") as store:
                for raw_name, _ in _list_objects(path, store):
                    texts[os.fsdecode(raw_name)] = _matlab_texts(store, store[raw_name])
            return {name: np.asarray(items, str) for name, items in texts.items() if items and name[0] != "#"}
        variables = {name: array for name, array in loadmat(path).items() if not name.startswith("__")}
        return {
            name: np.asarray([str(np.squeeze(item)).rstrip() for item in np.asarray(array).ravel()])
            for name, array in variables.items()
            if array.dtype.kind in "UO" and array.dtype.names is None and array.size <= MAX_TEXTS
        }


def _matlab_texts(store: Any, item: Any) -> list[str]:
    """The text or texts of a variable of a MATLAB 7.3 file; none if it holds something else."""
    kind, shape = item.attrs.get("MATLAB_class", b""), getattr(item, "shape", ())
    if kind == b"cell" and item.size <= MAX_TEXTS:
        return [text for reference in item[()].ravel(order="F") for text in _matlab_texts(store, store[reference])[:1]]
    is_row = len(shape) == 2 and min(shape) == 1 and 0 < max(shape) <= MAX_TEXTS and item.dtype == np.uint16
    if not is_row or kind not in (b"", b"char"):
        return []
    text = "".join(map(chr, item[()].ravel(order="F")))
    is_text = kind or re.fullmatch(
        r"[A-Za-z0-9_ .:-]{3,}", text
    )  # other programs than MATLAB do not say that it is text
    return [text] if is_text else []


class MatlabDataset:
    """A dataset of a MATLAB 7.3 file with rows before columns again; items stay first."""

    def __init__(self, stored: Any) -> None:
        self.stored, self.dtype = stored, stored.dtype
        self.shape = (*stored.shape[:-2], *stored.shape[:-3:-1])

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        restored = np.swapaxes(self.stored[()], -1, -2) if len(self.shape) > 1 else self.stored[()]
        return np.asarray(restored if dtype is None else restored.astype(dtype))

    def __getitem__(self, item: Any) -> Any:
        if len(self.shape) > 2 and isinstance(item, int | np.integer):
            return np.swapaxes(self.stored[item], -1, -2)
        return self.__array__()[item]


def _with_items_first(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a file with the axis of items first, which MATLAB has last: images and masks of one of which has
    colours, or images of which a vector with repeated values names the classes, have that length in common."""
    stacks = {name: array for name, array in arrays.items() if array.ndim > 2}
    lengths = {
        array.shape[-1]
        for array in stacks.values()
        if any(stack.shape[-1] == array.shape[-1] and stack.ndim != array.ndim for stack in stacks.values())
    }
    labels = [
        np.squeeze(array) for array in arrays.values() if array.ndim < 3 and array.size == max(array.shape, default=0)
    ]
    lengths |= {len(vector) for vector in labels if vector.ndim and len(vector) > 2 * len(np.unique(vector))}
    return {
        name: np.moveaxis(array, -1, 0)
        if array.ndim > 2 and array.shape[-1] in lengths - {*array.shape[:-1]}
        else array
        for name, array in arrays.items()
    }


def _structure_arrays(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
    """Return an array of numbers or texts by its name; of one structure the arrays of its fields, of anything else none."""
    if value.dtype.names is None:
        texts = [str(cell.ravel()[0]) for cell in value.ravel() if _is_text(cell)] if value.dtype.kind == "O" else []
        if texts and len(texts) == value.size:
            return {name: np.array(texts)}
        return {name: value} if value.dtype.kind in "biufU" else {}
    fields = value.dtype.names if value.size == 1 else ()
    inner: Any = value.reshape(-1)[0] if fields else None
    return {key: array for field in fields for key, array in _structure_arrays(f"{name}/{field}", inner[field]).items()}


def _is_text(cell: Any) -> bool:
    return isinstance(cell, np.ndarray) and cell.dtype.kind == "U" and cell.size == 1


FORMATS = (Npy(), Npz(), Hdf5(), Matlab())
