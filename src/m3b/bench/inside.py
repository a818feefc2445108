"""What scoring asks of the reader process: the hidden cases in m3b's own terms, and what answers to them are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.errors import DataError
from m3b.metrics import judge
from m3b.models import Prediction
from m3b.reader import Request
from m3b.tasks import Row, family

from .control import shuffled_figure
from .datasets import DatasetSpec, dataset
from .hidden import Hidden
from .naming import renamed
from .truth import by_folder, exam_index, learn_names, rename
from .union import merged_answer, merged_index

READING_S = 3600.0


@dataclass(frozen=True)
class ToExamine:
    """The carve-out of a set in `folder`; `work` holds the index of the run whose model is examined, if there is one."""

    folder: Path
    dataset: str
    work: Path | None


@dataclass(frozen=True)
class Exam:
    """The index of the hidden cases, and which true class each label of the run's index means."""

    index: Index
    learnt: dict[str, str]


@dataclass(frozen=True)
class ToGradeExam:
    """Answers to the test cases of an exam, with the model's classes and their numbers.

    Args:
        scratch: for masks under the true names; may be written.
        trivial: the best answer that looks at no image, where it is known.
    """

    folder: Path
    dataset: str
    exam: Exam
    answers: list[Prediction]
    theirs: dict[str, int]
    scratch: Path
    trivial: Any
    seed: int


@dataclass(frozen=True)
class Marked:
    """What the answers are worth; the parts of `m3b.bench.scoring.Score`, and the trivial answer."""

    ok: bool
    reason: str
    primary: dict[str, Any]
    metrics: dict[str, Any]
    control: dict[str, Any]
    constant: bool
    trivial: Any
    names: dict[str, str] = field(default_factory=dict)


EXAMINE = Request("m3b.bench.inside:examine", ToExamine, Exam, READING_S)
GRADE = Request("m3b.bench.inside:grade_exam", ToGradeExam, Marked, READING_S)


def examine(asked: ToExamine) -> Exam:
    """Inside the reader: the hidden cases in m3b's own terms. Raises DataError."""
    spec, carve_out, work_folder = dataset(asked.dataset), Hidden.load(asked.folder), asked.work
    index = exam_index(carve_out, spec, folders=work_folder is not None and by_folder(work_folder))
    if merges(spec, index):
        index = merged_index(index, spec.union, carve_out.folder)
    has_labels = work_folder is not None and "labels" in family(spec.task).records.targets
    return Exam(index, learn_names(work_folder, carve_out, spec) if work_folder is not None and has_labels else {})


def merges(spec: DatasetSpec, index: Index) -> bool:
    """Whether the score counts any finding alike, by masks."""
    return bool(spec.union) and not index.boxed


def grade_exam(asked: ToGradeExam) -> Marked:
    """Inside the reader: the figures of these answers. Raises ModelError, DataError."""
    spec, index = dataset(asked.dataset), asked.exam.index
    base_folder, task_family = asked.folder, family(spec.task)
    answers, names = _translate_answers(asked, spec)
    rows = [
        task_family.measure(record, answer, index, base_folder)
        for record, answer in zip(index.test, answers, strict=True)
    ]
    metric = "map_50" if index.boxed else spec.metric
    baseline = asked.trivial
    if baseline is None:
        baseline = task_family.trivial(index.train, index.test, index, base_folder)
    try:
        scores = task_family.score_all(rows, index, primary=metric, trivial=baseline, seed=asked.seed)
        control = shuffled_figure(index, answers, base_folder, asked.scratch, metric)
    except ValueError as error:
        raise DataError(str(error)) from error
    limits = spec.stand_in.acceptable if Hidden.load(base_folder).stand_in else spec.acceptable
    verdict, figures = judge(scores, None if index.boxed else limits), scores.to_dict()
    return Marked(
        verdict.ok, verdict.reason, figures["primary"], figures["metrics"], control, constant(rows), baseline, names
    )


def _translate_answers(request: ToGradeExam, spec: DatasetSpec) -> tuple[list[Prediction], dict[str, str]]:
    """The answers in the true classes' names, and which of the model's names means which.

    Raises:
        ModelError: its classes cannot be matched with the true ones.
    """
    index, base_folder, scratch, model_values = request.exam.index, request.folder, request.scratch, request.theirs
    pairs = list(zip(request.answers, index.test, strict=True))
    if merges(spec, index):
        merged_answers = [merged_answer(answer, spec.union, row, base_folder, scratch) for answer, row in pairs]
        return merged_answers, dict.fromkeys(model_values, spec.union)
    names = rename(list(index.classes), model_values, index.values, request.exam.learnt)
    return [renamed(answer, index, model_values, names, row, base_folder, scratch) for answer, row in pairs], names


def constant(rows: Sequence[Row]) -> bool:
    """Whether every case got the same answer, or every mask is empty."""
    if len(rows) < 2:
        return False
    if "probabilities" in rows[0]:
        first_probabilities = rows[0]["probabilities"]
        return all(
            abs(row["probabilities"][name] - value) < 1e-6
            for row in rows
            for name, value in first_probabilities.items()
        )
    if "prediction" in rows[0]:
        return len({row["prediction"] for row in rows}) == 1
    if "figures" in rows[0]:
        return not any(figure[4] for row in rows for figure in row["figures"].values())
    return len({str(row.get("predicted")) for row in rows}) == 1
