"""The family of segmentation: predicted masks compared with true masks; the baseline is the mean shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.altering import NOISE
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.records import Record
from m3b.dataset.reading import geometry
from m3b.errors import DataError, ModelError
from m3b.metrics import Scores, measure_mask, measure_masks
from m3b.metrics.instances import InstanceCounts, count_instances
from m3b.models import Prediction
from m3b.tasks.aligned_masks import (
    add_distance_unit,
    add_ignored_share,
    distance_unit_of,
    ignored_share_of,
    image_of,
    iterate_predicted_masks,
    iterate_true_masks,
    mask_distance,
    pack_figures,
    pack_unmarked_figures,
    read_ignored,
    read_predicted_mask,
    read_true_mask,
    single_mask_of,
    spacing_of,
    unpack_figures,
)
from m3b.tasks.base import Row, TaskFamily, make_base_row
from m3b.tasks.mean_shape_baseline import fit_mean_shape
from m3b.tasks.report_section import MaskReportSection
from m3b.tasks.segmentation.answers import SegmentationAnswers
from m3b.tasks.segmentation.metrics import BOX_IOU, SEGMENTATION_METRICS, SegmentationCase, score_segmentation
from m3b.training.box_masks import fill_components, fill_predicted, is_from_boxes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Segmentation(TaskFamily):
    """The segmentation family; see `TaskFamily`."""

    name = "segmentation"
    records = records_of("segmentation")
    answers = SegmentationAnswers()
    metrics = SEGMENTATION_METRICS
    report_section = MaskReportSection()
    index_guide = (
        '{"image_path": "data/x/a.nii.gz", "mask_path": "data/x/a_seg.nii.gz", "patient": "p1"}; '
        'label_dict.json names the values in the masks, {"liver": 1, "spleen": 6}; values that it does not name are '
        'background. Or `mask_path` is {"liver": path, "spleen": path}, a binary mask a class, numbered from 1.'
    )
    request_pattern = (
        r"\b(?:segment|delineat|contour|outlin|umrand|einzeichn|eingezeichnet|umriss|delimit|annotate-pixel)|分割|勾画|輪郭"
        r"|\b(?:draw|paint|colou?r|mark|outline|trace)(?:s|ed|ing)?\b.{0,60}"
        r"\b(?:scan|ct|mri?|image|volume|number|it|them|picture)"
    )
    required_targets = ("masks",)
    default_plan = (
        "Pair images and masks by their names as the preview shows them; name the values in the masks after the list of "
        "labels or the card; take the patient from the name; leave out images without a mask."
    )
    aliases = ("segment",)
    order_pattern = r"(?:segment(?:s|iere?|iert|er|ar|ez|a)?|delineates?|outlines?|umrande)\b"
    model_title = "Segmentation"
    max_validation_cases = 24

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return one channel a class, plus an optional background.

        Classes that the plan tells apart by their order (`chains`) share a channel; two more channels hold their
        numbers and centres.
        """
        chains = plan.get("chains") or []
        if not isinstance(chains, list) or not all(isinstance(row, Mapping) for row in chains):
            return (classes, classes + 1)
        ordered_classes = sum(len(row.get("classes") or []) for row in chains)
        return (classes + 1 - ordered_classes + len(chains) + 2,) if chains else (classes, classes + 1)

    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Measure Dice, NSD and HD95 of every label in the pixels that are not ignored; of boxes, if the true mask is boxes."""
        ignored, is_boxed = read_ignored(record, root), is_from_boxes(record.extra)
        if index.overlapping:
            spacing = spacing_of(record, root)
            predicted_masks = iterate_predicted_masks(prediction, index.classes, record, root)
            true_masks = iterate_true_masks(record, index.values, root)
            figures, instances = {}, {}
            for name, predicted, truth in zip(index.classes, predicted_masks, true_masks, strict=True):
                marked = fill_components(predicted) if is_boxed else predicted
                figures[name] = measure_mask(marked, truth, spacing, ignored=ignored)
                instances[name] = count_instances(marked, truth, ignored)
        elif prediction.mask is None:
            raise ModelError("predict.py gives no `mask`; classes that exclude each other share one mask file")
        else:
            predicted_mask = read_predicted_mask(prediction.mask, record, root)
            truth = read_true_mask(single_mask_of(record), record, root)
            if is_boxed:
                predicted_mask = fill_predicted(predicted_mask, truth, False)
            figures = measure_masks(predicted_mask, truth, index.values, spacing_of(record, root), ignored=ignored)
            instances = {
                name: count_instances(predicted_mask == value, truth == value, ignored)
                for name, value in index.values.items()
            }
        return {
            **make_base_row(record),
            "figures": pack_figures(figures),
            "instances": {name: counts.to_list() for name, counts in instances.items()},
            "unit": distance_unit_of(record, root),
            **ignored_share_of(ignored),
            **({"boxed": True} if is_boxed else {}),
        }

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Measure the mean shape of the training masks on every record; None if there is no common shape."""
        try:
            predict_mean_shape = fit_mean_shape(training, index, root)
            rows = []
            for record in records:
                predicted_masks: Iterable[NDArray[Any]] = predict_mean_shape(
                    tuple(geometry(image_of(record), str(root)).shape)
                )
                if is_from_boxes(record.extra):
                    predicted_masks = map(fill_components, predicted_masks)
                true_masks = iterate_true_masks(record, index.values, root)
                spacing, ignored = spacing_of(record, root), read_ignored(record, root)
                figures = {
                    name: measure_mask(predicted, truth, spacing, ignored=ignored)
                    for name, predicted, truth in zip(index.classes, predicted_masks, true_masks, strict=True)
                }
                rows.append(pack_figures(figures))
        except (ValueError, DataError):
            return None  # 2D and 3D together, or masks that the audit already reported: the baseline marks nothing
        return rows

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute Dice, NSD and HD95 with intervals."""
        cases = [
            SegmentationCase(
                row["image"],
                row["patient"],
                unpack_figures(row["figures"]),
                {name: _unpack_instances(counts) for name, counts in row.get("instances", {}).items()},
                bool(row.get("boxed")),
            )
            for row in rows
        ]
        baseline_cases = None
        if baseline is not None:
            baseline_cases = [
                SegmentationCase(row["image"], row["patient"], unpack_figures(figures))
                for row, figures in zip(rows, baseline, strict=True)
            ]
        scores = score_segmentation(cases, index.classes, primary=primary, baseline_cases=baseline_cases, seed=seed)
        return add_ignored_share(add_distance_unit(scores, rows), rows)

    def list_metrics_of(self, target: str) -> tuple[str, ...]:
        """Return the IoU of boxes for masks that are boxes."""
        return (BOX_IOU,) if target == "boxes" else ()

    def get_default_metric(self, index: Index) -> str:
        """Return Dice, or the IoU of boxes if the test masks are boxes."""
        return BOX_IOU if any(is_from_boxes(record.extra) for record in index.test) else self.metrics.default_metric

    def list_alterations(self) -> tuple[str, ...]:
        """Return noise only: a mask moves with the framing."""
        return (NOISE,)

    def max_altered_cases(self) -> int:
        """Return half of the usual number: volumes take long."""
        return 12

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """Return the mean difference in Dice over labels."""
        return mask_distance(row["figures"], other_row["figures"])

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return rows with nothing marked, and rows with the mean shape if there is one."""
        mean_shapes = [] if baseline is None else [baseline]
        answers = [[pack_unmarked_figures(row["figures"]) for row in rows], *mean_shapes]
        return [
            [{**row, "figures": figures, **_without_instances(row)} for row, figures in zip(rows, answer, strict=True)]
            for answer in answers
        ]


def _unpack_instances(values: Sequence[float]) -> InstanceCounts:
    return InstanceCounts(float(values[0]), int(values[1]), int(values[2]), int(values[3]))


def _without_instances(row: Row) -> dict[str, Any]:
    """Return the instances of a row as a prediction without any has them."""
    packed = row.get("instances", {})
    return {"instances": {k: _unpack_instances(counts).without_prediction().to_list() for k, counts in packed.items()}}


FAMILY = Segmentation()
