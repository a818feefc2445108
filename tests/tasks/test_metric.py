"""Metrics that are added to a task: measured as m3b's own, with the same baselines; what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from m3b import Metric, Pipeline, UsageError
from m3b.data.index import Index
from m3b.metrics import judge, metric_tables
from m3b.metrics.metric_tables import canonical_metric
from m3b.tasks import get_family, score_all
from m3b.tasks.user_metric import measure_metric

RANDOM = np.random.default_rng(3)
CLASSES = Index((), (), ("clear", "opacity"), "diagnosis", {"clear": 0, "opacity": 1})
MASKS = Index((), (), ("liver",), "segmentation", {"liver": 1})


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    metric_tables._ADDED.clear()


def balanced(rows: Any) -> float:
    """Balanced accuracy of two classes, anew."""
    shares = []
    for name in ("clear", "opacity"):
        having = [row for row in rows if name in row["labels"]]
        if not having:
            return float("nan")
        shares.append(sum(name in row["decided"] for row in having) / len(having))
    return fmean(shares)


def brier(rows: Any) -> float:
    return fmean((row["probabilities"]["opacity"] - ("opacity" in row["labels"])) ** 2 for row in rows)


def mean_dice(rows: Any) -> float:
    return fmean(row["figures"]["liver"][0] for row in rows)


def diagnoses(patients: int = 60) -> list[dict[str, Any]]:
    rows = []
    for number in range(patients):
        sick = number % 3 == 0
        share = float(np.clip(RANDOM.normal(0.65 if sick else 0.35, 0.2), 0, 1))
        rows.append({
            "image": f"i{number}", "patient": f"p{number // 2}", "labels": ["opacity" if sick else "clear"],
            "decided": ["opacity" if share > 0.5 else "clear"], "probabilities": {"clear": 1 - share, "opacity": share},
        })  # fmt: skip
    return rows


def test_an_added_metric_is_measured_as_m3bs_own() -> None:
    rows = diagnoses()
    Metric("my_bacc", "diagnosis", balanced, aliases=("mine",)).register()
    Metric("my_brier", "diagnosis", brier, lower_is_better=True).register()
    scores = score_all(get_family("diagnosis"), rows, CLASSES, primary="mine", seed=1)
    added_metric, builtin_metric = scores.primary, scores.metrics["balanced_accuracy"]
    assert added_metric.name == "my_bacc"
    assert added_metric.value == pytest.approx(builtin_metric.value)
    assert added_metric.baseline == builtin_metric.baseline == 0.5
    assert added_metric.patients == 30
    assert added_metric.low == pytest.approx(builtin_metric.low, abs=0.05)
    assert added_metric.high == pytest.approx(builtin_metric.high, abs=0.05)
    assert scores.metrics["my_brier"].baseline == pytest.approx(scores.metrics["brier"].baseline)
    assert scores.metrics["my_brier"].gain == pytest.approx(scores.metrics["brier"].gain, abs=0.02), "less is better"
    assert judge(scores, (0.5, None)).ok
    assert "my_bacc" in judge(scores, (0.999, None)).reason


def test_the_baseline_of_masks_is_the_better_of_nothing_and_the_mean_shape() -> None:
    Metric("my_dice", "segmentation", mean_dice).register()
    rows = [
        {"image": f"i{n}", "patient": f"p{n}", "figures": {"liver": [0.9, 0.9, 2.0, 50, 52, 40.0]}} for n in range(8)
    ]
    trivial = [{"liver": [0.5 + n / 100, 0.4, 9.0, 50, 60, 40.0]} for n in range(8)]
    scores = score_all(get_family("segmentation"), rows, MASKS, primary="dice", baseline=trivial)
    assert scores.metrics["my_dice"].baseline == pytest.approx(scores.primary.baseline) == pytest.approx(0.535)
    assert scores.primary.name == "dice"
    alone = score_all(get_family("segmentation"), rows, MASKS, primary="my_dice")
    assert alone.primary.baseline == 0.0


def test_boxes_and_texts_have_blind_answers_too() -> None:
    boxes = Index((), (), ("nodule",), "detection", {"nodule": 0})
    row = {"image": "i", "patient": "p", "truth": [[[0, 0, 4, 4], "nodule", 1.0]], "predicted": [], "abnormal": True}
    masked = {"image": "i", "patient": "p", "figures": {"nodule": [0.5, 0.5, 1.0, 9, 9, 9.0]}, "abnormal": True,
              "lesions": {"nodule": [1, 2, 1, 3]}}  # fmt: skip
    guess = [[[1, 1, 3, 3], "nodule", 1.0]]
    blind = get_family("detection").make_baseline_rows([masked], boxes)
    assert blind[0][0]["lesions"] == {"nodule": [0, 3, 0, 0]}
    assert blind[0][0]["figures"]["nodule"][:3] == [0.0, 0.0, "inf"]
    boxed = Index((), (), ("nodule",), "detection", {"nodule": 0})
    texts = Index((), (), (), "report", {})
    report_baselines = get_family("report").make_baseline_rows(
        [{"image": "i", "patient": "p", "reference": "a", "prediction": "b"}], texts, ["c", "d"]
    )
    assert [baseline_rows[0]["prediction"] for baseline_rows in report_baselines] == ["c", "d"]
    assert (
        get_family("detection").make_baseline_rows([row | {"figures": {}, "lesions": {}}], boxed, [guess])[1][0][
            "predicted"
        ]
        == guess
    )


def test_without_a_blind_answer_an_added_metric_decides_nothing() -> None:
    rows = [{"image": f"i{n}", "patient": f"p{n}", "x": n / 9} for n in range(10)]
    figure = measure_metric(Metric("x", "report", lambda sample: fmean(row["x"] for row in sample)), rows)
    assert figure.value == pytest.approx(0.5)
    assert figure.baseline is None
    assert figure.low is not None
    assert figure.low < 0.5 < (figure.high or 0)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (Metric("auroc", "diagnosis", balanced), "The task diagnosis has a metric 'auroc' of its own"),
        (Metric("mine", "landmark", balanced), "unknown task 'landmark'; the tasks are diagnosis"),
        (Metric("hd95", "diagnosis", balanced), "better the other way round"),
        (balanced, "give m3b.Metric objects"),
    ],
)
def test_what_cannot_be_added_is_refused(metric: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pipeline("rules", metrics=[metric])


def test_one_of_the_same_name_is_replaced() -> None:
    Pipeline("rules", metrics=[Metric("mine", "diagnosis", balanced)])
    Pipeline("rules", metrics=[Metric("mine", "diagnosis", brier, lower_is_better=True)])
    assert canonical_metric("Mine", "diagnosis") == "mine"
    assert metric_tables.lower_is_better("mine")
