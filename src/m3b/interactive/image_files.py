"""Read an image file for prompting, and write a mask in the image's own geometry."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from m3b.errors import UsageError
from m3b.interactive.episode import SegmentationResult
from m3b.interactive.segmenter import ByteImage
from m3b.models.pixel_jobs import ConfinedImageIO
from m3b.writing import write_text_atomically


@dataclass(frozen=True)
class Picture2D:
    """The picture that is prompted.

    Args:
        plane: (H, W, 3) uint8.
        volume: (H, W, D, 3) uint8 if the plane is one slice of it.
        index: the slice.
        source: the file; None for an array.
    """

    plane: ByteImage
    volume: ByteImage | None = None
    index: int = 0
    source: str | None = None


def source_of(image: str | Path | ByteImage) -> str | None:
    """Return the absolute path of an image; None for an array."""
    return None if isinstance(image, np.ndarray) else str(Path(image).expanduser().absolute())


def load_picture(
    image: str | Path | ByteImage, opener: ConfinedImageIO | None, slice_index: int | None = None
) -> Picture2D:
    """Open an image; grey values are windowed as in overlays (CT: soft tissue).

    Args:
        opener: opens files; not needed for an array.

    Raises:
        DataError: it cannot be opened.
        UsageError: a slice is requested of an image without slices, or the slice does not exist.
    """
    if isinstance(image, np.ndarray):
        if slice_index is not None:
            raise UsageError("A slice can be chosen of a volume's file, not of an array.")
        return Picture2D(image)
    source = source_of(image)
    if opener is None or source is None:
        raise TypeError("a file needs an opener")
    picture = opener.read_image(source)
    if picture.ndim == 3:
        if slice_index is not None:
            raise UsageError(f"{image} is a single picture and has no slices.")
        return Picture2D(picture, source=source)
    depth = picture.shape[2]
    index = depth // 2 if slice_index is None else slice_index
    if not 0 <= index < depth:
        raise UsageError(f"{image} has the slices 0 to {depth - 1}; there is no slice {index}.")
    return Picture2D(np.ascontiguousarray(picture[:, :, index]), picture, index, source)


def write_result(
    result: SegmentationResult, picture: Picture2D, folder: Path | None, opener: ConfinedImageIO | None
) -> SegmentationResult:
    """Write mask and result into a folder: the mask with the image's geometry, 1 on the target.

    An empty mask is written if the target is said to be absent, but not if no mask was made, which would mean the same.
    """
    if folder is None:
        return result
    has_answer = result.kept_turn > 0 or result.status == "absent"
    if has_answer and picture.source is not None and opener is not None:
        result = replace(result, mask_file=opener.write_mask(result.mask, picture.source, folder))
    write_text_atomically(folder / "result.json", json.dumps(result.to_json(), indent=1, ensure_ascii=False))
    return result
