"""Artifacts: the typed objects that one role hands to the next, as the journal holds them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def find_json_object(text: str, key: str = "data_card") -> dict[str, Any] | None:
    """Return the first JSON object with `key` in a text that may also hold prose or a code fence, if there is one."""
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        try:
            value, _ = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and key in value:
            return value
        position = text.find("{", position + 1)
    return None


def parse_give_up(text: str) -> str:
    """Return the message for the user in `{"given_up": "<what was found, and what would help>"}`, else ''."""
    reply_object = find_json_object(text, "given_up")
    return str(reply_object["given_up"] or "").strip() if reply_object else ""


A = TypeVar("A")


@dataclass(frozen=True)
class Selection:
    """Artifact of the Task Manager: data set, task, metric, and a plan in words."""

    card: str
    task: str
    metric: str
    plan: str
    classes: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class DataIndex:
    """Artifact of the Data Engineer: the accepted index and the counts of the audit.

    Args:
        counts: split -> class -> cases.
        patients: split -> number of patients.
        cases: split -> number of cases.
        hashes: hashes of train.json, test.json and label_dict.json when they were locked, and of the derived files.
        values: content of label_dict.json.
        patients_known: whether every case names its patient.
        grouped_by: what groups cases, in words, if m3b made the index from a manifest.
    """

    classes: tuple[str, ...]
    multi_label: bool
    counts: dict[str, dict[str, int]]
    patients: dict[str, int]
    cases: dict[str, int]
    hashes: dict[str, str]
    notes: tuple[str, ...] = ()
    task: str = "diagnosis"
    values: dict[str, int] = field(default_factory=dict)
    patients_known: bool = True
    grouped_by: str = ""
    origin: str = ""
    """`proposed`, `edited` or `given` (manifests that m3b executed), or `script`."""
    read: tuple[str, ...] = ()
    """Sentences on how the index was made, the files that were used, and the exclusions."""
    weak: str = ""
    """Why a person should review the index before training; empty if the evidence of the manifest suffices."""
    confirmed: str = ""
    """The user's answer to the question whether the index is right; empty if not asked or not answered yet."""
    accounting: dict[str, Any] = field(default_factory=dict)
    """Number of files of the data folder, by use and by reason of exclusion; empty if a script made the index."""
    assumptions: tuple[str, ...] = ()
    """What the request says of the data and nothing in the folder confirms."""


@dataclass(frozen=True)
class TrainingModule:
    """Artifact of the Module Architect: the measurements of the project's probe."""

    batch_shape: tuple[int, ...]
    parameters: int
    overfit: tuple[float, float]
    """Loss of one batch before and after a few steps on it."""
    plan: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedModel:
    """Artifact of the Model Trainer: the deliverable, and its validation metric as measured by m3b.

    Args:
        folder: the folder of the deliverable in the working directory.
        hashes: hash of every file of the measured copy; empty in journals of early versions.
        answers: hash of the measured predictions of the test cases; empty in journals of early versions.
        kept_answers: hash of answers.json, which has the hashes of the kept mask files; empty in journals of versions
            that kept none.
        refit: whether the delivered weights were trained on every training case. The validation metric is then that of
            the folds, each measured on cases that it was trained without.
        project: hash of each script and of plan.json of the project when the model was measured; empty in journals of
            early versions.
    """

    folder: str
    validation: dict[str, Any] = field(default_factory=dict)
    files: int = 0
    hashes: dict[str, str] = field(default_factory=dict)
    answers: str = ""
    kept_answers: str = ""
    refit: bool = False
    project: dict[str, str] = field(default_factory=dict)


ARTIFACT_CLASSES: dict[str, type[Any]] = {
    "selection": Selection,
    "index": DataIndex,
    "module": TrainingModule,
    "model": TrainedModel,
}
"""Name in the journal -> artifact class of m3b's own roles."""


def kind_of(artifact_class: type[Any]) -> str:
    """Return the name of an artifact class in the journal; a user's class `DataSheet` becomes `data_sheet`."""
    builtin_kind = next((kind for kind, known_class in ARTIFACT_CLASSES.items() if known_class is artifact_class), "")
    return builtin_kind or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", artifact_class.__name__).lower()


def to_json(artifact: Any) -> dict[str, Any]:
    """Return an artifact as the journal holds it."""
    artifact_class: type[Any] = type(artifact)
    if artifact_class in ARTIFACT_CLASSES.values():
        return asdict(artifact)
    values: dict[str, Any] = _type_adapter(artifact_class).dump_python(artifact, mode="json")
    return values


def from_json(artifact_class: type[A], raw: Mapping[str, Any]) -> A:
    """Return the artifact that `to_json` wrote; lists become tuples if the class has tuples.

    Raises:
        TypeError, ValueError: the values do not fit the class.
    """
    if artifact_class in ARTIFACT_CLASSES.values():
        return artifact_class(**{key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()})
    return _type_adapter(artifact_class).validate_python(raw)


def _type_adapter(artifact_class: type[A]) -> TypeAdapter[A]:
    from pydantic import TypeAdapter  # only artifacts of the user's own classes need it

    return TypeAdapter(artifact_class)
