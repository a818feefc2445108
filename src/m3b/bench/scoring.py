"""The score of a cell: m3b's measurement of a delivered model on the hidden cases, separate from the run.

`score_hidden_cases` needs only the folder of the model and the carve-out, so that it can be repeated; figures claimed
by the run are not used. The score contains the metric with its acceptable range, the image-blind baseline and the
metric with shuffled images. The reader process opens the images, masks and tables; `predict.py` runs in a separate
sandbox.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.bench.carve_out import CarveOut
from m3b.bench.datasets import DatasetSpec
from m3b.bench.exam import (
    EXAMINE_JOB,
    FIELD_EXAM_JOB,
    GRADE_JOB,
    MERGED_FOLDER,
    Exam,
    ExamRequest,
    FieldExamRequest,
    GradedAnswers,
    GradeRequest,
    GradingRules,
    can_measure,
)
from m3b.bench.field_carving import FieldCarveOut
from m3b.cleanup import undo_on_error
from m3b.errors import DataError, ModelError
from m3b.isolation.reader import Reader
from m3b.isolation.sandbox import Limits, Mounts, Sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.models import ModelInfo, Prediction
from m3b.writing import write_text_atomically

POLL_S = 0.05
PREDICT_TIMEOUT_S = 3600.0


def make_confined_runner(
    sandbox: Sandbox, model: Path, scratch: Path, wall_s: float = PREDICT_TIMEOUT_S
) -> Callable[..., tuple[int, str]]:
    """Return a `CommandRunner` for `m3b.models.run_predict` in the sandbox.

    The command sees the model and its images, and may write to its output folder.
    """

    def run(argv: list[str], cwd: Path, out: Path) -> tuple[int, str]:
        handle, name = tempfile.mkstemp(dir=scratch, prefix=".output-")
        os.close(handle)
        log = Path(name)
        mounts = Mounts(read=(model.resolve(), cwd), write=(out.parent,))
        process = sandbox.start(
            argv, cwd=cwd, mounts=mounts, output=log, limits=Limits(wall_s=wall_s, isolated=True), env={}
        )
        with undo_on_error(process.stop):
            while (exit_status := process.wait(POLL_S)) is None:
                pass
        text = log.read_text(encoding="utf-8", errors="replace")
        log.unlink(missing_ok=True)
        return exit_status.code, text if exit_status.reason == "exit" else f"{text}\nm3b ended it: {exit_status.reason}"

    return run


BASELINE_FILE = "trivial.json"


@dataclass(frozen=True)
class Score:
    """Score of a delivered model on hidden cases.

    Args:
        ok: whether the metric is in the acceptable range and certainly above the image-blind baseline. Integrity is not
            part of it.
        control: the primary metric with the images of other patients: `value`, `shuffles`.
        constant: whether the model gives the same answer for every case.
        names: class of the model -> true class.
        error: why the model could not be measured; empty if it could.
        has_verdict: False if there are too few hidden patients for a verdict.
    """

    ok: bool
    reason: str
    task: str = ""
    primary: dict[str, Any] | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    acceptable: list[float | None] = field(default_factory=list)
    control: dict[str, Any] = field(default_factory=dict)
    constant: bool = False
    names: dict[str, str] = field(default_factory=dict)
    error: str = ""
    has_verdict: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Score:
        return cls(**{key: value for key, value in raw.items() if key in cls.__dataclass_fields__})


@dataclass(frozen=True)
class HiddenExam:
    """An exam on hidden cases.

    Args:
        base_folder: the paths of the exam are relative to it; the image-blind baseline is stored in it.
        request: builds the exam in the reader process.
        read_folders: what the reader process and the images need besides `base_folder`.
        write_folder: gets merged masks; None if there are none.
    """

    base_folder: Path
    rules: GradingRules
    request: ExamRequest | FieldExamRequest
    read_folders: tuple[Path, ...] = ()
    write_folder: Path | None = None

    @classmethod
    def from_carve_out(cls, carve_out: CarveOut, spec: DatasetSpec, work_folder: Path | None) -> HiddenExam:
        """Return the exam of one of the fourteen data sets.

        Args:
            work_folder: contains the index files of the run, which tell what the labels of the model mean.
        """
        base_folder, work = carve_out.folder.resolve(), work_folder.resolve() if work_folder else None
        limits = spec.stand_in.acceptable if carve_out.stand_in else spec.acceptable
        return cls(
            base_folder,
            GradingRules(spec.task, spec.metric, limits, spec.merged_class),
            ExamRequest(base_folder, spec.name, work),
            (work,) if work else (),
            base_folder / MERGED_FOLDER if spec.merged_class else None,
        )

    @classmethod
    def from_field_carve_out(cls, carve_out: FieldCarveOut, work_folder: Path | None) -> HiddenExam:
        """Return the exam of a field set; `work_folder` as of `from_carve_out`."""
        base_folder, work = carve_out.reference_folder.resolve(), work_folder.resolve() if work_folder else None
        return cls(
            base_folder,
            GradingRules(carve_out.task, carve_out.metric),
            FieldExamRequest(base_folder, carve_out.task, work),
            (carve_out.source, *((work,) if work else ())),
        )

    def build(self, reader: Reader) -> Exam:
        """Build the exam in the reader process. Raises DataError."""
        if isinstance(self.request, ExamRequest):
            return reader.run_job(EXAMINE_JOB, self.request)
        return reader.run_job(FIELD_EXAM_JOB, self.request)


def score_hidden_cases(hidden_exam: HiddenExam, model: Path, *, sandbox: Sandbox, seed: int = 0) -> Score:
    """Measure a model on hidden cases. For a model that cannot be measured, the score says why.

    Args:
        model: the folder of the deliverable.
    """
    from m3b.models.predict_process import read_model_info

    rules, base_folder = hidden_exam.rules, hidden_exam.base_folder
    common: dict[str, Any] = {"task": rules.task, "acceptable": list(rules.acceptable or ())}
    written = () if hidden_exam.write_folder is None else (hidden_exam.write_folder,)
    for folder in written:
        folder.mkdir(exist_ok=True)
    with TemporaryFolder("exam") as scratch_folder:
        mounts = Mounts(read=(base_folder, *hidden_exam.read_folders), write=(scratch_folder, *written))
        with Reader(sandbox, mounts) as reader:
            try:
                exam = hidden_exam.build(reader)
                model_info = read_model_info(model)
                if not can_measure(model_info.task, exam.index):
                    raise ModelError(f"it is a model for {model_info.task}, and the task is {rules.task}")
                answers = _predict_hidden_cases(exam, base_folder, model, sandbox, scratch_folder, reader)
                graded = _grade_answers(exam, answers, model_info, hidden_exam, (scratch_folder, reader, seed))
            except (ModelError, DataError) as error:
                return Score(
                    False, f"The model cannot be measured on the hidden cases: {error}", error=str(error), **common
                )
    return Score(graded.ok, graded.reason, primary=graded.primary, metrics=graded.metrics, control=graded.control,
                 constant=graded.is_constant, names=graded.names, has_verdict=graded.has_verdict, **common)  # fmt: skip


def _predict_hidden_cases(
    exam: Exam, base: Path, model: Path, sandbox: Sandbox, scratch_folder: Path, reader: Reader
) -> list[Prediction]:
    """Return the predictions of the model for all hidden cases, with the model's own class names.

    Raises:
        ModelError: the prediction fails.
    """
    from m3b.models import place_links, run_predict, staging
    from m3b.tasks.worker_jobs import STAGE_IMAGES_JOB, StageImagesRequest

    images = [row.reference for row in exam.index.test]
    request = StageImagesRequest(images, scratch_folder / "cases", sandbox.name != "off", base, staging.MIN_LINK_BYTES)
    staged = replace(reader.run_job(STAGE_IMAGES_JOB, request), folder=scratch_folder / "cases")
    place_links(staged, base)
    answer_folder = scratch_folder / "answers"
    answer_folder.mkdir()
    return staged.restore_order(
        run_predict(
            model,
            staged.folder,
            staged.paths,
            make_confined_runner(sandbox, model, scratch_folder),
            output_dir=answer_folder,
        )
    )


def _grade_answers(
    exam: Exam, answers: list[Prediction], model_info: ModelInfo, hidden_exam: HiddenExam,
    grading_context: tuple[Path, Reader, int],
) -> GradedAnswers:  # fmt: skip
    """Grade the predictions in the reader process; store the image-blind baseline in the folder of the exam.

    Raises:
        ModelError: the classes of the model cannot be matched with the true ones, or an answer does not fit its image.
        DataError: a file cannot be opened.
    """
    scratch_folder, reader, seed = grading_context
    model_values = dict(model_info.labels) or {name: number for number, name in enumerate(model_info.classes)}
    base_folder = hidden_exam.base_folder
    baseline = _load_baseline(base_folder, exam)
    scratch = scratch_folder / "named"
    scratch.mkdir()
    graded = reader.run_job(
        GRADE_JOB,
        GradeRequest(base_folder, hidden_exam.rules, exam, answers, model_values, scratch, baseline, seed),
    )
    if baseline is None:
        record = {"classes": list(exam.index.classes), "trivial": graded.baseline}
        write_text_atomically(base_folder / BASELINE_FILE, json.dumps(record))
    return graded


def _load_baseline(base_folder: Path, exam: Exam) -> Any:
    """Return the image-blind baseline stored in the folder of the exam, or None if there is none."""
    file = base_folder / BASELINE_FILE
    if not file.is_file():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    return record["trivial"] if record.get("classes") == list(exam.index.classes) else None
