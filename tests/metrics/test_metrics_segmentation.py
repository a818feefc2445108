"""Scores of a segmentation model, its baselines and the mean shape."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from m3b.metrics import build_atlas, judge, measure_masks
from m3b.metrics.masks import MAX_HD95_MM, LabelMetrics
from m3b.metrics.mean_shape import best_threshold, resample_linear
from m3b.tasks.segmentation import SegmentationCase, score_segmentation

LABELS = {"head": 1, "tail": 2}


def scene(rng: np.random.Generator, shape: tuple[int, ...] = (24, 20), shift: int = 3) -> NDArray[np.int64]:
    mask = np.zeros(shape, int)
    y, x = rng.integers(-shift, shift + 1, 2)
    mask[8 + y : 14 + y, 6 + x : 12 + x] = 1
    mask[14 + y : 18 + y, 6 + x : 12 + x] = 2
    return mask


def noisy(mask: NDArray[np.int64], rng: np.random.Generator, step: int = 1) -> NDArray[np.int64]:
    return np.roll(mask, rng.integers(-step, step + 1, 2), axis=(0, 1))


def case(name: str, prediction: NDArray[np.int64], reference: NDArray[np.int64], patient: str = "") -> SegmentationCase:
    return SegmentationCase(name, patient, measure_masks(prediction, reference, LABELS, (1.0, 1.0)))


def figures(dice: float, reference: int = 10, prediction: int = 10) -> LabelMetrics:
    return LabelMetrics(dice, dice, 1.0, reference, prediction, 50.0)


def test_scores_of_a_set() -> None:
    rng = np.random.default_rng(0)
    masks = [scene(rng) for _ in range(30)]
    cases = [case(str(i), noisy(mask, rng), mask) for i, mask in enumerate(masks)]
    atlas = build_atlas([scene(rng) for _ in range(40)], LABELS)
    trivial = [case(str(i), atlas.predict(mask.shape), mask) for i, mask in enumerate(masks)]
    scores = score_segmentation(cases, list(LABELS), baseline_cases=trivial)
    labels = {score.name: score for score in scores.per_label}
    for name in LABELS:
        expected = np.mean([c.figures[name].dice for c in cases])
        assert labels[name].metrics["dice"].value == pytest.approx(expected)
        assert labels[name].metrics["dice"].baseline == pytest.approx(np.mean([c.figures[name].dice for c in trivial]))
    assert scores.primary.value == pytest.approx(np.mean([s.metrics["dice"].value for s in labels.values()]))
    assert scores.primary.low is not None
    assert scores.primary.high is not None
    assert scores.primary.low < scores.primary.value < scores.primary.high
    assert 0.2 < (scores.primary.baseline or 0) < scores.primary.low
    assert judge(scores, (0.6, None)).ok
    by_distance = score_segmentation(cases, list(LABELS), primary="HD 95", baseline_cases=trivial)
    assert by_distance.primary.baseline is not None
    assert by_distance.primary.value < by_distance.primary.baseline
    assert judge(by_distance, None).ok
    json.dumps(scores.to_dict(), allow_nan=False)
    lazy = score_segmentation(trivial, list(LABELS), baseline_cases=trivial)
    assert not judge(lazy, None).ok
    assert "image-blind baseline" in judge(lazy, None).reason


def test_marking_nothing_is_the_baseline_without_an_atlas() -> None:
    rng = np.random.default_rng(1)
    masks = [scene(rng) for _ in range(12)]
    scores = score_segmentation([case(str(i), np.zeros_like(m), m) for i, m in enumerate(masks)], list(LABELS))
    assert scores.primary.value == scores.primary.baseline == 0
    assert scores.metrics["hd95"].value == scores.metrics["hd95"].baseline == pytest.approx(MAX_HD95_MM)
    assert scores.details["missed"] == {"head": 12, "tail": 12}
    assert not judge(scores, None).ok


def test_absent_labels_are_left_out_and_missed_ones_are_not() -> None:
    absent = LabelMetrics(math.nan, math.nan, math.nan, 0, 0, 50.0)
    missed = LabelMetrics(0.0, 0.0, math.inf, 10, 0, 50.0)
    rows = [figures(0.8), absent, missed, figures(0.4)]
    scores = score_segmentation([SegmentationCase(str(i), "", {"a": row}) for i, row in enumerate(rows)], ["a"])
    assert scores.primary.value == pytest.approx(0.4)
    assert scores.metrics["hd95"].value == pytest.approx((1 + 50 + 1) / 3)
    assert scores.per_label[0].n == 3
    assert scores.details["missed"] == {"a": 1}
    assert scores.details["hd95_found"] == {"a": 1.0}
    never = score_segmentation([SegmentationCase("i", "", {"a": absent})], ["a"])
    assert math.isnan(never.primary.value)
    assert not judge(never, None).ok
    json.dumps(never.to_dict(), allow_nan=False)


def test_patients_are_resampled() -> None:
    rng = np.random.default_rng(2)
    values = rng.uniform(0.3, 0.9, 15)
    single = [SegmentationCase(str(i), f"p{i}", {"a": figures(v)}) for i, v in enumerate(values)]
    tenfold = [SegmentationCase(f"{c.image}-{k}", c.patient, c.figures) for c in single for k in range(10)]
    single_primary, tenfold_primary = (score_segmentation(cases, ["a"]).primary for cases in (single, tenfold))
    assert (single_primary.low, single_primary.high) == (
        pytest.approx(tenfold_primary.low),
        pytest.approx(tenfold_primary.high),
    )
    means = [values[rng.integers(0, 15, 15)].mean() for _ in range(4000)]  # the bootstrap, written out
    assert single_primary.low == pytest.approx(np.quantile(means, 0.025), abs=0.02)
    assert single_primary.high == pytest.approx(np.quantile(means, 0.975), abs=0.02)


def test_perfect_masks_get_the_exact_bound_of_each_label_and_a_bound_in_mm() -> None:
    absent, perfect = LabelMetrics(math.nan, math.nan, math.nan, 0, 0, 50.0), LabelMetrics(1.0, 1.0, 0.0, 9, 9, 50.0)
    cases = [SegmentationCase(str(i), "", {"a": perfect, "rare": perfect if i < 12 else absent}) for i in range(20)]
    scores = score_segmentation(cases, ["a", "rare"])
    assert [score.metrics["dice"].low for score in scores.per_label] == pytest.approx(
        [0.025 ** (1 / n) for n in (20, 12)]
    )
    # Both labels fail in 12 patients, one in 8: the worst chances whose product is 2.5 %.
    shares = np.array([1 / 12 + 1 / 20] * 12 + [1 / 20] * 8) / 2
    lost = 12 * (shares[0] - np.exp((math.log(0.025) + 12 * math.log(shares[0])) / 12))
    assert scores.primary.low == pytest.approx(1 - lost, abs=1e-6)
    assert 0.025 ** (1 / 12) < (scores.primary.low or 0) < 0.025 ** (1 / 20)
    hd95 = scores.metrics["hd95"]
    assert (hd95.low, hd95.high) == (0.0, pytest.approx(50 * lost, abs=1e-4))


def test_wrong_use_is_named() -> None:
    good = SegmentationCase("fine.nii", "", {"a": figures(0.5)})
    with pytest.raises(ValueError, match="no cases"):
        score_segmentation([], ["a"])
    with pytest.raises(ValueError, match=r"case 1 \(bad\.nii\): no figures for label 'a'"):
        score_segmentation([good, SegmentationCase("bad.nii", "", {})], ["a"])
    with pytest.raises(ValueError, match="unknown label 'b'"):
        score_segmentation([SegmentationCase("x", "", {"a": figures(1), "b": figures(1)})], ["a"])
    with pytest.raises(ValueError, match="one of: dice"):
        score_segmentation([good], ["a"], primary="auroc")
    with pytest.raises(ValueError, match="same images"):
        score_segmentation([good], ["a"], baseline_cases=[SegmentationCase("other.nii", "", {"a": figures(0)})])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 5))
def test_the_best_cut_has_the_largest_expected_dice(counts: list[int], n: int) -> None:
    share = np.minimum(np.array(counts, dtype=np.float32) / 4, 1)
    cut = best_threshold(share)
    if not share.any():
        assert cut == math.inf
        return

    def expected(mask: NDArray[np.bool_]) -> float:
        return float(2 * share[mask].sum() / (mask.sum() + share.sum()))

    every = [np.array([bool(bits >> k & 1) for k in range(len(share))]) for bits in range(1, 1 << len(share))]
    assert expected(share >= cut) == pytest.approx(max(map(expected, every)))


@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
)
def test_resampling_keeps_range_constants_and_the_image_itself(
    seed: int, old: tuple[int, int], new: tuple[int, int]
) -> None:
    image = np.random.default_rng(seed).random(old).astype(np.float32)
    got = resample_linear(image, new)
    assert got.shape == new
    assert image.min() - 1e-6 <= got.min() <= got.max() <= image.max() + 1e-6
    assert resample_linear(image, old) == pytest.approx(image)
    assert resample_linear(np.full(old, 0.3, np.float32), new) == pytest.approx(np.full(new, 0.3))
    if all(a % b == 0 for a, b in zip(old, new, strict=True)):
        blocks = image.reshape(new[0], old[0] // new[0], new[1], old[1] // new[1])
        assert got == pytest.approx(blocks.mean(axis=(1, 3)), abs=1e-6)


def test_the_atlas_of_masks_of_different_shapes() -> None:
    def box(size: int) -> NDArray[np.int64]:
        mask = np.zeros((size, size, size // 2), int)
        mask[size // 4 : size // 2, size // 4 : size // 2] = 5
        mask[size // 2 : 3 * size // 4, size // 4 : size // 2] = 9
        return mask

    atlas = build_atlas((box(size) for size in (16, 32, 48, 80)), {"a": 5, "b": 9, "none": 3})
    assert atlas.n == 4
    predicted = atlas.predict((64, 64, 32))
    assert set(np.unique(predicted)) == {0, 5, 9}
    got = measure_masks(predicted, box(64), {"a": 5, "b": 9}, (1.0, 1.0, 1.0))
    assert got["a"].dice > 0.95
    assert got["b"].dice > 0.95
    with pytest.raises(ValueError, match="at least one"):
        build_atlas([], {"a": 1})
    with pytest.raises(ValueError, match="dimensions"):
        build_atlas([box(16), np.zeros((4, 4), int)], {"a": 5})
    with pytest.raises(ValueError, match="dimensions"):
        atlas.predict((8, 8))
