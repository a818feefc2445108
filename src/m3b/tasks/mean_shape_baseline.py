"""The mean shape of the training masks: the image-blind baseline of tasks with masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.metrics import build_atlas
from m3b.tasks.aligned_masks import iterate_true_masks, read_ignored, read_true_mask, single_mask_of
from m3b.tasks.base import sample_evenly

MAX_ATLAS_MASKS = 80
"""Number of training masks in the mean shape; more hardly change it and take time."""


def fit_mean_shape(
    training: Sequence[Record], index: Index, root: Path
) -> Callable[[tuple[int, ...]], Iterator[NDArray[np.bool_]]]:
    """Return a function from an image shape to the mask of each class, (*shape) bool, the same for every image of that shape.

    Raises:
        ValueError: the masks have no common shape: 2D and 3D together.
        DataError: a mask cannot be read.
    """
    records = sample_evenly(training, MAX_ATLAS_MASKS)

    def iter_ignored() -> Iterator[NDArray[np.bool_] | None]:
        return (read_ignored(record, root) for record in records)

    if not index.overlapping:
        masks = (read_true_mask(single_mask_of(record), record, root) for record in records)
        atlas = build_atlas(masks, index.values, ignored=iter_ignored())

        def predict_labels(shape: tuple[int, ...]) -> Iterator[NDArray[np.bool_]]:
            labels = atlas.predict(shape)
            return (labels == value for value in index.values.values())

        return predict_labels

    def iter_class_masks(name: str) -> Iterator[NDArray[Any]]:
        masks = (iterate_true_masks(record, {name: index.values[name]}, root) for record in records)
        return (next(mask).astype("uint8") for mask in masks)

    class_atlases = [build_atlas(iter_class_masks(name), {name: 1}, ignored=iter_ignored()) for name in index.classes]
    return lambda shape: (class_atlas.predict(shape) > 0 for class_atlas in class_atlases)
