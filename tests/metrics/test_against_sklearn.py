"""The same figures as scikit-learn, on anything Hypothesis thinks of, ties included."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk

from m3b.metrics import ClassificationCase
from m3b.metrics.cases import tabulate
from m3b.metrics.classification_estimators import estimate
from m3b.tasks.diagnosis import score_diagnosis

Sample = tuple[NDArray[np.bool_], NDArray[np.float64]]


def make(truth: NDArray[np.bool_], p: NDArray[np.float64]) -> tuple[list[ClassificationCase], list[str]]:
    names = [f"c{k}" for k in range(truth.shape[1])]
    cases = [
        ClassificationCase(
            str(i), str(i), tuple(n for n, t in zip(names, row, strict=True) if t), dict(zip(names, q, strict=True))
        )
        for i, (row, q) in enumerate(zip(truth, p, strict=True))
    ]
    return cases, names


@st.composite
def exclusive(draw: st.DrawFn, classes: int) -> Sample:
    n = draw(st.integers(classes, 40))
    target = np.array(
        list(range(classes)) + draw(st.lists(st.integers(0, classes - 1), min_size=n - classes, max_size=n - classes))
    )
    raw = np.array(draw(st.lists(st.integers(1, 6), min_size=n * classes, max_size=n * classes)), dtype=float)
    raw = raw.reshape(n, classes)  # few different values: many ties
    return np.eye(classes, dtype=bool)[target], raw / raw.sum(axis=1, keepdims=True)


@st.composite
def findings(draw: st.DrawFn) -> Sample:
    n, k = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    truth = np.array(draw(st.lists(st.booleans(), min_size=n * k, max_size=n * k))).reshape(n, k)
    p = np.array(draw(st.lists(st.integers(0, 8), min_size=n * k, max_size=n * k)), dtype=float).reshape(n, k) / 8
    return truth, p


def best_sensitivity(target: NDArray[np.generic], score: NDArray[np.float64], specificity: float) -> float:
    """Read off scikit-learn's ROC curve, with every threshold kept."""
    false, sensitivity, _ = sk.roc_curve(target, score, drop_intermediate=False)
    return float(sensitivity[false <= 1 - specificity + 1e-9].max())


