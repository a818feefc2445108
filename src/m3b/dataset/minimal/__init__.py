"""Copies of images that hold what decoding, geometry and physical values need, and no other texts.

A model that is measured gets such copies: names, identifiers, descriptions and dates of the original could tell it the answer.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from m3b.dataset.formats import DataError, ImageInfo, get_format
from m3b.dataset.formats.sidecars import find_data_file, header_kind

WriteCopy = Callable[[Path, Path], bool]
"""Writes a minimal copy of a file to a new path; returns False, with nothing written, if the content cannot be told apart."""
_WRITERS = {
    "png": "pictures.write_png",
    "jpeg": "pictures.write_jpeg",
    "webp": "pictures.write_webp",
    "gif": "pictures.write_gif",
    "jpeg2000": "pictures.write_jpeg2000",
    "bmp": "pictures.write_bmp",
    "tiff": "tiff.write_tiff",
    "dicom": "dicom.write_dicom",
    "nifti": "volumes.write_nifti",
    "mgh": "volumes.write_mgh",
    "nrrd": "volumes.write_nrrd",
    "metaimage": "volumes.write_metaimage",
}
"""Format -> module and function that write its copies; imported on use, since they load parsers of foreign files."""
PADDED_AT_THE_END = ("tiff", "nifti", "mgh", "gif", "bmp")
"""Formats whose readers ignore bytes after the content."""


def write_minimal_copy(source: Path, target: Path) -> bool:
    """Write a copy of an image without texts that are not needed to read it, padded to a power of two.

    The pixels stay as they are encoded. Detached headers are copied without their data file.

    Returns:
        Whether it was written. False, with nothing at `target`, if the file is damaged, if texts and data of its format cannot
        be told apart, or if the header of the copy says something else of the image.
    """
    try:
        file_format = get_format(source)
        writer = _find_writer(file_format.name)
        if writer is not None and writer(source, target):
            if file_format.name in PADDED_AT_THE_END:
                pad_file(target)
            if header_kind(source) and find_data_file(source) is not None:
                return True  # the copy has no data file yet
            if _is_same(file_format.probe(source), get_format(target).probe(target)):
                return True
    except (DataError, OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, struct.error, zlib.error):
        pass  # a damaged file, which the copy would hide
    target.unlink(missing_ok=True)
    return False


def _find_writer(format_name: str) -> WriteCopy | None:
    module, _, function = _WRITERS.get(format_name, "").partition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), function) if module else None


def _is_same(first: ImageInfo, second: ImageInfo) -> bool:
    return all(
        np.array_equal(np.asarray(getattr(first, field.name)), np.asarray(getattr(second, field.name)))
        for field in fields(ImageInfo)
        if field.name != "notes"
    )


def pad_file(file: Path) -> None:
    """Extend a file by zeros, which take no space on the disk, to a power of two: its size tells little of the original."""
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(1 << max(size - 1, 1).bit_length())
