"""A sample of the locked test part, if its prediction would take longer than the training.

The sample is drawn by whole patients, with the run's seed, so that each class and each kind of target has its share. It is stored in
`locked/` when it is first needed. Once a model was accepted on it, it is final: later models of the run, also after a resume or added
training, are measured on the same cases.

The time of a case is measured on code of agents, which may be slow on purpose. It gains little: what is drawn depends on the seed and
on targets that no agent sees, at least `MIN_SAMPLED_PATIENTS` are measured, and intervals are those of the sample. If the model then
turns out fast enough for the whole test part, the sample is discarded, and all cases are measured; also if the run was resumed in
between.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from m3b.agents.check_result import CheckResult
from m3b.agents.checks.model import ChooseTestCases, PredictCases
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.tasks import Row
from m3b.tasks.base import sample_evenly
from m3b.writing import write_text_atomically

SAMPLE_FILE = "test_sample.json"
MIN_PREDICT_S = 600.0
"""A test part whose prediction takes fewer seconds is never sampled, however short the training was."""
MIN_TIMED_CASES = 200
"""Smaller test parts are predicted without timing a few cases before."""
MIN_SAMPLED_PATIENTS = 100
"""Patients of the test part that are measured in any case."""
TIMED_CASES = 8


@dataclass(frozen=True)
class TestSample:
    """What a sample of the test part holds.

    Args:
        keys: of the sampled cases (`Record.key`), in the order of the index.
        cases, patients: of the sample; `all_cases` and `all_patients` of the whole test part.
        seconds: of a case, as measured.
        limit_s: seconds that the prediction may take: those of the training.
    """

    __test__ = False

    keys: tuple[str, ...]
    cases: int
    all_cases: int
    patients: int
    all_patients: int
    seconds: float
    limit_s: float
    seed: int

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of cases and patients, as in the details of scores."""
        return {
            "cases": self.cases,
            "all_cases": self.all_cases,
            "patients": self.patients,
            "all_patients": self.all_patients,
        }

    @property
    def sentence(self) -> str:
        """Return the sample in words, for the log."""
        return (
            f"{self.cases} of {self.all_cases} locked test cases ({self.patients} of {self.all_patients} patients) are measured: all "
            f"would take about {self.seconds * self.all_cases / 60:.0f} min, longer than the training ({self.limit_s / 60:.0f} min)"
        )


def choose_test_cases(
    locked: Path,
    index: Index,
    predict: PredictCases,
    model: Path,
    training_cases: Sequence[Record],
    limit_s: float,
    seed: int,
    on_sample: Callable[[TestSample], None] = lambda sample: None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Record, ...]:
    """Return the test cases to measure: all of them, or those of the sample that is stored in `locked`.

    Args:
        model: the deliverable, which is timed on a few of `training_cases`.
        limit_s: seconds that the training takes.
        clock: seconds, by which the prediction is timed.

    Raises:
        ModelError: the model fails on training cases.
    """
    sample = read_test_sample(locked)
    if sample is None and len(index.test) >= MIN_TIMED_CASES:
        limit_s = max(limit_s, MIN_PREDICT_S)
        seconds = time_prediction(predict, model, training_cases, index, clock)
        if seconds * len(index.test) > limit_s:
            sample = draw_test_sample(index.test, seconds, limit_s, seed)
            if sample.cases < len(index.test):
                write_text_atomically(locked / SAMPLE_FILE, json.dumps(asdict(sample)))
    if sample is None or sample.cases == len(index.test):
        return index.test
    on_sample(sample)
    keys = set(sample.keys)
    return tuple(record for record in index.test if record.key in keys)


