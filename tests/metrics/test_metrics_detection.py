"""Scores of a detector: masks, boxes and image scores together."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from m3b.metrics import Box, judge
from m3b.tasks.detection import DetectionCase, LesionCounts, measure_channels, score_detection

CLASSES = ("mass", "node")


def everything(n: int = 40, skill: float = 0.8, seed: int = 0, rule: str = "iou") -> list[DetectionCase]:
    rng = np.random.default_rng(seed)
    cases = []
    for number in range(n):
        reference, prediction = np.zeros((2, 2, 48, 48), bool)
        truth, ours = [], []
        for k, name in enumerate(CLASSES):
            for _ in range(rng.integers(0, 3)):
                y, x = rng.integers(2, 38, 2)
                reference[k, y : y + 6, x : x + 6] = True
                truth.append(Box((y, x, y + 6, x + 6), name))
                if rng.random() < skill:
                    prediction[k, y : y + 6, x + 1 : x + 7] = True
                    ours.append(Box((y, x + 1, y + 6, x + 7), name, float(rng.uniform(0.4, 1))))
                else:
                    y, x = rng.integers(2, 38, 2)
                    ours.append(Box((y, x, y + 6, x + 6), name, float(rng.uniform(0, 0.7))))
        figures, lesions = measure_channels(prediction, reference, CLASSES, (1.0, 1.0), rule=rule)
        score = float(rng.normal() + 2 * len(truth))
        cases.append(
            DetectionCase(
                f"i{number}", f"p{number // 2}", figures, lesions, tuple(ours), tuple(truth), score, bool(truth)
            )
        )
    return cases


def test_everything_at_once() -> None:
    cases = everything()
    scores = score_detection(cases, CLASSES, draws=300)
    assert set(scores.metrics) == {
        "dice", "nsd", "hd95", "lesion_f1", "lesion_precision", "lesion_recall", "map_50", "map", "map_10",
        "centre_ap", "froc", "image_auroc", "image_ap",
    }  # fmt: skip
    for k, name in enumerate(CLASSES):
        detected, missed, right, wrong = np.sum([case.lesions[name].to_list() for case in cases], axis=0)
        got = scores.per_label[k].metrics
        assert got["lesion_f1"].value == pytest.approx(2 * detected / (2 * detected + missed + wrong))
        assert got["dice"].value == pytest.approx(np.nanmean([case.figures[name].dice for case in cases]))
        assert scores.details["lesions"][name] == {"found": detected, "missed": missed, "right": right, "wrong": wrong}
    area = roc_auc_score([case.abnormal for case in cases], [case.anomaly_score for case in cases])
    assert scores.metrics["image_auroc"].value == pytest.approx(area)
    assert scores.metrics["image_auroc"].baseline == 0.5
    assert scores.metrics["map"].value < scores.metrics["map_50"].value
    for measure in scores.metrics.values():
        assert measure.low is not None, measure
        assert measure.high is not None
        assert measure.low <= measure.value <= measure.high
    assert scores.n_patients == 20
    assert judge(scores, (0.5, None)).ok
    json.dumps(scores.to_dict(), allow_nan=False)


def test_each_part_alone() -> None:
    cases = everything(12)
    only_boxes = [DetectionCase(c.image, c.patient, predicted=c.predicted, truth=c.truth) for c in cases]
    scores = score_detection(only_boxes, CLASSES, primary="mAP@0.5", draws=50)
    assert set(scores.metrics) == {"map_50", "map", "map_10", "centre_ap", "froc"}
    assert set(scores.details["froc"]["sensitivity"]) == set(CLASSES)
    only_images = [DetectionCase(c.image, c.patient, anomaly_score=c.anomaly_score, abnormal=c.abnormal) for c in cases]
    assert set(score_detection(only_images, CLASSES, primary="AUC", draws=50).metrics) == {"image_auroc", "image_ap"}
    with pytest.raises(ValueError, match="map_50, map, map_10, centre_ap, froc"):
        score_detection(only_boxes, CLASSES, draws=0)


def test_marking_everything_does_not_pass_by_overlap() -> None:
    rng = np.random.default_rng(3)
    cases = []
    for number in range(40):
        reference = np.zeros((1, 32, 32), bool)
        for _ in range(1 + number % 2):
            y, x = rng.integers(2, 28, 2)
            reference[0, y : y + 3, x : x + 3] = True
        figures, lesions = measure_channels(np.ones_like(reference), reference, ["l"], (1.0, 1.0), rule="overlap")
        cases.append(DetectionCase(str(number), "", figures, lesions))
    scores = score_detection(cases, ["l"])
    assert scores.primary.value == scores.primary.baseline == 1
    assert not judge(scores, None).ok
    assert not judge(score_detection(cases, ["l"], primary="recall"), None).ok
    assert scores.details["rule"] == "any overlap"


def test_marking_nothing_scores_nothing() -> None:
    truth = (Box((0, 0, 5, 5), "mass"),)
    cases = [DetectionCase(str(i), "", {}, {"mass": LesionCounts(0, 1, 0, 0)}, (), truth) for i in range(10)]
    scores = score_detection(cases, ["mass"], draws=100)
    assert {name: m.value for name, m in scores.metrics.items()} == dict.fromkeys(scores.metrics, 0.0)
    assert not judge(scores, None).ok


def test_a_class_that_never_occurs_is_left_out() -> None:
    scores = score_detection(everything(20), CLASSES, draws=0)
    cases = [
        DetectionCase(c.image, c.patient, {}, c.lesions | {"rare": LesionCounts(0, 0, 0, 0)}, c.predicted, c.truth)
        for c in everything(20)
    ]
    wider = score_detection(cases, (*CLASSES, "rare"), draws=0)
    for name in wider.metrics:
        assert wider.metrics[name].value == pytest.approx(scores.metrics[name].value)
    assert wider.per_label[2].to_dict()["metrics"]["map"]["value"] is None


def test_a_trivial_answer_raises_the_baseline() -> None:
    cases = everything(20)
    without_baseline = score_detection(cases, CLASSES, draws=0)
    better = score_detection(cases, CLASSES, baseline_cases=everything(20, skill=0.3), draws=0)
    for name in ("dice", "lesion_f1", "map_50", "froc"):
        assert (better.metrics[name].baseline or 0) > (without_baseline.metrics[name].baseline or 0) == 0


def test_boxes_of_volumes() -> None:
    truth = (Box((0, 0, 0, 4, 4, 4), "mass"),)
    near = (Box((0, 0, 0, 4, 4, 3), "mass", 0.9),)
    cases = [DetectionCase(str(i), "", predicted=near, truth=truth) for i in range(5)]
    scores = score_detection(cases, ["mass"], primary="map", draws=0)
    assert scores.primary.value == pytest.approx(0.6)  # IoU 0.75: a hit at 0.50 to 0.75
    assert scores.metrics["froc"].value == 1


BOX = Box((0, 0, 2, 2), "mass")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (DetectionCase("bad", "", predicted=(), truth=None), "in the first case"),
        (DetectionCase("bad", "", predicted=None, truth=()), "without its truth"),
        (DetectionCase("bad", "", predicted=(Box((0, 0, 2), "mass"),), truth=()), "4 or 6"),
        (DetectionCase("bad", "", predicted=(BOX, Box((0, 0, 0, 1, 1, 1), "mass")), truth=()), "2D and in 3D"),
        (DetectionCase("bad", "", predicted=(), truth=(), anomaly_score=1.0, abnormal=True), "in the first case"),
    ],
)
def test_a_bad_case_is_named(case: DetectionCase, words: str) -> None:
    good = DetectionCase("fine", "", predicted=(BOX,), truth=(BOX,))
    with pytest.raises(ValueError, match=r"case 1 \(bad\)") as caught:
        score_detection([good, case], ["mass"], primary="map")
    assert words in str(caught.value)


def test_other_wrong_use_is_named() -> None:
    with pytest.raises(ValueError, match="nothing to score"):
        score_detection([DetectionCase("i", "")], ["mass"])
    with pytest.raises(ValueError, match="anomaly score is nan"):
        score_detection([DetectionCase("i", "", anomaly_score=math.nan, abnormal=True)], ["mass"])
    mixed = [DetectionCase("i", "", {}, {"mass": LesionCounts(1, 0, 1, 0, rule)}) for rule in ("iou", "overlap")]
    with pytest.raises(ValueError, match="different rules"):
        score_detection(mixed, ["mass"])
    with pytest.raises(ValueError, match="no figures for label 'mass'"):
        score_detection([DetectionCase("i", "", {}, {"node": LesionCounts(1, 0, 1, 0)})], ["mass", "node"])
