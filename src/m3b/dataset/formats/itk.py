"""MetaImage (MHA, MHD) and NRRD (also NHDR and segmentations of 3D Slicer), with SimpleITK.

SimpleITK dies of a signal on a MetaImage of a million axes and on an NRRD with an unknown field of a thousand letters, and
never ends on a direction of 1e308. Numbers of axes, sizes, types, positions and offsets are therefore checked first, and
whether the file can hold so many voxels.
Formats: https://itk.org/Wiki/MetaIO/Documentation, https://teem.sourceforge.net/nrrd/format.html.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .base import (
    Format,
    FormatNote,
    Image,
    ImageInfo,
    Mask,
    check_memory,
    labels_from_image,
    naming_file,
    smallest_label_type,
    whole_numbers,
)
from .description import sizes
from .errors import DataError
from .geometry import closest_axes, itk_affine, reorient, reorient_grid, restore, spacing_of
from .sidecars import (
    MAX_DEFLATE_RATIO,
    MAX_LINE,
    MAX_SIDE,
    MAX_VOXELS,
    HeaderField,
    check_plain_file,
    check_sidecar,
    find_data_file,
    read_header_fields,
    read_nrrd_pairs,
)
from .values import looks_like_hounsfield

MAX_NUMBER = 1e9
"""Largest coordinate, spacing or direction; in mm that is a thousand km."""
MAX_CHANNELS = 1024
_META_BYTES = {"char": 1, "uchar": 1, "ascii_char": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "long": 4, "ulong": 4,
               "long_long": 8, "ulong_long": 8, "float": 4, "double": 8}  # fmt: skip
"""Bytes of a MetaImage's voxel by its type, without `MET_` and `_ARRAY`; of those that differ by machine the fewest."""
_NRRD_TYPES = {
    1: "signed char|int8|int8_t|uchar|unsigned char|uint8|uint8_t",
    2: "short|short int|signed short|signed short int|int16|int16_t|ushort|unsigned short|unsigned short int|uint16|uint16_t",
    4: "int|signed int|int32|int32_t|uint|unsigned int|uint32|uint32_t|float",
    8: "longlong|long long|long long int|signed long long|signed long long int|int64|int64_t|ulonglong|unsigned long long"
    "|unsigned long long int|uint64|uint64_t|double",
}
_NRRD_BYTES = {word: size for size, words in _NRRD_TYPES.items() for word in words.split("|")}


