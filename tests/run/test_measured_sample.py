"""A test part that takes longer than the training: sampled by whole patients, stratified, once for all models of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from m3b.agents.artifacts import Selection
from m3b.agents.check_result import CheckResult, accept
from m3b.agents.checks.index_lock import write_index
from m3b.agents.checks.model import ChooseTestCases, LockedTestResult, PredictCases
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.measure import describe_test_sample
from m3b.run.folder import RunFolder
from m3b.run.packaging import compute_test_scores, write_test_result
from m3b.run.sampled_test_part import (
    MIN_SAMPLED_PATIENTS,
    SAMPLE_FILE,
    check_on_test_part,
    choose_test_cases,
    draw_test_sample,
)
from m3b.tasks import Row

CLASSES = ("clear", "opacity", "rare")


def make_index(patients: int = 1000) -> Index:
    """Return an index whose test patients have two images each; one in twenty has the rare class, a third opacities."""

    def record(part: str, number: int) -> Record:
        patient = number // 2
        label = "rare" if patient % 20 == 0 else "opacity" if patient % 3 == 0 else "clear"
        return Record(f"data/{part}{number}.png", (label,), f"{part}{patient}")

    return Index(tuple(record("a", n) for n in range(40)), tuple(record("b", n) for n in range(2 * patients)), CLASSES)


def shares(records: Sequence[Record]) -> dict[str, float]:
    counts = Counter(record.labels[0] for record in records)
    return {name: counts[name] / len(records) for name in CLASSES}


def test_a_sample_has_whole_patients_and_the_share_of_each_class() -> None:
    index = make_index()
    sample = draw_test_sample(index.test, seconds=1.0, limit_s=600.0, seed=3)
    assert (sample.all_cases, sample.all_patients) == (2000, 1000)
    assert sample.patients == 300
    assert sample.cases == 600
    sampled = [record for record in index.test if record.key in set(sample.keys)]
    assert set(Counter(record.patient for record in sampled).values()) == {2}
    for name, share in shares(index.test).items():
        assert shares(sampled)[name] == pytest.approx(share, abs=0.01)
    assert draw_test_sample(index.test, 1.0, 600.0, 3) == sample
    assert draw_test_sample(index.test, 1.0, 600.0, 4).keys != sample.keys
    assert draw_test_sample(index.test, 1e6, 600.0, 3).patients == MIN_SAMPLED_PATIENTS
    assert draw_test_sample(index.test, 1e-6, 600.0, 3).keys == tuple(record.key for record in index.test)


class TimedModel:
    """Predicts nothing; each case takes so many seconds of a clock of its own, and each call 50 seconds more."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds, self.calls = 0.0, seconds, list[int]()

    def read_clock(self) -> float:
        return self.now

    def predict(self, folder: Path, records: Sequence[Record], index: Index) -> list[Row]:
        self.now += 50 + self.seconds * len(records)
        self.calls.append(len(records))
        return []


def test_the_sample_is_drawn_once_for_all_models_of_a_run(tmp_path: Path) -> None:
    index, model, sentences = make_index(), TimedModel(2.0), list[str]()

    def choose(limit_s: float, seed: int) -> tuple[Record, ...]:
        return choose_test_cases(
            tmp_path, index, model.predict, tmp_path, index.train, limit_s, seed, lambda s: sentences.append(s.sentence),
            model.read_clock,
        )  # fmt: skip

    assert choose(5000.0, 0) == index.test, "4,000 s are less than the training took"
    assert not (tmp_path / SAMPLE_FILE).exists()
    first = choose(1000.0, 0)
    assert len(first) == 500
    calls = list(model.calls)
    assert sum(calls) < 25, "a few training cases were timed"
    model.seconds = 0.001  # a faster model, after a resume or more training
    assert choose(90_000.0, 7) == first
    assert model.calls == calls
    assert len(sentences) == 2
    assert "500 of 2000" in sentences[0]


