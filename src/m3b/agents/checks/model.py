"""The check of what the Model Trainer hands over: the deliverable is run, in a clean process, on every case."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.verdict import Verdict, accepted, rejected
from m3b.data.index import Index, Record
from m3b.errors import ModelError
from m3b.metrics import Case, Measure, Scores, judge, score_diagnosis
from m3b.models.deliverable import check_deliverable

FOLDER = "Deliver"
VALID_CASES = 300
Probabilities = Mapping[str, float]
Predict = Callable[[Path, Sequence[Record]], list[Probabilities]]
"""Runs a deliverable's predict.py on cases, without the raw data; one mapping of class to probability a case."""


@dataclass(frozen=True)
class Trial:
    """What the deliverable answered on the locked test cases."""

    cases: tuple[Case, ...]


def cases_of(records: Sequence[Record], answers: Sequence[Probabilities]) -> tuple[Case, ...]:
    """Records with what the model said of them."""
    return tuple(
        Case(record.key, record.patient, record.labels, answer) for record, answer in zip(records, answers, strict=True)
    )


def check_model(
    work: Path,
    selection: Selection,
    data: DataIndex,
    index: Index,
    predict: Predict,
    keep: Callable[[Trial], None],
    acceptable: tuple[float, float | None] | None,
) -> Verdict:
    """Accept a deliverable that is whole and predicts every validation and test case.

    The test figure is not looked at here: agents hear the validation figure alone.

    Args:
        index: the locked one.
        keep: stores the predictions on the test cases where agents cannot see them.
    """
    folder = work / FOLDER
    if not folder.is_dir():
        return rejected(f"There is no folder {FOLDER}/. Train, then run `python export.py --out {FOLDER}`.")
    problems = check_deliverable(folder)
    if problems:
        return rejected(*problems)
    valid = validation_records(work, index)
    try:
        answers = predict(folder, [*valid, *index.test])
    except ModelError as error:
        return rejected(f"{FOLDER}/predict.py does not do its work in a clean process: {error}")
    unknown = _classes(answers, data.classes)
    if unknown:
        return rejected(unknown)
    keep(Trial(cases_of(index.test, answers[len(valid) :])))
    scores = _validation(valid, answers, data, selection)
    figure = scores.primary if scores else None
    model = TrainedModel(
        folder=FOLDER,
        validation=figure.to_dict() if figure else {},
        files=sum(1 for path in folder.rglob("*") if path.is_file()),
    )
    return accepted(model, *_warnings(figure, scores, acceptable))


def validation_records(work: Path, index: Index) -> list[Record]:
    """The training cases that the project held out, as far as it says which."""
    file = work / "Logout" / "valid_predictions.json"
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        names = {_key(row["image"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    held = [record for record in index.train if record.key in names]
    return held[:: -(-len(held) // VALID_CASES)] if held else []  # spread out: an index is often sorted by label


def _key(image: Any) -> str:
    return image if isinstance(image, str) else "|".join(image)


def _classes(answers: Sequence[Probabilities], classes: Sequence[str]) -> str:
    for answer in answers:
        if set(answer) != set(classes):
            return f"predict.py answers for {sorted(answer)}; the index has {sorted(classes)}. Export from this plan."
    return ""


def _validation(
    valid: Sequence[Record], answers: Sequence[Probabilities], data: DataIndex, selection: Selection
) -> Scores | None:
    if not valid:
        return None
    try:
        cases = cases_of(valid, answers[: len(valid)])
        return score_diagnosis(cases, data.classes, data.multi_label, primary=selection.metric)
    except ValueError:
        return None  # too few validation cases of a class to say anything


def _warnings(
    figure: Measure | None, scores: Scores | None, acceptable: tuple[float, float | None] | None
) -> list[str]:
    if figure is None or scores is None:
        return ["m3b could not measure the model on validation cases: Logout/valid_predictions.json names none."]
    verdict = judge(scores, acceptable)
    return [] if verdict.ok else [f"On the validation cases m3b measures: {verdict.reason}"]
