"""Panoptic quality and AP50 of instances, and the sets in which they are reported."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from m3b.metrics import measure_masks
from m3b.metrics.instances import InstanceCounts, count_instances, match_instances
from m3b.tasks.segmentation import SegmentationCase, score_segmentation


def discs(count: int, rng: np.random.Generator, size: int = 64) -> NDArray[np.int64]:
    """Numbered discs of 3 pixels radius on a grid, so that no two touch."""
    ids, grid = np.zeros((size, size), np.int64), np.indices((size, size))
    places = [(y, x) for y in range(5, size - 5, 9) for x in range(5, size - 5, 9)]
    for number, place in enumerate(rng.choice(len(places), count, replace=False), start=1):
        ids[((grid - np.array(places[place])[:, None, None]) ** 2).sum(axis=0) <= 9] = number
    return ids


def brute_force(predicted: NDArray[np.int64], reference: NDArray[np.int64]) -> InstanceCounts:
    matched = []
    for a in set(np.unique(predicted)) - {0}:
        for b in set(np.unique(reference)) - {0}:
            iou = np.sum((predicted == a) & (reference == b)) / np.sum((predicted == a) | (reference == b))
            if iou > 0.5:
                matched.append(float(iou))
    counts = [len(set(np.unique(ids)) - {0}) - len(matched) for ids in (predicted, reference)]
    return InstanceCounts(sum(matched), len(matched), *counts)


@given(seed=st.integers(0, 1000), first=st.integers(0, 9), second=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_instances_are_matched_as_written_out(seed: int, first: int, second: int) -> None:
    rng = np.random.default_rng(seed)
    reference, predicted = discs(first, rng) * 7, np.roll(discs(second, rng), int(rng.integers(-2, 3)), axis=1)
    predicted[:40] = reference[:40] if seed % 2 else predicted[:40]
    got, expected = match_instances(predicted, reference), brute_force(predicted, reference)
    assert got.to_list() == pytest.approx(expected.to_list())


def test_components_of_masks_are_instances() -> None:
    reference = discs(8, np.random.default_rng(0)) > 0
    predicted = reference.copy()
    predicted[:28] = False
    counts = count_instances(predicted, reference)
    assert counts.matched == counts.iou_sum
    assert counts.matched + counts.missed == 8
    assert counts.invented == 0
    empty = np.zeros_like(reference)
    assert count_instances(empty, reference).to_list() == counts.without_prediction().to_list() == [0, 0, 0, 8]
    assert count_instances(empty, empty).to_list() == [0, 0, 0, 0]


def cases(n_instances: int, n_images: int = 20) -> list[SegmentationCase]:
    """Images with about so many discs, of which the model misses or invents some."""
    rng, result = np.random.default_rng(1), []
    for number in range(n_images):
        reference = discs(max(1, n_instances + int(rng.integers(-1, 2))), rng) > 0
        predicted = reference.copy()
        predicted[: int(rng.integers(5, 30))] = False
        figures = measure_masks(predicted.astype(int), reference.astype(int), {"nucleus": 1}, None)
        instances = {"nucleus": count_instances(predicted, reference)}
        result.append(SegmentationCase(str(number), f"p{number}", figures, instances))
    return result


@pytest.mark.parametrize(("n_instances", "is_reported"), [(1, False), (2, False), (3, False), (7, True), (20, True)])
def test_many_instances_are_a_fact_of_the_set(n_instances: int, is_reported: bool) -> None:
    """A pair of kidneys, and a third piece, are structures; nuclei are instances."""
    scores = score_segmentation(cases(n_instances), ["nucleus"])
    assert ("pq" in scores.metrics) is ("instance_ap50" in scores.metrics) is is_reported
    assert score_segmentation(cases(n_instances), ["nucleus"], primary="panoptic quality").primary.name == "pq"


def test_pq_and_ap50_have_their_definition_an_interval_and_a_baseline() -> None:
    images = cases(12)
    counts = [case.instances["nucleus"] for case in images]
    scores = score_segmentation(images, ["nucleus"])
    pq, ap50 = scores.metrics["pq"], scores.metrics["instance_ap50"]
    errors = sum(c.invented + c.missed for c in counts) / 2
    assert pq.value == pytest.approx(sum(c.iou_sum for c in counts) / (sum(c.matched for c in counts) + errors))
    assert ap50.value == pytest.approx(np.mean([c.matched / (c.matched + c.invented + c.missed) for c in counts]))
    for measure in (pq, ap50):
        assert measure.baseline == 0
        assert measure.low is not None
        assert measure.high is not None
        assert measure.low < measure.value < measure.high
