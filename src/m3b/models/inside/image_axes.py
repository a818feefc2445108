"""Axes of an image file from its header alone, read in the confined process of a delivered model.

Needs nothing of m3b. The libraries are those with which predict.py opens the same file afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

PAGED_PICTURES = (".tif", ".tiff", ".gif", ".webp")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm")
MAX_CHANNELS = 4
"""Maximum length of an axis that holds colours or volumes in an array without a header."""

Axes = dict[str, int]
"""`dims` is 2 or 3; `pages` counts the pages of a picture file, `volumes` the volumes of a series."""


def read_axes(path: str) -> Axes | None:
    """Return the axes of an image file; None if its header does not say them or cannot be read."""
    name = path.lower()
    for suffixes, reader in _READERS:
        if name.endswith(suffixes) and Path(path).is_file():
            try:
                return reader(path)
            except Exception:  # noqa: BLE001 - the script reports a file that no library opens
                return None
    return None


def _read_picture(path: str) -> Axes:
    return {"dims": 2}


def _read_pages(path: str) -> Axes:
    from PIL import Image

    with Image.open(path, formats=("TIFF", "GIF", "WEBP", "PNG", "JPEG")) as picture:
        pages = int(getattr(picture, "n_frames", 1))
    return {"dims": 3 if pages > 1 else 2, "pages": pages}


def _read_dicom(path: str) -> Axes:
    import pydicom

    header = pydicom.dcmread(path, force=True, stop_before_pixels=True, specific_tags=["NumberOfFrames"])
    return {"dims": 3 if int(header.get("NumberOfFrames") or 1) > 1 else 2}


def _read_nifti(path: str) -> Axes:
    import nibabel

    image = nibabel.load(path)
    shape = (*image.shape, 1, 1, 1)
    axis_order = nibabel.io_orientation(image.affine)[:3, 0]
    slice_axis = next((axis for axis, world_axis in enumerate(axis_order) if world_axis == 2), 2)
    volumes = 1
    for size in image.shape[3:]:
        volumes *= int(size)
    return {"dims": 3 if shape[slice_axis] > 1 else 2, "volumes": volumes}


def _read_itk(path: str) -> Axes:
    import SimpleITK

    reader = SimpleITK.ImageFileReader()
    reader.SetImageIO("MetaImageIO" if path.lower().endswith((".mha", ".mhd")) else "NrrdImageIO")
    reader.SetFileName(path)
    reader.ReadImageInformation()
    size = (*reader.GetSize(), 1, 1)
    return {"dims": 3 if size[2] > 1 else 2, "volumes": int(size[3]) if reader.GetDimension() > 3 else 1}


def _read_numpy(path: str) -> Axes | None:
    from numpy.lib import format as npy

    with open(path, "rb") as stream:
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape = header(stream)[0]
    if len(shape) == 2:
        return {"dims": 2}
    if len(shape) == 3:
        has_colours = (shape[2] in (1, 3, 4) and min(shape[:2]) > MAX_CHANNELS) or (
            shape[0] in (1, 3, 4) and min(shape[1:]) > MAX_CHANNELS
        )
        return {"dims": 2 if has_colours else 3}
    if len(shape) == 4:
        return {"dims": 3, "volumes": int(shape[3] if shape[3] <= MAX_CHANNELS < shape[0] else shape[0])}
    return None


_READERS: tuple[tuple[tuple[str, ...], Callable[[str], Axes | None]], ...] = (
    (PICTURES, _read_picture),
    (PAGED_PICTURES, _read_pages),
    ((".dcm", ".dicom", ".ima"), _read_dicom),
    ((".nii", ".nii.gz"), _read_nifti),
    ((".nrrd", ".nhdr", ".mha", ".mhd"), _read_itk),
    ((".npy",), _read_numpy),
)
