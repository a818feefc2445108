"""Opening images and masks for the older reading of folders (`m3b.data.spec`, `m3b.data.survey`).

These packages lie below `m3b.dataset`, which reads all formats, so it is looked up when it is needed. This module goes with them;
other code uses `m3b.dataset.reading`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

from m3b.errors import DataError

Path = str | Sequence[str] | Mapping[str, str]
KINDS = {"dicom": "dicom", "nifti": "nifti", "metaimage": "itk", "nrrd": "itk", "video": "clip"}


def _dataset(module: str = "reading") -> Any:
    return importlib.import_module(f"m3b.dataset.{module}")


def read_image(path: Path, base: str = ".") -> Any:
    """Return an image with `array`, channel first, `spacing` and `dims`. Raises DataError."""
    return _dataset().read_image(path, base)


def read_mask(path: Path, base: str = ".") -> Any:
    """Return a mask with label numbers in `array`, in the axes of `read_image`. Raises DataError."""
    return _dataset().read_mask(path, base)


def read_masks(
    mask_path: Path | Mapping[str, str] | None,
    classes: Mapping[str, int],
    base: str = ".",
    shape: tuple[int, ...] | None = None,
    image: Path | None = None,
) -> Any:
    """Return all masks of a case, `(K, H, W[, D])` bool in the order of `classes`. Raises DataError."""
    return _dataset().read_masks(mask_path, classes, base, shape, image)


def geometry(path: Path, base: str = ".") -> Any:
    """Return the grid of an image as `read_image` gives it: `shape`, `spacing`, `affine`. Raises DataError."""
    return _dataset().geometry(path, base)


def boxes_to_array(box: Sequence[float], path: Path, base: str = ".") -> tuple[float, ...]:
    """Return a box of an index record in the axes of `read_image`. Raises DataError."""
    corners: tuple[float, ...] = _dataset().boxes_to_array(box, path, base)
    return corners


def upright(mask: Any, image: Path, base: str = ".") -> Any:
    """Return a mask that was drawn on a picture as it is stored, turned as `read_image` turns it."""
    return _dataset().upright(mask, image, base)


def stored_shape(image: Path, base: str = ".") -> tuple[int, ...]:
    """Return rows and columns of a picture as its file stores them. Raises DataError."""
    shape: tuple[int, ...] = _dataset().stored_shape(image, base)
    return shape


def box_extent(image: Path, base: str = ".") -> tuple[float, ...]:
    """Return the size of an image along the axes of its boxes. Raises DataError."""
    extent: tuple[float, ...] = _dataset().box_extent(image, base)
    return extent


def kind_of(path: str | FilePath) -> str:
    """Return the format family: picture, dicom, nifti, itk, array, clip, folder; "" if none of these."""
    path, catalog = FilePath(path), _dataset("formats.catalog")
    if path.is_dir():
        return "folder"
    file_format = catalog.find_file_format(path) or catalog.find_format(b"", path.name)
    if file_format is None:
        return ""
    if isinstance(file_format, _dataset("formats.arrays").ArrayFormat):
        return "array"
    return "" if file_format.is_container else KINDS.get(file_format.name, "picture")


def parse_reference(path: str) -> SimpleNamespace | None:
    """Return file, key and index of `file#key[index]`; None of other paths."""
    file, sign, item = path.partition("#")
    if not sign or kind_of(file) != "array":
        return None
    key, _, index = item.partition("[")
    return SimpleNamespace(file=file, key=key, index=int(index.rstrip("]")) if index else None)


def stores_fractions(path: str) -> bool:
    """Return whether a file holds floating-point numbers, by its header. Raises DataError."""
    return bool(_dataset("formats").probe_image(path).dtype.startswith("float"))


def _read_item(file: FilePath, key: str = "", index: int | None = None) -> Any:
    return _dataset().read_array(FilePath(file), key if index is None else f"{key}[{index}]")


def _array_shape(file: FilePath, key: str = "") -> tuple[int, ...]:
    array = _dataset().open_arrays(FilePath(file))[key]
    return tuple(array.shape) if hasattr(array, "shape") else (len(array),)


def shared() -> SimpleNamespace:
    """Return functions of `m3b.dataset.formats` under older names."""
    formats, reading = _dataset("formats"), _dataset()
    arrays = SimpleNamespace(
        ArrayError=DataError,
        open_arrays=lambda file: reading.open_arrays(FilePath(file)),
        read_array=_read_item,
        array_shape=_array_shape,
        parse_reference=parse_reference,
    )
    return SimpleNamespace(
        ImageError=DataError,
        arrays=arrays,
        clips=SimpleNamespace(SAFELY=_dataset("formats.video").CONTAINER_OPTIONS),
        geometry=_dataset("formats.geometry"),
        kind_of=kind_of,
        natural_key=_dataset("formats.base").natural_key,
        orientation_of=reading.probe_orientation,
        probe=reading.probe_shape,
        series_affine=lambda series: formats.file_grid(series if isinstance(series, list | tuple) else str(series)),
    )


def shared_masks() -> SimpleNamespace:
    """Return functions for masks and boxes under older names."""
    formats = _dataset("formats")
    return SimpleNamespace(
        ImageError=DataError,
        write_mask=formats.write_labels,
        boxes_to_array=formats.box_to_array,
        boxes_to_file=formats.box_to_file,
    )
