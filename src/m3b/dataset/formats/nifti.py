"""NIfTI-1 and -2, pairs of .hdr and .img, Analyze, and MGH, with nibabel."""

from __future__ import annotations

import bz2
import gzip
import math
import re
import struct
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from .base import (
    Format,
    FormatNote,
    Image,
    ImageInfo,
    Mask,
    check_memory,
    labels_from_colours,
    naming_file,
    parse_number,
    smallest_label_type,
    whole_numbers,
)
from .description import sizes
from .errors import DataError
from .geometry import RAS_TO_LPS, closest_axes, nifti_affine, reorient, reorient_grid, restore, spacing_of
from .sidecars import MAX_DEFLATE_RATIO, MAX_SIDE, MAX_VOXELS, check_plain_file
from .values import looks_like_hounsfield

_NIFTI_BYTES = {2: 1, 4: 2, 8: 4, 16: 4, 32: 8, 64: 8, 128: 3, 256: 1, 512: 2, 768: 4, 1024: 8, 1280: 8, 1536: 16,
                1792: 16, 2048: 32, 2304: 4}  # fmt: skip
"""Bytes of a NIfTI voxel by the code of its type (nifti1.h)."""
_MGH_BYTES = {0: 1, 1: 4, 3: 4, 4: 2, 10: 2}
_MM_PER_UNIT = {"meter": 1000.0, "micron": 0.001}
LABEL_TOLERANCE = 1e-3
MAX_BZIP2_RATIO = 1 << 20
"""Bytes of voxels that one byte of a file packed by bzip2 can stand for, at most (45 bytes a block of 900,000, repeated)."""


