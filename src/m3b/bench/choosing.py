"""Who is hidden, and what the agent's copy of a set holds: what the carve-out asks of the reader process."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from m3b.errors import DataError
from m3b.metrics.verdict import MIN_VERDICT_PATIENTS
from m3b.reader import WorkerJob

from .datasets import RawCase, get_dataset
from .hidden import AGENT_FOLDER, CarveOut
from .identity import PATIENT_LOOKUPS, PatientLookup
from .leftovers import verify_agent_copy
from .subset import Removal, write_subset

CARVING_TIMEOUT_S = 3600.0
MIN_PATIENTS = 2


@dataclass(frozen=True)
class CarveRequest:
    """A set by name, the folder that it lies in, and where the two copies go; as `m3b.bench.carving.carve`."""

    dataset: str
    source: Path
    part: Path
    share: float
    seed: int


@dataclass(frozen=True)
class CarveResult:
    """The hidden cases, and which files of the source go into the agent's copy as they are.

    The tables of the agent's copy are written already.
    """

    cases: tuple[RawCase, ...]
    kept_cases: tuple[RawCase, ...]
    files: tuple[str, ...]
    withheld: tuple[str, ...]


@dataclass(frozen=True)
class VerifyRequest:
    """The two copies, and the cases that the agent's must still hold; as `m3b.bench.leftovers.verify_agent_copy`."""

    carve_out: CarveOut
    kept_cases: tuple[RawCase, ...]


CARVE_JOB = WorkerJob("m3b.bench.choosing:run_carving", CarveRequest, CarveResult, CARVING_TIMEOUT_S)
VERIFY_JOB: WorkerJob[VerifyRequest, bool] = WorkerJob(
    "m3b.bench.choosing:run_verification", VerifyRequest, bool, CARVING_TIMEOUT_S
)


def run_carving(request: CarveRequest) -> CarveResult:
    """Inside the reader: choose the patients, and write the tables of the agent's copy. Raises DataError."""
    spec = get_dataset(request.dataset)
    cases = spec.read(request.source).cases
    patients = choose_patients(cases, request.share, request.seed)
    hidden_cases = tuple(case for case in cases if case.patient in patients)
    kept_cases = tuple(case for case in cases if case.patient not in patients)
    removal = Removal.from_cases(hidden_cases, patients, PATIENT_LOOKUPS.get(spec.name, PatientLookup()))
    case_files = {path for case in cases for path in (*case.images, case.mask)}
    files, withheld = write_subset(request.source, request.part / AGENT_FOLDER, removal, keep=case_files)
    return CarveResult(hidden_cases, kept_cases, tuple(files), tuple(withheld))


def run_verification(request: VerifyRequest) -> bool:
    """Inside the reader: True. Raises DataError where something of a hidden case is left."""
    verify_agent_copy(get_dataset(request.carve_out.dataset), request.carve_out, list(request.kept_cases))
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
    min_hidden = MIN_VERDICT_PATIENTS if len(seen_patients) >= 3 * MIN_VERDICT_PATIENTS else MIN_PATIENTS
    while len(hidden_patients) < min_hidden and len(remaining) > MIN_PATIENTS:
        hidden_patients.add(remaining.pop())
    if len(hidden_patients) < MIN_PATIENTS or len(remaining) < MIN_PATIENTS:
        raise DataError(
            f"{len(seen_patients)} patients are too few to hide some of them; at least {2 * MIN_PATIENTS} are needed."
        )
    return hidden_patients
