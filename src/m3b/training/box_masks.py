"""Boxes as weak masks: outside of all boxes is background, and inside it is unknown which voxels belong to the structure.

A record of an index whose `mask_origin` is "boxes" has filled boxes as its mask. In a training patch, the inner part of each box is
the class (an ellipse of half its sides: Khoreva et al., CVPR 2017). The other voxels of class number k have the value `IGNORE` - k:
254 for the first class, and in each channel if classes overlap. `BoxLoss` learns from them; other losses leave them out.

SciPy is imported when boxes are filled or marked.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from m3b.training.ignored_voxels import IGNORE

ORIGIN, FROM_BOXES = "mask_origin", "boxes"
"""Key of a record, and what it says if the mask is filled boxes."""
MAX_BOX_CLASSES = 120
"""Classes whose numbers and box values differ in one byte."""
CORE = 0.5
"""Sides of the ellipse inside a box that is taken as the class, as a share of the box."""


def is_from_boxes(record: Mapping[str, object]) -> bool:
    """Return whether the mask of a record is filled boxes."""
    return record.get(ORIGIN) == FROM_BOXES


def fill_components(mask: np.ndarray) -> np.ndarray:
    """Return the filled bounding box of each connected component of a boolean mask."""
    from scipy import ndimage

    from m3b.training.lesions import label_lesions

    boxes = np.zeros(mask.shape, bool)
    for box in ndimage.find_objects(label_lesions(mask)[0]):
        boxes[box] = True
    return boxes


def fill_predicted(predicted: np.ndarray, truth: np.ndarray, overlap: bool) -> np.ndarray:
    """Return a prediction, ids or channels, as boxes: of ids that meet, the class of `truth` has the voxel."""
    if overlap:
        return np.stack([fill_components(layer > 0) for layer in predicted]).astype(np.uint8)
    boxes = np.zeros_like(predicted)
    for number in np.unique(predicted[predicted > 0]):
        layer = fill_components(predicted == number)
        boxes[layer & ((boxes == 0) | (truth == number))] = number
    return boxes


def mark_boxes(boxes: np.ndarray, overlap: bool) -> np.ndarray:
    """Return filled boxes, ids or channels, as they are learnt from: see the top of this file."""
    from scipy import ndimage

    from m3b.training.lesions import label_lesions

    if overlap:
        return np.stack([mark_boxes(layer, False) for layer in boxes])
    marked = np.where((boxes > 0) & (boxes != IGNORE), IGNORE - boxes, boxes).astype(np.uint8)
    for number in np.unique(boxes[(boxes > 0) & (boxes != IGNORE)]):
        components, _ = label_lesions(boxes == number)
        for index, box in enumerate(ndimage.find_objects(components), start=1):
            component = components[box] == index
            if component.all():  # boxes that meet have no known centres
                marked[box][_inscribe_ellipse(component.shape)] = number
    return marked


def _inscribe_ellipse(shape: tuple[int, ...]) -> np.ndarray:
    """Return bool (*shape): the ellipse in the middle whose axes are `CORE` of the sides, one voxel at least."""
    distance = np.zeros(shape)
    for axis, positions in enumerate(np.ogrid[tuple(slice(length) for length in shape)]):
        half = max(CORE * shape[axis] / 2, 0.5)
        distance = distance + ((positions - (shape[axis] - 1) / 2) / half) ** 2
    return distance <= max(1.0, float(distance.min()))
