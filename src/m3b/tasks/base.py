"""What every task family can do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.metrics import Scores
from m3b.models import Prediction

Row = dict[str, Any]
"""One measured case as JSON values: `image`, `patient`, and what its family needs to score it."""

DEFAULT_METRIC = {"diagnosis": "auroc", "segmentation": "dice", "detection": "lesion_f1", "report": "bleu_4"}


class Family(Protocol):
    """A task family; stateless."""

    def outputs(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """How many outputs (channels) a network of this plan may have; empty where any number may be right."""

    def measure(self, record: Record, answer: Prediction, index: Index, base: Path) -> Row:
        """One case.

        Args:
            index: for the classes and their numbers.
            base: what the paths of the record count from.

        Raises:
            ModelError: the answer cannot be that of this image, for instance a mask of another shape.
        """

    def trivial(self, training: Sequence[Record], records: Sequence[Record], index: Index, base: Path) -> Any:
        """JSON values that stand for the best answer that never looks at an image, made from training cases."""

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, trivial: Any = None, seed: int = 0) -> Scores:
        """All metrics of measured cases.

        Args:
            trivial: what `trivial` gave for the same records in the same order.

        Raises:
            ValueError: the rows cannot be scored, or there is no such metric.
        """


def to_plain(value: float) -> float | str | None:
    """A figure as strict JSON: NaN is null and infinity is "inf"."""
    if math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value


def from_plain(value: float | str | None) -> float:
    """Undoes `to_plain`."""
    return math.nan if value is None else float(value)


def named(record: Record) -> Row:
    """The part of a row that every family has."""
    return {"image": record.key, "patient": record.patient}


def spread(records: Sequence[Record], most: int) -> Sequence[Record]:
    """At most so many records from all over a list that may be sorted."""
    return records[:: max(1, -(-len(records) // most))]
