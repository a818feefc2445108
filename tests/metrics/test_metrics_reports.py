"""Scores of written reports, findings, constant and random reports, and the image-shuffle control."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from m3b.metrics import judge
from m3b.tasks.report import (
    ReportCase,
    best_constant_reports,
    count_distinct_texts,
    draw_random_reports,
    extract_findings,
    measure_image_use,
    score_reports,
    shuffle_between_patients,
)
from m3b.tasks.report.metrics import compute_report_metrics, replace_texts
from m3b.tasks.report.text_similarity import bleu, bleu_counts, tokenize

FINDINGS = {
    "effusion": ("effusion*",),
    "pneumothorax": ("pneumothorax", "pneumothoraces"),
    "cardiomegaly": ("cardiomegaly", "heart is enlarged", "enlarged heart"),
    "fracture": ("fracture*",),
}


def write(truth: dict[str, bool], rng: np.random.Generator) -> str:
    heart = "The heart is enlarged." if truth["cardiomegaly"] else "Heart size is normal."
    effusion = f"There is a {rng.choice(['small', 'large'])} effusion." if truth["effusion"] else "No effusion."
    air = "Left pneumothorax is seen." if truth["pneumothorax"] else "No pneumothorax."
    bones = "Old rib fractures." if truth["fracture"] else "Bones are intact."
    return " ".join([heart, effusion, air, bones])


def reports(n: int = 60, skill: float = 0.9, seed: int = 0) -> list[ReportCase]:
    rng = np.random.default_rng(seed)
    cases = []
    for number in range(n):
        truth = {name: bool(rng.random() < 0.4) for name in FINDINGS}
        guess = {name: value if rng.random() < skill else bool(rng.random() < 0.4) for name, value in truth.items()}
        cases.append(ReportCase(f"i{number}", f"p{number}", write(truth, rng), write(guess, rng)))
    return cases


TRAINING = [case.reference for case in reports(120, seed=9)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Small left pleural effusion.", {"effusion"}),
        ("Bilateral EFFUSIONS; no fracture", {"effusion"}),
        ("No pleural effusion or pneumothorax.", set()),
        ("No pneumothorax. Effusion is larger.", {"effusion"}),
        ("No pneumothorax but a large effusion", {"effusion"}),
        (
            "Without evidence of fracture, the heart is enlarged.",
            {"cardiomegaly"},
        ),  # a comma ends no clause: the price of 'no a, b or c'
        ("The heart is not enlarged. Enlarged heart on prior.", {"cardiomegaly"}),
        ("Effusion has resolved.", set()),
        ("A pneumothorax is not seen", set()),
        ("There is a 2.5 cm effusion", {"effusion"}),
        ("noeffusion pneumothoraxes", set()),
        ("", set()),
    ],
)
def test_findings(text: str, expected: set[str]) -> None:
    assert extract_findings(text, FINDINGS) == expected


@given(st.text(max_size=80))
def test_findings_of_any_text(text: str) -> None:
    assert extract_findings(text, FINDINGS) <= set(FINDINGS)
    assert extract_findings("no effusion. " + text + " . fracture", FINDINGS) >= {"fracture"}


def test_a_phrase_without_words_is_named() -> None:
    with pytest.raises(ValueError, match="no words"):
        extract_findings("effusion", {"a": ("*",)})


def test_label_f1_as_scikit_learn() -> None:
    cases = reports()
    names = list(FINDINGS)
    truth, predicted = (
        np.array([[name in extract_findings(getattr(case, field), FINDINGS) for name in names] for case in cases])
        for field in ("reference", "prediction")
    )
    got = compute_report_metrics(cases, FINDINGS)
    assert got["label_f1"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert got["label_f1_micro"] == pytest.approx(f1_score(truth, predicted, average="micro"))


def test_scores_of_a_good_model() -> None:
    cases = reports()
    constant = best_constant_reports(TRAINING)
    scores = score_reports(
        cases, FINDINGS, primary="BLEU-4", baseline_reports=constant, random_texts=draw_random_reports(TRAINING, 60)
    )
    assert set(scores.metrics) == {
        "bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "meteor", "cider", "label_f1", "label_f1_micro",
    }  # fmt: skip
    for measure in scores.metrics.values():
        assert measure.low is not None
        assert measure.high is not None
        assert measure.low < measure.value < measure.high
        assert measure.baseline is not None
        assert measure.baseline < measure.low, measure
    assert judge(scores, (0.3, None)).ok
    assert scores.details["distinct"] == count_distinct_texts(cases) > 10
    assert [score.name for score in scores.per_label] == list(FINDINGS)
    json.dumps(scores.to_dict(), allow_nan=False)


def test_a_constant_report_is_not_better_than_itself() -> None:
    text = best_constant_reports(TRAINING)[0]
    cases = replace_texts(reports(), [text] * 60)
    scores = score_reports(cases, FINDINGS, baseline_reports=[text], draws=200)
    assert scores.details["distinct"] == 1
    for measure in scores.metrics.values():
        assert measure.value == pytest.approx(measure.baseline)
    verdict = judge(scores, None)
    assert not verdict.ok
    assert "image-blind baseline" in verdict.reason


def test_no_verdict_without_a_baseline() -> None:
    scores = score_reports(reports(20), draws=100)
    assert scores.primary.baseline is None
    assert not judge(scores, None).ok
    assert "label_f1" not in scores.metrics


def test_the_constant_is_the_best_of_the_training_reports() -> None:
    def value(text: str, order: int) -> float:
        return float(
            bleu(np.array([bleu_counts(tokenize(text), tokenize(t)) for t in TRAINING]).sum(axis=0) * 1.0)[order]
        )

    best = best_constant_reports(TRAINING)
    assert 1 <= len(best) <= 4
    for order in range(4):
        top = max(value(text, order) for text in set(TRAINING))
        assert max(value(text, order) for text in best) == pytest.approx(top)
    constants = best_constant_reports(TRAINING, candidates=5, references=10, seed=1)
    assert constants == best_constant_reports(TRAINING, candidates=5, references=10, seed=1)
    assert set(constants) <= set(TRAINING)
    with pytest.raises(ValueError, match="none with words"):
        best_constant_reports(["", " . ".replace(".", ",")])


def test_random_reports_come_from_training() -> None:
    random_reports = draw_random_reports(TRAINING, 30, seed=2)
    assert random_reports == draw_random_reports(TRAINING, 30, seed=2) != draw_random_reports(TRAINING, 30, seed=3)
    assert set(random_reports) <= set(TRAINING)
    with pytest.raises(ValueError, match="there are none"):
        draw_random_reports([], 3)


@given(st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=2, max_size=14), st.integers(0, 99))
def test_nobody_keeps_a_text_of_the_same_patient(patients: list[str], seed: int) -> None:
    cases = [ReportCase(str(k), patient, "x", f"written for {k}") for k, patient in enumerate(patients)]
    names = [patient or f"own {k}" for k, patient in enumerate(patients)]
    if 2 * max(map(names.count, names)) > len(names):
        with pytest.raises(ValueError, match="more than half"):
            shuffle_between_patients(cases, seed)
        return
    mixed = shuffle_between_patients(cases, seed)
    assert sorted(c.prediction for c in mixed) == sorted(c.prediction for c in cases)
    for k, case in enumerate(mixed):
        assert names[int(case.prediction.split()[-1])] != names[k]


def test_the_shuffle_control_tells_who_looks_at_the_image() -> None:
    looks = measure_image_use(reports(80, skill=0.98), FINDINGS, metric="cider", shuffles=20, draws=0)
    assert looks.lost_share > 0.4
    assert looks.distinct > 10
    blind_cases = replace_texts(reports(80), draw_random_reports(TRAINING, 80))
    blind = measure_image_use(blind_cases, FINDINGS, draws=0)
    assert blind.metric == "label_f1"
    assert abs(blind.lost_share) < 0.25
    constant = measure_image_use(replace_texts(reports(20), [TRAINING[0]] * 20), FINDINGS, metric="BLEU-1", draws=0)
    assert constant.lost_share == 0
    assert constant.distinct == 1
    silent = measure_image_use(replace_texts(reports(4), ["fine"] * 4), FINDINGS)
    assert math.isnan(silent.lost_share)
    with pytest.raises(ValueError, match="findings"):
        measure_image_use(blind_cases)
    with pytest.raises(ValueError, match="one shuffle"):
        measure_image_use(blind_cases, FINDINGS, shuffles=0)


def test_shuffles_tell_what_an_interval_of_few_patients_does_not() -> None:
    """Of 24 patients few have a finding: bootstrap samples spread so far that the interval of a model that looks held 0."""
    looks = [measure_image_use(reports(24, skill=0.5, seed=seed), FINDINGS, draws=200) for seed in range(12)]
    assert sum(image_use.p_value <= 0.05 for image_use in looks) >= sum(
        image_use.gain is not None and image_use.gain[0] > 0 for image_use in looks
    )
    assert sum(image_use.p_value <= 0.05 for image_use in looks) >= 6


@pytest.mark.slow
def test_texts_of_the_wrong_images_seldom_pass_by_chance() -> None:
    blind = [
        measure_image_use(replace_texts(reports(24), draw_random_reports(TRAINING, 24, seed)), FINDINGS, draws=0)
        for seed in range(60)
    ]
    assert (
        sum(image_use.p_value <= 0.05 for image_use in blind) <= 7
    )  # 3 are expected, 8 and more come in 1.4 % of such tests


def test_wrong_use_is_named() -> None:
    good = ReportCase("fine", "", "Normal.", "Normal.")
    with pytest.raises(ValueError, match="no cases"):
        score_reports([])
    with pytest.raises(ValueError, match=r"case 1 \(bad\): the true report has no words"):
        score_reports([good, ReportCase("bad", "", " ", "x")])
    with pytest.raises(ValueError, match="not a text"):
        score_reports([ReportCase("bad", "", "x", None)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="findings"):
        score_reports([good], primary="clinical F1")
    with pytest.raises(ValueError, match="one of: bleu_1"):
        score_reports([good], primary="dice")
    with pytest.raises(ValueError, match="2 texts for 1 cases"):
        score_reports([good], random_texts=["a", "b"])


def test_an_empty_report_is_worth_nothing() -> None:
    cases = [ReportCase(str(k), "", f"finding {k} is seen .", "") for k in range(4)]
    scores = score_reports(cases, draws=50)
    assert {measure.value for measure in scores.metrics.values()} == {0.0}


def test_two_hundred_long_reports() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(300)] + ["the", "is", "no", "."] * 20
    texts = [" ".join(rng.choice(words, 80)) for _ in range(400)]
    cases = [ReportCase(str(k), "", texts[k], texts[200 + k]) for k in range(200)]
    scores = score_reports(cases, draws=200)
    assert all(measure.low is not None for measure in scores.metrics.values())


def test_no_interval_of_bleu_lies_above_that_of_shorter_runs() -> None:
    """The review saw BLEU-4 0.000 (0.000-0.410) beside BLEU-1 0.001 (0.000-0.046)."""
    words = ["a", "nodule", "of", "four", "mm", "lies", "in", "the", "left", "upper", "lobe", "beside", "the", "scar"]
    cases = [ReportCase(f"{n}", f"p{n}", " ".join(words[n % 3 :]), f"{words[6 + n % 4]} {words[3]}") for n in range(7)]
    metrics = score_reports(cases).metrics
    highs = [metrics[f"bleu_{order}"].high for order in range(1, 5)]
    assert None not in highs
    assert highs == sorted(highs, reverse=True)
    assert highs[0] < 0.4