class ItkFormat(Format):
    """A volume that SimpleITK reads; the grid is turned to LPS: rows to the back, columns to the left, slices to the head."""

    reader: ClassVar[str] = ""
    """The part of SimpleITK that reads it: left to choose by content, it could take one that opens other files."""
    write_suffix: ClassVar[str] = ""

    def check_header(self, path: Path) -> None:
        """Refuse a header that cannot be, and one whose voxels are not in a plain file beside it."""
        check_plain_file(path)
        if not path.exists():
            raise DataError(f"{path}: no such file")
        name = find_data_file(path)
        data = path if name is None else check_sidecar(path, name, required=True)
        self.check_numbers(path, read_header_fields(path), data.stat().st_size)

    @abstractmethod
    def check_numbers(self, path: Path, fields: list[HeaderField], size: int) -> None:
        """Refuse numbers that cannot be, or voxels that the data of so many bytes cannot hold."""

    def sidecars(self, path: Path) -> tuple[Path, ...]:
        with naming_file(path):
            name = find_data_file(path)
            return () if name is None else (path.parent / name,)

    def _information(self, path: Path) -> Any:
        import SimpleITK

        self.check_header(path)
        reader = SimpleITK.ImageFileReader()
        reader.SetImageIO(self.reader)
        reader.SetFileName(str(path))
        reader.ReadImageInformation()
        return reader

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        import SimpleITK

        with naming_file(path):
            reader = self._information(path)
            size, components = reader.GetSize(), reader.GetNumberOfComponents()
            dtype = re.sub(r".*?(\d+)-bit (unsigned|signed)?.*", lambda match: f"{'u' if match[2] == 'unsigned' else ''}int{match[1]}",
                           SimpleITK.GetPixelIDValueAsString(reader.GetPixelID()).removeprefix("vector of "))  # fmt: skip
            dtype = {"32-bit float": "float32", "64-bit float": "float64"}.get(
                SimpleITK.GetPixelIDValueAsString(reader.GetPixelID()).removeprefix("vector of "), dtype
            )
            notes = self.segment_notes(path)
            if len(size) == 2:
                steps = reader.GetSpacing()
                return ImageInfo(self.name, size[::-1], components, dtype, 2, spacing=(steps[1], steps[0]), notes=notes)
            affine, shape = reorient_grid(itk_affine(reader), size[:3])
            volumes = size[3] if len(size) > 3 else 1
            spacing, flat = spacing_of(affine), shape[2] == 1
            return ImageInfo(
                self.name,
                shape[:2] if flat else shape,
                components * volumes,
                dtype,
                2 if flat else 3,
                spacing=spacing[:2] if flat else spacing,
                affine=affine,
                frames=volumes,
                notes=notes,
            )

    def describe(self, path: Path) -> str:
        import SimpleITK

        with naming_file(path):
            reader = self._information(path)
            dims, axes = reader.GetSize(), ""
            if len(dims) == 3:
                code = SimpleITK.DICOMOrientImageFilter().GetOrientationFromDirectionCosines(reader.GetDirection())
                axes = f", orientation {code} (DICOM axes)"
            pixel = SimpleITK.GetPixelIDValueAsString(reader.GetPixelID())
            channels = f", {reader.GetNumberOfComponents()} channels" if reader.GetNumberOfComponents() > 1 else ""
            spacing = " x ".join(f"{float(step):.4g}" for step in reader.GetSpacing())
            info = self.probe(path)
            line = f"volume, {sizes(dims)} voxels (x, y, z), spacing {spacing} mm{axes}, {pixel}{channels}"
            return "\n".join([line, self.describe_content(path, info), *map(str, info.notes)])

    def segment_notes(self, path: Path) -> tuple[FormatNote, ...]:
        """Return notes about the segments of a mask."""
        return ()

    def _read_array(self, path: Path) -> tuple[np.ndarray, tuple[float, ...], np.ndarray | None]:
        """Return (C, rows, columns[, slices]), spacing and affine."""
        import SimpleITK

        reader = self._information(path)
        if reader.GetDimension() > 4:
            raise DataError(f"{path}: has {reader.GetDimension()} axes; at most a series of volumes can be read")
        check_memory(path, (*reader.GetSize(), reader.GetNumberOfComponents()), 1)
        image = reader.Execute()
        colour = image.GetNumberOfComponentsPerPixel() > 1
        check_memory(path, image.GetSize(), image.GetSizeOfPixelComponent() * image.GetNumberOfComponentsPerPixel())
        array = SimpleITK.GetArrayFromImage(image)
        if colour and image.GetDimension() == 4:
            raise DataError(f"{path}: a series of colour volumes {array.shape} cannot be read")
        array = np.moveaxis(array, -1, 0) if colour else array if image.GetDimension() == 4 else array[None]
        steps = image.GetSpacing()
        if image.GetDimension() == 2:
            return np.ascontiguousarray(array), (steps[1], steps[0]), None
        array, affine = reorient(np.transpose(array, (0, 3, 2, 1)), itk_affine(image))
        spacing = spacing_of(affine)
        if array.shape[-1] == 1:
            return np.ascontiguousarray(array[..., 0]), spacing[:2], affine
        return np.ascontiguousarray(array), spacing, affine

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(path):
            array, spacing, affine = self._read_array(path)
            modality = "ct" if affine is not None and looks_like_hounsfield(array) else ""
            return Image(array, spacing, array.ndim - 1, modality, affine=affine, notes=self.segment_notes(path))

    def write_labels(self, array: np.ndarray, reference: Path, stem: Path, item: str = "") -> Path | None:
        import SimpleITK

        with naming_file(reference):
            source = self._information(reference)
            array = array.astype(smallest_label_type(int(array.max(initial=0))))
            if source.GetDimension() == 2:
                image = SimpleITK.GetImageFromArray(array)
            else:
                affine, shape = itk_affine(source), source.GetSize()[:3]
                order, _ = closest_axes(affine)
                grid = tuple(shape[axis] for axis in order)
                array = array[..., None] if array.ndim == 2 else array
                if array.shape != grid:
                    raise DataError(f"{reference}: the image is {grid}, the mask to write {array.shape}")
                file_array = restore(array, affine)
                image = SimpleITK.GetImageFromArray(np.ascontiguousarray(file_array.transpose(2, 1, 0)))
            size, all_axes = image.GetDimension(), source.GetDimension()
            image.SetSpacing(source.GetSpacing()[:size])
            image.SetOrigin(source.GetOrigin()[:size])
            directions = np.array(source.GetDirection()).reshape(all_axes, all_axes)[:size, :size]
            image.SetDirection(directions.ravel().tolist())
            file = Path(f"{stem}{self.write_suffix}")
            SimpleITK.WriteImage(image, str(file), True)
            return file

    def file_grid(self, path: Path, item: str = "") -> tuple[np.ndarray, tuple[int, ...]] | None:
        with naming_file(path):
            reader = self._information(path)
            return None if reader.GetDimension() < 3 else (itk_affine(reader), tuple(reader.GetSize()[:3]))


