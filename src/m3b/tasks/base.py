"""What a task family is made of, and the registry of families."""

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
    """Everything that m3b knows of one kind of model. Stateless; `register` makes it known.

    Attributes:
        name: the task, as data cards, plans and configs of models spell it.
        records: how its cases stand in index files.
        audit: what is asked of such an index before anything is trained.
        answers: what predict.py may answer, and what a model card says of it.
        metrics: by what its models are measured.
        template: the training project: a folder's name below `templates/` of the workspace (`name` where empty), or any folder.
        index_guide: its records in short, for the Data Engineer.
        when_to_choose: when to choose it, for the Task Manager; m3b's own families stand in the prompt already.
        aliases: what data cards may call it elsewhere, for a better message.
        order_pattern: a regular expression of a clause that orders it, in lower-case text without accents.
        request_pattern: the same of words anywhere in a request that name it; those that leave it open name no task.
        hint_pattern: the same of words that may mean it, where the data shows nothing else.
        required_targets: what a data set must show for it, any of `masks`, `boxes`, `texts`, `times`; empty where
            labels of images will do.
        related_tasks: tasks whose data cards may serve it, since the same data does.
        box_metrics, state_metrics: of its metrics those that boxes alone bear, and images known to be abnormal or not; usual first.
        default_plan: of the Task Manager, that fits most data of it.
        is_about_objects: whether it is something that is done to objects, so that a second verb may be about the same model.
        title_prefix: what a model of it is called at the beginning of a title that goes on with the classes.
        class_separator: what stands before the last class in a title.
        show_masks: whether the Data Engineer is shown an image beside its mask.
        show_texts: whether the Data Engineer is shown one of many text files.
        probe_batch_size: cases in the batch that a network has to overfit; 0 for as many as the plan has in a batch.
        can_compare_answers: whether `answer_distance` can tell two answers apart; then copies of test images are tried, altered.
        can_compare_crops: whether it can do so for an image that was cut, too: not where answers are places in the image.
        max_compared_cases: test cases of which copies are tried.
        max_validation_cases: so many validation cases are predicted at most, spread over all of them.
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
        """Whether a request, in lower case without accents, names this task."""
        return bool(self.request_pattern and re.search(self.request_pattern, text))

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """How many outputs (channels) a network of this plan may have; empty where any number may be right."""
        return ()

    def label_width(self, classes: int) -> int | None:
        """How many numbers a case's labels have in a batch; None where that does not matter."""
        return None

    def get_default_metric(self, index: Index) -> str:
        """The metric that an index is judged by unless somebody asks for another."""
        return self.metrics.default_metric

    @abstractmethod
    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """One case.

        Args:
            index: for the classes and their numbers.
            root: what the paths of the record count from.

        Raises:
            ModelError: the answer cannot be that of this image, for instance a mask of another shape.
        """

    @abstractmethod
    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """JSON values that stand for the best answer that never looks at an image, made from training cases."""

    @abstractmethod
    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """All metrics of measured cases.

        Args:
            baseline: what `baseline` gave for the same records in the same order.

        Raises:
            ValueError: the rows cannot be scored, or there is no such metric.
        """

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """How far the answers of two rows of one case are from each other, 0 to 1; asked where `can_compare_answers`."""
        return 0.0

    def mean_answer_change(self, pairs: Sequence[tuple[Row, Row]], rows: Sequence[Row]) -> float:
        """The mean `answer_distance` of the answers to images and to their copies (`pairs`), 0 to 1; `rows` are those of all cases."""
        return sum(self.answer_distance(row, copy) for row, copy in pairs) / len(pairs)

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """The measured cases as answers get them that never look at an image, for metrics that were added to the task.

        Args:
            baseline: what `baseline` gave for the same records in the same order.

        Returns:
            One list of rows for each such answer; none where there is no saying, and then an added metric has no baseline
            and cannot be what a model is judged by.
        """
        return ()

    def register(self) -> None:
        """Make the family known to all of m3b.

        Raises:
            ValueError: another family has this name, or one of its metrics is better the other way round elsewhere.
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
    """A figure as strict JSON: NaN is null and infinity is "inf"."""
    if math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value


def from_json_number(value: float | str | None) -> float:
    """Undoes `to_json_number`."""
    return math.nan if value is None else float(value)


def make_base_row(record: Record) -> Row:
    """The part of a row that every family has."""
    return {"image": record.key, "patient": record.patient}


def sample_evenly(records: Sequence[Record], max_count: int) -> Sequence[Record]:
    """At most so many records from all over a list that may be sorted."""
    return records[:: max(1, -(-len(records) // max_count))]