class NibabelFormat(Format):
    """A volume that nibabel reads; the grid is turned to LPS: rows to the back, columns to the left, slices to the head."""

    @abstractmethod
    def check_header(self, path: Path) -> None:
        """Refuse a header that declares what the file cannot hold."""

    def _load(self, path: Path) -> Any:
        import nibabel

        check_plain_file(path)
        for sidecar in self.sidecars(path):
            check_plain_file(sidecar)
        self.check_header(path)
        return nibabel.load(path)

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with naming_file(path):
            stored = self._load(path)
            affine, sizes = _grid(stored)
            turned, shape = reorient_grid(affine, sizes)
            flat = shape[2] == 1
            spacing = spacing_of(turned)
            volumes = int(np.prod(stored.shape[3:], dtype=np.int64))
            names = np.dtype(stored.header.get_data_dtype()).names
            channels = 3 if names else 1 if parse_number(path, item, ("volume",)) else volumes
            scaled = _is_scaled(stored)
            return ImageInfo(
                self.name,
                shape[:2] if flat else shape,
                channels,
                "uint8" if names else "float32" if scaled else str(stored.header.get_data_dtype()),
                2 if flat else 3,
                spacing=spacing[:2] if flat else spacing,
                affine=turned,
                bits_stored=None if names else 8 * np.dtype(stored.header.get_data_dtype()).itemsize,
                photometric="RGB" if names else "",
                frames=1 if names else volumes,
                notes=_header_notes(stored),
            )

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(path):
            stored = self._load(path)
            array, affine = _oriented(path, stored, item, scaled=True)
            notes = _header_notes(stored)
            if array.dtype.kind == "c":
                array = np.abs(array)
                notes = (*notes, FormatNote("complex_magnitude"))
            modality = "ct" if looks_like_hounsfield(array) else ""
            spacing = spacing_of(affine)
            if array.shape[-1] == 1:
                return Image(np.ascontiguousarray(array[..., 0]), spacing[:2], 2, modality, affine=affine, notes=notes)
            return Image(np.ascontiguousarray(array), spacing, 3, modality, affine=affine, notes=notes)

    def read_labels(self, path: Path, item: str = "") -> Mask:
        """Return the labels as written: scaled values that are whole up to rounding, else the integers before the slope."""
        with naming_file(path):
            stored = self._load(path)
            array, affine = _oriented(path, stored, item, scaled=False)
            colours: dict[int, tuple[int, int, int]] = {}
            notes = _header_notes(stored)
            if np.dtype(stored.header.get_data_dtype()).names:
                labels, colours = labels_from_colours(array)
                notes = (*notes, FormatNote("labels_from_colours", {"count": len(colours)}))
            elif array.shape[0] != 1:
                raise DataError(f"{path}: a mask must have one channel, this has {array.shape[0]} volumes")
            elif _is_scaled(stored) and array.dtype.kind in "iu":
                labels, before = _labels_of_scaled(array[0], stored, str(path))
                notes = (*notes, FormatNote("labels_before_slope", {"slope": _slope(stored)[0]})) if before else notes
            else:
                values = array[0] if not _is_scaled(stored) else array[0] * _slope(stored)[0] + _slope(stored)[1]
                labels = whole_numbers(values, str(path))
            spacing = spacing_of(affine)
            if labels.shape[-1] == 1:
                return Mask(np.ascontiguousarray(labels[..., 0]), spacing[:2], affine, colours, notes=notes)
            return Mask(np.ascontiguousarray(labels), spacing, affine, colours, notes=notes)

    def write_labels(self, array: np.ndarray, reference: Path, stem: Path, item: str = "") -> Path | None:
        import nibabel

        with naming_file(reference):
            stored = self._load(reference)
            affine, shape = _grid(stored)
            order, _ = closest_axes(affine)
            grid = tuple(shape[axis] for axis in order)
            array = array[..., None] if array.ndim == 2 else array
            if array.shape != grid:
                raise DataError(f"{reference}: the image is {grid}, the mask to write {array.shape}")
            array = array.astype(smallest_label_type(int(array.max(initial=0))))
            file_array = restore(array, affine)
            header = nibabel.Nifti1Header()
            header.set_data_dtype(file_array.dtype)
            image = nibabel.Nifti1Image(file_array, stored.affine, header)
            for name in ("qform", "sform"):
                code = int(stored.header.get(f"{name}_code", 0)) if hasattr(stored.header, "get") else 0
                getattr(image, f"set_{name}")(stored.affine, code or 1)
            if hasattr(stored.header, "get_xyzt_units") and stored.header.get_xyzt_units()[0] in _MM_PER_UNIT:
                image.header.set_xyzt_units(stored.header.get_xyzt_units()[0])
            file = Path(f"{stem}.nii.gz")
            nibabel.save(image, file)
            return file

    def file_grid(self, path: Path, item: str = "") -> tuple[np.ndarray, tuple[int, ...]] | None:
        with naming_file(path):
            return _grid(self._load(path))

    def describe(self, path: Path) -> str:
        import nibabel

        with naming_file(path):
            stored = self._load(path)
            header, shape = stored.header, stored.shape
            axes = "".join(code or "?" for code in nibabel.aff2axcodes(stored.affine))
            units = header.get_xyzt_units()[0] if hasattr(header, "get_xyzt_units") else "mm"
            spacing = " x ".join(f"{float(step):.4g}" for step in header.get_zooms())
            kind = type(stored).__name__.replace("Image", "")
            line = f"{kind} volume, {sizes(shape)} voxels, spacing {spacing} "
            line += f"{units if units != 'unknown' else 'mm (unit not stated)'}, orientation {axes}, {header.get_data_dtype()}"
            lines = [line]
            if len(shape) > 3:
                lines.append(f"{len(shape)} dimensions: the last ones are time or channels")
            lines.append(self.describe_content(path, self.probe(path)))
            if _is_scaled(stored):
                slope, intercept = _slope(stored)
                lines.append(
                    f"stored values are scaled by {slope} and shifted by {intercept}; the range is of scaled values"
                )
            lines += [str(note) for note in _header_notes(stored) if note.code != "no_orientation"]
            if any(note.code == "no_orientation" for note in _header_notes(stored)):
                lines.append("no orientation is stated in the header (qform and sform code 0)")
            return "\n".join(lines)