class MetaImage(ItkFormat):
    """MHA, and MHD with its file of voxels."""

    name = "metaimage"
    suffixes = (".mha", ".mhd")
    reader = "MetaImageIO"
    write_suffix = ".mha"

    def check_numbers(self, path: Path, fields: list[HeaderField], size: int) -> None:
        axes = _check_whole(path, "NDims", _single_value(path, fields, "NDims"), 2, 4)
        voxels = _check_sizes(path, "DimSize", _single_value(path, fields, "DimSize").split(), axes)
        limits = {
            "HeaderSize": (-1, size),
            "CompressedDataSize": (0, size),
            "ElementNumberOfChannels": (1, MAX_CHANNELS),
        }
        for field, (low, high) in limits.items():
            for value in _values(fields, field):
                number = _check_whole(path, field, value, low, high)
                voxels *= number if field == "ElementNumberOfChannels" else 1
        for field, count in (("TransformMatrix", axes * axes), ("Rotation", axes * axes), ("Orientation", axes * axes),
                             ("Offset", axes), ("Position", axes), ("Origin", axes), ("CenterOfRotation", axes),
                             ("ElementSpacing", axes), ("ElementSize", axes)):  # fmt: skip
            for value in _values(fields, field):
                words = value.split()
                _check_finite(path, field, words)
                if len(words) < count:
                    raise DataError(
                        f"{path}: its header has {len(words)} numbers in {field}, and {axes} axes need {count}"
                    )
        kind = _single_value(path, fields, "ElementType").upper()
        itemsize = _META_BYTES.get(kind.removeprefix("MET_").removesuffix("_ARRAY").lower())
        if itemsize is None:
            raise DataError(f"{path}: its header says ElementType {kind[:60]!r}, which is no type of voxels")
        packed = any(value[:1] in "tTyY1" for value in _values(fields, "CompressedData"))
        is_text = any(value[:1] in "fFnN0" for value in _values(fields, "BinaryData"))
        _check_capacity(path, voxels if is_text else voxels * itemsize, size * MAX_DEFLATE_RATIO if packed else size)


