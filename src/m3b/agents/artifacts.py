"""What one role hands to the next, as typed objects that the journal can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def find_json_object(text: str, key: str = "data_card") -> dict[str, Any] | None:
    """The first JSON object with `key` in a text that may also hold prose or a code fence."""
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
    """The words for the user of `{"given_up": "<what was found, and what would help>"}`, or nothing."""
    reply_object = find_json_object(text, "given_up")
    return str(reply_object["given_up"] or "").strip() if reply_object else ""


A = TypeVar("A")


@dataclass(frozen=True)
class Selection:
    """The Task Manager's: which data, which task, which metric, and a plan in words."""

    card: str
    task: str
    metric: str
    plan: str
    classes: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class DataIndex:
    """The Data Engineer's: the accepted index and what the audit counted.

    `counts` are cases a class by split. `hashes` are those of train.json, test.json and label_dict.json at the moment
    of locking, and of the files that the test cases rest on and that were made in the run. `values` is label_dict.json.
    `patients_known` says whether every case names whose it is; `grouped_by` in words what groups cases, where m3b made
    the index from a manifest.
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
    """How it came about, and what of the data folder was used and left out, in sentences."""
    weak: str = ""
    """Why a person should look at it before training; empty where the evidence of the manifest suffices."""
    confirmed: str = ""
    """What the user answered to the question whether it is right; empty where nobody asked, or nobody has answered yet."""


@dataclass(frozen=True)
class TrainingModule:
    """The Module Architect's: what the probe of the project measured."""

    batch_shape: tuple[int, ...]
    parameters: int
    overfit: tuple[float, float]
    """Loss of one batch before and after a few steps on it."""
    plan: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedModel:
    """The Model Trainer's: where the deliverable lies, and m3b's own figure on the validation part.

    `hashes` are those of every file of the copy that was measured, `answers` that of its measured answers on the test
    cases; both are empty in journals of early versions. With `refit` the delivered weights were trained on every training case:
    the validation figure is that of networks like them, each on cases that it was trained without.
    """

    folder: str
    validation: dict[str, Any] = field(default_factory=dict)
    files: int = 0
    hashes: dict[str, str] = field(default_factory=dict)
    answers: str = ""
    refit: bool = False


ARTIFACT_CLASSES: dict[str, type[Any]] = {
    "selection": Selection,
    "index": DataIndex,
    "module": TrainingModule,
    "model": TrainedModel,
}
"""What m3b's own roles hand over, by the names that the journal has for it."""


def kind_of(artifact_class: type[Any]) -> str:
    """The name of a class of artifacts in the journal: `DataSheet` of a user's own is `data_sheet`."""
    builtin_kind = next((kind for kind, known_class in ARTIFACT_CLASSES.items() if known_class is artifact_class), "")
    return builtin_kind or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", artifact_class.__name__).lower()


def to_json(artifact: Any) -> dict[str, Any]:
    """An artifact as the journal holds it."""
    artifact_class: type[Any] = type(artifact)
    if artifact_class in ARTIFACT_CLASSES.values():
        return asdict(artifact)
    values: dict[str, Any] = _type_adapter(artifact_class).dump_python(artifact, mode="json")
    return values


def from_json(artifact_class: type[A], raw: Mapping[str, Any]) -> A:
    """The same again; lists become tuples where the class has tuples.

    Raises:
        TypeError, ValueError: these are no values of such an artifact.
    """
    if artifact_class in ARTIFACT_CLASSES.values():
        return artifact_class(**{key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()})
    return _type_adapter(artifact_class).validate_python(raw)


def _type_adapter(artifact_class: type[A]) -> TypeAdapter[A]:
    from pydantic import TypeAdapter  # what only artifacts of a user's own need

    return TypeAdapter(artifact_class)
