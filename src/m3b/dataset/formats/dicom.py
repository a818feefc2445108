"""DICOM with pydicom: single images, frames, enhanced objects with their own rescale and geometry, and series of slices.

A series becomes a volume only if its slices say where they lie, once each, at even distances. What differs from that is
a note (localizers left out, doubled slices, few missing slices that were interpolated, a tilted gantry, several phases),
or a DataError if the volume would be distorted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from .base import (
    Format,
    FormatNote,
    Image,
    ImageInfo,
    check_memory,
    merge_equal_channels,
    naming_file,
    natural_key,
    parse_number,
    spread_frames,
    stack_frames,
)
from .errors import DataError
from .geometry import reorient, reorient_grid, spacing_of

MODALITIES = {"CT": "ct", "MR": "mr", "CR": "xray", "DX": "xray", "RF": "xray", "MG": "xray", "US": "us", "PT": "pet"}
EVEN_TOLERANCE = 0.05
"""Share of the slice distance by which positions may differ from an even grid; headers round to 0.01 or 0.1 mm."""
ROUNDING_MM = 0.1
MAX_MISSING_IN_A_ROW = 2
"""Slices that are interpolated between two neighbours; of more, nothing is known."""
MAX_MISSING_SHARE = 0.1
MIN_REGION_GAPS = 3
"""Equal distances in a row that are a region with a slice distance of its own."""
TILT_TOLERANCE = 0.5
"""Degrees between the way from slice to slice and their normal, from which on a gantry was tilted."""
_UNIT_LIST = """
HU HU_MOD OD MGML Z_EFF ED EDW PCT GY RELATIVE CNTS CM2 CM2ML PCNT CPS BQML MGMINML UMOLMINML MLMING MLG 1CM UMOLML PROPCNTS
PROPCPS MLMINML MLML GML STDDEV
"""
UNITS = frozenset(_UNIT_LIST.split())
"""Defined terms of RescaleType (DICOM PS3.3 C.11.1.1.2), Units of PET (C.8.9.1.1.3) and DoseUnits (C.8.8.3)."""
DERIVED_MODALITIES = ("SEG", "RTDOSE")
"""Objects with pixels that are made from a series, and no slices of it if they lie in its folder."""
PHASE_KEYS = (
    "TemporalPositionIdentifier", "TemporalPositionIndex", "AcquisitionNumber", "EchoNumbers", "EchoTime",
    "DiffusionBValue", "TriggerTime", "InversionTime", "NominalCardiacTriggerDelayTime", "ImageType", "AcquisitionTime",
    "ContentTime", "KVP",
)  # fmt: skip
"""Fields that tell several volumes of one series apart, the first one that does so counts."""
_HEADER_KEYS = (
    "SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "Modality", "ImageType", "Rows", "Columns", "NumberOfFrames",
    "SamplesPerPixel", "PhotometricInterpretation", "BitsAllocated", "BitsStored", "PixelRepresentation", "PixelSpacing",
    "ImagerPixelSpacing", "NominalScannedPixelSpacing", "SliceThickness", "SpacingBetweenSlices", "ImagePositionPatient",
    "ImageOrientationPatient", "SliceLocation", "InstanceNumber", "RescaleSlope", "RescaleIntercept", "RescaleType", "Units",
    "WindowCenter", "WindowWidth", "VOILUTFunction", "GridFrameOffsetVector", "DoseGridScaling", "DoseUnits",
    "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence", "DetectorInformationSequence", "LossyImageCompression",
    "ModalityLUTSequence", "PlanarConfiguration", *PHASE_KEYS,
)  # fmt: skip
_LOSSY_SYNTAXES = {"1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51", "1.2.840.10008.1.2.4.81", "1.2.840.10008.1.2.4.91",
                   "1.2.840.10008.1.2.4.203"}  # fmt: skip


@dataclass(frozen=True)
class Slice:
    """One frame of a file: where it lies, how its values are rescaled, and what tells it from others."""

    file: Path
    frame: int
    rows: int
    columns: int
    position: tuple[float, ...] | None
    axes: tuple[float, ...] | None
    spacing: tuple[float, float] | None
    slope: float
    intercept: float
    instance: float
    series: str
    sop: str
    localizer: bool
    phases: tuple[str, ...]

    @property
    def depth(self) -> float | None:
        """mm along the normal of the slice."""
        if self.position is None or self.axes is None:
            return None
        return float(np.dot(self.normal, self.position))

    @property
    def normal(self) -> np.ndarray:
        """The unit normal of the slice."""
        axes = np.array(self.axes, float)
        return np.cross(axes[:3], axes[3:])

    @property
    def group(self) -> tuple[Any, ...]:
        """Slices of one volume agree in this: series, size, pixel spacing and direction."""
        direction = tuple(round(value, 2) + 0.0 for value in self.axes) if self.axes else None
        spacing = tuple(round(value, 3) for value in self.spacing) if self.spacing else None
        return self.series, self.rows, self.columns, direction, spacing


@dataclass(frozen=True)
class SliceStack:
    """Slices of one volume in order, the affine of (row, column, slice) before it is turned to LPS, and what was found."""

    slices: tuple[Slice, ...]
    affine: np.ndarray | None
    notes: tuple[FormatNote, ...]
    places: tuple[float, ...] | None = None
    """Of uneven slices, for each slice of the even grid its place among `slices`."""

    @property
    def count(self) -> int:
        """Slices of the volume."""
        return len(self.places) if self.places is not None else len(self.slices)


class Dicom(Format):
    """A DICOM file of any name, with or without preamble. Frames are `#frames=N` and `#frame=N`."""

    name = "dicom"
    suffixes = (".dcm", ".dicom", ".ima", ".dic")
    magic = ((128, b"DICM"),)

    def has_magic(self, head: bytes) -> bool:
        return super().has_magic(head) or starts_with_elements(head)

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with naming_file(path):
            header = read_header(path)
            slices = slices_of(path, header)
            part = parse_number(path, item, ("frames", "frame"))
            stack = stack_slices(path, slices) if len(slices) > 1 and part is None else None
            info = (
                _probe_stack(self.name, stack, header)
                if stack is not None
                else _probe_flat(self.name, slices, header, part)
            )
            meta = getattr(header, "file_meta", None)
            lossy = (
                str(header.get("LossyImageCompression", "")) == "01"
                or str(getattr(meta, "TransferSyntaxUID", "")) in _LOSSY_SYNTAXES
            )
            return replace(info, lossy=lossy)

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(path):
            header = read_header(path)
            slices = slices_of(path, header)
            part = parse_number(path, item, ("frames", "frame"))
            if len(slices) > 1 and part is None:
                return read_stack(path, stack_slices(path, slices))
            array = read_pixels(path)
            modality = MODALITIES.get(str(header.get("Modality", "")), "")
            if part is not None and part[0] == "frame" and part[1] >= len(slices):
                raise DataError(f"{path}#{item}: the file has {len(slices)} frames, counted from 0")
            places = (
                [0]
                if part is None
                else [part[1]]
                if part[0] == "frame"
                else spread_frames(len(slices), max(1, part[1]))
            )
            frames = [_rescaled(array[place], slices[place]) for place in places]
            if len(frames) > 1:
                return stack_frames(frames, modality)
            first = slices[places[0]]
            stored_range, window = _value_ranges(header, first)
            affine = _plane_affine(first)
            notes = (FormatNote("localizer"),) if first.localizer else ()
            return Image(np.ascontiguousarray(frames[0]), first.spacing, 2, modality, affine=affine, stored_range=stored_range,
                         window=window, unit=_unit(header), notes=notes)  # fmt: skip

    def describe(self, path: Path) -> str:
        with naming_file(path):
            header = read_header(path)
            kind = getattr(header.get("SOPClassUID"), "name", "unknown class")
            if "Rows" not in header:
                return f"DICOM, {kind}, without pixels"
            return f"DICOM, {kind}; {super().describe(path)}"


# --- files --------------------------------------------------------------------------------------------------------


def starts_with_elements(head: bytes) -> bool:
    """Return whether a file without preamble begins with three DICOM elements of groups 0002 and 0008 in rising order."""
    for order in ("little", "big"):
        offset, last, count = 0, (0, 0), 0
        while count < 3 and offset + 12 <= len(head):
            group = int.from_bytes(head[offset : offset + 2], order)
            tag = (group, int.from_bytes(head[offset + 2 : offset + 4], order))
            if group not in (0x0002, 0x0008) or (tag <= last and count):
                break
            kind = head[offset + 4 : offset + 6]
            if kind.isalpha() and kind.isupper():
                wide = kind in (b"OB", b"OW", b"SQ", b"UN", b"UT")
                start = offset + 8 if wide else offset + 6
                length = int.from_bytes(head[start : start + (4 if wide else 2)], order)
                offset = start + (4 if wide else 2) + length
            else:
                length = int.from_bytes(head[offset + 4 : offset + 8], order)
                offset += 8 + length
            if length > 1 << 16:
                break
            last, count = tag, count + 1
        if count >= 3:
            return True
    return False


def read_header(path: Path) -> Any:
    """Return the fields of a file that this module uses. Raises DataError if it is not DICOM."""
    state = path.stat()
    return _read_header(str(path), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4096)
def _read_header(path: str, modified: int, size: int) -> Any:
    import pydicom

    header = pydicom.dcmread(path, force=True, stop_before_pixels=True, specific_tags=list(_HEADER_KEYS))
    if "SOPClassUID" not in header and "Rows" not in header and "Modality" not in header:
        raise DataError(f"{path}: no DICOM file: neither a class nor rows nor a modality is in its header")
    return header


def slices_of(path: Path, header: Any) -> list[Slice]:
    """Return the frames of a file; raises DataError if it has no pixels."""
    if "Rows" not in header or "Columns" not in header:
        raise DataError(f"{path}: a DICOM object without pixels ({header.get('Modality', 'unknown modality')})")
    count = int(header.get("NumberOfFrames") or 1)
    shared = _first_item(header.get("SharedFunctionalGroupsSequence"))
    per_frame = list(header.get("PerFrameFunctionalGroupsSequence") or ())
    offsets = [float(value) for value in _values(header.get("GridFrameOffsetVector"))]
    detector = _first_item(header.get("DetectorInformationSequence"))
    slices = []
    for frame in range(count):
        groups = [per_frame[frame] if frame < len(per_frame) else None, shared, header, detector]
        slices.append(_slice_of(path, frame, header, groups))
    first = slices[0]
    if count > 1 and not per_frame and first.position is not None and first.axes is not None:
        step = float(header.get("SpacingBetweenSlices") or 0.0)
        if not offsets and step:
            offsets = [step * frame for frame in range(count)]
        if len(offsets) == count and len(set(offsets)) == count:
            slices = [
                replace(section, position=tuple(np.array(first.position) + first.normal * (offset - offsets[0])))
                for section, offset in zip(slices, offsets, strict=True)
            ]
    return slices


def _slice_of(path: Path, frame: int, header: Any, groups: Sequence[Any]) -> Slice:
    measures = _group_value(groups, "PixelMeasuresSequence", "PixelSpacing") or header.get("ImagerPixelSpacing") or header.get(
        "NominalScannedPixelSpacing")  # fmt: skip
    spacing = tuple(float(value) for value in _values(measures))
    position = tuple(
        float(value) for value in _values(_group_value(groups, "PlanePositionSequence", "ImagePositionPatient"))
    )
    axes = tuple(
        float(value) for value in _values(_group_value(groups, "PlaneOrientationSequence", "ImageOrientationPatient"))
    )
    slope = _group_value(groups, "PixelValueTransformationSequence", "RescaleSlope")
    intercept = _group_value(groups, "PixelValueTransformationSequence", "RescaleIntercept")
    kinds = [str(value).upper() for value in _values(header.get("ImageType"))]
    content = [("FrameContentSequence", key) for key in ("TemporalPositionIndex",)]
    phases = []
    for key in PHASE_KEYS:
        value = header.get(key)
        for sequence, name in (
            *content,
            ("MREchoSequence", "EffectiveEchoTime"),
            ("MRDiffusionSequence", "DiffusionBValue"),
        ):
            if name == key or (key == "EchoTime" and name == "EffectiveEchoTime"):
                value = _group_value(groups, sequence, name) or value
        phases.append("" if value is None else str(value))
    stack_position = _group_value(groups[:1], "FrameContentSequence", "InStackPositionNumber")
    return Slice(
        path,
        frame,
        int(header.Rows),
        int(header.Columns),
        position if len(position) == 3 else None,
        axes if len(axes) == 6 and all(np.isfinite(axes)) else None,
        (spacing[0], spacing[1]) if len(spacing) == 2 and min(spacing) > 0 else None,
        float(header.get("DoseGridScaling") or (1 if slope is None else slope)) or 1.0,
        float(intercept or 0),
        float(
            stack_position
            if stack_position is not None
            else header.get("SliceLocation") or header.get("InstanceNumber") or 0
        ),
        str(header.get("SeriesInstanceUID", "")),
        f"{header.get('SOPInstanceUID', path.name)}/{frame}",
        "LOCALIZER" in kinds[2:],
        tuple(phases),
    )


def _group_value(groups: Sequence[Any], sequence: str, key: str) -> Any:
    """Return a value from the first functional group, or plain header, that has it."""
    for group in groups:
        if group is None:
            continue
        item = _first_item(group.get(sequence))
        value = item.get(key) if item is not None else None
        if value in (None, ""):
            value = group.get(key)
        if value not in (None, ""):
            return value
    return None


def _first_item(sequence: Any) -> Any:
    return sequence[0] if sequence else None


def _values(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return list(value) if not isinstance(value, str) and hasattr(value, "__iter__") else [value]


# --- pixels -------------------------------------------------------------------------------------------------------


def read_pixels(path: Path) -> np.ndarray:
    """Return the stored values of all frames, (frames, C, rows, columns), with dark meaning low."""
    import pydicom

    data = pydicom.dcmread(path, force=True)
    if "PixelData" not in data and "FloatPixelData" not in data and "DoubleFloatPixelData" not in data:
        raise DataError(f"{path}: a DICOM object without pixels ({data.get('Modality', 'unknown modality')})")
    frames, samples = int(data.get("NumberOfFrames") or 1), int(data.get("SamplesPerPixel") or 1)
    check_memory(
        path, (frames, samples, int(data.Rows), int(data.Columns)), max(1, int(data.get("BitsAllocated") or 8) // 8)
    )
    _complete_meta(data)
    array = _decode(path, data)
    if _is_palette(data):
        from pydicom.pixels import apply_color_lut

        check_memory(path, (frames, 3, int(data.Rows), int(data.Columns)), 2)
        array = np.asarray(apply_color_lut(array.reshape(-1, int(data.Columns)), data))
        array, samples = (array >> 8).astype(np.uint8) if array.dtype.itemsize > 1 else array, 3
    array = array.reshape(frames, int(data.Rows), int(data.Columns), samples)
    array = _dark_is_low(array, data)
    return np.moveaxis(array, -1, 1)


def _complete_meta(data: Any) -> None:
    """Set the transfer syntax of a file without preamble, as its elements were read."""
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

    if not hasattr(data, "file_meta") or data.file_meta is None:
        data.file_meta = FileMetaDataset()
    if "TransferSyntaxUID" not in data.file_meta:
        implicit, little = data.original_encoding
        data.file_meta.TransferSyntaxUID = (
            ImplicitVRLittleEndian if implicit else ExplicitVRLittleEndian if little else ExplicitVRBigEndian
        )


def _decode(path: Path, data: Any) -> np.ndarray:
    """Return the stored values; compressed syntaxes for which pydicom has no plugin are decoded with imagecodecs."""
    from pydicom.pixels import pixel_array

    if "ModalityLUTSequence" in data and "RescaleSlope" not in data:
        from pydicom.pixels import apply_modality_lut

        return np.asarray(apply_modality_lut(pixel_array(data), data))
    if not data.file_meta.TransferSyntaxUID.is_compressed:
        return np.asarray(pixel_array(data))
    try:
        return np.asarray(pixel_array(data))
    except (RuntimeError, AttributeError, ValueError, NotImplementedError) as error:
        codecs = {"50": "jpeg8", "51": "jpeg8", "57": "jpegsof3", "70": "jpegsof3", "80": "jpegls", "81": "jpegls", "90": "jpeg2k",
                  "91": "jpeg2k", "201": "jpeg2k", "202": "jpeg2k", "203": "jpeg2k", "110": "jpegxl", "111": "jpegxl",
                  "112": "jpegxl"}  # fmt: skip
        syntax = data.file_meta.TransferSyntaxUID
        codec = (
            codecs.get(str(syntax).removeprefix("1.2.840.10008.1.2.4."))
            if str(syntax).startswith("1.2.840.10008.1.2.4.")
            else None
        )
        if codec is None:
            raise
        import imagecodecs
        from pydicom.encaps import generate_frames

        decode = {"jpeg8": imagecodecs.jpeg8_decode, "jpegsof3": imagecodecs.jpegsof3_decode, "jpegls": imagecodecs.jpegls_decode,
                  "jpeg2k": imagecodecs.jpeg2k_decode, "jpegxl": imagecodecs.jpegxl_decode}[codec]  # fmt: skip
        count = int(data.get("NumberOfFrames") or 1)
        frames = [np.asarray(decode(content)) for content in generate_frames(data.PixelData, number_of_frames=count)]
        if len(frames) != count:
            raise DataError(f"{path}: {len(frames)} of {count} frames are there; copy it again") from error
        array = np.stack(frames)
        if int(data.get("PixelRepresentation") or 0) and array.dtype.kind == "u":
            bits = int(data.get("BitsStored") or 8 * array.itemsize)
            signed = array.astype(np.int64)
            array = np.where(signed >= 1 << (bits - 1), signed - (1 << bits), signed).astype(f"i{array.itemsize}")
        return array


def _dark_is_low(stored: np.ndarray, header: Any) -> np.ndarray:
    """Return MONOCHROME1 values, in which the lowest is white, turned within the range of their stored bits.

    The range is that of BitsStored and PixelRepresentation (DICOM PS3.3 C.7.6.3.1.2), never the image's own: an image of
    few values would otherwise come out brighter or darker than its MONOCHROME2 twin.
    """
    if not _is_inverted(header) or stored.dtype.kind not in "iu":
        return stored
    low, high = _stored_limits(header, stored.dtype)
    return np.asarray((low + high - stored.astype(np.int64)).astype(stored.dtype))


def _is_palette(header: Any) -> bool:
    return str(header.get("PhotometricInterpretation", "")) == "PALETTE COLOR"


def _is_inverted(header: Any) -> bool:
    return str(header.get("PhotometricInterpretation", "")) == "MONOCHROME1"


def _stored_limits(header: Any, dtype: Any = None) -> tuple[int, int]:
    bits = int(header.get("BitsStored") or (8 * np.dtype(dtype).itemsize if dtype is not None else 8))
    if int(header.get("PixelRepresentation") or 0):
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def _rescaled(frame: np.ndarray, section: Slice) -> np.ndarray:
    """Return (C, rows, columns) in the units of the modality."""
    frame = merge_equal_channels(frame)
    if (section.slope, section.intercept) == (1.0, 0.0):
        return frame
    return np.asarray(frame.astype(np.float32) * np.float32(section.slope) + np.float32(section.intercept))


def _value_ranges(header: Any, section: Slice) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Return the range of the stored bits, and the display window, in the units of the values that are read."""
    if "BitsStored" not in header:
        return None, None
    low, high = (value * section.slope + section.intercept for value in _stored_limits(header))
    shared, per_frame = (
        _first_item(header.get(key)) for key in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
    )
    groups = [per_frame, shared, header]
    centers = _values(_group_value(groups, "FrameVOILUTSequence", "WindowCenter"))
    widths = _values(_group_value(groups, "FrameVOILUTSequence", "WindowWidth"))
    if not centers or not widths or not float(widths[0]) > 1:
        return (low, high), None
    center, width = float(centers[0]), float(widths[0])
    if str(header.get("VOILUTFunction") or "LINEAR") == "LINEAR":  # PS3.3 C.11.2.1.2.1
        window = (center - 0.5 - (width - 1) / 2, center - 0.5 + (width - 1) / 2)
    else:
        window = (center - width / 2, center + width / 2)
    if _is_inverted(header):
        window = (low + high - window[1], low + high - window[0])
    return (low, high), window