@given(exclusive(2))
def test_two_classes(sample: Sample) -> None:
    truth, p = sample
    target, predicted = truth.argmax(1), p.argmax(1)
    got = {n: m.value for n, m in score_diagnosis(*make(truth, p), False, draws=0).metrics.items()}
    assert got["auroc"] == pytest.approx(sk.roc_auc_score(target, p[:, 1]))
    assert got["accuracy"] == pytest.approx(sk.accuracy_score(target, predicted))
    assert got["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(target, predicted))
    assert got["f1"] == pytest.approx(sk.f1_score(target, predicted, average="macro"))
    assert got["sensitivity"] == pytest.approx(sk.recall_score(target, predicted, zero_division=0))
    assert got["specificity"] == pytest.approx(sk.recall_score(target, predicted, pos_label=0, zero_division=0))
    assert got["brier"] == pytest.approx(sk.brier_score_loss(target, p[:, 1]))
    assert got["auprc"] == pytest.approx(sk.average_precision_score(target, p[:, 1]))
    assert got["sensitivity_at_90_specificity"] == pytest.approx(best_sensitivity(target, p[:, 1], 0.9))
    assert got["sensitivity_at_95_specificity"] == pytest.approx(best_sensitivity(target, p[:, 1], 0.95))


@given(exclusive(4))
def test_four_classes(sample: Sample) -> None:
    truth, p = sample
    target, predicted = truth.argmax(1), p.argmax(1)
    scores = score_diagnosis(*make(truth, p), False, draws=0)
    got = {n: m.value for n, m in scores.metrics.items()}
    assert got["auroc"] == pytest.approx(sk.roc_auc_score(target, p, multi_class="ovr"))
    assert got["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(target, predicted))
    assert got["f1"] == pytest.approx(sk.f1_score(target, predicted, average="macro"))
    assert np.array_equal(scores.confusion, sk.confusion_matrix(target, predicted))
    assert got["auprc"] == pytest.approx(sk.average_precision_score(truth, p, average="macro"))
    assert not {"sensitivity", "sensitivity_at_90_specificity"} & set(got)


@given(findings())
def test_multi_label(sample: Sample) -> None:
    truth, p = sample
    predicted = p >= 0.5
    got = {n: m.value for n, m in score_diagnosis(*make(truth, p), True, draws=0).metrics.items()}
    both = [k for k in range(truth.shape[1]) if 0 < truth[:, k].sum() < len(truth)]
    if both:
        assert got["auroc"] == pytest.approx(np.mean([sk.roc_auc_score(truth[:, k], p[:, k]) for k in both]))
        balanced = [sk.balanced_accuracy_score(truth[:, k], predicted[:, k]) for k in both]
        assert got["balanced_accuracy"] == pytest.approx(np.mean(balanced))
        areas = [sk.average_precision_score(truth[:, k], p[:, k]) for k in both]
        assert got["auprc"] == pytest.approx(np.mean(areas))
        sensitivities = [best_sensitivity(truth[:, k], p[:, k], 0.9) for k in both]
        assert got["sensitivity_at_90_specificity"] == pytest.approx(np.mean(sensitivities))
    else:
        assert np.isnan(got["auroc"])
    assert got["accuracy"] == pytest.approx(1 - sk.hamming_loss(truth, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f1 = [sk.f1_score(truth[:, k], predicted[:, k], zero_division=np.nan) for k in range(truth.shape[1])]
    assert np.isnan(got["f1"]) if np.isnan(f1).all() else got["f1"] == pytest.approx(np.nanmean(f1))
    assert got["brier"] == pytest.approx(np.mean((p - truth) ** 2))


@given(exclusive(3), st.integers(0, 2**32 - 1))
def test_a_weight_is_a_repetition(sample: Sample, seed: int) -> None:
    truth, p = sample
    times = np.random.default_rng(seed).integers(0, 3, size=len(truth))
    times[0] = 1
    cases, names = make(truth, p)
    weighted = estimate(tabulate(cases, names, False), times[None].astype(float))
    repeated = [case for case, n in zip(cases, times, strict=True) for _ in range(n)]
    unweighted = estimate(tabulate(repeated, names, False), np.ones((1, len(repeated))))
    for name, value in unweighted.items():
        assert weighted[name] == pytest.approx(value, nan_ok=True), name


@given(exclusive(2))
def test_roc_curve_encloses_the_area(sample: Sample) -> None:
    truth, p = sample
    scores = score_diagnosis(*make(truth, p), False, draws=0)
    x, y = np.array(scores.per_class[1].roc).T
    assert np.trapezoid(y, x) == pytest.approx(scores.primary.value, abs=1e-4)
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()


@given(exclusive(2), st.integers(0, 2**32 - 1))
def test_weighted_draws_are_repeated_cases(sample: Sample, seed: int) -> None:
    truth, p = sample
    weights = np.random.default_rng(seed).integers(0, 3, (5, len(p))).astype(float)
    values = estimate(tabulate(*make(truth, p), False), weights)
    for row, area in zip(weights.astype(int), values["auprc"], strict=True):
        target, score = np.repeat(truth[:, 1], row), np.repeat(p[:, 1], row)
        if 0 < target.sum() < len(target):
            assert area == pytest.approx(sk.average_precision_score(target, score))
        else:
            assert np.isnan(area)


def test_a_constant_score_gets_the_baseline_of_its_rank_metrics() -> None:
    truth = np.eye(2, dtype=bool)[[0] * 30 + [1] * 10]
    scores = score_diagnosis(*make(truth, np.full((40, 2), 0.5)), False, draws=200).metrics
    assert scores["auprc"].value == scores["auprc"].baseline == 0.25
    assert scores["sensitivity_at_95_specificity"].value == 0.0
    assert scores["sensitivity_at_95_specificity"].baseline == pytest.approx(0.05)
    assert scores["auprc"].gain is None or scores["auprc"].gain[0] <= 0


@given(findings(), st.data())
def test_a_class_is_measured_in_the_cases_that_know_it(sample: Sample, data: st.DataObject) -> None:
    truth, p = sample
    flat = data.draw(st.lists(st.booleans(), min_size=truth.size, max_size=truth.size))
    known_cells = np.array(flat).reshape(truth.shape)
    cases, names = make(truth & known_cells, p)
    cases = [
        dataclasses.replace(
            case, unknown=tuple(name for name, is_known in zip(names, row, strict=True) if not is_known)
        )
        for case, row in zip(cases, known_cells, strict=True)
    ]
    values = estimate(tabulate(cases, names, True), np.ones((1, len(cases))))
    alone = []
    for k, name in enumerate(names):
        rows = [case for case, row in zip(cases, known_cells[:, k], strict=True) if row]
        single = [
            dataclasses.replace(
                case, labels=tuple({name} & {*case.labels}), probabilities={name: case.probabilities[name]}, unknown=()
            )
            for case in rows
        ]
        if single:
            alone.append(estimate(tabulate(single, [name], True), np.ones((1, len(single)))))
    for metric in ("auroc", "balanced_accuracy", "f1", "auprc", "sensitivity", "specificity", "ece"):
        parts = [float(estimates[metric][0]) for estimates in alone if not np.isnan(estimates[metric][0])]
        assert values[metric][0] == pytest.approx(np.mean(parts) if parts else np.nan, nan_ok=True)
    if known_cells.any():
        right = ((p >= 0.5) == truth)[known_cells]
        assert values["accuracy"][0] == pytest.approx(right.mean())
        assert values["brier"][0] == pytest.approx(np.square(p - truth)[known_cells].mean())
        scores = score_diagnosis(cases, names, True, draws=20)
        assert scores.n_cases == len(cases)
