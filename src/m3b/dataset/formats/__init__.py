"""Clinical images of any file format as arrays with geometry: one class a format, found by name and content.

The package can be copied into a delivered model: it imports NumPy, and inside functions the library of the format that is
read. Arrays are channel-first, `(C, H, W)` or `(C, H, W, D)`: rows, columns, slices. Volumes with a known orientation come
as LPS (rows run to the back, columns to the patient's left, slices to the head), so that files saved in different
orientations agree. Spacing is in mm, in the order of the spatial axes.
"""

from .base import Format, FormatNote, Image, ImageInfo, Mask
from .catalog import (
    FORMATS,
    all_suffixes,
    find_file_format,
    find_format,
    get_format,
    register_format,
    strip_suffix,
    unregister_format,
)
from .channels import describe_channels, first_channel, parse_cases, select_channels
from .errors import DataError
from .geometry import Geometry, corner_distance
from .labels import (
    align_labels,
    box_to_array,
    box_to_file,
    file_grid,
    grid_of,
    read_class_masks,
    read_numbered_labels,
    turn_like_image,
    write_labels,
)
from .registry import ImagePath, describe_file, overview_path, probe_image, read_image, read_labels, split_item
from .slides import Part
from .values import fill_nonfinite, grey_values, normalised_range

__all__ = [
    "FORMATS",
    "DataError",
    "Format",
    "FormatNote",
    "Geometry",
    "Image",
    "ImageInfo",
    "ImagePath",
    "Mask",
    "Part",
    "align_labels",
    "all_suffixes",
    "box_to_array",
    "box_to_file",
    "corner_distance",
    "describe_channels",
    "describe_file",
    "file_grid",
    "fill_nonfinite",
    "find_file_format",
    "find_format",
    "first_channel",
    "get_format",
    "grey_values",
    "grid_of",
    "normalised_range",
    "overview_path",
    "parse_cases",
    "probe_image",
    "read_class_masks",
    "read_image",
    "read_labels",
    "read_numbered_labels",
    "register_format",
    "select_channels",
    "split_item",
    "strip_suffix",
    "turn_like_image",
    "unregister_format",
    "write_labels",
]