def check_on_test_part(
    locked: Path,
    predict: PredictCases,
    check: Callable[[PredictCases, ChooseTestCases | None], CheckResult],
    choose: ChooseTestCases,
    on_note: Callable[[str], None] = lambda sentence: None,
    clock: Callable[[], float] = time.monotonic,
    *,
    is_measured: bool = False,
) -> CheckResult:
    """Check a model on the test cases that `choose` returns, and on all of them if it was timed slower than it then was.

    Args:
        is_measured: whether a model of the run was accepted before; a sample that is stored is final then.
        check: checks the model with the function that predicts, and the one that chooses test cases (None: all).
        choose: `choose_test_cases`, which may store a sample in `locked/`.
        on_note: gets a sentence for the log if the sample is discarded.
        clock: returns seconds.
    """
    durations: list[tuple[float, int]] = []

    def predict_timed(model: Path, records: Sequence[Record], index: Index) -> list[Row]:
        began = clock()
        rows = predict(model, records, index)
        durations.append((clock() - began, len(records)))
        return rows

    is_final = is_measured and read_test_sample(locked) is not None
    check_result = check(predict_timed, choose)
    sample = read_test_sample(locked)
    if is_final or sample is None or not check_result.is_accepted:
        return check_result
    seconds, n_cases = durations[-1]
    all_s = seconds / max(n_cases, 1) * sample.all_cases
    if all_s > sample.limit_s:
        return check_result
    (locked / SAMPLE_FILE).unlink()
    on_note(
        f"All {sample.all_cases} locked test cases are measured: the model predicts them in about {all_s / 60:.0f} min, faster than "
        "it was on a few training cases"
    )
    return check(predict, None)


def read_test_sample(locked: Path) -> TestSample | None:
    """Return the stored sample; None if the whole test part is measured."""
    file = locked / SAMPLE_FILE
    if not file.is_file():
        return None
    raw = json.loads(file.read_text(encoding="utf-8"))
    return TestSample(**{**raw, "keys": tuple(raw["keys"])})


def time_prediction(
    predict: PredictCases, model: Path, cases: Sequence[Record], index: Index, clock: Callable[[], float]
) -> float:
    """Return the seconds that one more case takes, by the difference between one case and a few. Raises ModelError."""
    timed = sample_evenly(cases, TIMED_CASES + 1)
    if len(timed) < 2:
        return 0.0
    durations = []
    for part in (timed[:1], timed):
        began = clock()
        predict(model, part, index)
        durations.append(clock() - began)
    return max(0.0, durations[1] - durations[0]) / (len(timed) - 1)


def draw_test_sample(records: Sequence[Record], seconds: float, limit_s: float, seed: int) -> TestSample:
    """Return a sample of whole patients that takes about `limit_s` seconds, at least `MIN_SAMPLED_PATIENTS` of them.

    Patients are sorted by what their cases show, in random order among equals, and taken at equal distances from a random start.
    """
    by_patient: dict[str, list[Record]] = {}
    for record in records:
        by_patient.setdefault(record.patient or record.key, []).append(record)
    rng = random.Random(seed)
    patients = sorted(by_patient)
    rng.shuffle(patients)
    patients.sort(key=lambda patient: _describe_targets(by_patient[patient]))
    share = min(1.0, limit_s / max(seconds * len(records), 1e-9))
    count = min(len(patients), max(MIN_SAMPLED_PATIENTS, int(share * len(patients))))
    step, start = len(patients) / count, rng.random()
    chosen = {patients[min(len(patients) - 1, int((number + start) * step))] for number in range(count)}
    keys = tuple(record.key for record in records if (record.patient or record.key) in chosen)
    return TestSample(keys, len(keys), len(records), len(chosen), len(by_patient), seconds, limit_s, seed)


def _describe_targets(cases: Sequence[Record]) -> tuple[Any, ...]:
    """Return what sorts patients with equal targets together: labels, classes of boxes, whether there are masks, a number."""
    labels = sorted({label for case in cases for label in case.labels})
    boxes = sorted({box.label for case in cases for box in case.boxes or ()})
    numbers = [float(value) for case in cases for value in case.extra.values() if isinstance(value, int | float)]
    return (labels, boxes, any(case.mask is not None for case in cases), sum(numbers) / max(len(numbers), 1))


def describe_measured_part(
    rows: Sequence[Mapping[str, Any]], index: Index
) -> tuple[tuple[Record, ...], dict[str, int] | None]:
    """Return the test records of measured rows in their order, and the counts if they are a sample of the test part.

    The counts are `cases`, `all_cases`, `patients` and `all_patients`.
    """
    by_key = {record.key: record for record in index.test}
    if len(rows) == len(index.test):
        return index.test, None
    records = tuple(by_key[row["image"]] for row in rows)
    patients, all_patients = (len({record.patient or record.key for record in part}) for part in (records, index.test))
    counts = {
        "cases": len(records),
        "all_cases": len(index.test),
        "patients": patients,
        "all_patients": all_patients,
    }
    return records, counts
