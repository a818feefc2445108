"""A member of a container of arrays, whatever the container's format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Format = Literal["npz", "npy", "hdf5", "mat", "tiff_stack", "ome_tiff", "zip", "tar", "video", "volume4d", "pt"]


@dataclass(frozen=True)
class Inner:
    """One member of one file: its key, shape and type, and how its values are read when they are wanted."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[tuple[slice, ...] | None], Any]
    """Values of a part of the first axis, or all."""
    matlab: str = ""
    """What MATLAB says of a data set that it wrote as HDF5: `char`, `uint16`, ..."""