def _unit(header: Any) -> str:
    """Return the unit of the values if it is a defined term, or `ADC` of a diffusion map; other texts may say anything."""
    unit = str(header.get("RescaleType") or header.get("Units") or header.get("DoseUnits") or "")
    if unit not in UNITS and str(header.get("Modality", "")) == "MR" and "ADC" in list(header.get("ImageType") or []):
        return "ADC"
    return unit if unit in UNITS else ""


# --- geometry -----------------------------------------------------------------------------------------------------


def _plane_affine(section: Slice) -> np.ndarray | None:
    """Return the affine of one slice; its third axis is the normal, 1 mm long."""
    if section.position is None or section.axes is None or section.spacing is None:
        return None
    affine = np.eye(4)
    affine[:3, 0] = np.array(section.axes[3:]) * section.spacing[0]
    affine[:3, 1] = np.array(section.axes[:3]) * section.spacing[1]
    affine[:3, 2], affine[:3, 3] = section.normal, section.position
    return affine if abs(np.linalg.det(affine)) > 1e-9 else None


def stack_slices(name: Path, slices: Sequence[Slice], phase: int | None = None) -> SliceStack:
    """Return the slices of one volume in order, and notes about the others.

    Of several series, directions or sizes the one with the most slices is taken; of several phases the first.

    Raises:
        DataError: slices lie at the same place and nothing tells them apart, or too many are missing.
    """
    notes: list[FormatNote] = []
    localizers = sum(section.localizer for section in slices)
    if 0 < localizers < len(slices):
        notes.append(FormatNote("localizer", {"left_out": localizers}))
        slices = [section for section in slices if not section.localizer]
    elif localizers:
        notes.append(FormatNote("localizer"))
    groups: dict[tuple[Any, ...], list[Slice]] = defaultdict(list)
    for section in slices:
        groups[section.group].append(section)
    volume_slices = max(groups.values(), key=len)
    if len(groups) > 1:
        left_out = len(slices) - len(volume_slices)
        notes.append(FormatNote("several_groups", {"count": len(groups), "series": len({section.series for section in slices}),
                                                   "left_out": left_out}))  # fmt: skip
    first_by_sop = {section.sop: section for section in reversed(volume_slices)}
    doubles = len(volume_slices) - len(first_by_sop)
    volume_slices = [section for section in volume_slices if first_by_sop[section.sop] is section]
    if any(section.depth is None or section.spacing is None for section in volume_slices):
        ordered = sorted(
            volume_slices, key=lambda section: (section.instance, natural_key(section.file.name), section.frame)
        )
        if doubles:
            notes.append(FormatNote("duplicate_slice", {"left_out": doubles}))
        notes.append(FormatNote("no_positions"))
        return SliceStack(tuple(ordered), None, tuple(notes))
    volume_slices, phase_notes = _choose_phase(name, volume_slices, phase)
    volume_slices, copies = _drop_copies(name, volume_slices)
    if doubles + copies:
        notes.append(FormatNote("duplicate_slice", {"left_out": doubles + copies}))
    if len({(section.slope, section.intercept) for section in volume_slices}) > 1:
        notes.append(
            FormatNote(
                "rescale_differs", {"count": len({(section.slope, section.intercept) for section in volume_slices})}
            )
        )
    return _place_slices(name, volume_slices, [*notes, *phase_notes])


