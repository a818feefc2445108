"""Who is hidden, and what the agent's copy of a set holds: what the carve-out asks of the reader process."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from m3b.errors import DataError
from m3b.metrics.verdict import ENOUGH
from m3b.reader import Request

from .datasets import RawCase, dataset
from .hidden import AGENT, Hidden
from .identity import IDENTITIES, Identity
from .leftovers import verify
from .subset import Removal, write_subset

CARVING_S = 3600.0
MIN_PATIENTS = 2


@dataclass(frozen=True)
class ToCarve:
    """A set by name, the folder that it lies in, and where the two copies go; as `m3b.bench.carving.carve`."""

    dataset: str
    source: Path
    part: Path
    share: float
    seed: int


@dataclass(frozen=True)
class Carved:
    """The hidden cases, and which files of the source go into the agent's copy as they are.

    The tables of the agent's copy are written already.
    """

    cases: tuple[RawCase, ...]
    kept: tuple[RawCase, ...]
    files: tuple[str, ...]
    withheld: tuple[str, ...]


@dataclass(frozen=True)
class ToVerify:
    """The two copies, and the cases that the agent's must still hold; as `m3b.bench.leftovers.verify`."""

    hidden: Hidden
    kept: tuple[RawCase, ...]


CARVE = Request("m3b.bench.choosing:carve_out", ToCarve, Carved, CARVING_S)
VERIFY: Request[ToVerify, bool] = Request("m3b.bench.choosing:verify_copies", ToVerify, bool, CARVING_S)


def carve_out(asked: ToCarve) -> Carved:
    """Inside the reader: choose the patients, and write the tables of the agent's copy. Raises DataError."""
    spec = dataset(asked.dataset)
    cases = spec.read(asked.source).cases
    patients = choose_patients(cases, asked.share, asked.seed)
    hidden_cases = tuple(case for case in cases if case.patient in patients)
    kept_cases = tuple(case for case in cases if case.patient not in patients)
    removal = Removal.of(hidden_cases, patients, IDENTITIES.get(spec.name, Identity()))
    case_files = {path for case in cases for path in (*case.images, case.mask)}
    files, withheld = write_subset(asked.source, asked.part / AGENT, removal, keep=case_files)
    return Carved(hidden_cases, kept_cases, tuple(files), tuple(withheld))


def verify_copies(asked: ToVerify) -> bool:
    """Inside the reader: True. Raises DataError where something of a hidden case is left."""
    verify(dataset(asked.hidden.dataset), asked.hidden, list(asked.kept))
    return True


def choose_patients(cases: Iterable[RawCase], share: float, seed: int) -> set[str]:
    """About `share` of the patients of every class and of every part of a given split; at least two in all, and of three
    times as many patients as a verdict needs, as many as it needs.

    Raises:
        DataError: fewer than two patients would be left on one side.
    """
    strata: dict[tuple[str, str], list[str]] = defaultdict(list)
    seen_patients: set[str] = set()
    for case in cases:
        if case.patient not in seen_patients:
            seen_patients.add(case.patient)
            label = case.labels[0] if len(case.labels) == 1 else ""
            strata[case.split, label].append(case.patient)
    generator = random.Random(seed)
    hidden_patients: set[str] = set()
    remaining: list[str] = []
    for _, patients in sorted(strata.items()):
        shuffled = sorted(patients)
        generator.shuffle(shuffled)
        count = min(len(shuffled) - 1, max(1 if len(shuffled) >= 3 else 0, round(share * len(shuffled))))
        hidden_patients.update(shuffled[: max(count, 0)])
        remaining += shuffled[max(count, 0) :]
    generator.shuffle(remaining)
    min_hidden = ENOUGH if len(seen_patients) >= 3 * ENOUGH else MIN_PATIENTS
    while len(hidden_patients) < min_hidden and len(remaining) > MIN_PATIENTS:
        hidden_patients.add(remaining.pop())
    if len(hidden_patients) < MIN_PATIENTS or len(remaining) < MIN_PATIENTS:
        raise DataError(
            f"{len(seen_patients)} patients are too few to hide some of them; at least {2 * MIN_PATIENTS} are needed."
        )
    return hidden_patients
