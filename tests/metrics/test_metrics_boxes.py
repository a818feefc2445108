"""Boxes against pycocotools, and FROC against its definition."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from m3b.metrics import Box, box_iou
from m3b.metrics.boxes import CENTRE_RULE, COCO_IOUS, FROC_RATES, average_precision, froc, match_boxes, rank_boxes

Boxes = list[tuple[Box, ...]]


@st.composite
def sets(draw: st.DrawFn, distinct: bool = True) -> tuple[Boxes, Boxes]:
    """Images with true boxes and predictions that are true ones shifted, or noise."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    predicted, truth = [], []
    for _ in range(draw(st.integers(1, 8))):
        corners = [rng.uniform(0, 50, 2) for _ in range(rng.integers(0, 5))]
        real = [np.concatenate([low, low + rng.uniform(4, 20, 2)]) for low in corners]
        ours = [box + rng.normal(0, 1.5, 4) for box in real if rng.random() < 0.8]
        ours += [np.concatenate([low, low + 9]) for low in rng.uniform(0, 60, (rng.integers(0, 4), 2))]
        ours = [np.concatenate([np.minimum(b[:2], b[2:]), np.maximum(b[:2], b[2:])]) for b in ours]
        scores = rng.random(len(ours)) if distinct else rng.integers(0, 4, len(ours)) / 4
        truth.append(tuple(Box(tuple(map(float, box)), "a") for box in real))
        predicted.append(tuple(Box(tuple(map(float, b)), "a", float(s)) for b, s in zip(ours, scores, strict=True)))
    return predicted, truth