def _grid(stored: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return LPS affine in mm, and the sizes of the three axes of space."""
    affine = nifti_affine(stored.affine)
    units = stored.header.get_xyzt_units()[0] if hasattr(stored.header, "get_xyzt_units") else "mm"
    affine[:3] *= _MM_PER_UNIT.get(units, 1.0)
    return affine, (*(int(size) for size in stored.shape[:3]), 1, 1)[:3]


def _slope(stored: Any) -> tuple[float, float]:
    slope, intercept = getattr(stored.dataobj, "slope", 1.0), getattr(stored.dataobj, "inter", 0.0)
    return float(slope), float(intercept)


def _is_scaled(stored: Any) -> bool:
    return _slope(stored) != (1.0, 0.0)


def _oriented(path: Path, stored: Any, item: str, *, scaled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (C, rows, columns, slices) and its affine, with or without slope and intercept."""
    shape = tuple(int(size) for size in stored.shape)
    dtype = np.dtype(stored.header.get_data_dtype())
    part = parse_number(path, item, ("volume",))
    if len([size for size in shape[3:] if size > 1]) > 1:
        raise DataError(f"{path}: has {len(shape)} axes {shape}; at most a series of volumes can be read")
    slope_applies = scaled and _is_scaled(stored)
    needed_shape = shape[:3] if part else shape
    check_memory(
        path,
        needed_shape,
        4 if slope_applies else dtype.itemsize,
        f"name one volume as {path}#volume=0" if len(shape) > 3 else "",
    )
    count = int(np.prod(shape[3:], dtype=np.int64))
    if part and part[1] >= count:
        raise DataError(f"{path}#{item}: has {count} volumes, counted from 0")
    proxy = stored.dataobj
    index: Any = Ellipsis
    array: Any
    if part:
        index = (slice(None),) * 3 + tuple(part[1] if size > 1 else 0 for size in shape[3:])
    if slope_applies:
        array = (
            np.asarray(proxy[index], np.float32) if part else stored.get_fdata(dtype=np.float32, caching="unchanged")
        )
    elif _is_scaled(stored):
        array = np.asarray(proxy.get_unscaled())[index]
    else:
        array = np.asarray(proxy[index] if part else proxy)
    if dtype.names:
        array = np.stack([array[name] for name in ("R", "G", "B")], axis=0).reshape(3, *(*shape[:3], 1, 1)[:3])
    else:
        volumes = 1 if part else count
        array = array.reshape(*(*shape[:3], 1, 1)[:3], volumes)
        array = np.moveaxis(array, 3, 0)
    affine, _ = _grid(stored)
    return reorient(array, affine)


def _labels_of_scaled(stored_values: np.ndarray, stored: Any, name: str) -> tuple[np.ndarray, bool]:
    """Return labels, and whether they are the integers before the slope.

    A writer that scales rounds to half a step of the slope: scaled values that lie so close to different whole numbers
    are these.
    """
    slope, intercept = _slope(stored)
    distinct, places = np.unique(stored_values, return_inverse=True)
    values = distinct.astype(np.float64) * slope + intercept
    rounded = np.round(values)
    tolerance = 0.5 * abs(slope) + LABEL_TOLERANCE
    if (
        np.abs(values - rounded).max(initial=0) <= min(tolerance, 0.5)
        and len(np.unique(rounded)) == len(rounded)
        and rounded.min(initial=0) >= 0
    ):
        top = smallest_label_type(int(rounded.max(initial=0)))
        return rounded.astype(top)[places].reshape(stored_values.shape), False
    return whole_numbers(stored_values, name), True


def _header_notes(stored: Any) -> tuple[FormatNote, ...]:
    header, notes = stored.header, []
    if hasattr(header, "get_sform") and not (int(header["qform_code"]) or int(header["sform_code"])):
        notes.append(FormatNote("no_orientation"))
    if len(stored.shape) == 4 and stored.shape[3] > 1 and hasattr(header, "get_xyzt_units"):
        unit, step = header.get_xyzt_units()[1], float((*header.get_zooms(), 0.0)[3])
        seconds = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}.get(unit, 0.0) * step
        if seconds > 0:
            notes.append(FormatNote("volumes_over_time", {"count": int(stored.shape[3]), "seconds": round(seconds, 6)}))
    return tuple(notes)


class Nifti(NibabelFormat):
    """NIfTI in one file or a pair, and Analyze."""

    name = "nifti"
    suffixes = (".nii", ".nii.gz", ".nii.bz2", ".hdr", ".img", ".hdr.gz", ".img.gz")
    magic = ((344, b"n+1\0"), (344, b"ni1\0"), (4, b"n+2\0\r\n\x1a\n"), (4, b"ni2\0\r\n\x1a\n"))

    def sidecars(self, path: Path) -> tuple[Path, ...]:
        match = re.fullmatch(r"(?is)(.+)\.(hdr|img)(\.gz)?", path.name)
        if not match:
            return ()
        sidecar = {"hdr": "img", "img": "hdr", "HDR": "IMG", "IMG": "HDR"}.get(match[2], "img")
        return (path.with_name(f"{match[1]}.{sidecar}{match[3] or ''}"), path.with_name(f"{match[1]}.mat"))

    def check_header(self, path: Path) -> None:
        header_path = path
        if self.sidecars(path) and ".img" in path.name.lower()[-7:]:
            header_path = self.sidecars(path)[0]
            if not header_path.exists():
                raise DataError(f"{path}: its header {header_path.name} is missing; put it into the same folder")
        voxels = path if header_path is not path else self.sidecars(path)[0] if self.sidecars(path) else path
        if not voxels.exists():
            raise DataError(f"{path}: its voxels {voxels.name} are missing; put them into the same folder")
        head, packed = _read_head(header_path)
        if len(head) < 348:
            raise DataError(f"{path}: is cut off: {len(head)} bytes of header, and 348 are needed; copy it again")
        ratio = MAX_BZIP2_RATIO if voxels.suffix.lower() == ".bz2" else MAX_DEFLATE_RATIO
        capacity = voxels.stat().st_size * (ratio if packed or voxels.suffix.lower() == ".gz" else 1)
        for order in "<>":
            (length,) = struct.unpack_from(order + "i", head)
            if length == 348:
                sizes, (code,) = struct.unpack_from(order + "8h", head, 40), struct.unpack_from(order + "h", head, 70)
                (offset,) = struct.unpack_from(order + "f", head, 108)
            elif length == 540 and len(head) >= 540:
                sizes, (code,) = struct.unpack_from(order + "8q", head, 16), struct.unpack_from(order + "h", head, 12)
                (offset,) = struct.unpack_from(order + "q", head, 168)
            else:
                continue
            _check_sizes(path, sizes, code, offset, capacity)
            return
        raise DataError(f"{path}: its header is neither NIfTI nor Analyze (its first number is not 348 or 540)")


