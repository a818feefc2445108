"""A task family outside m3b: one landmark in each image, predicted as a point.

Records hold `"point": [x, y]` in pixels. A model is measured by the mean distance of its points to the true ones, and by
the share within `NEAR_DISTANCE_PX` pixels. The image-blind baseline is the mean point of the training cases.

`register_task(FAMILY)` registers it; so does an entry point: `[project.entry-points."m3b.tasks"]`,
`landmarks = "landmarks:FAMILY"`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.data.kinds import Item, RecordKind
from m3b.data.records import Record
from m3b.errors import ModelError
from m3b.metrics import MetricTable, Scores, score_means
from m3b.models import ModelInfo, Prediction
from m3b.models.answers import AnswerFormat
from m3b.tasks import Row, TaskFamily

NEAR_DISTANCE_PX = 5.0


def parse_point(value: Any) -> tuple[float, float]:
    """Return a point; raise ValueError if the value is no `[x, y]`."""
    numbers = value if isinstance(value, list) and len(value) == 2 else []
    if not numbers or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        raise ValueError(f"point must be [x, y] in pixels, is {value!r}")
    return float(numbers[0]), float(numbers[1])


class LandmarkRecords(RecordKind):
    """`{"image_path": ..., "point": [x, y], "patient": ...}`; label_dict.json is `{}`."""

    name = "landmarks"
    title = "a landmark"
    needed = ("point",)
    empty_vocabulary = True
    fewest_classes = 0
    taught = ("points", "Keep one record an image.", "Keep one copy of each.")

    def properties(self) -> dict[str, Any]:
        return {"point": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}}

    def parse(self, item: Item) -> dict[str, Any]:
        return {"extra": {"point": list(parse_point(item["point"]))}}

    def example(self) -> list[dict[str, Any]]:
        return [{"image_path": "data/knees/a.png", "point": [31.5, 20], "patient": "p001"}]


class LandmarkAnswers(AnswerFormat):
    """`{"image": ..., "point": [x, y]}`."""

    requires_classes = False
    usage = 'Each prediction is `{"image": ..., "point": [x, y]}`, in pixels of the image file.'
    baseline_description = "the mean point of the training cases"
    export_description = "Landmarks in medical images"

    def parse(self, location: str, item: Item, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        try:
            return {"extra": {"point": list(parse_point(item.get("point")))}}
        except ValueError as error:
            raise ModelError(f"{location}: {error}") from error


class Landmarks(TaskFamily):
    """One point in each image."""

    name = "landmarks"
    records = LandmarkRecords()
    answers = LandmarkAnswers()
    metrics = MetricTable(
        {"mean_distance": ("mean radial error", "MRE"), "within_5": ("success detection rate", "SDR")},
        "mean_distance",
        lower_is_better=frozenset({"mean_distance"}),
        unbounded=frozenset({"mean_distance"}),
        guarded_metrics=("within_5",),
    )
    template = Path(__file__).with_name("template")
    index_guide = '{"image_path": "data/x/a.png", "point": [31.5, 20], "patient": "p1"}; label_dict.json is {}.'
    when_to_choose = "one anatomical point in each picture, answered as [x, y] in pixels."
    aliases = ("keypoints", "landmark detection")
    model_title = "Landmark finder"

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return 2: x and y."""
        return (2,)

    def label_width(self, classes: int) -> int | None:
        """Return 2: x and y."""
        return 2

    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Return the true point and the answer."""
        return {"image": record.key, "patient": record.patient, "true": record.extra["point"],
                "answered": prediction.extra["point"]}  # fmt: skip

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return the mean point of the training cases, for each record."""
        points = [record.extra["point"] for record in training]
        mean = [sum(axis) / len(points) for axis in zip(*points, strict=True)]
        return [mean for _ in records]

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Return the mean distance and the share of near points, with intervals over patients."""
        baseline_figures = None if baseline is None else _compute_figures(rows, baseline)
        figures = _compute_figures(rows, [row["answered"] for row in rows])
        patients = [row["patient"] for row in rows]
        return score_means(self.name, patients, figures, primary=primary, baseline_figures=baseline_figures, seed=seed)


def _compute_figures(rows: Sequence[Row], answers: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    distances = [math.dist(row["true"], answer) for row, answer in zip(rows, answers, strict=True)]
    return {"mean_distance": distances, "within_5": [float(distance <= NEAR_DISTANCE_PX) for distance in distances]}


FAMILY = Landmarks()
