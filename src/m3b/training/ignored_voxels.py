"""Voxels that nobody labelled, such as the border around objects or everything between scribbles.

A record of an index may have `ignore_path`: a mask on the grid of its image that is not 0 where nothing is known. In memory, every
uint8 array of true labels has the value `IGNORE` there: class numbers in the voxel, 0/1 channels in each channel. Losses and metrics
leave these voxels out; padding around an image is background. Predictions never have the value.
"""

from __future__ import annotations

import numpy as np

IGNORE = 255
"""Value of ignored voxels in true labels."""
MAX_CLASSES = IGNORE - 1
"""Classes that one-byte numbers distinguish besides background and `IGNORE`."""


def mark_ignored(labels: np.ndarray, ignored: np.ndarray | None) -> np.ndarray:
    """Return uint8 labels, class numbers or channels (K, ...), with `IGNORE` where the mask `ignored` (...) is set."""
    return labels.astype(np.uint8) if ignored is None else np.where(ignored, np.uint8(IGNORE), labels.astype(np.uint8))


def clear_ignored(predicted: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true labels of one shape with background in the ignored voxels of the truth."""
    ignored = truth == IGNORE
    if not ignored.any():
        return predicted, truth
    return np.where(ignored, predicted.dtype.type(0), predicted), np.where(ignored, truth.dtype.type(0), truth)