def _depth_key(section: Slice) -> float:
    return round(float(section.depth or 0.0), 2)


def _choose_phase(name: Path, slices: list[Slice], phase: int | None) -> tuple[list[Slice], list[FormatNote]]:
    """Return the slices of one phase, if a field divides them into volumes with each position once."""
    counts = Counter(_depth_key(section) for section in slices)
    if not slices or max(counts.values()) == 1:
        return slices, []
    for index, key in enumerate(PHASE_KEYS):
        phases: dict[str, list[Slice]] = defaultdict(list)
        for section in slices:
            phases[section.phases[index]].append(section)
        once = all(len({_depth_key(section) for section in members}) == len(members) for members in phases.values())
        if len(phases) > 1 and once:
            names = sorted(phases, key=natural_key)
            place = phase or 0
            if place >= len(names):
                raise DataError(f"{name}#phase={place}: the series has {len(names)} phases by {key}, counted from 0")
            note = FormatNote("several_phases", {"count": len(names), "field": key, "taken": place})
            return phases[names[place]], [note]
    return slices, []


def _drop_copies(name: Path, slices: list[Slice]) -> tuple[list[Slice], int]:
    """Return the slices without exact copies of another at the same place.

    Raises:
        DataError: different slices lie at one place.
    """
    by_depth: dict[float, list[Slice]] = defaultdict(list)
    for section in slices:
        by_depth[_depth_key(section)].append(section)
    distinct: list[Slice] = []
    for depth, members in by_depth.items():
        if len(members) > 1 and len({_pixel_digest(section) for section in members}) > 1:
            raise DataError(
                f"{name}: {len(members)} different slices lie at {depth:g} mm ({members[0].file.name}, {members[1].file.name}), "
                f"and none of {', '.join(PHASE_KEYS[:6])} divides the series into volumes; put each volume into a folder of its own"
            )
        distinct.append(members[0])
    return distinct, len(slices) - len(distinct)


