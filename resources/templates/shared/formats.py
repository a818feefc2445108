"""One reader a file format, each from one file to one `Image`; `images` chooses among them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

_DICOM_MODALITY = {
    "CT": "ct",
    "MR": "mr",
    "CR": "xray",
    "DX": "xray",
    "RF": "xray",
    "MG": "xray",
    "US": "us",
    "PT": "pet",
}

PICTURES = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "JPEG2000")
"""What a picture may be, whatever its name: Pillow knows formats that start other programs, such as EPS."""


class ImageError(ValueError):
    """An image that cannot be read; the message names the file and the reason."""


@contextmanager
def opening(full: str) -> Iterator[None]:
    """Names the file in what a decoder raises; a damaged file makes it raise nearly anything."""
    try:
        yield
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(f"{full}: does not fit into memory") from error
    except Exception as error:  # foreign decoders of a dozen formats, on files of unknown origin
        raise ImageError(f"{full}: cannot be read: {reason_of(error, full)}") from error


def reason_of(error: Exception, full: str) -> str:
    """The text of a decoder's error without the file; with the error's type where the text alone says little."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    text = text.replace(f"File {full}", "it").replace(f" {full!r}", "")
    bare = not text or isinstance(error, LookupError | AttributeError | TypeError | AssertionError)
    return f"{type(error).__name__}: {text}" if bare else text


@dataclass(frozen=True, slots=True)
class Image:
    """`array` is (C, H, W) or (C, H, W, D) in the file's own dtype (float32 after a rescale).

    `spacing` is in mm per spatial axis, None if unknown; `dims` is 2 or 3; `modality` is "ct", "mr", "xray", "us",
    "pet" where the file says so, "ct" where the values can be nothing else, and "" otherwise. `channels` holds, where the
    image was put together of several by name, the modality of each and whether its values are 8-bit ones.
    """

    array: np.ndarray
    spacing: tuple[float, ...] | None
    dims: int
    modality: str = ""
    channels: tuple[tuple[str, bool], ...] = ()


# --- pictures -----------------------------------------------------------------------------------------------------


def read_picture(full: str) -> Image:
    from PIL import Image as Pillow
    from PIL import ImageSequence

    with Pillow.open(full, formats=PICTURES) as picture:
        multi = getattr(picture, "n_frames", 1) > 1
        frames = (
            [picture_array(page) for page in ImageSequence.Iterator(picture)] if multi else [picture_array(picture)]
        )
    if not multi:
        return Image(frames[0], None, 2)
    if len({frame.shape for frame in frames}) > 1:
        raise ImageError(f"{full}: its {len(frames)} pages differ in size")
    return Image(np.stack(frames, axis=-1), None, 3)


def exif_orientation(picture: Any) -> int:
    """How a picture is to be turned for display, 1 (as it is stored) to 8 (EXIF 2.32, tag 0x0112).

    1 too for TIFF, which Pillow turns by itself, and where the tag is missing or damaged.
    """
    if picture.format == "TIFF":
        return 1
    try:
        value = picture.getexif().get(0x0112, 1)
    except (SyntaxError, ValueError, TypeError, KeyError, OSError, struct.error):  # the pixels may be whole
        return 1
    return int(value) if value in range(1, 9) else 1


def turn_upright(array: np.ndarray, orientation: int) -> np.ndarray:
    """(..., rows, columns) as stored, turned for display by an EXIF orientation."""
    turned = np.swapaxes(array, -1, -2) if orientation >= 5 else array
    if orientation in (3, 4, 7, 8):
        turned = turned[..., ::-1, :]
    if orientation in (2, 3, 6, 7):
        turned = turned[..., ::-1]
    return np.ascontiguousarray(turned)


def picture_array(picture: Any) -> np.ndarray:
    """(C, H, W), turned as EXIF says; transparency is dropped, palettes are looked up, and colour with three equal
    channels is grey."""
    orientation = exif_orientation(picture)
    return turn_upright(_stored_array(picture), orientation)


