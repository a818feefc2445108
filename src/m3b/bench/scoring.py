"""The score that counts: m3b's own measuring of a delivered model on the hidden cases. Separate from the run.

`score` needs the model's folder and the carve-out alone, so that it can be repeated; what the run said of itself is not
asked. Beside the figure stand its acceptable range, the trivial baseline and the figure with shuffled images.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.errors import DataError, ModelError
from m3b.metrics import judge
from m3b.models import Prediction
from m3b.sandbox import Sandbox
from m3b.tasks import Row, family

from .control import shuffled_figure
from .datasets import DatasetSpec
from .hidden import Hidden
from .truth import by_folder, exam_index, learn_names, rename
from .union import merged_answer, merged_index

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
        model: a delivered folder.
        work: holds the run's index files, which tell what the model's labels mean.
    """
    limits = spec.stand_in.acceptable if hidden.stand_in else spec.acceptable
    told: dict[str, Any] = {"task": spec.task, "acceptable": [limits[0], limits[1]]}
    index = exam_index(hidden, spec, folders=work is not None and by_folder(work))
    if spec.union and not index.boxed:
        index = merged_index(index, spec.union, hidden.folder)
    with tempfile.TemporaryDirectory(prefix="m3b-exam-") as place:
        scratch = Path(place)
        try:
            answers, names = _answers(hidden, spec, index, model, sandbox, scratch, work)
            of_task = family(spec.task)
            rows = [of_task.measure(r, a, index, hidden.folder) for r, a in zip(index.test, answers, strict=True)]
            metric = "map_50" if index.boxed else spec.metric
            scores = of_task.score_all(rows, index, primary=metric, trivial=_trivial(hidden, index), seed=seed)
            control = shuffled_figure(index, answers, hidden.folder, scratch, metric)
        except (ModelError, DataError, ValueError) as error:
            return Score(False, f"The model cannot be measured on the hidden cases: {error}", error=str(error), **told)
    verdict = judge(scores, None if index.boxed else limits)
    figures = scores.to_dict()
    return Score(verdict.ok, verdict.reason, primary=figures["primary"], metrics=figures["metrics"], control=control,
                 constant=_constant(rows), names=names, **told)  # fmt: skip


def _answers(
    hidden: Hidden, spec: DatasetSpec, index: Index, model: Path, sandbox: Sandbox, scratch: Path, work: Path | None
) -> tuple[list[Prediction], dict[str, str]]:
    """What the model says of every hidden case, in the true classes' names; and which of its names means which.

    Raises:
        ModelError: it does not predict, or its classes cannot be matched with the true ones.
    """
    from m3b.models import run_predict, stage_cases
    from m3b.models.running import read_promise

    from .confine import confined
    from .naming import renamed

    promise = read_promise(model)
    if promise.task != spec.task:
        raise ModelError(f"it is a model for {promise.task}, and the task is {spec.task}")
    theirs = dict(promise.labels) or {name: number for number, name in enumerate(promise.classes)}
    merge = bool(spec.union) and not index.boxed
    learnt = (
        learn_names(work, hidden, spec) if work is not None and "labels" in family(spec.task).records.targets else {}
    )
    names = {} if merge else rename(list(index.classes), theirs, index.values, learnt)
    images = [row.reference for row in index.test]
    staged = stage_cases(images, scratch / "cases", sandbox.name != "off", base=hidden.folder)
    kept = scratch / "answers"
    kept.mkdir()
    run = confined(sandbox, model, scratch)
    answers = staged.restore(run_predict(model, staged.folder, staged.paths, run, keep=kept))
    if merge:
        return [merged_answer(answer, spec.union, row, hidden.folder, scratch) for answer, row in
                zip(answers, index.test, strict=True)], dict.fromkeys(theirs, spec.union)  # fmt: skip
    return [renamed(answer, index, theirs, names, row, hidden.folder, scratch) for answer, row in
            zip(answers, index.test, strict=True)], names  # fmt: skip


def _trivial(hidden: Hidden, index: Index) -> Any:
    """The best answer that never looks at an image, made from the agent's cases once and kept beside the manifest."""
    file = hidden.folder / TRIVIAL
    if file.is_file():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept.get("classes") == list(index.classes):
            return kept["trivial"]
    from m3b.writing import replace_text

    made = family(index.task).trivial(index.train, index.test, index, hidden.folder)
    replace_text(file, json.dumps({"classes": list(index.classes), "trivial": made}))
    return made


def _constant(rows: list[Row]) -> bool:
    """Whether every case got the same answer, or every mask is empty."""
    if len(rows) < 2:
        return False
    if "probabilities" in rows[0]:
        first = rows[0]["probabilities"]
        return all(abs(row["probabilities"][name] - value) < 1e-6 for row in rows for name, value in first.items())
    if "prediction" in rows[0]:
        return len({row["prediction"] for row in rows}) == 1
    if "figures" in rows[0]:
        return not any(figure[4] for row in rows for figure in row["figures"].values())
    return len({json.dumps(row.get("predicted")) for row in rows}) == 1
