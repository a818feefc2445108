"""Minimal copies of DICOM files: elements that decoding, geometry and physical values need; identifiers are replaced."""

from __future__ import annotations

import hashlib
import re
import secrets
import struct
from datetime import date
from pathlib import Path
from typing import Any

from pydicom.multival import MultiValue

from m3b.dataset.minimal.pictures import blank_comments

_PIXELS = """
SamplesPerPixel PhotometricInterpretation PlanarConfiguration NumberOfFrames Rows Columns BitsAllocated BitsStored HighBit
PixelRepresentation PixelAspectRatio PixelPaddingValue PixelPaddingRangeLimit PixelData FloatPixelData DoubleFloatPixelData
ExtendedOffsetTable ExtendedOffsetTableLengths FrameIncrementPointer LossyImageCompression LossyImageCompressionRatio
LossyImageCompressionMethod RedPaletteColorLookupTableDescriptor GreenPaletteColorLookupTableDescriptor
BluePaletteColorLookupTableDescriptor RedPaletteColorLookupTableData GreenPaletteColorLookupTableData
BluePaletteColorLookupTableData SegmentedRedPaletteColorLookupTableData SegmentedGreenPaletteColorLookupTableData
SegmentedBluePaletteColorLookupTableData
"""
_VALUES = """
Modality ImageType FrameType RescaleSlope RescaleIntercept RescaleType ModalityLUTSequence VOILUTSequence LUTDescriptor LUTData
ModalityLUTType WindowCenter WindowWidth VOILUTFunction PresentationLUTShape FrameVOILUTSequence PixelValueTransformationSequence
RealWorldValueMappingSequence RealWorldValueSlope RealWorldValueIntercept RealWorldValueFirstValueMapped
RealWorldValueLastValueMapped MeasurementUnitsCodeSequence Units DoseGridScaling DoseUnits DoseType PixelIntensityRelationship
PixelIntensityRelationshipSign KVP EchoTime EffectiveEchoTime RepetitionTime InversionTime FlipAngle MagneticFieldStrength
DiffusionBValue DiffusionGradientOrientation MRDiffusionSequence MREchoSequence DiffusionGradientDirectionSequence
"""
_GEOMETRY = """
PixelSpacing ImagerPixelSpacing NominalScannedPixelSpacing SliceThickness SpacingBetweenSlices ImagePositionPatient
ImageOrientationPatient ImagePositionVolume ImageOrientationVolume SliceLocation InstanceNumber GridFrameOffsetVector PatientPosition
PatientOrientation Laterality ImageLaterality FrameLaterality ViewPosition SharedFunctionalGroupsSequence
PerFrameFunctionalGroupsSequence PixelMeasuresSequence PlanePositionSequence PlaneOrientationSequence FrameContentSequence
StackID InStackPositionNumber DimensionIndexValues TemporalPositionIndex TemporalPositionIdentifier NumberOfTemporalPositions
DetectorInformationSequence EstimatedRadiographicMagnificationFactor SequenceOfUltrasoundRegions PhysicalDeltaX PhysicalDeltaY
PhysicalUnitsXDirection PhysicalUnitsYDirection RegionSpatialFormat RegionDataType RegionFlags RegionLocationMinX0
RegionLocationMinY0 RegionLocationMaxX1 RegionLocationMaxY1 ImageOrientationSlide TotalPixelMatrixRows TotalPixelMatrixColumns
PlanePositionSlideSequence ColumnPositionInTotalImagePixelMatrix RowPositionInTotalImagePixelMatrix OpticalPathSequence
MRImageFrameTypeSequence CTImageFrameTypeSequence FrameTime FrameTimeVector CineRate AcquisitionNumber EchoNumbers TriggerTime
NominalCardiacTriggerDelayTime
"""
_UPTAKE = """
PatientWeight PatientSize RadiopharmaceuticalInformationSequence RadionuclideTotalDose RadionuclideHalfLife
RadionuclidePositronFraction RadiopharmaceuticalStartTime RadiopharmaceuticalStopTime RadiopharmaceuticalStartDateTime DecayCorrection
DecayFactor CorrectedImage CountsSource ActualFrameDuration FrameReferenceTime SeriesDate SeriesTime AcquisitionDate
"""
_TIMES = "AcquisitionTime ContentTime"
_UIDS = ("SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
_KEYWORDS = frozenset((_PIXELS + _VALUES + _GEOMETRY).split()) | {"SOPClassUID", *_UIDS}
_NUCLEAR = frozenset((_UPTAKE + _TIMES).split())
"""Further elements of PET and scintigrams: uptake values need weight, dose and times (DICOM PS3.3 C.8.9)."""
_TEXT_KINDS = ("CS", "LO", "SH", "LT", "ST", "UT", "UC", "UR", "PN", "AE")
_TERMS = """
ORIGINAL DERIVED PRIMARY SECONDARY AXIAL LOCALIZER MOSAIC M P R I MAGNITUDE PHASE REAL IMAGINARY MIXED ADC DIFFUSION NORM DIS2D
DIS3D VOLUME NONE RESAMPLED STATIC DYNAMIC GATED TOMO RECON WHOLEBODY EMISSION TRANSMISSION REPROJECTION THUMBNAIL LABEL
OVERVIEW FIRST_PASS MINIP MAXIP MPR PROJECTION PT NM CT MR US CR DX MG XA RF OT SC OP OPT SM ES GM XC IVUS IO PX SEG RTDOSE
RTIMAGE MONOCHROME1 MONOCHROME2 RGB YBR_FULL YBR_FULL_422 YBR_PARTIAL_420 YBR_ICT YBR_RCT YBR_RCT_422 CMYK ARGB HSV HU OD MGML
Z_EFF ED EDW HU_MOD PCT UNSPECIFIED CNTS CM2 CM2ML PCNT CPS BQML MGMINML UMOLMINML MLMING MLG 1CM UMOLML PROPCNTS PROPCPS
MLMINML MLML GML STDDEV GY RELATIVE PHYSICAL EFFECTIVE ERROR LINEAR LINEAR_EXACT SIGMOID IDENTITY INVERSE LIN LOG DISP
ISO_10918_1 ISO_14495_1 ISO_15444_1 ISO_13818_2 ISO_14496_10 ISO_15444_15 HFP HFS HFDR HFDL FFDR FFDL FFP FFS A L F H AL AR AF
AH PL PR PF PH LF LH RH FL FR FA FP HL HR HA HP CC MLO ML LM LMO XCCL XCCM AP PA LL RL LLO RLO LATERAL YES NO 00 01 START ADMIN
DECY ATTN SCAT DTIM MOTN PMOT CLN RAN RADL DCAL B U DIRECTIONAL BMATRIX ISOTROPIC
"""
"""Defined terms of DICOM PS3.3 in elements that are kept."""
_DEFINED_TERMS = {*_TERMS.split(), "PALETTE COLOR", "WHOLE BODY", "GATED TOMO", "RECON TOMO"}
_NUMBER, _DATE, _FIXED_DATE = re.compile(r"[\d.]{1,12}"), re.compile(r"\d{8}"), date(2000, 1, 1)
_secret = secrets.token_bytes(16)
"""Of this process: slices of one series keep one new identifier, which leads to no old one."""


def write_dicom(source: Path, target: Path) -> bool:
    """Write the elements that are needed, with new identifiers, and padding in front of the end."""
    import pydicom
    from pydicom.dataset import FileMetaDataset

    data = pydicom.dcmread(source, force=True)
    keywords = (
        _KEYWORDS | _NUCLEAR if str(data.get("Modality", "")) in ("PT", "NM") else _KEYWORDS | set(_TIMES.split())
    )
    copy = _select_elements(data, keywords)
    _move_dates(copy)
    syntax = getattr(data.file_meta, "TransferSyntaxUID", None)
    if syntax is not None and syntax.is_encapsulated and "PixelData" in copy:
        copy["PixelData"].value = _blank_fragments(copy.PixelData)
    copy.file_meta = FileMetaDataset()
    for keyword in ("MediaStorageSOPClassUID", "TransferSyntaxUID"):
        if (value := data.file_meta.get(keyword)) is not None:
            setattr(copy.file_meta, keyword, value)
    if "SOPInstanceUID" in copy and "MediaStorageSOPInstanceUID" in data.file_meta:
        copy.file_meta.MediaStorageSOPInstanceUID = copy.SOPInstanceUID
    is_implicit, is_little = data.original_encoding
    if data.preamble:
        copy.preamble = bytes(128)
    copy.set_original_encoding(is_implicit, is_little, data.original_character_set)
    encoding = {} if syntax is not None else {"implicit_vr": is_implicit, "little_endian": is_little}
    copy.save_as(target, enforce_file_format=False, **encoding)
    if is_little and not (syntax is not None and syntax.is_deflated):
        _pad(target, is_implicit)
    return True


def _blank_fragments(pixels: bytes) -> bytes:
    """Return encapsulated frames (DICOM PS3.5 A.4) without comments in their streams, each as long as before."""
    parts, position = [], 0
    while position + 8 <= len(pixels):
        _, length = struct.unpack_from("<II", pixels, position)
        parts += [pixels[position : position + 8], blank_comments(pixels[position + 8 : position + 8 + length])]
        position += 8 + length
    return b"".join([*parts, pixels[position:]])


def _select_elements(data: Any, keywords: frozenset[str] | set[str]) -> Any:
    from pydicom.dataset import Dataset
    from pydicom.sequence import Sequence

    copy = Dataset()
    for element in data:
        if element.keyword not in keywords:
            continue
        if element.VR == "SQ":
            element.value = Sequence(_select_elements(item, keywords) for item in element.value)
        elif element.keyword in _UIDS:
            element.value = _replace_uid(str(element.value))
        elif element.VR in _TEXT_KINDS:
            element.value = _keep_terms(element.value)
        copy.add(element)
    return copy


def _keep_terms(value: Any) -> Any:
    """Return a value with those of its texts that are defined terms or numbers; others are empty."""
    if isinstance(value, MultiValue):
        return [_keep_terms(item) for item in value]
    text = str(value or "").strip()
    return text if text.upper() in _DEFINED_TERMS or _NUMBER.fullmatch(text) else ""


def _move_dates(copy: Any) -> None:
    """Move all dates so that the first known one of series and acquisition is fixed: their distances stay."""
    dates = [str(copy.get(keyword) or "") for keyword in ("SeriesDate", "AcquisitionDate")]
    start = next((text for text in dates if _DATE.fullmatch(text)), None)
    if start is None:
        return

    def move_date(data: Any, element: Any) -> None:
        text = str(element.value or "")
        if element.VR in ("DA", "DT") and _DATE.fullmatch(text[:8]):
            days = date.fromisoformat(text[:8]) - date.fromisoformat(start)
            element.value = f"{_FIXED_DATE + days:%Y%m%d}{text[8:]}"

    copy.walk(move_date)


def _replace_uid(uid: str) -> str:
    """Return an identifier made from a random number (DICOM PS3.5 B.2), the same for the same one."""
    digest = hashlib.blake2b(uid.encode(), key=_secret, digest_size=16).digest()
    return f"2.25.{int.from_bytes(digest, 'big')}"


def _pad(file: Path, is_implicit: bool) -> None:
    """Append Data Set Trailing Padding (FFFC,FFFC) up to a power of two."""
    header = b"\xfc\xff\xfc\xff" + (b"" if is_implicit else b"OB\0\0")
    size = file.stat().st_size + len(header) + 4
    padding = (1 << (size - 1).bit_length()) - size
    with file.open("r+b") as stream:
        stream.seek(0, 2)
        stream.write(header + struct.pack("<I", padding))
        stream.truncate(size + padding)
