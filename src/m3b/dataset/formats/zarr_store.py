"""Zarr arrays and groups, and OME-Zarr images with their axes, spacing and levels: `image.zarr#level=2`, `store.zarr#key[3]`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import ArrayFormat, attribute_names, open_cached
from .base import FormatNote, Image, ImageInfo, Mask, check_memory, labels_from_image, load_library, naming_file
from .errors import DataError
from .values import looks_like_hounsfield

SAFE_CODECS = frozenset((
    "blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "zfpy", "delta", "shuffle", "bitround", "fixedscaleoffset",
    "quantize", "packbits", "astype", "bytes", "endian", "transpose", "crc32", "crc32c", "adler32", "fletcher32",
    "sharding_indexed", "pcodec",
))  # fmt: skip
"""Codecs that compute; others, such as pickle, are not run."""
METADATA_NAMES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
MAX_METADATA_FILES = 10_000
MAX_METADATA_BYTES = 1 << 22
_MM_PER_UNIT = {"meter": 1e3, "centimeter": 10.0, "millimeter": 1.0, "micrometer": 1e-3, "nanometer": 1e-6}


class Zarr(ArrayFormat):
    """A folder that Zarr wrote, of version 2 or 3."""

    name = "zarr"
    suffixes = (".zarr",)
    is_folder = True

    def matches_folder(self, path: Path) -> bool:
        """Return whether a folder is a Zarr store."""
        return any((path / name).is_file() for name in METADATA_NAMES[:3])

    def arrays(self, path: Path) -> Mapping[str, Any]:
        with naming_file(path):
            arrays = open_cached(self, str(path), path.stat().st_mtime_ns, 0)
        if not arrays:
            raise DataError(f"{path}: holds no array of numbers")
        return arrays

    def values(self, path: Path) -> Mapping[str, Any]:
        with naming_file(path):
            return self.read_values(path)

    def read_values(self, path: Path) -> Mapping[str, np.ndarray]:
        """Return the lists of names in the attributes of groups and arrays, and the single numbers."""
        check_store(path)
        zarr = load_library(path, "zarr", "'m3b[zarr]'")
        node = zarr.open(str(path), mode="r")
        values = attribute_names("", dict(node.attrs))
        for name, member in node.members(max_depth=None) if isinstance(node, zarr.Group) else ():
            values |= attribute_names(name, dict(member.attrs))
            if isinstance(member, zarr.Array) and not member.ndim and member.dtype.kind in "biuf":
                values[name] = np.asarray(member[()])
        return values

    def open_arrays(self, path: Path) -> Mapping[str, Any]:
        check_store(path)
        zarr = load_library(path, "zarr", "'m3b[zarr]'")
        node = zarr.open(str(path), mode="r")
        if isinstance(node, zarr.Array):
            return {"": node} if node.dtype.kind in "biuf" else {}
        return dict(sorted(_walk(zarr, node, "")))

    def pick(self, path: Path, item: str = "") -> tuple[Any, int | None]:
        scales = _multiscales(path)
        if scales and (not item or item.startswith("level=")):
            level = int(item.removeprefix("level=") or 0) if item.removeprefix("level=").isdecimal() or not item else -1
            names = [entry["path"] for entry in scales["datasets"]]
            if not 0 <= level < len(names):
                raise DataError(f"{path}#{item}: the image has {len(names)} levels, counted from 0")
            check_store(path)
            zarr = load_library(path, "zarr", "'m3b[zarr]'")
            return zarr.open(str(path), mode="r")[names[level]], None
        return super().pick(path, item)

    def _scaled(self, path: Path, item: str) -> tuple[list[str], list[float], list[str]] | None:
        """Return names, steps and units of the axes of an OME-Zarr image; None of other arrays."""
        group, _, name = item.rpartition("/")
        scales = _multiscales(path / group)
        if not scales:
            return None
        names = [str(entry.get("path")) for entry in scales["datasets"]]
        level = names.index(name) if name in names else int(name[6:]) if name[:6] == "level=" else 0 if not item else -1
        if level < 0:
            return None
        axes = [axis if isinstance(axis, dict) else {"name": str(axis)} for axis in scales.get("axes") or []]
        transforms = scales["datasets"][level].get("coordinateTransformations") or []
        steps = next(
            (transform["scale"] for transform in transforms if transform.get("type") == "scale"), [1.0] * len(axes)
        )
        return (
            [str(axis.get("name", "")) for axis in axes],
            [float(step) for step in steps],
            [str(axis.get("unit", "")) for axis in axes],
        )

    def _ome_layout(
        self, path: Path, item: str, shape: tuple[int, ...]
    ) -> tuple[list[int], tuple[float, ...] | None] | None:
        """Return the axes in the order channels and times, rows, columns, slices, and the spacing."""
        scaled = self._scaled(path, item)
        if scaled is None or len(scaled[0]) != len(shape):
            return None
        names, steps, units = scaled
        spatial = [names.index(name) for name in "yxz" if name in names]
        if len(spatial) < 2:
            return None
        other_axes = [axis for axis in range(len(names)) if axis not in spatial]
        if sum(shape[axis] > 1 for axis in other_axes) > 1:
            raise DataError(
                f"{path}: has channels and points in time ({dict(zip(names, shape, strict=True))}); name one array and item"
            )
        factors = [_MM_PER_UNIT.get(units[axis]) for axis in spatial]
        spacing = (
            None
            if None in factors
            else tuple(steps[axis] * (factor or 1.0) for axis, factor in zip(spatial, factors, strict=True))
        )
        return [*other_axes, *spatial], spacing

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with naming_file(path):
            check_store(path)
            array, index = self.pick(path, item)
            layout = self._ome_layout(path, item, tuple(array.shape)) if index is None else None
            if layout is None:
                return super().probe(path, item)
            order, spacing = layout
            count = _spatial_count(self, path, item)
            sizes = tuple(int(array.shape[axis]) for axis in order[-count:])
            channels = int(np.prod([array.shape[axis] for axis in order[:-count]], dtype=np.int64))
            flat = count == 3 and sizes[2] == 1
            return ImageInfo(
                self.name, sizes[:2] if flat else sizes, channels, str(array.dtype), 2 if flat or count == 2 else 3,
                spacing=spacing[:2] if flat and spacing else spacing, notes=_pyramid_notes(path),
            )  # fmt: skip

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(path):
            check_store(path)
            array, index = self.pick(path, item)
            layout = self._ome_layout(path, item, tuple(array.shape)) if index is None else None
            if layout is None:
                return super().read(path, item)
            order, spacing = layout
            levels = len((_multiscales(path) or {"datasets": ()})["datasets"])
            hint = f"name a smaller level, such as {path}#level={levels - 1}" if levels > 1 else ""
            check_memory(path, array.shape, array.dtype.itemsize, hint)
            count = _spatial_count(self, path, item)
            values = np.transpose(np.asarray(array[...]), order)
            values = values.reshape(-1, *values.shape[-count:])
            if count == 3 and values.shape[-1] == 1:
                values, spacing, count = values[..., 0], spacing[:2] if spacing else None, 2
            modality = "ct" if looks_like_hounsfield(values) else ""
            return Image(np.ascontiguousarray(values), spacing, count, modality, notes=_pyramid_notes(path))

    def read_labels(self, path: Path, item: str = "") -> Mask:
        return labels_from_image(self.read(path, item), str(path))

    def items(self, path: Path, limit: int = 1000) -> tuple[str, ...]:
        return ("",) if _multiscales(path) else super().items(path, limit)

    def describe(self, path: Path) -> str:
        check_store(path)
        return super().describe(path)


def _spatial_count(store: Zarr, path: Path, item: str) -> int:
    scaled = store._scaled(path, item)
    return len([name for name in "yxz" if scaled and name in scaled[0]])


def _walk(zarr: Any, group: Any, prefix: str) -> list[tuple[str, Any]]:
    """Return the arrays of a group by name; of the levels of an image the first."""
    scales = _first_image(dict(group.attrs)) or {"datasets": ()}
    smaller = {str(entry.get("path")) for entry in scales["datasets"][1:]}
    arrays = []
    for name, node in group.members():
        if isinstance(node, zarr.Array):
            if node.dtype.kind in "biuf" and name not in smaller:
                arrays.append((f"{prefix}{name}", node))
        else:
            arrays += _walk(zarr, node, f"{prefix}{name}/")
    return arrays


def _pyramid_notes(path: Path) -> tuple[FormatNote, ...]:
    levels = len((_multiscales(path) or {"datasets": ()})["datasets"])
    return (FormatNote("pyramid", {"levels": levels}),) if levels > 1 else ()


def _multiscales(path: Path) -> dict[str, Any] | None:
    """Return the first image of an OME-Zarr group (versions 0.1 to 0.5)."""
    metadata = _read_json(path / "zarr.json")
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    return _first_image(_read_json(path / ".zattrs")) or _first_image(attributes)


def _first_image(attributes: Any) -> dict[str, Any] | None:
    """Return the first image that attributes of a group describe."""
    if not isinstance(attributes, dict):
        return None
    inner = attributes.get("ome")
    scales = (inner if isinstance(inner, dict) else attributes).get("multiscales")
    if isinstance(scales, list) and scales and isinstance(scales[0], dict) and scales[0].get("datasets"):
        return dict(scales[0])
    return None


def _read_json(path: Path) -> Any:
    if not path.is_file() or path.stat().st_size > MAX_METADATA_BYTES:
        return {}
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: is no JSON ({error})") from error


def check_store(path: Path) -> None:
    """Refuse a store with links, with codecs that are not known to compute only, or with values that are no numbers.

    Raises:
        DataError: names the file and the codec.
    """
    count = 0
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(folder, name)):
                raise DataError(f"{path}: {name} is a link; put a copy there")
        for name in files:
            if name not in METADATA_NAMES:
                continue
            count += 1
            if count > MAX_METADATA_FILES:
                raise DataError(f"{path}: has more than {MAX_METADATA_FILES:,} arrays")
            for codec in _codecs(_read_json(Path(folder, name))):
                if codec.removeprefix("numcodecs.") not in SAFE_CODECS:
                    raise DataError(
                        f"{path}: {Path(folder, name).relative_to(path)} uses the codec {codec!r}, which is not run"
                    )
        folders[:] = [name for name in folders if name != "c"]  # chunks of version 3


def _codecs(metadata: Any) -> list[str]:
    """Return the codecs that metadata of an array name, at any depth."""
    codec_names: list[str] = []
    if isinstance(metadata, dict):
        for key, value in metadata.items():
            if key in ("compressor", "filters", "codecs", "index_codecs"):
                for codec in value if isinstance(value, list) else [value]:
                    if isinstance(codec, dict):
                        codec_names.append(str(codec.get("id") or codec.get("name") or ""))
            if key != "attributes":
                codec_names += _codecs(value)
    elif isinstance(metadata, list):
        for value in metadata:
            codec_names += _codecs(value)
    return codec_names


FORMATS = (Zarr(),)