class Nrrd(ItkFormat):
    """NRRD, NHDR with its file of voxels, and segmentations of 3D Slicer (.seg.nrrd) with layers and a cropped extent."""

    name = "nrrd"
    suffixes = (".nrrd", ".nhdr")
    magic = ((0, b"NRRD00"),)
    reader = "NrrdImageIO"
    write_suffix = ".nrrd"

    def check_numbers(self, path: Path, fields: list[HeaderField], size: int) -> None:
        with path.open("rb") as file:
            first = re.split(rb"[\r\n]", file.read(20))[0].decode("latin-1")
        if not re.fullmatch(r"NRRD000[1-5]", first.strip()):
            raise DataError(f"{path}: begins with {first!r}, which is no version of NRRD")
        values = _unique_values(path, fields)
        axes = _check_whole(path, "dimension", values.get("dimension", ""), 2, 5)
        voxels = _check_sizes(path, "sizes", values.get("sizes", "").split(), axes)
        for field in ("spacings", "thicknesses", "axis mins", "axis maxs"):
            if value := values.get(field.replace(" ", "")):
                _check_finite(path, field, value.split(), allow_nan=True)
        for field in ("space directions", "space origin", "measurement frame"):
            if value := values.get(field.replace(" ", "")):
                _check_vectors(path, field, value)
        for field, low, high in (("byte skip", -1, size), ("line skip", 0, size), ("space dimension", 1, 4)):
            if value := values.get(field.replace(" ", "")):
                _check_whole(path, field, value, low, high)
        kind, encoding = " ".join(values.get("type", "").lower().split()), values.get("encoding", "").lower()
        if kind not in _NRRD_BYTES:
            raise DataError(f"{path}: its header says type {kind[:60]!r}, which is no type of voxels")
        is_text = encoding in ("text", "txt", "ascii", "hex")
        if is_text or encoding in ("raw", "gzip", "gz"):
            packed = encoding in ("gzip", "gz")
            _check_capacity(
                path, voxels if is_text else voxels * _NRRD_BYTES[kind], size * MAX_DEFLATE_RATIO if packed else size
            )

    def segment_notes(self, path: Path) -> tuple[FormatNote, ...]:
        segments = _read_segments(path)
        if not segments:
            return ()
        return (FormatNote("segments", {"names": [str(segment["name"]) for segment in segments]}),)

    def read_labels(self, path: Path, item: str = "") -> Mask:
        """Return the labels; segments of 3D Slicer keep their names and colours, and get numbers of their own if in layers."""
        with naming_file(path):
            segments = _read_segments(path)
            if not segments:
                return labels_from_image(self.read(path), str(path))
            array, spacing, affine = self._read_array(path)
            layers = np.stack([whole_numbers(layer, str(path)) for layer in array])
            if len(layers) == 1:
                numbers = {int(segment["label"]): segment for segment in segments}
                return Mask(
                    layers[0],
                    spacing,
                    affine,
                    _segment_colours(numbers),
                    {n: str(s["name"]) for n, s in numbers.items()},
                )
            numbers = dict(enumerate(segments, 1))
            combined = np.zeros(layers.shape[1:], smallest_label_type(len(segments)))
            own_layers = np.zeros(layers.shape, combined.dtype)
            for number, segment in numbers.items():
                layer = int(segment["layer"])
                if layer < len(layers):
                    segment_voxels = layers[layer] == int(segment["label"])
                    own_layers[layer][segment_voxels] = number
                    combined[segment_voxels] = number
            overlapping = int(np.count_nonzero((own_layers != 0).sum(axis=0) > 1))
            notes = (FormatNote("overlapping_segments", {"voxels": overlapping}),) if overlapping else ()
            names = {number: str(segment["name"]) for number, segment in numbers.items()}
            return Mask(combined, spacing, affine, _segment_colours(numbers), names, own_layers, notes)


