"""Folders and lists of files that are one image: a DICOM series, or slices that are stacked in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .base import (
    Format,
    Image,
    ImageInfo,
    Mask,
    check_memory,
    labels_from_image,
    naming_file,
    natural_key,
    parse_number,
)
from .catalog import find_file_format, get_format
from .dicom import Dicom, find_slices, probe_series, read_series, series_grid, stack_slices
from .errors import DataError
from .nifti import write_volume_labels


class SliceFolder(Format):
    """A folder whose files are the slices of one volume. `#phase=N` is another phase of a DICOM series."""

    name = "folder"
    is_folder = True

    def files(self, path: Path) -> list[Path]:
        """Return the image files of a folder in natural order. Raises DataError if they are no slices."""
        images = []
        for file in sorted(path.iterdir(), key=lambda file: natural_key(file.name)):
            if not file.is_file() or file.name.startswith(".") or file.name.upper() == "DICOMDIR":
                continue
            file_format = find_file_format(file)
            if file_format is not None and not file_format.is_container and file_format.name != "video":
                images.append((file, file_format))
        if not images:
            raise DataError(f"{path}: no image in this folder")
        if any(isinstance(file_format, Dicom) for _, file_format in images):
            return [file for file, file_format in images if isinstance(file_format, Dicom)]
        names = {file_format.name for _, file_format in images}
        if len(images) > 1 and (len(names) > 1 or names & {"nifti", "mgh", "metaimage", "nrrd"}):
            first, second = images[0][0].name, images[1][0].name
            raise DataError(f"{path}: holds {len(images)} images ({first}, {second}, ...), not one volume")
        return [file for file, _ in images]

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with naming_file(path):
            return probe_slices(path, self.files(path), item)

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(path):
            return read_slices(path, self.files(path), item)

    def read_labels(self, path: Path, item: str = "") -> Mask:
        with naming_file(path):
            return read_label_slices(path, self.files(path))

    def file_grid(self, path: Path, item: str = "") -> tuple[np.ndarray, tuple[int, ...]] | None:
        with naming_file(path):
            return slices_grid(path, self.files(path))

    def write_labels(self, array: np.ndarray, reference: Path, stem: Path, item: str = "") -> Path | None:
        grid = self.file_grid(reference)
        return write_volume_labels(array, stem, grid) if grid is not None and array.ndim == 3 else None


def is_dicom_series(files: Sequence[Path]) -> bool:
    """Return whether all files are slices of one DICOM series that says where they lie, in whatever order they are named."""
    if len(files) < 2 or not all(isinstance(find_file_format(file), Dicom) for file in files):
        return False
    slices = find_slices(files)
    stack = stack_slices(files[0].parent, slices) if slices else None
    return stack is not None and stack.affine is not None and len(stack.slices) == len(files)


def read_slices(name: Path, files: Sequence[Path], item: str = "", *, in_order: bool = False) -> Image:
    """Return slice files as one volume; grey and colour slices together become colour.

    Args:
        in_order: whether the files are to be stacked as they are named, unless they are one DICOM series.
    """
    if not files:
        raise DataError("an empty list of slices is no image")
    part = parse_number(name, item, ("phase",))
    if all(isinstance(find_file_format(file), Dicom) for file in files) and (not in_order or is_dicom_series(files)):
        return read_series(name, files, part[1] if part else None)
    if len(files) == 1:
        return get_format(files[0]).read(files[0])
    info = get_format(files[0]).probe(files[0])
    check_memory(name, (*info.shape, len(files), info.channels), np.dtype(info.dtype).itemsize)
    slices = [get_format(file).read(file) for file in files]
    for file, piece in zip(files, slices, strict=True):
        if piece.dims != 2 or piece.array.shape[1:] != slices[0].array.shape[1:]:
            raise DataError(f"{file}: shape {piece.array.shape} does not fit the first slice's {slices[0].array.shape}")
    channels = max(piece.array.shape[0] for piece in slices)
    planes = [np.broadcast_to(piece.array, (channels, *piece.array.shape[1:])) for piece in slices]
    return Image(np.stack(planes, axis=-1), None, 3, slices[0].modality, stored_range=slices[0].stored_range)


def probe_slices(name: Path, files: Sequence[Path], item: str = "", *, in_order: bool = False) -> ImageInfo:
    """Return what the headers say about `read_slices`, by the first slice of a stack of pictures."""
    if not files:
        raise DataError("an empty list of slices is no image")
    part = parse_number(name, item, ("phase",))
    if all(isinstance(find_file_format(file), Dicom) for file in files) and (not in_order or is_dicom_series(files)):
        return probe_series(name, files, part[1] if part else None)
    info = get_format(files[0]).probe(files[0])
    if len(files) == 1:
        return info
    return replace(info, shape=(*info.shape[:2], len(files)), dims=3, spacing=None, affine=None, frames=len(files))


def read_label_slices(name: Path, files: Sequence[Path], *, in_order: bool = False) -> Mask:
    """Return the masks of slices as one; of a DICOM series as the volume that it is."""
    if all(isinstance(find_file_format(file), Dicom) for file in files):
        return labels_from_image(read_slices(name, files, in_order=in_order), str(name))
    masks = [get_format(file).read_labels(file) for file in files]
    if len(masks) == 1:
        return masks[0]
    shapes = {mask.array.shape for mask in masks}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        raise DataError(f"{name}: its {len(masks)} masks have the shapes {sorted(shapes)[:3]}; slices have one size")
    colours = {number: colour for mask in masks for number, colour in mask.colours.items()}
    return Mask(np.stack([mask.array for mask in masks], axis=-1), colours=colours)


def slices_grid(name: Path, files: Sequence[Path]) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """Return affine and sizes of slices as stacked, before they are turned to LPS; None unless they are a DICOM series."""
    dicom = [file for file in files if isinstance(find_file_format(file), Dicom)]
    return series_grid(name, dicom) if len(dicom) == len(files) and len(files) > 1 else None


FORMATS = (SliceFolder(),)
