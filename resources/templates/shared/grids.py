"""The grid on which an image lies, by its file's header; of several channels, the first one's, which the others are put on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING or __package__:
    from . import geometry, images
    from .formats import ImageError
    from .geometry import Geometry
else:  # loaded by its path, for an `images` module that was loaded in the same way
    import sys

    images = sys.modules[__name__.rsplit("_", 1)[0]]
    geometry, ImageError, Geometry = images.geometry, images.ImageError, images.geometry.Geometry

ImagePath = str | Sequence[str] | Mapping[str, str]
"""A file, the slices of a volume, or channel name -> file."""


def grid_path(path: ImagePath) -> str | Sequence[str]:
    """The path whose grid counts: an image's own, of channels by name the first one's. Raises ImageError for none at all."""
    if not isinstance(path, Mapping):
        return path
    if not path:
        raise ImageError("an object of channels without any channel is no image")
    return next(iter(path.values()))


def grid_of(path: ImagePath, base: str | Path = ".") -> Geometry:
    """The grid of an image as `read_image` gives it; pixels are read only where no header tells. Raises ImageError."""
    path = grid_path(path)
    full = str(Path(base) / path) if isinstance(path, str) else ""
    with images.formats.opening(full):
        own = image_affine(path, base)
        if own is not None:
            affine, shape = own
            order, _ = geometry.closest(affine)
            turned = geometry.reorient(np.broadcast_to(np.zeros(1, bool), (1, *shape)), affine)[1]
            sizes = tuple(shape[axis] for axis in order)
            flat = sizes[2] == 1
            spacing = geometry.spacing_of(turned)
            return Geometry(sizes[:2] if flat else sizes, spacing[:2] if flat else spacing, turned)
    image = images.read_image(path, base)
    return Geometry(tuple(image.array.shape[1:]), image.spacing, None, images.orientation_of(path, base))


def image_affine(path: ImagePath, base: str | Path = ".") -> tuple[np.ndarray, tuple[int, ...]] | None:
    """`file_affine` of a file or a folder, or that of a list of slices of one DICOM series."""
    path = grid_path(path)
    if isinstance(path, str):
        full = str(Path(base) / path)
        return file_affine(full, images.kind_of(full) if Path(full).exists() else "")
    files = [str(Path(base) / item) for item in path]
    return images.series_affine([Path(file) for file in files]) if images.is_series(files) else None


def file_affine(full: str, kind: str) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """LPS affine and sizes of the file's own axes (i, j, k); None where the format knows no geometry."""
    if kind == "nifti":
        import nibabel as nib

        stored = nib.load(full)
        return geometry.nifti_affine(stored.affine), (*stored.shape[:3], 1, 1)[:3]
    if kind == "itk":
        import SimpleITK as sitk

        reader = sitk.ImageFileReader()
        images.check_header(full)
        reader.SetImageIO(images.formats.itk_reader(full))
        reader.SetFileName(full)
        reader.ReadImageInformation()
        if reader.GetDimension() < 3:
            return None
        return geometry.itk_affine(reader), tuple(reader.GetSize()[:3])
    if kind == "folder":
        return images.series_affine(Path(full))  # type: ignore[no-any-return]
    return None
