"""True and predicted masks on the grid of their image, and mask metrics as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from m3b.data.records import Record
from m3b.dataset.reading import align_mask, corners_apart, geometry, read_mask
from m3b.errors import DataError, ModelError
from m3b.metrics import LabelMetrics, Scores
from m3b.metrics.masks import empty_prediction_metrics
from m3b.models import Prediction
from m3b.tasks.base import Row, from_json_number, to_json_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_CORNER_GAP_MM = 0.5
"""Maximum distance between the corners of a predicted mask and those of its image."""


def image_of(record: Record) -> str | list[str] | dict[str, str]:
    """Return the image reference of a record in the form that the readers take."""
    return record.reference


def read_true_mask(mask: Any, record: Record, root: Path) -> NDArray[Any]:
    """Read one mask file of a record as label numbers on the grid of its image, (H, W) or (H, W, D).

    Raises:
        DataError: the file cannot be read, or does not lie on the image.
    """
    aligned: NDArray[Any] = align_mask(mask, image_of(record), str(root))
    return aligned


def read_ignored(record: Record, root: Path) -> NDArray[np.bool_] | None:
    """Return the pixels of a record that nobody labelled, on the grid of its image; None if it names none.

    Raises:
        DataError: the file cannot be read, does not lie on the image, or leaves no pixel.
    """
    if record.ignored is None:
        return None
    ignored: NDArray[np.bool_] = read_true_mask(record.ignored, record, root) != 0
    if ignored.all():
        raise DataError(f"{record.ignored}: every pixel of {record.key} is ignored; leave the case out")
    return ignored


def ignored_share_of(ignored: NDArray[np.bool_] | None) -> dict[str, float]:
    """Return the entry of a row for the share of its ignored pixels; {} if there are none."""
    return {} if ignored is None else {"ignored": round(float(ignored.mean()), 6)}


def add_ignored_share(scores: Scores, rows: Sequence[Row]) -> Scores:
    """Add the mean share of ignored pixels to the details of the scores, if any case has some."""
    if not any(row.get("ignored") for row in rows):
        return scores
    share = fmean(float(row.get("ignored", 0.0)) for row in rows)
    return replace(scores, details={**scores.details, "ignored_share": share})


def single_mask_of(record: Record) -> str | list[str]:
    """Return the mask of a record whose classes share one mask file.

    Raises:
        ModelError: it has none.
    """
    if record.mask is None or isinstance(record.mask, Mapping):
        raise ModelError(f"{record.key}: the index has no single mask file for it")
    return record.mask if isinstance(record.mask, str) else list(record.mask)


def iterate_true_masks(record: Record, values: Mapping[str, int], root: Path) -> Iterator[NDArray[np.bool_]]:
    """Yield the true mask of each class, (H, W[, D]), also in ignored pixels; empty for a class that is not marked.

    Raises:
        DataError: as `read_true_mask`.
    """
    import numpy as np

    if record.mask is None or isinstance(record.mask, Mapping):
        files = record.mask or {}
        shape = geometry(image_of(record), str(root)).shape
        for name in values:
            is_marked = name in files
            yield read_true_mask(files[name], record, root) != 0 if is_marked else np.zeros(shape, dtype=np.bool_)
        return
    label_map = read_true_mask(record.mask if isinstance(record.mask, str) else list(record.mask), record, root)
    for value in values.values():
        yield label_map == value


def read_true_channels(record: Record, values: Mapping[str, int], root: Path) -> NDArray[np.bool_]:
    """Return the masks of `iterate_true_masks` as (K, H, W[, D])."""
    import numpy as np

    return np.stack(list(iterate_true_masks(record, values, root)))


def merge_channels(channels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the union of all classes, (H, W[, D]), of masks (K, H, W[, D])."""
    import numpy as np

    return np.asarray(channels, dtype=np.bool_).max(axis=0)  # type: ignore[no-any-return]


