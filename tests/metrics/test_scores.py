"""Scores, intervals, baselines and the verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from m3b.metrics import ClassificationCase, canonical_metric, judge, metric_names
from m3b.tasks.diagnosis import score_diagnosis

YES_NO = ("no", "yes")


def binary(
    truth: Sequence[int], positive: Sequence[float], patients: Sequence[str] | None = None
) -> list[ClassificationCase]:
    names = patients or [f"p{i}" for i in range(len(truth))]
    return [
        ClassificationCase(f"i{i}.png", names[i], (YES_NO[t],), {"no": 1 - p, "yes": p})
        for i, (t, p) in enumerate(zip(truth, positive, strict=True))
    ]


def noisy(n: int, skill: float, seed: int = 0) -> list[ClassificationCase]:
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 2
    score = 1 / (1 + np.exp(-(rng.normal(size=n) + skill * (truth - 0.5))))
    return binary(truth.tolist(), score.tolist())


def test_a_case_in_the_table_of_a_textbook() -> None:
    scores = score_diagnosis(binary([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), YES_NO, False)
    assert scores.metrics["auroc"].value == pytest.approx(0.75)
    assert scores.metrics["sensitivity"].value == 0.5
    assert scores.metrics["specificity"].value == 1.0
    assert scores.confusion == ((2, 0), (1, 1))
    assert scores.per_class[1].roc[0] == (0, 0)
    assert scores.per_class[1].roc[-1] == (1, 1)


def test_interval_holds_the_value_and_narrows_with_more_patients() -> None:
    small_sample = score_diagnosis(noisy(60, 1.5), YES_NO, False).primary
    large_sample = score_diagnosis(noisy(960, 1.5), YES_NO, False).primary
    for measure in (small_sample, large_sample):
        assert measure.low is not None
        assert measure.high is not None
        assert measure.low < measure.value < measure.high
    assert (large_sample.high or 0) - (large_sample.low or 0) < 0.5 * (
        (small_sample.high or 0) - (small_sample.low or 0)
    )


def test_interval_covers_the_true_value_in_about_95_percent() -> None:
    true = 0.8556  # P(N(1.5, 1) > N(0, 1)) = Phi(1.5 / sqrt 2)
    hits = 0
    for seed in range(60):
        measure = score_diagnosis(noisy(120, 1.5, seed), YES_NO, False, draws=300).primary
        hits += (measure.low or 0) <= true <= (measure.high or 0)
    assert hits >= 51


def test_patients_are_resampled_not_images() -> None:
    single = noisy(40, 1.0)
    repeated = [
        ClassificationCase(f"{k}-{c.image}", c.patient, c.labels, c.probabilities) for c in single for k in range(10)
    ]
    alone, tenfold = (score_diagnosis(cases, YES_NO, False).primary for cases in (single, repeated))
    assert tenfold.value == pytest.approx(alone.value)
    assert tenfold.low == pytest.approx(alone.low)
    independent = [ClassificationCase(c.image, "", c.labels, c.probabilities) for c in repeated]
    blank = score_diagnosis(independent, YES_NO, False)
    assert blank.n_patients == 400
    assert (blank.primary.low or 0) > (alone.low or 0)


def test_same_seed_same_interval() -> None:
    cases = noisy(50, 1.0)
    first, second, reseeded = (score_diagnosis(cases, YES_NO, False, seed=s).to_dict() for s in (3, 3, 4))
    assert first == second
    assert first != reseeded


def test_a_perfect_model_gets_the_exact_bound_not_a_point() -> None:
    truth = [0] * 20 + [1] * 10
    scores = score_diagnosis(binary(truth, [0.1 + 0.8 * t for t in truth]), YES_NO, False)
    assert scores.primary.value == 1
    assert scores.primary.low == pytest.approx(0.025 ** (1 / 10))
    assert scores.metrics["accuracy"].low == pytest.approx(0.025 ** (1 / 30))
    assert scores.primary.high == 1
    assert judge(scores, (0.8, None)).ok
    small_sample = score_diagnosis(binary([0] * 4 + [1] * 4, [0.1] * 4 + [0.9] * 4), YES_NO, False)
    assert not judge(small_sample, None).ok


@pytest.mark.parametrize(
    ("truth", "score", "patients"),
    [
        ([0, 0, 0], [0.2, 0.3, 0.4], None),  # one class only
        ([0, 0, 1], [0.2, 0.3, 0.4], ["a", "a", "a"]),  # one patient
        ([0] * 20 + [1], [0.2] * 20 + [0.4], None),  # one positive patient
        ([0, 1] * 10, [0.5] * 20, None),  # a constant answer
    ],
)
def test_no_interval_where_there_is_none(truth: list[int], score: list[float], patients: list[str] | None) -> None:
    scores = score_diagnosis(binary(truth, score, patients), YES_NO, False)
    assert (scores.primary.low, scores.primary.high) == (None, None)
    verdict = judge(scores, None)
    assert not verdict.ok
    assert verdict.reason
    json.dumps(scores.to_dict(), allow_nan=False)


def test_verdict_needs_the_range_and_the_baseline() -> None:
    good = score_diagnosis(noisy(300, 2.0), YES_NO, False)
    assert judge(good, None).ok
    assert judge(good, (0.8, None)).ok
    assert "below" in judge(good, (0.99, None)).reason
    assert "leaked" in judge(good, (0.5, 0.6)).reason
    guess = score_diagnosis(noisy(300, 0.0), YES_NO, False)
    assert not judge(guess, (0.3, None)).ok
    assert "not above the image-blind baseline (0.500)" in judge(guess, None).reason


def test_always_yes_does_not_win_on_sensitivity() -> None:
    rng = np.random.default_rng(1)
    cases = binary([0, 1] * 50, (0.6 + 0.3 * rng.random(100)).tolist())
    scores = score_diagnosis(cases, YES_NO, False, primary="recall")
    assert scores.primary.name == "sensitivity"
    assert scores.primary.value == 1
    assert not judge(scores, (0.9, None)).ok


def test_lower_is_better_for_the_brier_score() -> None:
    assert judge(score_diagnosis(noisy(300, 3.0), YES_NO, False, primary="Brier"), (0.0, 0.25)).ok
    wrong = binary([0, 1] * 50, [0.9, 0.1] * 50)
    assert not judge(score_diagnosis(wrong, YES_NO, False, primary="brier"), None).ok


def test_baselines_are_what_a_constant_answer_scores() -> None:
    truth = [0] * 30 + [1] * 10
    scores = score_diagnosis(binary(truth, [0.25] * 40), YES_NO, False)
    for name in ("auroc", "accuracy", "balanced_accuracy", "f1", "brier"):
        assert scores.metrics[name].value == pytest.approx(scores.metrics[name].baseline), name


def test_a_class_that_never_occurs_is_left_out_of_means() -> None:
    rng = np.random.default_rng(0)
    cases = []
    for i in range(60):
        p = rng.dirichlet([1, 1, 1])
        p[i % 2] += 1
        p /= p.sum()
        cases.append(ClassificationCase(str(i), str(i), ("ab"[i % 2],), dict(zip("abc", p.tolist(), strict=True))))
    scores = score_diagnosis(cases, "abc", False)
    assert math.isnan(scores.per_class[2].auroc.value)
    assert scores.per_class[2].to_dict()["auroc"]["value"] is None
    assert scores.primary.value == pytest.approx(np.mean([s.auroc.value for s in scores.per_class[:2]]))
    assert scores.metrics["balanced_accuracy"].baseline == 0.5


GOOD = {"no": 0.4, "yes": 0.6}


@pytest.mark.parametrize(
    ("labels", "probabilities", "words"),
    [
        (("yes",), {"no": math.nan, "yes": 0.5}, "outside"),
        (("yes",), {"no": math.inf, "yes": 0.5}, "outside"),
        (("yes",), {"no": 1.2, "yes": -0.2}, "outside"),
        (("yes",), {"no": 0.7, "yes": 0.7}, "sum to 1.4"),
        (("yes",), {"yes": 1.0}, "no probability for class 'no'"),
        (("yes",), GOOD | {"maybe": 0.0}, "not one of the classes"),
        (("yes",), {"no": "0.4", "yes": 0.6}, "not a number"),
        (("maybe",), GOOD, "unknown label"),
        ((), GOOD, "exactly one label"),
        (("no", "yes"), GOOD, "exactly one label"),
    ],
)
def test_a_bad_case_is_named(labels: tuple[str, ...], probabilities: dict[str, float], words: str) -> None:
    cases = [
        ClassificationCase("fine.png", "a", ("no",), GOOD),
        ClassificationCase("bad.png", "b", labels, probabilities),
    ]
    with pytest.raises(ValueError, match=r"case 1 \(bad\.png\)") as caught:
        score_diagnosis(cases, YES_NO, False)
    assert words in str(caught.value)


def test_wrong_use_is_named() -> None:
    with pytest.raises(ValueError, match="no cases"):
        score_diagnosis([], YES_NO, False)
    with pytest.raises(ValueError, match="too few classes"):
        score_diagnosis([ClassificationCase("i", "p", ("a",), {"a": 1.0})], ["a"], False)
    with pytest.raises(ValueError, match="differ"):
        score_diagnosis([ClassificationCase("i", "p", ("a",), {"a": 1.0})], ["a", "a"], False)
    three = [ClassificationCase("i", "p", ("a",), {"a": 1.0, "b": 0.0, "c": 0.0})]
    with pytest.raises(ValueError, match="sensitivity needs two classes"):
        score_diagnosis(three, "abc", False, primary="sensitivity")


def test_names() -> None:
    for alias, name in metric_names().items():
        assert canonical_metric(alias) == name
        assert canonical_metric(alias.upper().replace(" ", "_")) == name
    assert canonical_metric("ROC-AUC") == canonical_metric("auc") == "auroc"
    with pytest.raises(ValueError, match="one of: auroc"):
        canonical_metric("dice", "diagnosis")


def test_fourteen_findings_of_a_thousand_cases() -> None:
    rng = np.random.default_rng(0)
    names = [f"f{k}" for k in range(14)]
    truth = rng.random((1000, 14)) < np.linspace(0.004, 0.4, 14)
    p = np.clip(0.3 * truth + 0.7 * rng.random((1000, 14)), 0, 1)
    cases = [
        ClassificationCase(
            str(i),
            str(i // 2),
            tuple(n for n, t in zip(names, truth[i], strict=True) if t),
            dict(zip(names, p[i], strict=True)),
        )
        for i in range(1000)
    ]
    scores = score_diagnosis(cases, names, True)
    assert judge(scores, None).ok
    assert all(m.low is not None for m in scores.metrics.values())
