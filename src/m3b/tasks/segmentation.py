"""Segmentation: masks against masks, with the mean shape as the answer that never looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.audit_kinds import of as audit_of
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.records import Record
from m3b.errors import DataError, ModelError
from m3b.metrics import (
    LabelFigures,
    Scores,
    SegmentationCase,
    build_atlas,
    measure_mask,
    measure_masks,
    score_segmentation,
)
from m3b.metrics.vocabulary import SEGMENTATION
from m3b.models import Prediction
from m3b.models.answers import of as answers_of

from .agreement import of_figures
from .base import Row, TaskFamily, named, spread
from .marks import (
    answered_channels,
    answered_mask,
    pack,
    spacing_of,
    true_channels,
    true_mask,
    unit_of,
    unmarked,
    unpack,
    with_unit,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_FOR_ATLAS = 80
"""So many training masks make the mean shape; more do not change it much and take time."""


class Segmentation(TaskFamily):
    """See `TaskFamily`."""

    name = "segmentation"
    records = records_of("segmentation")
    audit = audit_of("segmentation")
    answers = answers_of("segmentation")
    metrics = SEGMENTATION
    guide = (
        '{"image_path": "data/x/a.nii.gz", "mask_path": "data/x/a_seg.nii.gz", "patient": "p1"}; '
        'label_dict.json names the values in the masks, {"liver": 1, "spleen": 6}; values that it does not name are '
        'background. Or `mask_path` is {"liver": path, "spleen": path}, a binary mask a class, numbered from 1.'
    )
    asked = (
        r"\b(?:segment|delineat|contour|outlin|umrand|einzeichn|eingezeichnet|umriss|delimit|annotate-pixel)|分割|勾画|輪郭"
        r"|\b(?:draw|paint|colou?r|mark|outline|trace)(?:s|ed|ing)?\b.{0,60}"
        r"\b(?:scan|ct|mri?|image|volume|number|it|them|picture)"
    )
    needs = ("masks",)
    usual_plan = (
        "Pair images and masks by their names as the preview shows them; name the values in the masks after the list of "
        "labels or the card; take the patient from the name; leave out images without a mask."
    )
    aliases = ("segment",)
    ordered = r"(?:segment(?:s|iere?|iert|er|ar|ez|a)?|delineates?|outlines?|umrande)\b"
    built = "Segmentation of"
    shows_masks = True
    compares_answers = True
    compares_crops = False
    compared_cases = 12
    valid_cases = 24

    def outputs(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """One channel a class, and perhaps one of the background. Classes that the plan tells apart by order share a channel,
        and two more for their numbers and middles."""
        chains = plan.get("chains") or []
        if not isinstance(chains, list) or not all(isinstance(row, Mapping) for row in chains):
            return (classes, classes + 1)
        ordered_classes = sum(len(row.get("classes") or []) for row in chains)
        return (classes + 1 - ordered_classes + len(chains) + 2,) if chains else (classes, classes + 1)

    def measure(self, record: Record, answer: Prediction, index: Index, base: Path) -> Row:
        """Dice, NSD and HD95 of every label."""
        if index.overlapping:
            predicted_channels = answered_channels(answer, index.classes, record, base)
            figures = _measure_channels(predicted_channels, record, index, base)
        elif answer.mask is None:
            raise ModelError("predict.py gives no `mask`; classes that exclude each other share one mask file")
        else:
            predicted_mask = answered_mask(answer.mask, record, base)
            truth = true_mask(_whole(record), record, base)
            figures = measure_masks(predicted_mask, truth, index.values, spacing_of(record, base))
        return {**named(record), "figures": pack(figures), "unit": unit_of(record, base)}

    def trivial(self, training: Sequence[Record], records: Sequence[Record], index: Index, base: Path) -> Any:
        """The figures of the mean shape of the training masks on every record; None where there is no common shape."""
        atlas_records = spread(training, MAX_FOR_ATLAS)
        try:
            predict_mean_shape = mean_shape(atlas_records, index, base)
            rows = []
            for record in records:
                truth = true_channels(record, index.values, base)
                rows.append(pack(_figures(predict_mean_shape(truth.shape[1:]), truth, record, index, base)))
        except (ValueError, DataError):
            return None  # 2D and 3D together, or masks that the audit already named: nothing marked is the baseline
        return rows

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, trivial: Any = None, seed: int = 0) -> Scores:
        """Dice, NSD, HD95 with intervals."""
        cases = [SegmentationCase(row["image"], row["patient"], unpack(row["figures"])) for row in rows]
        baseline_cases = None
        if trivial is not None:
            baseline_cases = [
                SegmentationCase(row["image"], row["patient"], unpack(figures))
                for row, figures in zip(rows, trivial, strict=True)
            ]
        scores = score_segmentation(cases, index.classes, primary=primary, trivial=baseline_cases, seed=seed)
        return with_unit(scores, rows)

    def distance(self, row: Row, other: Row) -> float:
        """The mean difference of a label's Dice."""
        return of_figures(row["figures"], other["figures"])

    def blind(self, rows: Sequence[Row], index: Index, trivial: Any = None) -> Sequence[Sequence[Row]]:
        """Nothing marked, and the mean shape where there is one."""
        mean_shapes = [] if trivial is None else [trivial]
        answers = [[unmarked(row["figures"]) for row in rows], *mean_shapes]
        return [[{**row, "figures": figures} for row, figures in zip(rows, answer, strict=True)] for answer in answers]


def mean_shape(records: Sequence[Record], index: Index, base: Path) -> Callable[[tuple[int, ...]], NDArray[Any]]:
    """From the shape of an image to (K, *shape) bool, the same answer for every image of that shape."""
    import numpy as np

    if not index.overlapping:
        atlas = build_atlas((true_mask(_whole(record), record, base) for record in records), index.values)
        label_values = np.array(list(index.values.values()))
        return lambda shape: atlas.predict(shape) == label_values.reshape(-1, *(1,) * len(shape))
    class_atlases = [
        build_atlas(_iter_class_masks(records, index, k, base), {"it": 1}) for k in range(len(index.classes))
    ]
    return lambda shape: np.stack([one.predict(shape) > 0 for one in class_atlases])


def _whole(record: Record) -> str | list[str]:
    if record.mask is None or isinstance(record.mask, Mapping):
        raise ModelError(f"{record.key}: the index has no single mask file for it")
    return record.mask if isinstance(record.mask, str) else list(record.mask)


def _iter_class_masks(records: Sequence[Record], index: Index, position: int, root: Path) -> Iterator[NDArray[Any]]:
    return (true_channels(record, index.values, root)[position].astype("uint8") for record in records)


def _measure_channels(
    predicted_channels: NDArray[Any], record: Record, index: Index, root: Path
) -> dict[str, LabelFigures]:
    return _figures(predicted_channels, true_channels(record, index.values, root), record, index, root)


def _figures(
    ours: NDArray[Any], truth: NDArray[Any], record: Record, index: Index, base: Path
) -> dict[str, LabelFigures]:
    spacing = spacing_of(record, base)
    return {name: measure_mask(ours[k], truth[k], spacing) for k, name in enumerate(index.classes)}


FAMILY = Segmentation()