def _pixel_digest(section: Slice) -> str:
    return sha256(np.ascontiguousarray(read_pixels(section.file)[section.frame]).tobytes()).hexdigest()


def _place_slices(name: Path, slices: list[Slice], notes: list[FormatNote]) -> SliceStack:
    """Return the stack with its affine; a few missing slices are interpolated later, many are an error."""
    ordered = sorted(slices, key=lambda section: float(section.depth or 0.0))
    first, last = ordered[0], ordered[-1]
    plane = _plane_affine(first)
    if plane is None:
        return SliceStack(tuple(ordered), None, tuple(notes))
    if len(ordered) == 1:
        return SliceStack(tuple(ordered), plane, tuple(notes))
    depths = np.array([float(section.depth or 0.0) for section in ordered])
    gaps = np.diff(depths)
    step, places = _even_grid(name, depths, gaps)
    count = len(places) if places is not None else len(ordered)
    if places is not None and _has_regions(gaps, step):
        ends = {"smallest_mm": round(float(gaps.min()), 3), "largest_mm": round(float(gaps.max()), 3)}
        notes = [*notes, FormatNote("uneven_slices", ends)]
    elif places is not None:
        notes = [*notes, FormatNote("slice_gap", {"missing": count - len(ordered), "step_mm": round(step, 3)})]
    way = np.array(last.position, float) - np.array(first.position, float)
    plane[:3, 2] = way / (count - 1)
    cosine = float(np.dot(way, first.normal) / max(float(np.linalg.norm(way)), 1e-9))
    tilt = float(np.degrees(np.arccos(min(1.0, abs(cosine)))))
    if tilt > TILT_TOLERANCE:
        notes = [*notes, FormatNote("gantry_tilt", {"degrees": round(tilt, 1)})]
    affine = plane if abs(np.linalg.det(plane)) > 1e-9 else None
    return SliceStack(tuple(ordered), affine, tuple(notes), places)