def _stored_array(picture: Any) -> np.ndarray:
    mode = picture.mode
    if mode in ("1", "LA", "La"):
        picture = picture.convert("L")
    elif mode not in ("L", "RGB", "I", "F") and not mode.startswith("I;"):
        picture = picture.convert("RGB")
    array = np.array(picture)
    if array.ndim == 2:
        return array[None]
    first = array[..., 0]
    if np.array_equal(first, array[..., 1]) and np.array_equal(first, array[..., 2]):
        return np.ascontiguousarray(first[None])
    return np.ascontiguousarray(np.moveaxis(array, -1, 0))


# --- DICOM --------------------------------------------------------------------------------------------------------


def read_dicom(full: str) -> Image:
    import pydicom

    header = pydicom.dcmread(full, force=True)
    array = _dicom_pixels(header, full)
    modality = _DICOM_MODALITY.get(str(header.get("Modality", "")), "")
    rows = header.get("PixelSpacing") or header.get("ImagerPixelSpacing")
    spacing = tuple(float(value) for value in rows) if rows else None
    if array.ndim == 4:
        deep = float(header.get("SpacingBetweenSlices") or header.get("SliceThickness") or 1.0)
        return Image(array, (*spacing, deep) if spacing else None, 3, modality)
    return Image(array, spacing, 2, modality)


def _dicom_pixels(header: Any, full: str) -> np.ndarray:
    """(C, H, W) or (C, H, W, frames), rescaled, with dark meaning low."""
    if "Rows" not in header or "PixelData" not in header:
        raise ImageError(f"{full}: a DICOM object without pixels ({header.get('Modality', 'unknown modality')})")
    slope, offset = float(header.get("RescaleSlope") or 1), float(header.get("RescaleIntercept") or 0)
    array: np.ndarray
    try:
        array = _bright_is_high(header.pixel_array, header)
        if (slope, offset) != (1.0, 0.0):
            array = array.astype(np.float32) * np.float32(slope) + np.float32(offset)
    except (RuntimeError, AttributeError, ValueError):
        # a compressed transfer syntax for which pydicom has no plugin: GDCM, inside SimpleITK, knows them all; it
        # turns MONOCHROME1 and rescales by itself
        import SimpleITK as sitk

        array = sitk.GetArrayFromImage(sitk.ReadImage(full, imageIO="GDCMImageIO"))
        array = array[0] if array.shape[0] == 1 and array.ndim > 2 else array
    colour = int(header.get("SamplesPerPixel", 1)) > 1
    if colour:
        array = np.moveaxis(array, -1, 0)
        return np.moveaxis(array, 1, -1) if array.ndim == 4 else array
    return np.moveaxis(array, 0, -1)[None] if array.ndim == 3 else array[None]


def _bright_is_high(stored: np.ndarray, header: Any) -> np.ndarray:
    """Stored values with MONOCHROME1, in which the lowest value is white, turned within the range of its stored bits.

    The range is that of BitsStored and PixelRepresentation (DICOM PS3.3 C.7.6.3.1.2), never the image's own: an image of
    few values would otherwise come out brighter or darker than its MONOCHROME2 twin.
    """
    if str(header.get("PhotometricInterpretation", "")) != "MONOCHROME1" or stored.dtype.kind not in "iu":
        return stored
    bits = int(header.get("BitsStored") or 8 * stored.dtype.itemsize)
    ends = -1 if int(header.get("PixelRepresentation") or 0) else (1 << bits) - 1  # of the lowest and the highest value
    return np.asarray((ends - stored.astype(np.int64)).astype(stored.dtype))


# --- volumes ------------------------------------------------------------------------------------------------------


