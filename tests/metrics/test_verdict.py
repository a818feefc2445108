"""The verdict: enough patients, decisions beside ranks, the baseline on the same cases, and figures beside the main one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.metrics import ClassificationCase, LabelMetrics, judge
from m3b.metrics.bootstrap import bootstrap_interval, paired_interval, tail_quantiles
from m3b.models import Prediction
from m3b.tasks import get_family
from m3b.tasks.diagnosis import score_diagnosis
from m3b.tasks.segmentation import SegmentationCase, score_segmentation

YES_NO = ("no", "yes")


def binary(truth: list[int], positive: list[float]) -> list[ClassificationCase]:
    pairs = zip(truth, positive, strict=True)
    return [
        ClassificationCase(f"i{i}", f"p{i}", (YES_NO[t],), {"no": 1 - p, "yes": p}) for i, (t, p) in enumerate(pairs)
    ]


# --- intervals of few patients -----------------------------------------------------------------------------------


def test_tails_are_those_of_students_t() -> None:
    assert tail_quantiles(10**6) == pytest.approx((0.025, 0.975), abs=1e-4)
    assert tail_quantiles(10)[0] == pytest.approx(0.0085, abs=2e-4)  # Hesterberg 2015, table of expanded percentiles
    assert tail_quantiles(2)[0] < 1e-9


@pytest.mark.parametrize("n", [5, 10, 20])
def test_intervals_of_few_patients_cover_the_true_mean(n: int) -> None:
    rng = np.random.default_rng(n)
    hits = narrow = 0
    for _ in range(600):
        sample = rng.normal(size=n)
        bootstrap_means = rng.choice(sample, (1000, n)).mean(axis=1)
        low, high = bootstrap_interval(float(sample.mean()), bootstrap_means, n)
        hits += (low or 0) <= 0 <= (high or 0)
        percentiles = np.quantile(bootstrap_means, [0.025, 0.975])
        narrow += bool(percentiles[0] <= 0 <= percentiles[1])
    assert hits >= 0.92 * 600
    assert hits > narrow, "plain percentiles are too narrow for few patients"


def test_a_paired_difference_sees_what_two_intervals_do_not() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(0.6, 0.3, 40)
    model_values, baseline_values = hard + rng.normal(0.05, 0.03, 40), hard
    weights = np.eye(40)[rng.integers(0, 40, (2000, 40))].mean(axis=1)
    low, _ = bootstrap_interval(float(model_values.mean()), weights @ model_values, 40)
    assert (low or 0) < baseline_values.mean(), "the interval alone cannot tell the two apart"
    gain = paired_interval(weights @ model_values, weights @ baseline_values, 40)
    assert gain is not None
    assert 0 < gain[0] < gain[1] < 0.1
    assert paired_interval(weights @ baseline_values, weights @ baseline_values, 40) is None
    worse = paired_interval(weights @ model_values, weights @ baseline_values, 40, lower_is_better=True)
    assert worse == pytest.approx((-gain[1], -gain[0]))


# --- diagnosis ---------------------------------------------------------------------------------------------------


def test_two_patients_say_nothing() -> None:
    rng = np.random.default_rng(0)
    cases = []
    for number in range(60):
        sick = number % 2
        p = float(np.clip(0.5 + 0.3 * (sick - 0.5) + rng.normal(0, 0.1), 0.01, 0.99))
        cases.append(ClassificationCase(f"i{number}", "ab"[number % 4 // 2], (YES_NO[sick],), {"no": 1 - p, "yes": p}))
    verdict = judge(score_diagnosis(cases, YES_NO, False), None)
    assert not verdict.ok
    assert "2 test patients" in verdict.reason
    assert "at least 5" in verdict.reason
    rare_class_verdict = judge(
        score_diagnosis(binary([0] * 40 + [1] * 4, [0.2] * 40 + [0.3, 0.6, 0.7, 0.9]), YES_NO, False), None
    )
    assert not rare_class_verdict.ok
    assert "4 test patients of the rarer class" in rare_class_verdict.reason


def test_a_good_rank_with_the_decisions_of_a_constant_is_not_accepted() -> None:
    rng = np.random.default_rng(1)
    truth = [0, 1] * 60
    shy = [float(np.clip(0.2 + 0.1 * t + rng.normal(0, 0.05), 0, 0.49)) for t in truth]
    scores = score_diagnosis(binary(truth, shy), YES_NO, False)
    assert scores.metrics["sensitivity"].value == 0
    assert (scores.primary.low or 0) > 0.8
    verdict = judge(scores, None)
    assert not verdict.ok
    assert "decisions are no better than a constant" in verdict.reason


def test_what_is_accepted_is_said_in_standard_words() -> None:
    rng = np.random.default_rng(2)
    truth = [0, 1] * 60
    scores = score_diagnosis(binary(truth, [float(0.3 + 0.3 * t + 0.35 * rng.random()) for t in truth]), YES_NO, False)
    verdict = judge(scores, (0.7, None))
    assert verdict.ok
    assert "95 % CI above the image-blind baseline (0.500)" in verdict.reason
    assert not {"trivial", "certain"} & set(verdict.reason.replace(",", " ").split())


def test_accuracy_below_that_of_a_constant_is_said() -> None:
    rng = np.random.default_rng(3)
    truth = [1] * 20 + [0] * 180
    cases = binary(truth, [float(np.clip(0.45 + 0.25 * t + rng.normal(0, 0.15), 0, 1)) for t in truth])
    scores = score_diagnosis(cases, YES_NO, False)
    assert scores.metrics["accuracy"].value < (scores.metrics["accuracy"].baseline or 0)
    verdict = judge(scores, None)
    assert verdict.ok, "a sensitive classifier of a rare disease may be less accurate than 'healthy' for everybody"
    assert "accuracy" in verdict.reason
    assert "is worse than the image-blind baseline (0.900)" in verdict.reason
    by_accuracy = judge(score_diagnosis(cases, YES_NO, False, primary="accuracy"), None)
    assert not by_accuracy.ok


def test_decisions_are_scored_as_they_are_delivered() -> None:
    names = ("a", "b")
    rng = np.random.default_rng(4)
    records, answers = [], []
    for number in range(60):
        labels = tuple(name for k, name in enumerate(names) if number % (k + 2) == 0)
        scores = {name: 0.1 + 0.2 * (name in labels) + 0.05 * rng.random() for name in names}
        decision = tuple(name for name in names if scores[name] >= 0.25)  # a threshold of its own, far below 0.5
        records.append(Record(f"{number}.png", labels=labels, patient=f"p{number}"))
        answers.append(Prediction(f"{number}.png", probabilities=scores, prediction=decision))
    index = Index((), tuple(records), names, "diagnosis")
    of_task = get_family("diagnosis")
    rows = [of_task.measure(r, a, index, Path()) for r, a in zip(records, answers, strict=True)]
    scores = of_task.score(rows, index, primary="f1")
    assert scores.primary.value == 1.0
    assert scores.metrics["sensitivity"].value == 1.0
    stored = [{key: value for key, value in row.items() if key != "decided"} for row in rows]
    assert of_task.score(stored, index, primary="f1").primary.value == 0.0, "without decisions 0.5 counts"
    with pytest.raises(ValueError, match="decided for 'c'"):
        score_diagnosis([ClassificationCase("i", "p", ("a",), {"a": 0.5, "b": 0.5}, ("c",))], names, False)


# --- masks and reports -------------------------------------------------------------------------------------------


def masks(dice: float, hd95: float, spread: float, seed: int, cases: int = 30) -> list[SegmentationCase]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(cases):
        value = float(np.clip(dice + rng.normal(0, spread), 0, 1))
        rows.append(LabelMetrics(value, value, max(0.1, hd95 + rng.normal(0, 1)), 100, 100, 200.0))
    return [SegmentationCase(str(number), f"p{number}", {"liver": row}) for number, row in enumerate(rows)]


def test_masks_with_outliers_farther_off_than_the_mean_shape_are_not_accepted() -> None:
    shape = masks(0.5, 12.0, 0.05, 0)
    good = judge(score_segmentation(masks(0.8, 5.0, 0.05, 1), ["liver"], baseline_cases=shape), None)
    assert good.ok
    assert "95 % CI above the image-blind baseline (0." in good.reason
    outliers = judge(score_segmentation(masks(0.8, 40.0, 0.05, 1), ["liver"], baseline_cases=shape), None)
    assert not outliers.ok
    assert "hd95" in outliers.reason
    near = judge(score_segmentation(masks(0.8, 12.4, 0.05, 3), ["liver"], baseline_cases=shape), None)
    assert near.ok
    assert "but hd95" in near.reason


def test_a_gain_that_only_pairing_shows_is_accepted() -> None:
    rng = np.random.default_rng(0)
    hard = rng.uniform(0.2, 0.9, 30)

    def cases(values: np.ndarray) -> list[SegmentationCase]:
        return [
            SegmentationCase(str(n), "", {"a": LabelMetrics(float(v), float(v), 5.0 - 4 * float(v), 9, 9, 50.0)})
            for n, v in enumerate(values)
        ]

    scores = score_segmentation(cases(hard + 0.05), ["a"], baseline_cases=cases(hard + rng.normal(0, 0.02, 30)))
    assert (scores.primary.low or 0) < (scores.primary.baseline or 0)
    verdict = judge(scores, None)
    assert verdict.ok, verdict.reason
    assert "paired gain on" in verdict.reason


def test_a_report_has_to_be_better_with_its_own_image() -> None:
    scores = score_segmentation(masks(0.8, 5.0, 0.05, 1), ["liver"], baseline_cases=masks(0.5, 12.0, 0.05, 0))
    use = {"metric": "label_f1", "own_image": 0.41, "other_image": 0.40, "gain": [-0.02, 0.05], "chance": 0.31}
    blind = judge(replace(scores, task="report", details={"image_use": use}), None)
    assert not blind.ok
    assert "do not depend on the image" in blind.reason
    assert "in 31% of shuffles" in blind.reason
    seeing = {**use, "own_image": 0.6, "chance": 0.005}  # few patients: the interval alone would not tell
    assert judge(replace(scores, task="report", details={"image_use": seeing}), None).ok
    worse = {**use, "own_image": 0.2, "other_image": 0.4, "chance": 0.01}
    assert not judge(replace(scores, task="report", details={"image_use": worse}), None).ok


def test_a_measure_without_a_baseline_is_no_verdict() -> None:
    scores = score_diagnosis(binary([0, 1] * 20, [0.2, 0.8] * 20), YES_NO, False)
    for changed in (replace(scores.primary, baseline=None), replace(scores.primary, value=math.nan)):
        assert not judge(replace(scores, primary=changed, metrics={**scores.metrics, "auroc": changed}), None).ok
