"""Figures of masks against MONAI, and against definitions that are written out."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from m3b.metrics import measure_mask, measure_masks
from m3b.metrics.masks import MAX_HD95_MM, surface_elements

Mask = NDArray[np.bool_]
Pair = tuple[Mask, Mask, tuple[float, ...]]


def blob(rng: np.random.Generator, shape: tuple[int, ...]) -> Mask:
    smooth = ndimage.gaussian_filter(rng.normal(size=shape), rng.uniform(1, 2.5), mode="constant")
    mask = smooth > np.quantile(smooth, rng.uniform(0.4, 0.95))
    return mask if mask.any() else smooth == smooth.max()


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dimensions = draw(st.sampled_from([2, 3]))
    shape = tuple(draw(st.lists(st.integers(4, 16), min_size=dimensions, max_size=dimensions)))
    spacing = tuple(draw(st.lists(st.sampled_from([0.5, 0.75, 1.0, 3.0]), min_size=dimensions, max_size=dimensions)))
    first = blob(rng, shape)
    second = blob(rng, shape) if draw(st.booleans()) else ndimage.binary_dilation(first)
    return first, second, spacing


def monai_figures(first: Mask, second: Mask, spacing: tuple[float, ...], tolerance: float) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from monai.metrics import compute_dice, compute_hausdorff_distance, compute_surface_dice

        first_tensor, second_tensor = (
            torch.from_numpy(mask.astype(np.float32))[None, None] for mask in (first, second)
        )
        return {
            "dice": compute_dice(first_tensor, second_tensor).item(),
            "hd95": compute_hausdorff_distance(
                first_tensor, second_tensor, include_background=True, percentile=95, spacing=spacing
            ).item(),
            "nsd": compute_surface_dice(
                first_tensor, second_tensor, [tolerance], include_background=True, spacing=spacing, use_subvoxels=True
            ).item(),
        }


@given(pairs(), st.sampled_from([0.6, 1.1, 2.3]))
def test_as_monai(pair: Pair, tolerance: float) -> None:
    first, second, spacing = pair
    got, reference = measure_mask(*pair, tolerance), monai_figures(first, second, spacing, tolerance)
    assert got.dice == pytest.approx(reference["dice"], abs=1e-6)
    assert got.hd95 == pytest.approx(reference["hd95"], rel=1e-5)
    # where two corners of a cell touch across a diagonal, marching cubes may be drawn in two ways
    assert got.nsd == pytest.approx(reference["nsd"], abs=0.01)


def test_nsd_of_boxes_is_that_of_monai_exactly() -> None:
    first, second = np.zeros((12, 14, 10), bool), np.zeros((12, 14, 10), bool)
    first[2:8, 3:9, 2:7] = True
    second[3:9, 3:10, 2:8] = True
    for spacing in ((1.0, 1.0, 1.0), (0.5, 2.0, 1.25)):
        got = measure_mask(first, second, spacing, 0.5)
        assert 0.2 < got.nsd < 0.95
        assert got.nsd == pytest.approx(monai_figures(first, second, spacing, 0.5)["nsd"], abs=1e-5)


@given(pairs())
def test_hd95_by_comparing_all_voxels(pair: Pair) -> None:
    def border(mask: Mask) -> NDArray[np.float64]:
        edge = []
        for place in np.argwhere(mask):
            for axis in range(mask.ndim):
                for step in (-1, 1):
                    neighbour = place.copy()
                    neighbour[axis] += step
                    if not 0 <= neighbour[axis] < mask.shape[axis] or not mask[tuple(neighbour)]:
                        edge.append(tuple(place))
        return np.array(sorted(set(edge))) * spacing

    first, second, spacing = pair
    first_border, second_border = border(first), border(second)
    distance = np.sqrt(((first_border[:, None] - second_border[None]) ** 2).sum(axis=2))
    expected = max(np.percentile(distance.min(axis=1), 95), np.percentile(distance.min(axis=0), 95))
    assert measure_mask(*pair).hd95 == pytest.approx(expected)


@given(pairs(), st.floats(0.1, 4))
def test_properties(pair: Pair, factor: float) -> None:
    first, second, spacing = pair
    forward, backward = measure_mask(first, second, spacing), measure_mask(second, first, spacing)
    for name in ("dice", "nsd", "hd95"):
        assert getattr(forward, name) == pytest.approx(getattr(backward, name))
    assert 0 <= forward.dice <= 1
    assert 0 <= forward.nsd <= 1
    assert forward.value("hd95") == min(forward.hd95, MAX_HD95_MM)
    identical = measure_mask(first, first, spacing, 0.0)
    assert (identical.dice, identical.hd95, identical.nsd) == (1, 0, pytest.approx(1))
    larger = measure_mask(first, second, [step * factor for step in spacing], factor)
    assert larger.nsd == pytest.approx(forward.nsd)
    assert larger.hd95 == pytest.approx(forward.hd95 * factor)


def test_areas_are_those_of_geometry() -> None:
    disc = np.hypot(*np.mgrid[-20:21, -20:21]) <= 15
    assert surface_elements(disc, (1.0, 1.0))[1].sum() == pytest.approx(2 * math.pi * 15.2, rel=0.08)
    ball = np.sqrt((np.mgrid[-14:15, -14:15, -14:15] ** 2).sum(axis=0)) <= 12
    assert surface_elements(ball, (1.0, 1.0, 1.0))[1].sum() == pytest.approx(4 * math.pi * 12.2**2, rel=0.1)
    plate = np.ones((1, 30, 40), bool)  # two faces of 29 x 39 cells of 2 x 3 mm, and a rim
    area = surface_elements(plate, (0.001, 2.0, 3.0))[1].sum()
    assert area == pytest.approx(2 * 30 * 40 * 6, rel=0.04)


def test_spacing_counts() -> None:
    first = np.zeros((10, 10, 10), bool)
    first[2:6, 2:6, 2:6] = True
    second = np.roll(first, 1, axis=0)
    assert measure_mask(first, second, (5.0, 1.0, 1.0)).hd95 == 5
    assert measure_mask(first, second, (1.0, 5.0, 5.0)).hd95 == 1
    far, near = (measure_mask(first, second, spacing, 2.0).nsd for spacing in ((5.0, 1.0, 1.0), (1.0, 5.0, 5.0)))
    assert near == pytest.approx(1)
    assert far < 0.9


def test_empty_masks() -> None:
    empty, filled = np.zeros((4, 5, 6), bool), np.zeros((4, 5, 6), bool)
    filled[1:3, 1:3, 1:3] = True
    both = measure_mask(empty, empty, (1.0, 1.0, 1.0))
    assert all(math.isnan(value) for value in (both.dice, both.nsd, both.hd95))
    for pair in ((empty, filled), (filled, empty)):
        got = measure_mask(*pair, (2.0, 1.0, 1.0))
        assert (got.dice, got.nsd, got.hd95) == (0, 0, math.inf)
        wide = measure_mask(*(np.pad(mask, 9) for mask in pair), (2.0, 1.0, 1.0))
        assert got.value("hd95") == wide.value("hd95") == MAX_HD95_MM, "whatever the field of view"
        assert measure_mask(*pair, None).value("hd95") == pytest.approx(math.sqrt(16 + 25 + 36)), "pixels"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_single_slice_is_measured_in_2d(axis: int) -> None:
    rng = np.random.default_rng(axis)
    first, second = blob(rng, (20, 24)), blob(rng, (20, 24))
    spacing = [0.5, 0.8]
    thick = [*spacing[:axis], 5.0, *spacing[axis:]]
    got = measure_mask(np.expand_dims(first, axis), np.expand_dims(second, axis), thick)
    expected = measure_mask(first, second, spacing)
    assert (got.dice, got.nsd, got.hd95) == (expected.dice, expected.nsd, expected.hd95)


def test_a_line_and_a_voxel_can_be_measured() -> None:
    for shape in ((1, 1, 7), (7, 1), (1, 1, 1), (1, 1)):
        mask = np.ones(shape, bool)
        assert measure_mask(mask, mask, [1.0] * len(shape)).nsd == pytest.approx(1)


def test_labels_regions_and_floats() -> None:
    reference = np.zeros((8, 8), np.uint16)
    reference[:2], reference[2:4] = 7, 300
    prediction = np.where(reference == 300, 7, reference).astype(float)
    got = measure_masks(prediction, reference, {"a": 7, "b": 300, "whole": (7, 300), "c": 9}, (1.0, 1.0))
    assert got["a"].dice == pytest.approx(2 / 3)
    assert got["b"].dice == 0
    assert got["whole"].dice == 1
    assert math.isnan(got["c"].dice)
    assert (got["b"].reference, got["b"].prediction) == (16, 0)


@pytest.mark.parametrize(
    ("prediction", "spacing", "tolerance", "words"),
    [
        (np.zeros((4, 5)), (1, 1), 1, "shape"),
        (np.full((4, 4), 0.5), (1, 1), 1, "whole numbers"),
        (np.full((4, 4), np.nan), (1, 1), 1, "whole numbers"),
        (np.zeros((4, 4)), (1, 1, 1), 1, "spacing"),
        (np.zeros((4, 4)), (1, 0), 1, "spacing"),
        (np.zeros((4, 4)), (1, math.nan), 1, "spacing"),
        (np.zeros((4, 4)), (1, 1), -1, "tolerance"),
    ],
)
def test_bad_masks_are_named(
    prediction: NDArray[np.float64], spacing: tuple[float, ...], tolerance: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        measure_masks(prediction, np.zeros((4, 4), int), {"a": 1}, spacing, tolerance)


def test_four_dimensions_are_refused() -> None:
    mask = np.zeros((2, 2, 2, 2), bool)
    with pytest.raises(ValueError, match="2 or 3 dimensions"):
        measure_mask(mask, mask, (1, 1, 1, 1))


def test_a_flat_lesion_in_a_volume_stays_in_3d() -> None:
    first, second = np.zeros((5, 12, 12), bool), np.zeros((5, 12, 12), bool)
    first[2, 2:9, 2:9] = second[2, 3:6, 3:6] = True
    got = measure_mask(first, second, (3.0, 1.0, 1.0), 0.5)
    reference = monai_figures(first, second, (3.0, 1.0, 1.0), 0.5)
    assert got.hd95 == pytest.approx(reference["hd95"])
    assert got.nsd == pytest.approx(reference["nsd"], abs=1e-5)
