"""The score that counts: m3b's own measuring of a delivered model on the hidden cases. Separate from the run.

`score` needs the model's folder and the carve-out alone, so that it can be repeated; what the run said of itself is not
asked. Beside the figure stand its acceptable range, the trivial baseline and the figure with shuffled images. The reader
process opens the images, the masks and the tables; `predict.py` runs in a sandbox of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.errors import DataError, ModelError
from m3b.models import Prediction, Promise
from m3b.reader import Reader
from m3b.sandbox import Mounts, Sandbox
from m3b.untrusted import TemporaryFolder
from m3b.writing import replace_text

from .datasets import DatasetSpec
from .hidden import Hidden
from .inside import EXAMINE, GRADE, Exam, Marked, ToExamine, ToGradeExam
from .union import FOLDER

TRIVIAL = "trivial.json"


@dataclass(frozen=True)
class Score:
    """What a delivered model is worth on hidden cases.

    Args:
        ok: in the acceptable range and certainly above the trivial baseline. Integrity is judged elsewhere.
        control: the primary metric when every image is another patient's: `value`, `shuffles`.
        constant: whether it gives every case the same answer.
        names: the model's classes -> the true ones.
        error: why it could not be measured; empty where it could.
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Score:
        return cls(**{key: value for key, value in raw.items() if key in cls.__dataclass_fields__})


def score(
    hidden: Hidden, spec: DatasetSpec, model: Path, *, sandbox: Sandbox, work: Path | None = None, seed: int = 0
) -> Score:
    """Measure a model on hidden cases. A model that cannot be measured gets a score that says why.

    Args:
        spec: one of the fourteen: the reader knows them by name.
        model: a delivered folder.
        work: holds the run's index files, which tell what the model's labels mean.
    """
    from m3b.models.running import read_promise

    limits = spec.stand_in.acceptable if hidden.stand_in else spec.acceptable
    common: dict[str, Any] = {"task": spec.task, "acceptable": [limits[0], limits[1]]}
    base_folder, merged_folder = hidden.folder.resolve(), hidden.folder.resolve() / FOLDER
    if spec.union:
        merged_folder.mkdir(exist_ok=True)
    with TemporaryFolder("exam") as scratch_folder:
        mounts = Mounts(
            read=(base_folder, *([work.resolve()] if work else ())),
            write=(scratch_folder, *([merged_folder] if spec.union else ())),
        )
        with Reader(sandbox, mounts) as reader:
            try:
                exam = reader.ask(EXAMINE, ToExamine(base_folder, spec.name, work.resolve() if work else None))
                model_info = read_promise(model)
                if model_info.task != spec.task:
                    raise ModelError(f"it is a model for {model_info.task}, and the task is {spec.task}")
                answers = _answers(exam, base_folder, model, sandbox, scratch_folder, reader)
                graded = _marked(exam, answers, model_info, hidden, spec, (scratch_folder, reader, seed))
            except (ModelError, DataError) as error:
                return Score(
                    False, f"The model cannot be measured on the hidden cases: {error}", error=str(error), **common
                )
    return Score(graded.ok, graded.reason, primary=graded.primary, metrics=graded.metrics, control=graded.control,
                 constant=graded.constant, names=graded.names, **common)  # fmt: skip


def _answers(exam: Exam, base: Path, model: Path, sandbox: Sandbox, place: Path, reader: Reader) -> list[Prediction]:
    """What the model says of every hidden case, in its own classes' names.

    Raises:
        ModelError: it does not predict.
    """
    from m3b.models import place_links, run_predict, staging
    from m3b.tasks.inside import STAGE, ToStage

    from .confine import confined

    images = [row.reference for row in exam.index.test]
    request = ToStage(images, place / "cases", sandbox.name != "off", base, staging.LINK_FROM_BYTES)
    staged = replace(reader.ask(STAGE, request), folder=place / "cases")
    place_links(staged, base)
    answer_folder = place / "answers"
    answer_folder.mkdir()
    return staged.restore(
        run_predict(model, staged.folder, staged.paths, confined(sandbox, model, place), keep=answer_folder)
    )


def _marked(
    exam: Exam, answers: list[Prediction], promise: Promise, hidden: Hidden, spec: DatasetSpec,
    by: tuple[Path, Reader, int],
) -> Marked:  # fmt: skip
    """What the answers are worth; the best answer that never looks at an image is kept beside the manifest.

    Raises:
        ModelError: its classes cannot be matched with the true ones, or an answer is not that of its image.
        DataError: a file that cannot be opened.
    """
    scratch_folder, reader, seed = by
    model_values = dict(promise.labels) or {name: number for number, name in enumerate(promise.classes)}
    baseline = _trivial(hidden, exam)
    scratch = scratch_folder / "named"
    scratch.mkdir()
    graded = reader.ask(
        GRADE, ToGradeExam(hidden.folder.resolve(), spec.name, exam, answers, model_values, scratch, baseline, seed)
    )
    if baseline is None:
        record = {"classes": list(exam.index.classes), "trivial": graded.trivial}
        replace_text(hidden.folder / TRIVIAL, json.dumps(record))
    return graded


def _trivial(hidden: Hidden, exam: Exam) -> Any:
    """The best answer that never looks at an image as it was kept beside the manifest; None where it was not."""
    file = hidden.folder / TRIVIAL
    if not file.is_file():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    return record["trivial"] if record.get("classes") == list(exam.index.classes) else None