def _even_grid(name: Path, depths: np.ndarray, gaps: np.ndarray) -> tuple[float, tuple[float, ...] | None]:
    """Return the slice distance, and for uneven slices the place among them of each slice of an even grid.

    Raises:
        DataError: more than `MAX_MISSING_IN_A_ROW` slices are missing in a row, or more than `MAX_MISSING_SHARE` of all.
    """
    step = float(np.median(gaps))
    tolerance = max(EVEN_TOLERANCE * step, ROUNDING_MM)
    if float(np.abs(gaps - step).max()) <= tolerance:
        return step, None
    multiples = np.round(gaps / step)
    if _has_regions(gaps, step) and float(gaps.max()) <= (MAX_MISSING_IN_A_ROW + 1) * float(gaps.min()):
        step = float(gaps.min())
    elif float(np.abs(gaps - multiples * step).max()) <= 2 * tolerance and multiples.min() >= 1:
        missing, total = int(multiples.sum() - len(gaps)), int(multiples.sum()) + 1
        if multiples.max() - 1 > MAX_MISSING_IN_A_ROW or missing > MAX_MISSING_SHARE * total:
            raise DataError(
                f"{name}: {missing} slices of {total} are missing (the slices lie {step:.3g} mm apart, with gaps of up to "
                f"{float(gaps.max()):.3g} mm); copy the whole series again, or leave the case out"
            )
    else:
        raise DataError(
            f"{name}: its slices lie {float(gaps.min()):.3g} to {float(gaps.max()):.3g} mm apart, so they are no even volume; "
            "is it one series? Copy it again, or leave the case out"
        )
    count = round(float(depths[-1] - depths[0]) / step) + 1
    grid = np.linspace(depths[0], depths[-1], count)
    places = np.interp(grid, depths, np.arange(len(depths)))
    return step, tuple(float(place) for place in places)


