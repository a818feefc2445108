"""C-index, Kaplan-Meier and the integrated Brier score against plain implementations, and what a verdict makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.duration.survfunc import SurvfuncRight

from m3b.data.index import Index, Record
from m3b.errors import ModelError
from m3b.metrics import judge
from m3b.models.predictions import ModelInfo
from m3b.tasks import find_requested_task, get_family
from m3b.tasks.survival import SurvivalCase, score_survival
from m3b.tasks.survival.answers import SurvivalAnswers
from m3b.tasks.survival.family import predict_log_hazards
from m3b.tasks.survival.metrics import estimate_censoring, evaluate_curve, kaplan_meier


def make_follow_up(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times with ties, events, and the risk behind them."""
    random = np.random.default_rng(seed)
    risk = random.normal(size=count)
    time, end = random.exponential(20 * np.exp(-risk)), random.uniform(5, 60, count)
    return np.ceil(np.minimum(time, end)), time <= end, risk


def cases(
    time: np.ndarray, event: np.ndarray, risk: np.ndarray, curve: list[tuple[float, float]]
) -> list[SurvivalCase]:
    return [
        SurvivalCase(f"{at}.png", f"p{at}", float(t), bool(e), float(r), curve)
        for at, (t, e, r) in enumerate(zip(time, event, risk, strict=True))
    ]


def test_the_c_index_counts_pairs() -> None:
    time, event, risk = make_follow_up()
    right, total = 0.0, 0
    for i in range(len(time)):
        for j in range(len(time)):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                total += 1
                right += 1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
    scores = score_survival(cases(time, event, risk, []), "survival (months)", draws=200)
    assert scores.primary.value == pytest.approx(right / total)
    assert scores.primary.baseline == 0.5
    low, high = scores.primary.low, scores.primary.high
    assert low is not None
    assert high is not None
    assert 0.5 < low < scores.primary.value < high < 1
    assert scores.details["comparable_pairs"] == total
    assert "ibs" not in scores.metrics, "no curves, no Brier score"
    assert judge(scores, None).ok


def plain_uno_c(
    time: np.ndarray, event: np.ndarray, risk: np.ndarray, tau: float, training: tuple[np.ndarray, np.ndarray]
) -> float:
    """Uno's C as scikit-survival defines it, pair by pair."""
    right, total = 0.0, 0.0
    for i in range(len(time)):
        followed = 1.0
        for end in sorted(set(training[0][~training[1]])):
            if end <= time[i]:
                censored = ((training[0] == end) & ~training[1]).sum()
                followed *= 1 - censored / ((training[0] > end).sum() + censored)
        for j in range(len(time)):
            if event[i] and time[i] < tau and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                total += followed**-2
                right += followed**-2 * (1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0)
    return float(right / total)


def test_unos_c_by_hand() -> None:
    time, event, risk = np.array([1.0, 2, 3, 4]), np.array([True, False, True, True]), np.array([3.0, 1, 2, 4])
    scores = score_survival(cases(time, event, risk, []), "survival (months)", draws=0)
    assert scores.metrics["c_index"].value == pytest.approx(2 / 4)
    assert scores.metrics["uno_c"].value == pytest.approx(2 / (3 + 1.5**2)), "one of three is censored at 2"


@pytest.mark.parametrize("with_training", [False, True])
def test_unos_c_weights_pairs_by_censoring(with_training: bool) -> None:
    time, event, risk = make_follow_up(80)
    training = make_follow_up(150, seed=1)[:2] if with_training else (time, event)
    curve = estimate_censoring(*training) if with_training else None
    noisy = np.round(risk + np.random.default_rng(2).normal(size=80), 1)
    scores = score_survival(cases(time, event, noisy, []), "survival (months)", censoring_curve=curve, draws=200)
    uno = scores.metrics["uno_c"]
    assert uno.value == pytest.approx(plain_uno_c(time, event, noisy, float(np.quantile(time, 0.9)), training))
    assert uno.baseline == 0.5
    assert uno.low is not None
    assert uno.high is not None
    assert 0.5 < uno.low < uno.value < uno.high < 1


def test_unos_c_does_not_depend_on_censoring() -> None:
    """Late events are censored more often: Harrell's C moves away from that of all events, Uno's stays."""
    random = np.random.default_rng(0)
    n = 1500
    risk = random.normal(size=n)
    time = random.exponential(20 * np.exp(-risk))
    end = random.exponential(15, n)
    every, observed = np.ones(n, bool), time <= end
    complete = score_survival(cases(time, every, risk, []), "t", draws=0)
    tau = float(np.quantile(np.minimum(time, end), 0.9))
    truth = plain_pairs(time, risk, tau)
    censored = score_survival(cases(np.minimum(time, end), observed, risk, []), "t", draws=0).metrics
    assert complete.metrics["c_index"].value > 0.5
    assert abs(censored["uno_c"].value - truth) < 0.01
    assert abs(censored["c_index"].value - truth) > 2 * abs(censored["uno_c"].value - truth)


def plain_pairs(time: np.ndarray, risk: np.ndarray, tau: float) -> float:
    """The share of pairs in order, of all whose earlier event comes before `tau`."""
    pairs = (time[:, None] < time) & (time[:, None] < tau)
    return float((pairs & (risk[:, None] > risk)).sum() / pairs.sum())


def test_a_constant_risk_is_chance_and_not_accepted() -> None:
    time, event, risk = make_follow_up()
    scores = score_survival(cases(time, event, 0 * risk, []), "survival (months)", draws=100)
    assert scores.primary.value == 0.5
    assert not judge(scores, None).ok


