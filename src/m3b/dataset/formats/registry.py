"""All file formats, and reading by path: `read_image`, `read_labels`, `probe_image`, `describe_file`.

A path is a file, a folder of slices or a DICOM series, a list of slice files, a file with an item (`cases.npz#images[3]`,
`cine.mp4#frames=4`, `photos.zip#a/b.png`), or an object channel name -> one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from . import archives, arrays, dicom, folders, itk, nifti, parquet, pickled, pictures, tensors, tiff, video, zarr_store
from .base import Image, ImageInfo, Mask, describe_info, naming_file
from .catalog import add_builtin, get_format
from .channels import first_channel, join_channels
from .errors import DataError
from .values import fill_nonfinite

ImagePath = str | Sequence[str] | Mapping[str, str]

for _module in (
    pictures, tiff, dicom, nifti, itk, arrays, pickled, tensors, video, parquet, archives, zarr_store, folders,
):  # fmt: skip
    add_builtin(_module.FORMATS)


def split_item(full: str) -> tuple[Path, str]:
    """Return the file or folder of a path, and the item after its `#`. Raises DataError if there is no such file."""
    if Path(full).exists():
        return Path(full), ""
    start = 0
    while (place := full.find("#", start)) >= 0:
        if place and Path(full[:place]).exists():
            return Path(full[:place]), full[place + 1 :]
        start = place + 1
    if "#" in full:
        raise DataError(f"{full.partition('#')[0]}: no such file (from {full})")
    raise DataError(f"{full}: no such file or folder")


def read_image(path: ImagePath, base: str | Path = ".") -> Image:
    """Return the image that a path names, all its values finite; relative paths start at `base`. Raises DataError."""
    if isinstance(path, Mapping):
        first_channel(path)
        return join_channels({name: read_image(channel_path, base) for name, channel_path in path.items()}, path)
    if not isinstance(path, str):
        files = [Path(base, name) for name in path]
        folder = files[0].parent if files else Path(base)
        return fill_nonfinite(folders.read_slices(folder, files, in_order=True), str(folder))
    file, item = split_item(str(Path(base) / path))
    with naming_file(file):
        return fill_nonfinite(get_format(file).read(file, item), str(file))


def overview_path(path: ImagePath, base: str | Path = ".") -> ImagePath:
    """Return the path by which an image is looked at as a whole: that of the overview of a slide; of others `path` itself.

    Raises:
        DataError: the file cannot be opened.
    """
    if not isinstance(path, str):
        return path
    file, item = split_item(str(Path(base) / path))
    with naming_file(file):
        overview = get_format(file).overview_item(file, item)
    return path if overview == item else f"{path}#{overview}"


def read_labels(path: str | Sequence[str], base: str | Path = ".") -> Mask:
    """Return the mask that a path names. Raises DataError for fractions, negative numbers and several channels."""
    if not isinstance(path, str):
        files = [Path(base, name) for name in path]
        return folders.read_label_slices(files[0].parent if files else Path(base), files, in_order=True)
    file, item = split_item(str(Path(base) / path))
    with naming_file(file):
        return get_format(file).read_labels(file, item)


def probe_image(path: ImagePath, base: str | Path = ".") -> ImageInfo:
    """Return what the header of an image says; of named channels that of the first. Raises DataError."""
    if isinstance(path, Mapping):
        path = first_channel(path)
    if not isinstance(path, str):
        files = [Path(base, name) for name in path]
        return folders.probe_slices(files[0].parent if files else Path(base), files, in_order=True)
    file, item = split_item(str(Path(base) / path))
    with naming_file(file):
        return get_format(file).probe(file, item)


def describe_file(path: str | Path) -> str:
    """Return a short text about a file, without anything that names a person. Raises DataError."""
    path = Path(path)
    with naming_file(path):
        file_format = get_format(path)
        return file_format.describe(path) if not path.is_dir() else describe_info(file_format.probe(path))