def _has_regions(gaps: np.ndarray, step: float) -> bool:
    """Return whether slices were taken at several distances, each for a region, as of older head CT.

    Then other distances than `step` come at least `MIN_REGION_GAPS` times in a row; a missing slice is a single one.
    """
    rounded_gaps = [round(float(gap), 1) for gap in gaps]
    runs = [(value, len(list(members))) for value, members in groupby(rounded_gaps)]
    region_lengths = [length for value, length in runs if abs(value - step) > max(EVEN_TOLERANCE * step, ROUNDING_MM)]
    return bool(region_lengths) and min(region_lengths) >= MIN_REGION_GAPS


# --- series -------------------------------------------------------------------------------------------------------


def find_slices(files: Iterable[Path]) -> list[Slice]:
    """Return the frames of all files that hold pixels; those of segmentations and doses only if there are no images."""
    images: list[Slice] = []
    derived: list[Slice] = []
    for file in files:
        with naming_file(file):
            header = read_header(file)
            if "Rows" in header:
                is_derived = str(header.get("Modality", "")) in DERIVED_MODALITIES
                (derived if is_derived else images).extend(slices_of(file, header))
    return images or derived


def read_series(name: Path, files: Sequence[Path], phase: int | None = None) -> Image:
    """Return the volume of a series of files; one slice is a picture. Raises DataError."""
    slices = find_slices(files)
    if not slices:
        raise DataError(f"{name}: no DICOM file here holds an image")
    if len(slices) == 1:
        return Dicom().read(slices[0].file)
    with naming_file(name):
        return read_stack(name, stack_slices(name, slices, phase))


