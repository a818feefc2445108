"""The interface of a task family, and the registry of families."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data import kinds
from m3b.data.index import Index
from m3b.data.kinds import RecordKind
from m3b.data.records import Record
from m3b.dataset.audit.base import AuditCheck
from m3b.metrics import MetricTable, Scores
from m3b.metrics.metric_tables import add_table, check_directions
from m3b.models import Prediction, answers
from m3b.models.answers import AnswerFormat
from m3b.plugins import TaskRegistry
from m3b.tasks.report_section import ReportSection

Row = dict[str, Any]
"""One measured case as JSON values: `image`, `patient`, and what its family needs to score it."""


class TaskFamily(ABC):
    """Everything that m3b knows about one kind of model. Stateless; `register` makes it known.

    Attributes:
        name: the task, as written in data cards, plans and model configs.
        records: the format of its cases in index files.
        audit_checks: further checks of such an index before anything is trained.
        answers: what predict.py may answer, and what a model card says about it.
        metrics: the metrics of its models.
        report_section: what the report page shows of its scores besides what it shows of all tasks.
        template: the training project: the name of a folder below `templates/` of the workspace (`name` if empty), or
            any folder.
        index_guide: a short description of its records, for the Data Engineer.
        when_to_choose: when to choose this task, for the Task Manager; the prompt already covers m3b's own families.
        aliases: other names that data cards may use for it, for a better error message.
        order_pattern: a regular expression for a clause that orders this task, on lower-case text without accents.
        request_pattern: the same, for words anywhere in a request that name this task.
        required_targets: what a data set must contain, any of `masks`, `boxes`, `texts`, `times`; empty if image labels
            are enough.
        related_tasks: tasks whose data cards may serve this task too, because they need the same data.
        default_plan: a plan of the Task Manager that fits most data of this task.
        model_title: how the title of a model begins, such as `Classifier`; its classes follow.
        max_validation_cases: maximum number of validation cases to predict, spread evenly over all of them.
    """

    name: str
    records: RecordKind
    audit_checks: tuple[AuditCheck, ...] = ()
    answers: AnswerFormat
    metrics: MetricTable
    report_section: ReportSection = ReportSection()
    template: str | Path = ""
    index_guide: str = ""
    when_to_choose: str = ""
    aliases: tuple[str, ...] = ()
    order_pattern: str = ""
    request_pattern: str = ""
    required_targets: tuple[str, ...] = ()
    related_tasks: tuple[str, ...] = ()
    default_plan: str = (
        "Read what the preview shows; take the patient from its column, folder or name; keep an own split."
    )
    model_title: str = "Model"
    max_validation_cases: int = 100

    def is_named_in(self, text: str) -> bool:
        """Return whether a request, in lower case without accents, names this task."""
        return bool(self.request_pattern and re.search(self.request_pattern, text))

    def is_hinted_at(self, text: str) -> bool:
        """Return whether words of a request may mean this task if the data suggests nothing else."""
        return False

    def can_share_clause(self) -> bool:
        """Return whether a second verb in a clause may mean the same model, as in "segment and classify nuclei"."""
        return True

    def predicts_classes(self) -> bool:
        """Return whether label_dict.json names classes, and not the quantity that is predicted."""
        return True

    def format_title(self, classes: Sequence[str]) -> str:
        """Return the title of a model, such as `Classifier of clear or opacity`."""
        return f"{self.model_title} of {self.join_classes(classes)}" if classes else self.model_title

    def join_classes(self, names: Sequence[str]) -> str:
        """Return the classes as a phrase, such as `liver and spleen`."""
        return join_names(names, "and")

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the allowed numbers of network outputs (channels) for this plan; empty if any number is allowed."""
        return ()

    def label_width(self, classes: int) -> int | None:
        """Return the length of a case's label vector in a batch; None if labels are no vectors, such as masks."""
        return None

    def get_default_metric(self, index: Index) -> str:
        """Return the metric by which an index is judged unless the user asks for another."""
        return self.metrics.default_metric

    def list_metrics_of(self, target: str) -> tuple[str, ...]:
        """Return the metrics that need no more than one kind of target, the usual one first; empty if there is none.

        Args:
            target: `boxes`, or `states`: images that are only known to be abnormal or not.
        """
        return ()

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

    def list_alterations(self) -> tuple[str, ...]:
        """Return the alterations of test images (`m3b.data.altering`) after which a prediction should stay the same.

        Altered copies are predicted too, and compared by `answer_distance`; nothing is compared if this is empty.
        """
        return ()

    def max_altered_cases(self) -> int:
        """Return the number of test cases of which altered copies are predicted."""
        return 24

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """Return the distance of two predictions for one case, 0 to 1; only used with `list_alterations`."""
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

    def average_rows(self, rows: Sequence[Sequence[Row]], index: Index) -> list[Row] | None:
        """Return the measured cases that the average of several models is expected to have; None if the family does not average.

        Args:
            rows: those of each model, all on the same cases in the same order.
        """
        return None

    def register(self) -> None:
        """Make the family known to all of m3b.

        Raises:
            ValueError: another family has this name, or another task has a metric of the same name with the opposite
                direction.
        """
        if self.records.name != self.name:
            raise ValueError(f"The records of the task {self.name!r} are called {self.records.name!r}.")
        check_directions(self.name, self.metrics)  # before anything is added
        kinds.add(self.records)  # first, since names of built-in tasks are taken here even before these are loaded
        FAMILIES.add(self.name, self)
        add_table(self.name, self.metrics)
        for check in self.audit_checks:
            check.register()
        answers.register_answer_format(self.name, self.answers)


FAMILIES: TaskRegistry[TaskFamily] = TaskRegistry("task family")


MAX_NAMED_CLASSES = 4
"""Maximum number of classes in a title; a single further one is still named."""


def join_names(names: Sequence[str], conjunction: str) -> str:
    """Return `a, b and c` with the given conjunction, or `a, b, c, d and 9 more`."""
    if len(names) > MAX_NAMED_CLASSES + 1:
        return f"{', '.join(names[:MAX_NAMED_CLASSES])} and {len(names) - MAX_NAMED_CLASSES} more"
    return f" {conjunction} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


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