def coco(predicted: Boxes, truth: Boxes) -> NDArray[np.float64] | None:
    """AP at the ten thresholds by pycocotools, read between the steps of the recall: interpolated at all points."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def rows(boxes: Boxes) -> list[dict[str, object]]:
        entries = []
        for image, image_boxes in enumerate(boxes):
            for box in image_boxes:
                x, y, right, top = box.corners
                row = {"image_id": image + 1, "category_id": 1, "bbox": [x, y, right - x, top - y], "score": box.score}
                entries.append(row | {"id": len(entries) + 1, "iscrowd": 0, "area": (right - x) * (top - y)})
        return entries

    real, ours = rows(truth), rows(predicted)
    if not real:
        return None
    if not ours:
        return np.zeros(10)
    with contextlib.redirect_stdout(io.StringIO()):
        base = COCO()
        images = [{"id": image + 1, "width": 100, "height": 100} for image in range(len(truth))]
        base.dataset = {"info": {}, "images": images, "annotations": real, "categories": [{"id": 1, "name": "a"}]}
        base.createIndex()
        judge = COCOeval(base, base.loadRes(ours), "bbox")
        judge.params.recThrs = (np.arange(len(real)) + 0.5) / len(real)
        judge.params.maxDets = [1000]
        judge.evaluate()
        judge.accumulate()
    return np.asarray(judge.eval["precision"][:, :, 0, 0, 0].mean(axis=1))


@given(sets())
def test_average_precision_as_coco(box_sets: tuple[Boxes, Boxes]) -> None:
    predicted, truth = box_sets
    got = average_precision(rank_boxes(predicted, truth, "a", COCO_IOUS), np.ones((1, len(truth))))[0]
    expected = coco(predicted, truth)
    if expected is None:
        assert np.isnan(got).all()
    else:
        assert got == pytest.approx(expected, abs=1e-9)


@given(sets(distinct=False))
def test_froc_by_trying_every_threshold(box_sets: tuple[Boxes, Boxes]) -> None:
    predicted, truth = box_sets
    total = sum(map(len, truth))
    got = froc(rank_boxes(predicted, truth, "a", (0.5,)), np.ones((1, len(truth))))[0]
    if not total:
        assert np.isnan(got).all()
        return
    best = dict.fromkeys(FROC_RATES, 0.0)
    for cut in {box.score for image_boxes in predicted for box in image_boxes}:
        hits = false = 0
        for predicted_boxes, true_boxes in zip(predicted, truth, strict=True):
            sure = sorted((box for box in predicted_boxes if box.score >= cut), key=lambda box: -box.score)
            iou = box_iou(
                np.array([b.corners for b in sure]).reshape(-1, 4),
                np.array([b.corners for b in true_boxes]).reshape(-1, 4),
            )
            right = int(match_boxes(iou, 0.5).sum())
            hits, false = hits + right, false + len(sure) - right
        for rate in FROC_RATES:
            if false / len(truth) <= rate:
                best[rate] = max(best[rate], hits / total)
    assert got == pytest.approx(list(best.values()))


@given(sets(distinct=False), st.integers(0, 2**32 - 1))
def test_a_weight_is_a_repetition(box_sets: tuple[Boxes, Boxes], seed: int) -> None:
    predicted, truth = box_sets
    times = np.random.default_rng(seed).integers(0, 3, len(truth))
    times[0] = 1
    again = [[image_boxes for image_boxes, n in zip(boxes, times, strict=True) for _ in range(n)] for boxes in box_sets]
    ranking, repeated = rank_boxes(predicted, truth, "a", (0.5, 0.75)), rank_boxes(*again, "a", (0.5, 0.75))
    for figure in (average_precision, froc):
        weighted = figure(ranking, times[None].astype(float))
        assert weighted == pytest.approx(figure(repeated, np.ones((1, len(again[0])))), nan_ok=True)


def test_equal_scores_do_not_depend_on_the_order() -> None:
    truth = [(Box((0, 0, 10, 10), "a"),), (Box((0, 0, 10, 10), "a"),)]
    hit, miss = Box((0, 0, 10, 10), "a", 0.5), Box((50, 50, 60, 60), "a", 0.5)
    once = np.ones((1, 2))
    first = average_precision(rank_boxes([(hit,), (miss,)], truth, "a", (0.5,)), once)
    second = average_precision(rank_boxes([(miss,), (hit,)], truth, "a", (0.5,)), once)
    assert first == second == pytest.approx(0.25)


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]))
def test_iou_by_counting_voxels(seed: int, dimensions: int) -> None:
    rng = np.random.default_rng(seed)

    def random_boxes(n: int) -> NDArray[np.float64]:
        low = rng.integers(0, 6, (n, dimensions))
        return np.concatenate([low, low + rng.integers(0, 6, (n, dimensions))], axis=1).astype(float)

    def rasterize(box: NDArray[np.float64]) -> NDArray[np.bool_]:
        image = np.zeros((12,) * dimensions, bool)
        image[tuple(slice(int(a), int(b)) for a, b in zip(box[:dimensions], box[dimensions:], strict=True))] = True
        return image

    first, second = random_boxes(4), random_boxes(3)
    got = box_iou(first, second)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            both, either = (rasterize(a) & rasterize(b)).sum(), (rasterize(a) | rasterize(b)).sum()
            assert got[i, j] == pytest.approx(both / either if either else 0.0)


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (Box((0, 0, 1), "a"), "4 or 6"),
        (Box((0, 0, float("nan"), 1), "a"), "finite"),
        (Box((5, 5, 2, 9), "a"), "width and height"),
        (Box((0, 0, 1, 1), "b"), "unknown class"),
        (Box((0, 0, 1, 1), "a", float("inf")), "score"),
    ],
)
def test_a_bad_box_is_named(box: Box, words: str) -> None:
    assert words in box.problem(["a"])
    assert not Box((0, 0, 1, 1), "a", 0.5).problem(["a"])


def test_a_centre_inside_the_true_box_is_a_hit_and_the_nearest_box_is_taken() -> None:
    truth = [(Box((0, 0, 0, 10, 10, 10), "a"), Box((4, 4, 4, 8, 8, 8), "a"))]
    small = Box((5.5, 5.5, 5.5, 6.5, 6.5, 6.5), "a", 0.9)  # the centre of the second box: IoU 1/64
    overlapping_box = Box((-2, -2, -2, 4, 4, 4), "a", 0.8)  # its centre lies in the first box only
    distant_box = Box((20, 20, 20, 21, 21, 21), "a", 0.7)
    ranking = rank_boxes([(small, overlapping_box, distant_box)], truth, "a", (0.1, CENTRE_RULE))
    assert ranking.is_hit.tolist() == [[False, False, False], [True, True, False]]
    assert average_precision(ranking, np.ones((1, 1)))[0].tolist() == [0.0, 1.0]


@given(sets())
def test_no_rule_of_hits_is_stricter_than_iou_a_half(box_sets: tuple[Boxes, Boxes]) -> None:
    predicted, truth = box_sets
    ranking = rank_boxes(predicted, truth, "a", (0.5, 0.1))
    strict_hits, loose_hits = ranking.is_hit.sum(axis=1)
    assert strict_hits <= loose_hits <= sum(map(len, truth))