def probe_series(name: Path, files: Sequence[Path], phase: int | None = None) -> ImageInfo:
    """Return what the headers of a series say, in the axes of `read_series`. Raises DataError."""
    slices = find_slices(files)
    if not slices:
        raise DataError(f"{name}: no DICOM file here holds an image")
    if len(slices) == 1:
        return Dicom().probe(slices[0].file)
    with naming_file(name):
        stack = stack_slices(name, slices, phase)
        return _probe_stack("dicom", stack, read_header(stack.slices[0].file))


def series_grid(name: Path, files: Sequence[Path]) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """Return affine and sizes of a series as stacked (rows, columns, slices), before it is turned to LPS."""
    slices = find_slices(files)
    stack = stack_slices(name, slices) if len(slices) > 1 else None
    if stack is None or stack.affine is None or stack.count < 2:
        return None
    return stack.affine, (stack.slices[0].rows, stack.slices[0].columns, stack.count)


def read_stack(name: Path, stack: SliceStack) -> Image:
    """Return the volume of a stack, turned to LPS if it says how it lies."""
    slices, header = stack.slices, read_header(stack.slices[0].file)
    modality = MODALITIES.get(str(header.get("Modality", "")), "")
    samples = int(header.get("SamplesPerPixel") or 1)
    rescaled = any((section.slope, section.intercept) != (1.0, 0.0) for section in slices)
    itemsize = 4 if rescaled or stack.places is not None else max(1, int(header.get("BitsAllocated") or 8) // 8)
    check_memory(name, (slices[0].rows, slices[0].columns, stack.count, samples), itemsize)
    frames: list[np.ndarray] = []
    cached: tuple[Path | None, np.ndarray] = (None, np.zeros(0))
    for section in slices:
        if cached[0] != section.file:
            cached = (section.file, _read_named(section.file))
        frames.append(_rescaled(cached[1][section.frame], section))
    channels = max(frame.shape[0] for frame in frames)
    volume = np.stack([np.broadcast_to(frame, (channels, *frame.shape[1:])) for frame in frames], axis=-1)
    if stack.places is not None:
        volume = _interpolated(volume, stack.places)
    stored_range, window = _value_ranges(header, slices[0])
    common = {
        "modality": modality,
        "stored_range": stored_range,
        "window": window,
        "unit": _unit(header),
        "notes": stack.notes,
    }
    if stack.affine is not None:
        volume, affine = reorient(volume, stack.affine)
        if volume.shape[-1] == 1:
            return Image(np.ascontiguousarray(volume[..., 0]), spacing_of(affine)[:2], 2, affine=affine, **common)  # type: ignore[arg-type]
        return Image(np.ascontiguousarray(volume), spacing_of(affine), 3, affine=affine, **common)  # type: ignore[arg-type]
    return Image(np.ascontiguousarray(volume), _flat_spacing(header, slices), 3, **common)  # type: ignore[arg-type]


def _flat_spacing(header: Any, slices: Sequence[Slice]) -> tuple[float, ...] | None:
    """Return the spacing of frames without positions; their distance is that of the header, or 1."""
    if slices[0].spacing is None:
        return None
    return (*slices[0].spacing, float(header.get("SpacingBetweenSlices") or header.get("SliceThickness") or 1.0))


def _read_named(file: Path) -> np.ndarray:
    with naming_file(file):
        return read_pixels(file)


def _interpolated(volume: np.ndarray, places: Sequence[float]) -> np.ndarray:
    """Return the slices at fractional places, linearly between neighbours."""
    below = np.minimum(np.floor(places).astype(int), volume.shape[-1] - 1)
    above = np.minimum(below + 1, volume.shape[-1] - 1)
    share = (np.asarray(places) - below).astype(np.float32)
    return np.asarray(volume[..., below] * (1 - share) + volume[..., above] * share, np.float32)


def _probe_stack(name: str, stack: SliceStack, header: Any) -> ImageInfo:
    slices = stack.slices
    shape = (slices[0].rows, slices[0].columns, stack.count)
    affine, spacing = stack.affine, _flat_spacing(header, slices)
    if affine is not None:
        affine, turned = reorient_grid(affine, shape)
        shape, spacing = (turned[0], turned[1], turned[2]), spacing_of(affine)
    flat = shape[2] == 1
    info = _probe_flat(name, list(slices), header, None)
    floating = info.dtype == "float32" or stack.places is not None
    floating = floating or any((section.slope, section.intercept) != (1.0, 0.0) for section in slices)
    return replace(
        info,
        shape=shape[:2] if flat else shape,
        dims=2 if flat else 3,
        spacing=spacing[:2] if flat and spacing else spacing,
        affine=affine,
        dtype="float32" if floating else info.dtype,
        notes=stack.notes,
    )


def _probe_flat(name: str, slices: Sequence[Slice], header: Any, part: tuple[str, int] | None) -> ImageInfo:
    first, frames = slices[0], part[1] if part and part[0] == "frames" else 1
    stored_range, window = _value_ranges(header, first)
    bits = int(header.get("BitsAllocated") or 8)
    dtype = f"{'' if int(header.get('PixelRepresentation') or 0) else 'u'}int{max(8, bits)}"
    return ImageInfo(
        name,
        (first.rows, first.columns, frames) if frames > 1 else (first.rows, first.columns),
        3 if _is_palette(header) else int(header.get("SamplesPerPixel") or 1),
        "uint8" if _is_palette(header) else dtype if (first.slope, first.intercept) == (1.0, 0.0) else "float32",
        3 if frames > 1 else 2,
        spacing=first.spacing if frames == 1 else None,
        affine=_plane_affine(first),
        modality=MODALITIES.get(str(header.get("Modality", "")), ""),
        bits_stored=int(header.get("BitsStored") or 0) or None,
        stored_range=stored_range,
        window=window,
        photometric=str(header.get("PhotometricInterpretation", "")),
        frames=int(header.get("NumberOfFrames") or 1),
        unit=_unit(header),
        notes=(FormatNote("localizer"),) if first.localizer else (),
    )


FORMATS = (Dicom(),)