def _read_segments(path: Path) -> list[dict[str, Any]]:
    """Return name, label, layer and colour of the segments that 3D Slicer writes into the header."""
    pairs = read_nrrd_pairs(path)
    segments = []
    for number in range(10_000):
        prefix = f"Segment{number}_"
        if f"{prefix}Name" not in pairs and f"{prefix}ID" not in pairs:
            break
        label, layer = (
            pairs.get(prefix + key, default) for key, default in (("LabelValue", str(number + 1)), ("Layer", "0"))
        )
        if not (label.strip().isdecimal() and layer.strip().isdecimal()):
            raise DataError(
                f"{path}: segment {number} has the label {label[:40]!r} in layer {layer[:40]!r}; whole numbers can be"
            )
        name = pairs.get(f"{prefix}Name") or pairs.get(f"{prefix}ID", "")
        segments.append(
            {"name": name, "label": int(label), "layer": int(layer), "colour": pairs.get(f"{prefix}Color", "")}
        )
    return segments


def _segment_colours(segments: Mapping[int, Mapping[str, Any]]) -> dict[int, tuple[int, int, int]]:
    colours: dict[int, tuple[int, int, int]] = {}
    for number, segment in segments.items():
        shares = re.findall(r"[\d.]+", str(segment["colour"]))
        if len(shares) == 3:
            red, green, blue = (min(255, round(255 * float(share))) for share in shares)
            colours[number] = (red, green, blue)
    return colours


# --- numbers of headers -------------------------------------------------------------------------------------------


def _check_whole(path: Path, field: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?\d{1,15}", text) or not low <= int(text) <= high:
        raise DataError(f"{path}: its header says {field} {text[:60]!r}; a whole number from {low} to {high} can be")
    return int(text)


def _check_finite(path: Path, field: str, words: Iterable[str], *, allow_nan: bool = False) -> None:
    for word in words:
        try:
            number = float(word)
        except ValueError:
            number = math.inf
        if not (allow_nan and math.isnan(number)) and not abs(number) <= MAX_NUMBER:
            raise DataError(f"{path}: its header says {field} {word[:60]!r}; a number up to {MAX_NUMBER:g} can be")


def _check_sizes(path: Path, field: str, words: list[str], axes: int) -> int:
    """Return the number of voxels."""
    if len(words) != axes:
        raise DataError(f"{path}: its header has {axes} axes, and {len(words)} sizes in {field}")
    count = math.prod(_check_whole(path, field, word, 1, MAX_SIDE) for word in words)
    if count > MAX_VOXELS:
        raise DataError(f"{path}: its header declares {count:,} voxels; more than {MAX_VOXELS:,} are not opened")
    return count


def _check_vectors(path: Path, field: str, text: str) -> None:
    """Accept vectors in parentheses of as many finite numbers each; `none` stands for an axis that is not one of space."""
    remainder = re.sub(r"\([^()]*\)", " ", text)
    vectors = [vector.split(",") for vector in re.findall(r"\(([^()]*)\)", text)]
    if any(word.lower() != "none" for word in remainder.split()) or len({len(vector) for vector in vectors}) > 1:
        raise DataError(f"{path}: its header says {field} {text[:60]!r}; vectors of one length can be")
    for vector in vectors:
        _check_finite(path, field, vector, allow_nan=True)


def _check_capacity(path: Path, need: int, capacity: int) -> None:
    if need > capacity:
        raise DataError(
            f"{path}: its header declares {need:,} bytes of voxels, and its data can hold {capacity:,} at most"
        )


def _values(fields: list[HeaderField], key: str) -> list[str]:
    return [field.value for field in fields if field.key == key]


def _single_value(path: Path, fields: list[HeaderField], key: str) -> str:
    values = _values(fields, key)
    if len(values) != 1:
        raise DataError(f"{path}: its header names {key} {len(values)} times; once is right")
    return values[0]


def _unique_values(path: Path, fields: list[HeaderField]) -> dict[str, str]:
    values: dict[str, str] = {}
    for field in fields:
        if field.key in values:
            raise DataError(f"{path}: its header has the field {field.key!r} twice")
        if len(field.value) > MAX_LINE:
            raise DataError(f"{path}: its header has {len(field.value)} characters in {field.key!r}; {MAX_LINE} can be")
        values[field.key] = field.value.strip()
    return values


FORMATS = (MetaImage(), Nrrd())