def read_nifti(full: str) -> Image:
    import nibabel as nib

    stored = nib.load(full)
    if np.dtype(stored.header.get_data_dtype()).names:  # RGB voxels
        raw = np.asarray(stored.dataobj)
        data = np.stack([raw[name] for name in ("R", "G", "B")], axis=-1)
        stored = nib.Nifti1Image(data, stored.affine)
    canonical = nib.as_closest_canonical(stored)
    scaled = (stored.dataobj.slope, stored.dataobj.inter) != (1.0, 0.0) if hasattr(stored.dataobj, "slope") else False
    array = canonical.get_fdata(dtype=np.float32, caching="unchanged") if scaled else np.asarray(canonical.dataobj)
    if array.ndim < 3:
        array = array.reshape(*array.shape, *(1,) * (3 - array.ndim))
    zooms = tuple(float(value) for value in canonical.header.get_zooms()[:3])
    zooms = (*zooms, *(1.0,) * (3 - len(zooms)))
    while array.ndim > 4 and 1 in array.shape[3:]:
        array = np.squeeze(array, axis=3 + array.shape[3:].index(1))
    if array.ndim > 4:
        raise ImageError(f"{full}: has {array.ndim} axes {array.shape}; at most a series of volumes can be read")
    array = np.moveaxis(array, 3, 0) if array.ndim == 4 else array[None]
    array = np.transpose(array[:, ::-1, ::-1], (0, 2, 1, 3))  # RAS (x, y, z) to LPS rows, columns, slices
    return _volume(array, (zooms[1], zooms[0], zooms[2]))


def itk_reader(full: str) -> str:
    """The part of SimpleITK for a file: left to choose by content, it could take one that reads other files."""
    return "MetaImageIO" if full.lower().endswith((".mha", ".mhd")) else "NrrdImageIO"


def read_itk(full: str) -> Image:
    import SimpleITK as sitk

    image = sitk.ReadImage(full, imageIO=itk_reader(full))
    if image.GetDimension() > 4:
        raise ImageError(f"{full}: has {image.GetDimension()} axes; at most a series of volumes can be read")
    colour = image.GetNumberOfComponentsPerPixel() > 1
    if image.GetDimension() == 3:
        image = sitk.DICOMOrient(image, "LPS")
    array, zooms = sitk.GetArrayFromImage(image), image.GetSpacing()
    array = np.moveaxis(array, -1, 0) if colour else array[None] if image.GetDimension() < 4 else array
    if array.ndim > 4:
        raise ImageError(f"{full}: a series of colour volumes {array.shape} cannot be read")
    if image.GetDimension() == 2:
        return Image(array, (zooms[1], zooms[0]), 2)
    return _volume(np.moveaxis(array, 1, -1), (zooms[1], zooms[0], zooms[2]))


def _volume(array: np.ndarray, spacing: tuple[float, ...]) -> Image:
    """A volume of one slice is a 2D image; values far below zero can only be Hounsfield units."""
    modality = "ct" if array.dtype.kind in "if" and array.size and float(array.min()) <= -500 else ""
    if array.shape[-1] == 1:
        return Image(np.ascontiguousarray(array[..., 0]), spacing[:2], 2, modality)
    return Image(np.ascontiguousarray(array), spacing, 3, modality)


def from_array(array: np.ndarray, full: str) -> Image:
    """Axes of a bare array by its shape: few channels first or last, slices on the axis that differs."""
    if array.dtype == bool:
        array = array.astype(np.uint8)
    if array.dtype.kind not in "iuf" or array.ndim < 2 or 0 in array.shape:
        raise ImageError(f"{full}: an array of {array.dtype} and shape {array.shape} is no image")
    while array.ndim > 4 and 1 in array.shape:
        array = np.squeeze(array, axis=array.shape.index(1))
    if array.ndim > 4:
        raise ImageError(f"{full}: shape {array.shape} has too many axes; name one item as {full}#[0]")
    if array.ndim == 2:
        return Image(array[None], None, 2)
    if array.ndim == 3:
        if array.shape[-1] in (1, 3, 4) and min(array.shape[:2]) > 4:
            return Image(np.moveaxis(array[..., :3], -1, 0), None, 2)
        if array.shape[0] in (1, 3, 4) and min(array.shape[1:]) > 4:
            return Image(array[:3], None, 2)
        return Image(_slices_last(array)[None], None, 3)
    if array.shape[-1] <= 4 < array.shape[0]:
        array = np.moveaxis(array, -1, 0)
    return Image(np.stack([_slices_last(channel) for channel in array]), None, 3)


def _slices_last(volume: np.ndarray) -> np.ndarray:
    first, second, third = volume.shape
    if second == third != first or (first != second and first < third):
        return np.moveaxis(volume, 0, -1)
    return volume
