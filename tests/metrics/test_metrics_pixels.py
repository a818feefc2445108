"""Anomaly maps and rankings of images, against scikit-learn and against values worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from m3b.tasks.detection import DetectionCase, measure_channels, score_detection
from m3b.tasks.detection.anomaly_maps import (
    MAX_FALSE_POSITIVE_RATE,
    MAX_LEVEL,
    count_pixels,
    image_ap,
    per_region_overlap,
    pixel_ap,
    pixel_auroc,
    pixel_counts_from_row,
    stack_pixel_counts,
)

UNIT_WEIGHTS = np.ones((1, 1))


def make_score_maps(n: int = 12, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Maps of whole levels with a weak signal, and masks, every third of which is empty."""
    rng = np.random.default_rng(seed)
    score_maps = []
    for number in range(n):
        mask = np.zeros((20, 24), bool)
        if number % 3:
            mask[3:9, 4:10] = mask[14:16, 15:20] = True
        levels = np.clip(rng.normal(400 + 120 * mask, 110), 0, MAX_LEVEL).astype(int)
        score_maps.append((levels, mask))
    return score_maps


def test_pixel_auroc_and_ap_are_those_of_scikit_learn_over_all_pixels() -> None:
    images = make_score_maps()
    tables = stack_pixel_counts([count_pixels(*pair) for pair in images])
    truth, score = (np.concatenate([pair[k].ravel() for pair in images]) for k in (1, 0))
    weights = np.ones((1, len(images)))
    assert pixel_auroc(tables, weights)[0] == pytest.approx(roc_auc_score(truth, score), abs=1e-12)
    assert pixel_ap(tables, weights)[0] == pytest.approx(average_precision_score(truth, score), abs=1e-12)


