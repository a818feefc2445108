"""The interface of a task family, and the registry of families."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data import audit_kinds, kinds
from m3b.data.audit_kinds import IndexAudit
from m3b.data.index import Index
from m3b.data.kinds import RecordKind
from m3b.data.records import Record
from m3b.metrics import MetricTable, Scores
from m3b.metrics.metric_tables import add_table
from m3b.models import Prediction, answers
from m3b.models.answers import AnswerFormat
from m3b.plugins import Registry

Row = dict[str, Any]
"""One measured case as JSON values: `image`, `patient`, and what its family needs to score it."""


class TaskFamily(ABC):
    """Everything that m3b knows about one kind of model. Stateless; `register` makes it known.

    Attributes:
        name: the task, as written in data cards, plans and model configs.
        records: the format of its cases in index files.
        audit: the checks of such an index before anything is trained.
        answers: what predict.py may answer, and what a model card says about it.
        metrics: the metrics of its models.
        template: the training project: the name of a folder below `templates/` of the workspace (`name` if empty), or
            any folder.
        index_guide: a short description of its records, for the Data Engineer.
        when_to_choose: when to choose this task, for the Task Manager; the prompt already covers m3b's own families.
        aliases: other names that data cards may use for it, for a better error message.
        order_pattern: a regular expression for a clause that orders this task, on lower-case text without accents.
        request_pattern: the same, for words anywhere in a request that name this task.
        hint_pattern: the same, for words that may mean this task if the data suggests nothing else.
        required_targets: what a data set must contain, any of `masks`, `boxes`, `texts`, `times`; empty if image labels
            are enough.
        related_tasks: tasks whose data cards may serve this task too, because they need the same data.
        box_metrics, state_metrics: the subset of metrics that can be computed from boxes alone, or from images that are
            only known to be abnormal or not; the usual one first.
        default_plan: a plan of the Task Manager that fits most data of this task.
        is_about_objects: whether the task is something done to objects, so that a second verb may refer to the same
            model.
        title_prefix: how the title of a model begins; the classes follow.
        class_separator: the separator before the last class in a title.
        show_masks: whether the Data Engineer is shown an image next to its mask.
        show_texts: whether the Data Engineer is shown one of many text files.
        probe_batch_size: number of cases in the batch that a network has to overfit; 0 for the batch size of the plan.
        can_compare_answers: whether `answer_distance` can compare two predictions; if so, altered copies of test images
            are predicted too.
        can_compare_crops: whether it can compare them for a cropped image too; not if predictions are positions in the
            image.
        max_compared_cases: number of test cases of which altered copies are predicted.
        max_validation_cases: maximum number of validation cases to predict, spread evenly over all of them.
    """

    name: str
    records: RecordKind
    audit: IndexAudit = IndexAudit()
    answers: AnswerFormat
    metrics: MetricTable
    template: str | Path = ""
    index_guide: str = ""
    when_to_choose: str = ""
    aliases: tuple[str, ...] = ()
    order_pattern: str = ""
    request_pattern: str = ""
    hint_pattern: str = ""
    required_targets: tuple[str, ...] = ()
    related_tasks: tuple[str, ...] = ()
    box_metrics: tuple[str, ...] = ()
    state_metrics: tuple[str, ...] = ()
    default_plan: str = (
        "Read what the preview shows; take the patient from its column, folder or name; keep an own split."
    )
    is_about_objects: bool = True
    title_prefix: str = "Model of"
    class_separator: str = " and "
    show_masks: bool = False
    show_texts: bool = False
    probe_batch_size: int = 0
    can_compare_answers: bool = False
    can_compare_crops: bool = True
    max_compared_cases: int = 24
    max_validation_cases: int = 100

    def is_named_in(self, text: str) -> bool:
        """Return whether a request, in lower case without accents, names this task."""
        return bool(self.request_pattern and re.search(self.request_pattern, text))

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the allowed numbers of network outputs (channels) for this plan; empty if any number is allowed."""
        return ()

    def label_width(self, classes: int) -> int | None:
        """Return the length of a case's label vector in a batch; None if it does not matter."""
        return None

    def get_default_metric(self, index: Index) -> str:
        """Return the metric by which an index is judged unless the user asks for another."""
        return self.metrics.default_metric

    @abstractmethod
    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Measure the prediction of one case.

        Args:
            index: source of the classes and their numbers.
            root: folder to which the paths of the record are relative.

        Raises:
            ModelError: the prediction does not fit this image, for example a mask of another shape.
        """

    @abstractmethod
    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Fit the image-blind baseline on the training cases; return its predictions for `records` as JSON values."""

    @abstractmethod
    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute all metrics of measured cases.

        Args:
            baseline: the result of `predict_baseline` for the same records in the same order.

        Raises:
            ValueError: the rows cannot be scored, or there is no such metric.
        """

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """Return the distance of two predictions for one case, 0 to 1; only used if `can_compare_answers`."""
        return 0.0

    def mean_answer_change(self, pairs: Sequence[tuple[Row, Row]], rows: Sequence[Row]) -> float:
        """Return the mean `answer_distance` over `pairs` (row of an image, row of its copy), 0 to 1.

        `rows` has all cases.
        """
        return sum(self.answer_distance(row, copy) for row, copy in pairs) / len(pairs)

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return the measured cases with image-blind predictions, for metrics that users added to the task.

        Args:
            baseline: the result of `predict_baseline` for the same records in the same order.

        Returns:
            One list of rows for each such baseline. If the list is empty, added metrics have no baseline, and a model
            cannot be judged by them.
        """
        return ()

    def register(self) -> None:
        """Make the family known to all of m3b.

        Raises:
            ValueError: another family has this name, or another task has a metric of the same name with the opposite
                direction.
        """
        if self.records.name != self.name:
            raise ValueError(f"The records of the task {self.name!r} are called {self.records.name!r}.")
        FAMILIES.add(self.name, self)
        add_table(self.name, self.metrics)
        kinds.add(self.records)
        audit_kinds.add(self.name, self.audit)
        answers.register_answer_format(self.name, self.answers)


FAMILIES: Registry[TaskFamily] = Registry("task family")


def to_json_number(value: float) -> float | str | None:
    """Convert a number to strict JSON: NaN becomes null and infinity becomes "inf"."""
    if math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value


def from_json_number(value: float | str | None) -> float:
    """Convert a value of `to_json_number` back."""
    return math.nan if value is None else float(value)


def make_base_row(record: Record) -> Row:
    """Return the fields of a row that every family has."""
    return {"image": record.key, "patient": record.patient}


def sample_evenly(records: Sequence[Record], max_count: int) -> Sequence[Record]:
    """Return at most `max_count` records, spaced evenly over a list that may be sorted."""
    return records[:: max(1, -(-len(records) // max_count))]
