"""The position of a box in its image: from fractions, pixels or mm of the patient to voxels along the file's own axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from m3b.dataset.formats import box_to_array, box_to_file, get_format
from m3b.dataset.formats.arrays import ArrayFormat
from m3b.dataset.reading import box_extent, geometry, probe_orientation, probe_shape
from m3b.errors import DataError

Space = Literal["pixels", "fractions", "percent", "lps", "ras"]
"""What coordinates count: pixels or voxels, shares of the image's sides (of 1 or of 100), or mm of the patient."""
Numbers = tuple[float, ...]
Source = str | list[str]
"""An image below its root, or the slices of one."""
IN_MM = ("lps", "ras")
PLACED_FORMATS = ("dicom", "nifti", "metaimage", "nrrd", "video")
"""Formats whose grids are not those of pictures: headers place them, or they have frames."""
SHARES: dict[str, float] = {"fractions": 1.0, "percent": 100.0}
"""What the whole side is."""


@dataclass(frozen=True)
class BoxGrid:
    """The grid of an image as boxes need it.

    Args:
        extent: (columns, rows), or the sizes of the file's own three axes.
        affine: from (row, column, slice) of the array that is read to LPS mm; None if no header says it.
        spacing: mm of the array's axes; None if unknown.
        orientation: the EXIF orientation by which a picture is turned when it is read; `extent` is that of the turned one.
    """

    image: Source
    root: Path
    extent: Numbers
    affine: Any = None
    spacing: Numbers | None = None
    orientation: int = 1

    @property
    def volume(self) -> bool:
        return len(self.extent) == 3


def grid_for(image: Source, root: Path) -> BoxGrid:
    """Return the grid of one image, from its header if it has one.

    Raises:
        DataError: the image does not open.
    """
    if isinstance(image, str) and _is_picture(image, root):
        shape = probe_shape(image, str(root))
        extent = (*(float(side) for side in (shape[1], shape[0])), *map(float, shape[2:]))
        return BoxGrid(image, root, extent, orientation=probe_orientation(image, str(root)))
    grid = geometry(image, str(root))
    extent = box_extent(image, str(root)) if len(grid.shape) == 3 else (float(grid.shape[1]), float(grid.shape[0]))
    return BoxGrid(image, root, extent, grid.affine, grid.spacing, grid.orientation)


def _is_picture(image: str, root: Path) -> bool:
    """Whether an image is a file of pixels alone: no header places it in a patient."""
    if "#" in image or (root / image).is_dir():
        return False
    file_format = get_format(root / image)
    is_other = isinstance(file_format, ArrayFormat) or file_format.is_container
    return not is_other and file_format.name not in PLACED_FORMATS


def to_voxels(
    box: Numbers, grid: BoxGrid, space: Space = "pixels", *, ball: bool = False, sizes_mm: bool = False
) -> Numbers:
    """Return a box (lower corner, then upper) in pixels of a picture, or in voxels along the file's axes.

    Args:
        ball: whether it encloses a ball, which no rotation of the grid makes larger.
        sizes_mm: whether its sides are in mm, and its middle is not.

    Raises:
        DataError: the image does not say what that takes, or is a volume and the box flat.
    """
    if grid.volume and len(box) == 4:
        raise DataError("its boxes have two axes, and it is a volume")
    if not grid.volume and len(box) == 6:
        box = (*box[:2], *box[3:5])
    if space in SHARES:
        return tuple(value * side / SHARES[space] for value, side in zip(box, grid.extent * 2, strict=True))
    if space in IN_MM:
        return _from_mm(box, grid, ball=ball, ras=space == "ras")
    return _sized(box, grid) if sizes_mm else box