def test_weights_count_images_as_often_as_they_were_drawn() -> None:
    images = make_score_maps(5)
    tables = stack_pixel_counts([count_pixels(*pair) for pair in images])
    often = [0, 3, 1, 0, 2]
    truth, score = (
        np.concatenate([np.tile(pair[k].ravel(), n) for pair, n in zip(images, often, strict=False)]) for k in (1, 0)
    )
    weights = np.array([often], float)
    assert pixel_auroc(tables, weights)[0] == pytest.approx(roc_auc_score(truth, score), abs=1e-12)
    assert pixel_ap(tables, weights)[0] == pytest.approx(average_precision_score(truth, score), abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_image_ap_is_that_of_scikit_learn(ties: bool) -> None:
    rng = np.random.default_rng(3)
    truth = rng.random(60) < 0.3
    score = rng.normal(size=60) + truth
    score = np.round(score) if ties else score
    assert image_ap(score, truth, np.ones((1, 60)))[0] == pytest.approx(
        average_precision_score(truth, score), abs=1e-12
    )


def test_image_ap_needs_an_abnormal_image() -> None:
    assert np.isnan(image_ap(np.array([0.1, 0.2]), np.array([False, False]), np.ones((1, 2)))[0])


def by_thresholds(images: list[tuple[np.ndarray, np.ndarray]], limit: float) -> float:
    """PRO as its authors define it, region by region and threshold by threshold."""
    from skimage.measure import label

    levels = np.concatenate([pair[0].ravel() for pair in images])
    normal = np.concatenate([pair[0][~pair[1]] for pair in images])
    regions = []
    for score_map, mask in images:
        numbered = label(mask, connectivity=2)
        regions += [score_map[numbered == k] for k in range(1, numbered.max() + 1)]
    points = [(0.0, 0.0)]
    for cut in np.unique(levels)[::-1]:
        points.append(((normal >= cut).mean(), np.mean([(part >= cut).mean() for part in regions])))
    rates, overlaps = np.array(points).T
    within_limit = rates <= limit
    x = [*rates[within_limit], limit]
    y = [*overlaps[within_limit], np.interp(limit, rates, overlaps)]
    return float(np.trapezoid(y, x) / limit)


def test_pro_is_that_of_its_definition() -> None:
    images = make_score_maps(9, seed=4)
    tables = stack_pixel_counts([count_pixels(*pair) for pair in images])
    assert per_region_overlap(tables, np.ones((1, 9)))[0] == pytest.approx(
        by_thresholds(images, MAX_FALSE_POSITIVE_RATE), abs=1e-9
    )


def test_pro_by_hand() -> None:
    # One region of 4 pixels at level 900 and one of 1 pixel at level 100; 5 normal pixels at 500, 15 at 0.
    levels, mask = np.zeros((5, 5), int), np.zeros((5, 5), bool)
    mask[0, 0:4], mask[4, 4] = True, True
    levels[0, 0:4], levels[4, 4] = 900, 100
    levels[2, :] = 500
    counts = count_pixels(levels, mask)
    assert counts.regions.sum() == 2
    # From rate 0 to 0.25 half of the regions lie above the threshold; the last rise from 0.5 is at rate 0.25, to 1.
    # Up to 0.3 the area is 0.25 x 0.5 + 0.05 x 1, divided by 0.3.
    assert per_region_overlap(stack_pixel_counts([counts]), UNIT_WEIGHTS)[0] == pytest.approx(
        (0.25 * 0.5 + 0.05 * 1.0) / 0.3
    )


def test_a_perfect_map_a_flat_one_and_one_that_is_upside_down() -> None:
    mask = np.zeros((10, 10), bool)
    mask[2:4, 2:4] = True
    figures = {}
    for name, levels in (("right", MAX_LEVEL * mask), ("flat", 7 + 0 * mask), ("wrong", MAX_LEVEL * ~mask)):
        tables = stack_pixel_counts([count_pixels(levels.astype(int), mask)])
        figures[name] = [
            float(metric(tables, UNIT_WEIGHTS)[0]) for metric in (pixel_auroc, pixel_ap, per_region_overlap)
        ]
    assert figures["right"] == [1.0, 1.0, 1.0]
    assert figures["flat"] == pytest.approx([0.5, 0.04, MAX_FALSE_POSITIVE_RATE / 2])
    assert figures["wrong"] == pytest.approx([0.0, 0.04, 0.0])


def test_nothing_marked_leaves_pixels_undefined() -> None:
    tables = stack_pixel_counts([count_pixels(np.zeros((4, 4), int), np.zeros((4, 4), bool))])
    assert all(np.isnan(metric(tables, UNIT_WEIGHTS)[0]) for metric in (pixel_auroc, pixel_ap, per_region_overlap))


@pytest.mark.parametrize("fault", ["shape", "low", "high"])
def test_maps_that_cannot_be_counted_are_refused(fault: str) -> None:
    mask, levels = np.zeros((4, 4), bool), np.zeros((4, 4), int)
    if fault == "shape":
        levels = levels[:2]
    else:
        levels[0, 0] = -1 if fault == "low" else MAX_LEVEL + 1
    with pytest.raises(ValueError, match="differs from the mask's" if fault == "shape" else "they are 0 to 1000"):
        count_pixels(levels, mask)


def test_counts_survive_json() -> None:
    counts = count_pixels(*make_score_maps(2)[1])
    again = pixel_counts_from_row(json.loads(json.dumps(counts.to_row())))
    for part in ("normal", "abnormal", "regions"):
        assert np.allclose(getattr(again, part), getattr(counts, part))


def test_intervals_over_patients_and_baselines() -> None:
    cases = []
    for number, (levels, mask) in enumerate(make_score_maps(40, seed=9)):
        figures, lesions = measure_channels((levels > 500)[None], mask[None], ("lesion",), (1.0, 1.0))
        cases.append(
            DetectionCase(
                f"i{number}",
                f"p{number // 2}",
                figures,
                lesions,
                anomaly_score=float(levels.max()),
                abnormal=bool(mask.any()),
                pixels=count_pixels(levels, mask),
            )
        )
    scores = score_detection(cases, ("lesion",), primary="pixel AUC", draws=200)
    assert scores.primary.name == "pixel_auroc"
    for name, floor in (("pixel_auroc", 0.5), ("pro", MAX_FALSE_POSITIVE_RATE / 2)):
        metric = scores.metrics[name]
        assert metric.low is not None
        assert metric.high is not None
        assert metric.low < metric.value < metric.high
        assert metric.baseline == pytest.approx(floor)
        assert metric.patients < 20 + 1
    share = np.mean([mask.mean() for _, mask in make_score_maps(40, seed=9)])
    assert scores.metrics["pixel_ap"].baseline == pytest.approx(share)
    assert scores.metrics["image_ap"].baseline == pytest.approx(np.mean([case.abnormal for case in cases]))
