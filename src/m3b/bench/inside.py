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
from m3b.reader import WorkerJob
from m3b.tasks import Row, get_family

from .control import compute_shuffled_metric
from .datasets import DatasetSpec, get_dataset
from .hidden import CarveOut
from .naming import translate_answer
from .truth import build_exam_index, has_folder_images, learn_names, match_class_names
from .union import merge_answer, merge_index

READER_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class ExamRequest:
    """The carve-out of a set in `folder`; `work_folder` holds the index of the run whose model is examined, if there is one."""

    folder: Path
    dataset: str
    work_folder: Path | None


@dataclass(frozen=True)
class Exam:
    """The index of the hidden cases, and which true class each label of the run's index means."""

    index: Index
    learnt_names: dict[str, str]


@dataclass(frozen=True)
class GradeRequest:
    """Answers to the test cases of an exam, with the model's classes and their numbers.

    Args:
        scratch: for masks under the true names; may be written.
        baseline: the best answer that looks at no image, where it is known.
    """

    folder: Path
    dataset: str
    exam: Exam
    answers: list[Prediction]
    model_values: dict[str, int]
    scratch: Path
    baseline: Any
    seed: int


@dataclass(frozen=True)
class GradedAnswers:
    """What the answers are worth; the parts of `m3b.bench.scoring.Score`, and the trivial answer."""

    ok: bool
    reason: str
    primary: dict[str, Any]
    metrics: dict[str, Any]
    control: dict[str, Any]
    is_constant: bool
    baseline: Any
    names: dict[str, str] = field(default_factory=dict)


EXAMINE_JOB = WorkerJob("m3b.bench.inside:build_exam", ExamRequest, Exam, READER_TIMEOUT_S)
GRADE_JOB = WorkerJob("m3b.bench.inside:grade_exam", GradeRequest, GradedAnswers, READER_TIMEOUT_S)


def build_exam(request: ExamRequest) -> Exam:
    """Inside the reader: the hidden cases in m3b's own terms. Raises DataError."""
    spec, carve_out, work_folder = get_dataset(request.dataset), CarveOut.load(request.folder), request.work_folder
    index = build_exam_index(carve_out, spec, use_folders=work_folder is not None and has_folder_images(work_folder))
    if merges_findings(spec, index):
        index = merge_index(index, spec.merged_class, carve_out.folder)
    has_labels = work_folder is not None and "labels" in get_family(spec.task).records.targets
    return Exam(index, learn_names(work_folder, carve_out, spec) if work_folder is not None and has_labels else {})


def merges_findings(spec: DatasetSpec, index: Index) -> bool:
    """Whether the score counts any finding alike, by masks."""
    return bool(spec.merged_class) and not index.boxed


def grade_exam(request: GradeRequest) -> GradedAnswers:
    """Inside the reader: the figures of these answers. Raises ModelError, DataError."""
    spec, index = get_dataset(request.dataset), request.exam.index
    base_folder, task_family = request.folder, get_family(spec.task)
    answers, names = _translate_answers(request, spec)
    rows = [
        task_family.measure(record, answer, index, base_folder)
        for record, answer in zip(index.test, answers, strict=True)
    ]
    metric = "map_50" if index.boxed else spec.metric
    baseline = request.baseline
    if baseline is None:
        baseline = task_family.predict_baseline(index.train, index.test, index, base_folder)
    try:
        scores = task_family.score_all(rows, index, primary=metric, baseline=baseline, seed=request.seed)
        control = compute_shuffled_metric(index, answers, base_folder, request.scratch, metric)
    except ValueError as error:
        raise DataError(str(error)) from error
    limits = spec.stand_in.acceptable if CarveOut.load(base_folder).stand_in else spec.acceptable
    verdict, figures = judge(scores, None if index.boxed else limits), scores.to_dict()
    return GradedAnswers(
        verdict.ok,
        verdict.reason,
        figures["primary"],
        figures["metrics"],
        control,
        has_constant_answers(rows),
        baseline,
        names,
    )


def _translate_answers(request: GradeRequest, spec: DatasetSpec) -> tuple[list[Prediction], dict[str, str]]:
    """The answers in the true classes' names, and which of the model's names means which.

    Raises:
        ModelError: its classes cannot be matched with the true ones.
    """
    index, base_folder, scratch, model_values = (
        request.exam.index,
        request.folder,
        request.scratch,
        request.model_values,
    )
    pairs = list(zip(request.answers, index.test, strict=True))
    if merges_findings(spec, index):
        merged_answers = [merge_answer(answer, spec.merged_class, row, base_folder, scratch) for answer, row in pairs]
        return merged_answers, dict.fromkeys(model_values, spec.merged_class)
    names = match_class_names(list(index.classes), model_values, index.values, request.exam.learnt_names)
    return [
        translate_answer(answer, index, model_values, names, row, base_folder, scratch) for answer, row in pairs
    ], names


def has_constant_answers(rows: Sequence[Row]) -> bool:
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
