"""What one role hands to the next, as typed objects that the journal can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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
    the index from a reading.
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
    """`proposed`, `edited` or `given` (readings that m3b executed), or `script`."""
    read: tuple[str, ...] = ()
    """How it came about, and what of the data folder was used and left out, in sentences."""
    weak: str = ""
    """Why a person should look at it before training; empty where the evidence of the reading suffices."""
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
    cases; both are empty in journals of early versions.
    """

    folder: str
    validation: dict[str, Any] = field(default_factory=dict)
    files: int = 0
    hashes: dict[str, str] = field(default_factory=dict)
    answers: str = ""


Artifact = Selection | DataIndex | TrainingModule | TrainedModel

KINDS: dict[str, type[Artifact]] = {
    "selection": Selection,
    "index": DataIndex,
    "module": TrainingModule,
    "model": TrainedModel,
}


def to_json(artifact: Artifact) -> dict[str, Any]:
    return asdict(artifact)


def from_json(kind: str, raw: dict[str, Any]) -> Artifact:
    """An artifact as the journal holds it; lists become tuples again."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    return KINDS[kind](**values)