def test_kaplan_meier_is_that_of_statsmodels() -> None:
    time, event, _ = make_follow_up()
    expected = SurvfuncRight(time, event.astype(int))
    curve = kaplan_meier(time, event)
    assert np.allclose(evaluate_curve(curve, expected.surv_times), expected.surv_prob)


def test_the_brier_score_is_zero_for_a_prophet_and_the_baseline_is_the_population() -> None:
    time, event, risk = make_follow_up(200)
    event[:] = True
    curve = kaplan_meier(time, event)
    prophet = [
        SurvivalCase(f"{at}.png", f"p{at}", float(t), True, -float(t), [(t - 1e-6, 1.0), (t, 0.0)])
        for at, t in enumerate(time)
    ]
    scores = score_survival(prophet, "survival (months)", population_curve=curve, primary="ibs", draws=50)
    assert scores.primary.value == pytest.approx(0, abs=1e-4)
    population_scores = score_survival(
        cases(time, event, risk, curve), "survival (months)", population_curve=curve, draws=50
    )
    assert population_scores.metrics["ibs"].value == pytest.approx(population_scores.metrics["ibs"].baseline)
    grid = np.linspace(0, np.quantile(time, 0.9), 51)[1:]
    share = np.interp(grid, [0, *(t for t, _ in curve)], [1, *(s for _, s in curve)])
    assert population_scores.metrics["ibs"].value == pytest.approx(
        float(((time[:, None] > grid) - share).__pow__(2).mean())
    )


def test_covariates_alone_give_the_hazards_of_cox() -> None:
    time, event, risk = make_follow_up(300)
    time = time + np.arange(300) * 1e-6  # without ties both ways of counting them are one
    records = tuple(
        Record(
            f"data/x/{at}.png",
            (),
            f"p{at}",
            extra={"time": float(t), "event": bool(e)},
            covariates={"age": 60 + 10 * float(r)},
        )
        for at, (t, e, r) in enumerate(zip(time, event, risk, strict=True))
    )
    index = Index(records[:200], records[200:], ("survival (months)",), "survival")
    log_hazards = predict_log_hazards(index.train, index.test, index, time[:200], event[:200])
    assert log_hazards is not None
    ages = np.array([record.covariates["age"] for record in index.train], dtype=float)
    cox_coefficient = (
        PHReg(time[:200], np.stack([(ages - 60) / 10], axis=1), status=event[:200].astype(int)).fit().params[0]
    )
    slope = np.polyfit(risk[200:], log_hazards, 1)[0]
    assert slope == pytest.approx(cox_coefficient, rel=0.1)


def test_a_model_is_held_against_its_covariates() -> None:
    time, event, risk = make_follow_up(200)
    records = tuple(
        Record(
            f"data/x/{at}.png", (), f"p{at}", extra={"time": float(t), "event": bool(e)}, covariates={"age": float(r)}
        )
        for at, (t, e, r) in enumerate(zip(time, event, risk, strict=True))
    )
    index, survival = Index(records[:100], records[100:], ("survival (months)",), "survival"), get_family("survival")
    trivial = survival.predict_baseline(index.train, index.test, index, Path())
    rows = [
        {"image": record.key, "patient": record.patient, "time": record.extra["time"], "event": record.extra["event"],
         "risk": record.covariates["age"], "curve": [[10.0, 0.5]]}
        for record in index.test
    ]  # fmt: skip
    scores = survival.score(rows, index, primary="c_index", baseline=trivial)
    assert scores.primary.baseline == pytest.approx(scores.primary.value, abs=0.02)
    assert not judge(scores, None).ok, "it repeats what the covariate says"
    assert len(survival.make_baseline_rows(rows, index, trivial)) == 2


@pytest.mark.parametrize(
    ("request_", "task"),
    [
        ("Predict overall survival from chest CT", "survival"),
        ("Build a model for time to progression of gliomas on MRI", "survival"),
        ("Predict the prognosis of lung cancer patients from CT", "survival"),
        ("Classify survivors and non-survivors on CT", ""),
        ("Predict the bone age in months", "regression"),
        ("Classify pneumonia on chest X-rays", ""),
    ],
)
def test_requests(request_: str, task: str) -> None:
    assert find_requested_task(request_) == task


@pytest.mark.parametrize(
    ("item", "expected_text"),
    [
        ({"risk": "high", "survival": [[1, 0.5]]}, "`risk`"),
        ({"risk": 0.5}, "`survival`"),
        ({"risk": 0.5, "survival": [[1, 0.5], [1, 0.4]]}, "must rise"),
        ({"risk": 0.5, "survival": [[1, 0.5], [2, 0.6]]}, "must rise"),
        ({"risk": 0.5, "survival": [[1, 1.5]]}, "outside"),
        ({"risk": 0.5, "survival": [[1, 0.5]], "median": "long"}, "`median`"),
    ],
)
def test_answers_that_cannot_be_are_refused(item: dict[str, object], expected_text: str) -> None:
    promise = ModelInfo("survival", ("survival (months)",), False, {})
    with pytest.raises(ModelError, match=expected_text):
        SurvivalAnswers().parse("case 1", item, promise, None)
    fine = SurvivalAnswers().parse(
        "case 1", {"risk": 0.2, "survival": [[1, 0.9], [2, 0.4]], "median": 1.8}, promise, None
    )
    assert fine["extra"]["survival"] == [[1.0, 0.9], [2.0, 0.4]]