@pytest.mark.parametrize("pretends", [True, False])
def test_slowness_on_a_few_cases_alone_leaves_the_whole_test_part(tmp_path: Path, pretends: bool) -> None:
    """A model that waited only while it was timed had 100 of 1,000 patients measured, and its score was a matter of chance."""
    index, model, measured_sizes, notes = make_index(), TimedModel(60.0), list[int](), list[str]()

    def predict(folder: Path, records: Sequence[Record], index: Index) -> list[Row]:
        model.seconds = 60.0 if len(records) < 20 or not pretends else 0.1
        return model.predict(folder, records, index)

    def choose(folder: Path, cases: Sequence[Record]) -> Sequence[Record]:
        return choose_test_cases(tmp_path, index, model.predict, folder, cases, 1000.0, 0, clock=model.read_clock)

    def check(predict: PredictCases, choose: ChooseTestCases | None) -> CheckResult:
        records = choose(tmp_path, index.train) if choose else index.test
        predict(tmp_path, records, index)
        measured_sizes.append(len(records))
        return accept(None)

    assert check_on_test_part(tmp_path, predict, check, choose, notes.append, model.read_clock).is_accepted
    assert measured_sizes == ([200, 2000] if pretends else [200])
    assert (tmp_path / SAMPLE_FILE).exists() is not pretends
    assert len(notes) == pretends


@pytest.mark.parametrize("is_measured", [True, False])
def test_a_sample_on_which_nothing_was_measured_is_no_choice_yet(tmp_path: Path, is_measured: bool) -> None:
    """A run that was killed while it measured its sample kept it, however fast the model was."""
    index, model, measured, notes = make_index(), TimedModel(60.0), list[int](), list[str]()

    def choose(folder: Path, cases: Sequence[Record]) -> Sequence[Record]:
        return choose_test_cases(tmp_path, index, model.predict, folder, cases, 1000.0, 0, clock=model.read_clock)

    def check(predict: PredictCases, choose: ChooseTestCases | None) -> CheckResult:
        records = choose(tmp_path, index.train) if choose else index.test
        if not measured:
            measured.append(0)
            raise KeyboardInterrupt
        predict(tmp_path, records, index)
        measured.append(len(records))
        return accept(None)

    def measure() -> CheckResult:
        return check_on_test_part(
            tmp_path, model.predict, check, choose, notes.append, model.read_clock, is_measured=is_measured
        )

    with pytest.raises(KeyboardInterrupt):
        measure()
    assert (tmp_path / SAMPLE_FILE).exists()
    model.seconds = 0.1
    assert measure().is_accepted
    assert measured[1:] == ([200] if is_measured else [200, 2000])
    assert (tmp_path / SAMPLE_FILE).exists() is is_measured
    assert len(notes) == (not is_measured)


def test_short_tests_are_measured_whole_and_untimed(tmp_path: Path) -> None:
    index, model = make_index(90), TimedModel(100.0)
    cases = choose_test_cases(tmp_path, index, model.predict, tmp_path, index.train, 60.0, 0, clock=model.read_clock)
    assert cases == index.test
    assert not model.calls
    large, quick = make_index(), TimedModel(0.25)
    cases = choose_test_cases(tmp_path, large, quick.predict, tmp_path, large.train, 60.0, 0, clock=quick.read_clock)
    assert cases == large.test, "below 10 min"


def test_scores_of_a_sample_say_so(tmp_path: Path) -> None:
    index, run = make_index(200), RunFolder(tmp_path)
    write_index(run.locked, index)
    selection = Selection("card", "diagnosis", "auroc", "")
    sampled = draw_test_sample(index.test, 10.0, 2000.0, 0)
    rows = [
        {
            "image": record.key,
            "patient": record.patient,
            "labels": list(record.labels),
            "probabilities": {name: 0.6 if name in record.labels else 0.2 for name in CLASSES},
        }
        for record in index.test
    ]
    baseline_sizes: list[int] = []

    def predict_baseline(training: Sequence[Record], records: Sequence[Record], *options: object) -> None:
        baseline_sizes.append(len(records))

    for part, expected in (
        ([row for row in rows if row["image"] in set(sampled.keys)], sampled.counts),
        (rows, None),
    ):
        write_test_result(run.locked, LockedTestResult(tuple(part)))
        scores = compute_test_scores(run, selection, 0, predict_baseline)
        assert scores.n_cases == len(part)
        assert scores.details.get("test_sample") == expected
    assert baseline_sizes == [200, 400]
    assert "of the 400 test cases (100 of 200 patients)" in describe_test_sample(sampled.counts)
    assert describe_test_sample({}) == ""
