"""What staging, measuring and baselines ask of the reader process.

A task family that was added in this very process is not known there; then the same is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.models import Prediction
from m3b.models.staging import Staged
from m3b.plugins import installed
from m3b.reader import Reader, Request
from m3b.tasks import Row, family
from m3b.tasks.doubts import with_doubts

STAGING_S = 600.0
MEASURING_S = 600.0


@dataclass(frozen=True)
class ToStage:
    """Images, and where they shall lie; as `m3b.models.stage_cases`."""

    images: list[str | list[str] | dict[str, str]]
    folder: Path
    confined: bool
    base: Path
    link_from: int


@dataclass(frozen=True)
class ToAlter:
    """Staged files by their path below `folder`, and the way in which each is to be altered."""

    folder: Path
    files: list[tuple[str, str]]


@dataclass(frozen=True)
class ToMeasure:
    """Answers to records of an index whose paths count from `base`."""

    records: list[Record]
    answers: list[Prediction]
    index: Index
    base: Path


@dataclass(frozen=True)
class ToGuess:
    """Records of an index that may be learnt from, and those that a blind answer is wanted for."""

    training: list[Record]
    records: list[Record]
    index: Index
    base: Path


STAGE = Request("m3b.tasks.inside:stage", ToStage, Staged, STAGING_S)
ALTER: Request[ToAlter, list[bool]] = Request("m3b.tasks.inside:alter", ToAlter, list[bool], STAGING_S)
MEASURE: Request[ToMeasure, list[Row]] = Request("m3b.tasks.inside:measure", ToMeasure, list[Row], MEASURING_S)
GUESS: Request[ToGuess, Any] = Request("m3b.tasks.inside:guess", ToGuess, Any, MEASURING_S)


def stage(asked: ToStage) -> Staged:
    """Inside the reader. Raises ModelError."""
    from m3b.models import stage_cases

    return stage_cases(
        asked.images, asked.folder, asked.confined, base=asked.base, later=True, link_from=asked.link_from
    )


def alter(asked: ToAlter) -> list[bool]:
    """Inside the reader: which files were altered."""
    from m3b.data import altering

    return [altering.alter(asked.folder / path, way) for path, way in asked.files]


def measure(asked: ToMeasure) -> list[Row]:
    """Inside the reader. Raises ModelError, DataError."""
    return _measure(asked.records, asked.answers, asked.index, asked.base)


def guess(asked: ToGuess) -> Any:
    """Inside the reader. Raises ModelError, DataError."""
    return family(asked.index.task).trivial(asked.training, asked.records, asked.index, asked.base)


def _measure(records: Sequence[Record], answers: Sequence[Prediction], index: Index, base: Path) -> list[Row]:
    task_family = family(index.task)
    pairs = zip(records, answers, strict=True)
    return [
        with_doubts(task_family.measure(record, prediction, index, base), record, prediction)
        for record, prediction in pairs
    ]


def measured(
    records: Sequence[Record], answers: Sequence[Prediction], index: Index, base: Path, reader: Reader
) -> list[Row]:
    """One row a case, the masks opened by the reader, which must see `base` and the answers' files.

    Raises:
        ModelError: an answer that cannot be that of its image.
        DataError: a file that cannot be opened.
    """
    if not installed(family(index.task)):
        return _measure(records, answers, index, base)
    return reader.ask(MEASURE, ToMeasure(list(records), list(answers), index, base))


def guessed(training: Sequence[Record], records: Sequence[Record], index: Index, base: Path, reader: Reader) -> Any:
    """What `TaskFamily.trivial` gives, the masks opened by the reader, which must see `base`. Raises as `measured`."""
    if not installed(family(index.task)):
        return family(index.task).trivial(training, records, index, base)
    return reader.ask(GUESS, ToGuess(list(training), list(records), index, base))