def _check_sizes(path: Path, sizes: tuple[int, ...], code: int, offset: float, capacity: int) -> None:
    if not 1 <= sizes[0] <= 7:
        raise DataError(f"{path}: its header says {sizes[0]} axes (dim[0]); 1 to 7 can be")
    declared = sizes[1 : sizes[0] + 1]
    for number, size in enumerate(declared, 1):
        if not 1 <= size <= MAX_SIDE:
            raise DataError(f"{path}: its header says dim[{number}] = {size}; 1 to {MAX_SIDE} can be")
    voxels = math.prod(declared)
    if voxels > MAX_VOXELS:
        raise DataError(f"{path}: its header declares {voxels:,} voxels; more than {MAX_VOXELS:,} are not opened")
    if code not in _NIFTI_BYTES:
        raise DataError(f"{path}: its header says datatype {code}, which is no type of voxels")
    if not 0 <= offset <= capacity:  # NaN too
        raise DataError(f"{path}: its header says vox_offset {offset}; its data has {capacity:,} bytes at most")
    need = voxels * _NIFTI_BYTES[code]
    if need > capacity:
        raise DataError(
            f"{path}: its header declares {need:,} bytes of voxels, and its data can hold {capacity:,} at most"
        )


def _read_head(path: Path) -> tuple[bytes, bool]:
    """Return the bytes of the header, and whether they are compressed."""
    with path.open("rb") as file:
        head = file.read(540)
    opener: Any = gzip.open if head[:2] == b"\x1f\x8b" else bz2.open if head[:3] == b"BZh" else None
    if opener is None:
        return head, False
    with opener(path) as stream:
        try:
            return stream.read(540), True
        except (EOFError, OSError) as error:
            raise DataError(f"{path}: is cut off or damaged ({error}); copy it again") from error


class Mgh(NibabelFormat):
    """MGH and MGZ of FreeSurfer."""

    name = "mgh"
    suffixes = (".mgh", ".mgz", ".mgh.gz")

    def check_header(self, path: Path) -> None:
        head, packed = _read_head(path)
        if len(head) < 284:
            raise DataError(f"{path}: is cut off: {len(head)} bytes of header, and 284 are needed; copy it again")
        version, *sizes, code = struct.unpack_from(">6i", head)
        if version != 1:
            raise DataError(f"{path}: its header is not that of an MGH volume")
        if code not in _MGH_BYTES:
            raise DataError(f"{path}: its header says type {code}, which is no type of voxels")
        for number, size in enumerate(sizes, 1):
            if not 1 <= size <= MAX_SIDE:
                raise DataError(f"{path}: its header says size {number} = {size}; 1 to {MAX_SIDE} can be")
        need = math.prod(sizes) * _MGH_BYTES[code]
        capacity = path.stat().st_size * (MAX_DEFLATE_RATIO if packed else 1)
        if need > capacity:
            raise DataError(
                f"{path}: its header declares {need:,} bytes of voxels, and its data can hold {capacity:,} at most"
            )


def write_volume_labels(array: np.ndarray, stem: Path, grid: tuple[np.ndarray, tuple[int, ...]]) -> Path:
    """Write a mask in the axes of `read_image` as NIfTI, for an image whose own axes lie as `grid` says."""
    affine, shape = reorient_grid(*grid)
    if (*array.shape, 1)[:3] != shape:
        raise DataError(f"{stem}: the image is {shape}, the mask to write {array.shape}")
    return save_volume_labels(array, stem, affine)


def save_volume_labels(array: np.ndarray, stem: Path, affine: np.ndarray) -> Path:
    """Write a mask as NIfTI; `affine` leads from the axes of the array to LPS."""
    import nibabel

    file = Path(f"{stem}.nii.gz")
    nibabel.save(nibabel.Nifti1Image(array[..., None] if array.ndim == 2 else array, RAS_TO_LPS @ affine), file)
    return file


FORMATS = (Nifti(), Mgh())
