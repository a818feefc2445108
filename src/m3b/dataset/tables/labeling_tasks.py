"""Answers of several people to labelling tasks, as Label Studio exports them (https://labelstud.io/guide/export)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from m3b.dataset.tables.text_tables import names_of_true

_UPLOADED = r"^(?:.*/)?[0-9a-f]{8}-([^/]+\.[A-Za-z0-9.]{2,8})$"
"""Names of uploaded files: eight hexadecimal digits go before the name."""
FILE_NAME = "file name"
"""Ending of the column that holds the names of uploaded files as they were called before."""
DISAGREEMENT = "annotators disagree"
"""Answer of a task that people answered differently; it names no class."""
_ANSWERS = ("choices", "rating", "number")


def list_answers(document: Any) -> list[dict[str, Any]] | None:
    """Return the data of each task with an answer to each of its questions; None if a document holds no such tasks.

    Answers that were cancelled do not count; one that is called ground truth goes before all others.
    """
    if not isinstance(document, list) or not document or not all(map(_is_task, document)):
        return None
    if not any(_answers_of(annotation) for task in document for annotation in _list_annotations(task)):
        return None
    return [{**task["data"], **_unite_answers(task)} for task in document]


def _is_task(task: Any) -> bool:
    return (
        isinstance(task, Mapping)
        and isinstance(task.get("data"), Mapping)
        and isinstance(task.get("annotations", task.get("completions")), list)
    )


def _list_annotations(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    annotations = task.get("annotations", task.get("completions")) or ()
    valid = [item for item in annotations if isinstance(item, Mapping) and not item.get("was_cancelled")]
    return [item for item in valid if item.get("ground_truth")] or valid


def _answers_of(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """Return question -> answer of one person about the whole image."""
    answers: dict[str, Any] = {}
    for region in annotation.get("result") or ():
        value = region.get("value") if isinstance(region, Mapping) else None
        if not isinstance(value, Mapping) or ("original_width" in region and {"x", "points", "rle"} & value.keys()):
            continue
        answer = next((value[key] for key in _ANSWERS if value.get(key) is not None), None)
        if answer is not None:
            answers[str(region.get("from_name") or "choice")] = answer
    return answers


def _unite_answers(task: Mapping[str, Any]) -> dict[str, Any]:
    answers = [_answers_of(annotation) for annotation in _list_annotations(task)]
    united: dict[str, Any] = {}
    for question in dict.fromkeys(question for answer in answers for question in answer):
        given = [answer[question] for answer in answers if question in answer]
        is_equal = all(_fold(answer) == _fold(given[0]) for answer in given)
        united[question] = given[0] if is_equal else DISAGREEMENT
    return united


def _fold(answer: Any) -> Any:
    return sorted(map(str, answer)) if isinstance(answer, list) else str(answer)


def add_file_names(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with the names of uploaded files as they were called before, beside each column of uploaded names."""
    texts = pl.col(pl.String)
    is_upload = (texts.count() > 1) & texts.str.contains(_UPLOADED).all()
    return frame.with_columns(
        pl.col(name).str.extract(_UPLOADED, 1).alias(f"{name} {FILE_NAME}")
        for name in names_of_true(frame.select(is_upload))
    )
