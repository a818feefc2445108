"""From an image file to what is prompted, and from a mask back to a file in the image's own geometry."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from m3b.data.reading import read_image, write_mask
from m3b.errors import WrongUse
from m3b.interactive.result import Segmentation
from m3b.interactive.segmenter import Bytes
from m3b.models.overlays.planes import shown


@dataclass(frozen=True)
class Picture2D:
    """What is prompted.

    Args:
        plane: (H, W, 3) uint8.
        volume: (H, W, D, 3) uint8 where the plane is one slice of it.
        index: which slice.
        source: the file; None for an array.
    """

    plane: Bytes
    volume: Bytes | None = None
    index: int = 0
    source: str | None = None


def load_picture(image: str | Path | Bytes, slice_index: int | None = None) -> Picture2D:
    """Open an image; grey values are windowed as overlays show them (CT: soft tissue).

    Raises:
        DataError: it cannot be opened.
        WrongUse: a slice of an image that has none, or a slice that is not there.
    """
    if isinstance(image, np.ndarray):
        if slice_index is not None:
            raise WrongUse("A slice can be chosen of a volume's file, not of an array.")
        return Picture2D(image)
    source = str(Path(image).expanduser().absolute())
    opened = read_image(source)
    picture = np.ascontiguousarray(shown(opened.array, opened.modality))
    if picture.ndim == 3:
        if slice_index is not None:
            raise WrongUse(f"{image} is a single picture and has no slices.")
        return Picture2D(picture, source=source)
    depth = picture.shape[2]
    index = depth // 2 if slice_index is None else slice_index
    if not 0 <= index < depth:
        raise WrongUse(f"{image} has the slices 0 to {depth - 1}; there is no slice {index}.")
    return Picture2D(np.ascontiguousarray(picture[:, :, index]), picture, index, source)


def write(found: Segmentation, picture: Picture2D, folder: Path | None) -> Segmentation:
    """Write mask and result into a folder: the mask with the image's geometry, 1 where the target is."""
    if folder is None:
        return found
    if picture.source is not None:
        file = Path(write_mask(found.mask.astype(np.uint8), picture.source, folder / "mask"))
        found = replace(found, mask_file=file)
    (folder / "result.json").write_text(json.dumps(found.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")
    return found