def read_predicted_mask(file: Path, record: Record, root: Path) -> NDArray[Any]:
    """Read a mask that predict.py wrote, on the grid of the image.

    Raises:
        ModelError: the file cannot be read, or its shape or position differs from the image.
    """

    grid = geometry(image_of(record), str(root))
    try:
        mask = read_mask(str(file))
    except DataError as error:
        raise ModelError(f"predict.py wrote a mask that cannot be read: {error}") from error
    if tuple(mask.array.shape) != tuple(grid.shape):
        raise ModelError(
            f"predict.py wrote a mask of shape {tuple(mask.array.shape)} for the image {record.key} of shape "
            f"{tuple(grid.shape)}; write it in the image's own geometry (write_labels of m3b.dataset.formats does)"
        )
    corner_gap = corners_apart(mask, grid)
    if corner_gap is not None and corner_gap > MAX_CORNER_GAP_MM:
        raise ModelError(
            f"the mask of {record.key} lies {corner_gap:.1f} mm off its image; keep the image's affine "
            "(write_labels of m3b.dataset.formats does)"
        )
    return mask.array


def iterate_predicted_masks(
    answer: Prediction, classes: tuple[str, ...], record: Record, root: Path
) -> Iterator[NDArray[np.bool_]]:
    """Yield the mask of each class, (H, W[, D]), of a prediction that has one file for each class.

    Raises:
        ModelError: the prediction has other classes; and as `read_predicted_mask`.
    """
    if set(answer.masks) != set(classes):
        raise ModelError(f"predict.py gives masks of {sorted(answer.masks)}; the classes are {sorted(classes)}")
    for name in classes:
        yield read_predicted_mask(answer.masks[name], record, root) != 0


def read_predicted_channels(
    answer: Prediction, classes: tuple[str, ...], record: Record, root: Path
) -> NDArray[np.bool_]:
    """Return the masks of `iterate_predicted_masks` as (K, H, W[, D])."""
    import numpy as np

    return np.stack(list(iterate_predicted_masks(answer, classes, record, root)))


def spacing_of(record: Record, root: Path) -> tuple[float, ...] | None:
    """Return the mm per voxel for each axis of the image array; None if unknown, so that distances are in pixels."""
    spacing = geometry(image_of(record), str(root)).spacing
    return tuple(spacing) if spacing else None


def distance_unit_of(record: Record, root: Path) -> str:
    """Return the unit of distances in this image: `mm`, or `px` if its file has no spacing."""
    return "mm" if geometry(image_of(record), str(root)).spacing else "px"


def add_distance_unit(scores: Scores, rows: Sequence[Row]) -> Scores:
    """Add the unit of the distances to the details of the scores: `mm`, `px`, or `mixed`."""
    units = {str(row["unit"]) for row in rows if row.get("unit")}
    if not units:
        return scores
    unit = units.pop() if len(units) == 1 else "mixed"
    return replace(scores, details={**scores.details, "distance_unit": unit})


def pack_figures(label_figures: Mapping[str, LabelMetrics]) -> dict[str, list[Any]]:
    """Convert the six figures of each label to JSON values."""
    return {
        name: [*(to_json_number(v) for v in (f.dice, f.nsd, f.hd95)), f.reference, f.prediction, f.max_distance]
        for name, f in label_figures.items()
    }


def pack_unmarked_figures(raw: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the figures, in the form of `pack_figures`, of a prediction that marks nothing in the same image."""
    return pack_figures({name: empty_prediction_metrics(figures) for name, figures in unpack_figures(raw).items()})


def unpack_figures(raw: Mapping[str, Any]) -> dict[str, LabelMetrics]:
    """Convert the JSON values of `pack_figures` back to metrics."""
    return {
        name: LabelMetrics(
            from_json_number(row[0]),
            from_json_number(row[1]),
            from_json_number(row[2]),
            int(row[3]),
            int(row[4]),
            float(row[5]),
        )
        for name, row in raw.items()
    }


def mask_distance(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the mean difference in Dice with the same true mask, over labels.

    A label with only one of the two Dice values defined counts as 1.
    """
    pairs = [(figures.dice, unpack_figures(second)[name].dice) for name, figures in unpack_figures(first).items()]
    differences = [float(math.isnan(a) != math.isnan(b)) if math.isnan(a + b) else abs(a - b) for a, b in pairs]
    return fmean(differences) if differences else 0.0