def upright(boxes: Sequence[Numbers], grid: BoxGrid) -> list[Numbers]:
    """Return the boxes (x0, y0, x1, y1) of one picture in pixels of the picture on display.

    Boxes that reach beyond the picture on display, and lie within the picture as it is stored, were drawn on that one:
    EXIF turns them as it turns the picture.
    """
    width, height = grid.extent[:2]
    flat = all(len(box) == 4 for box in boxes) and not grid.volume
    beyond = any(box[2] > width + 1 or box[3] > height + 1 for box in boxes)
    within = all(min(box) >= -1 and box[2] <= height + 1 and box[3] <= width + 1 for box in boxes)
    if grid.orientation < 5 or not (flat and beyond and within):
        return list(boxes)
    return [_turned(box, grid) for box in boxes]


def _turned(box: Numbers, grid: BoxGrid) -> Numbers:
    """A box in stored pixels, with rows and columns exchanged (orientations 5 to 8) and reversed as EXIF says."""
    width, height = grid.extent[:2]
    x0, y0, x1, y1 = box[1], box[0], box[3], box[2]
    if grid.orientation in (6, 7):
        x0, x1 = width - x1, width - x0
    if grid.orientation in (7, 8):
        y0, y1 = height - y1, height - y0
    return (x0, y0, x1, y1)


def _from_mm(box: Numbers, grid: BoxGrid, *, ball: bool, ras: bool) -> Numbers:
    """A voxel's index is that of its middle, half a voxel past its lower edge."""
    import numpy as np

    if grid.affine is None or len(box) != 6:
        raise DataError("its boxes are in mm, and it does not say where it lies")
    turn = np.diag([-1.0, -1.0, 1.0]) if ras else np.eye(3)
    inverse = np.linalg.inv(grid.affine)
    middle, half = _middle(box)
    index = (inverse @ [*(turn @ middle), 1.0])[:3] + 0.5
    reach = half * np.linalg.norm(inverse[:3, :3], axis=1) if ball else np.abs(inverse[:3, :3]) @ half
    return _to_file([*(index - reach), *(index + reach)], grid)


def _sized(box: Numbers, grid: BoxGrid) -> Numbers:
    """A box whose middle is in pixels and whose sides are in mm."""
    import numpy as np

    if grid.spacing is None:
        raise DataError("the sizes of its boxes are in mm, and it does not say how large its pixels are")
    turned = box_to_array(box, grid.image, str(grid.root))
    centre, half = _middle(turned)
    reach = half / np.array(grid.spacing[: len(centre)])
    return _to_file([*(centre - reach), *(centre + reach)], grid)


def _middle(box: Numbers) -> tuple[Any, Any]:
    import numpy as np

    low, high = np.array(box[: len(box) // 2]), np.array(box[len(box) // 2 :])
    return (low + high) / 2, (high - low) / 2


def _to_file(box: Sequence[float], grid: BoxGrid) -> Numbers:
    """From the array that is read to the axes of the file."""
    corners = box_to_file([float(value) for value in box], grid.image, str(grid.root))
    return tuple(float(value) for value in corners)


def clipped(box: Numbers, grid: BoxGrid) -> Numbers | None:
    """Return the part of a box that lies in its image; None if nothing does."""
    half = len(grid.extent)
    low = [max(0.0, value) for value in box[:half]]
    high = [min(side, value) for side, value in zip(grid.extent, box[half:], strict=True)]
    return (*low, *high) if all(b > a for a, b in zip(low, high, strict=True)) else None


def fill_boxes(boxes: Sequence[Numbers], image: Any, root: Path) -> Any:
    """Return uint8 (H, W[, D]) on the grid of an image as it is read: 1 in the pixels of its boxes, one a box at least."""
    import numpy as np

    mask = np.zeros(geometry(image, str(root)).shape, np.uint8)
    for box in boxes:
        corners = np.array(box_to_array(box, image, str(root)))
        low, high = corners[: mask.ndim], corners[mask.ndim :]
        is_thin = np.rint(high) <= np.rint(low)
        first = np.where(is_thin, np.floor((low + high) / 2), np.rint(low)).astype(int)
        end = np.where(is_thin, first + 1, np.rint(high)).astype(int)
        mask[tuple(slice(start, stop) for start, stop in zip(first, end, strict=True))] = 1
    return mask
