"""Few minutes: several narrow networks instead of a wide one, and a lower probability of augmentation."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from template_kit import load

FACTS = {"cases": 160, "patients": 160, "shapes": np.array([[51, 36, 36]] * 3), "spacings": np.ones((3, 3))}
WHOLE_PATCH, TRIMMED_PATCH = [56, 40, 40], [48, 32, 32]
STEPS = {(2, 16): 1284, (1, 16): 2700, (1, 8): 5600}
"""Of whole images of a hippocampus in 25 minutes without AVX-512, by patches a step and first filters."""
QUICKER = 1.9
"""With trimmed patches."""


def make_plan(**changes: Any) -> dict[str, Any]:
    network = {"name": "unet", "filters": [16, 32, 64, 128], "strides": [[1] * 3, [2] * 3, [2] * 3, [2] * 3]}
    plan = {"dims": 3, "classes": ["anterior", "posterior"], "chains": [], "batch": 2, "lr": 0.002, "network": network}
    grid = {"patch": list(WHOLE_PATCH), "spacing": [1.0] * 3, "side": None, "pixels": False}
    return {**plan, **grid, "epoch_patches": 160, **changes}


def count_steps(plan: dict[str, Any]) -> int:
    return int(STEPS[plan["batch"], plan["network"]["filters"][0]] * (QUICKER if plan["patch"] == TRIMMED_PATCH else 1))


def test_narrow_networks_of_several_folds_take_the_place_of_a_wide_one() -> None:
    """One network was trained for 1,284 steps where three narrow ones of as many minutes hold 1,900 each."""
    plan = make_plan()
    messages = load("segmentation.short_training").narrow_for_folds(FACTS, plan, set(), count_steps, 1500)
    assert messages == [
        "one patch a step instead of 2, so that several networks (folds) fit",
        "first filters 8 instead of 16, so that several networks (folds) fit",
    ]
    assert (plan["batch"], plan["network"]["filters"], plan["lr"]) == (
        1,
        [8, 16, 32, 64],
        load("segmentation.short_training").SHORT_TRAINING_LR,
    )
    slower = make_plan(lr=0.003)
    load("segmentation.short_training").narrow_for_folds(FACTS, slower, {"lr"}, count_steps, 1500)
    assert slower["lr"] == 0.003


@pytest.mark.parametrize(
    ("facts", "changes", "overrides", "enough"),
    [
        pytest.param(FACTS, {}, set(), 400, id="enough steps for several wide ones"),
        pytest.param(FACTS, {}, set(), 4000, id="too few for several narrow ones too"),
        pytest.param(FACTS, {}, {"patch"}, 2000, id="too few, since the patch was set by hand"),
        pytest.param({"cases": 160, "patients": 9}, {}, set(), 1500, id="too few patients for folds"),
        pytest.param(FACTS, {"classes": [str(k) for k in range(13)]}, set(), 1500, id="many classes need a wide one"),
        pytest.param(FACTS, {"dims": 2}, set(), 1500, id="2D images"),
        pytest.param(FACTS, {}, {"folds"}, 1500, id="folds set by hand"),
        pytest.param(FACTS, {}, {"network.filters"}, 1500, id="filters set by hand"),
        pytest.param(FACTS, {}, {"batch"}, 1500, id="batch set by hand"),
        pytest.param(FACTS, {"network": {"name": "segresnet"}}, set(), 1500, id="another network"),
    ],
)
def test_else_the_plan_stays_as_it_is(
    facts: dict[str, Any], changes: dict[str, Any], overrides: set[str], enough: int
) -> None:
    plan = make_plan(**changes)
    before = copy.deepcopy(plan)
    assert load("segmentation.short_training").narrow_for_folds(facts, plan, overrides, count_steps, enough) == []
    assert plan == before


def test_patches_are_trimmed_where_narrow_networks_alone_are_not_enough() -> None:
    plan = make_plan()
    messages = load("segmentation.short_training").narrow_for_folds(FACTS, plan, set(), count_steps, 2500)
    assert messages[-1] == f"patches {TRIMMED_PATCH} instead of {WHOLE_PATCH}, so that several networks (folds) fit"
    assert (plan["patch"], plan["network"]["filters"][0]) == (TRIMMED_PATCH, 8)


@pytest.mark.parametrize(
    ("changes", "patch"),
    [
        pytest.param({}, TRIMMED_PATCH, id="each side still shows 85 %"),
        pytest.param({"spacing": [1.0, 1.0, 0.92]}, [48, 32, 40], id="39 voxels would lose seven"),
        pytest.param({"patch": [56, 40, 24]}, [48, 32, 24], id="a side that is cut stays"),
        pytest.param({"spacing": [2.0, 2.0, 2.0], "patch": [32, 24, 24]}, [24, 16, 16], id="a coarser grid"),
        pytest.param({"dims": 2}, WHOLE_PATCH, id="2D images"),
        pytest.param({"chains": [["l1", "l2"]]}, WHOLE_PATCH, id="rows of structures need the whole"),
    ],
)
def test_patches_are_trimmed_to_what_the_network_divides(changes: dict[str, Any], patch: list[int]) -> None:
    plan = make_plan(**changes)
    before = plan["patch"]
    message = load("segmentation.short_training").make_trim(FACTS)(plan)
    assert plan["patch"] == patch
    assert message == (f"patches {patch} instead of {before}" if patch != before else "")
    assert load("segmentation.short_training").make_trim(FACTS)(plan) == "", "once"


def test_a_coarser_grid_is_seen_whole_after_trimming_as_without() -> None:
    grids = []
    for first in ([], [load("segmentation.short_training").make_trim(FACTS)]):
        plan = make_plan(patch=list(WHOLE_PATCH))
        for way in [*first, load("segmentation.short_training").make_coarser_grid(FACTS | {"dims": 3})]:
            assert way(plan)
        grids.append((plan["spacing"], plan["patch"]))
    assert grids[0] == grids[1]


@pytest.mark.parametrize(("steps", "often"), [(900, 0.3), (1920, 0.3), (2960, 0.45), (4000, 0.6), (9000, 0.6)])
def test_augmentation_is_less_probable_where_whole_images_are_seen_few_times(steps: int, often: float) -> None:
    augment: dict[str, Any] = {"often": 0.6, "rotate": 15}
    plan = make_plan(batch=1, patch=[56, 40, 40], engine="trainer", optimizer="adamw", augment=augment)
    messages = load("segmentation.short_training").augment_whole_images([50, 36, 36], 160, plan, lambda _: steps, set())
    assert plan["augment"] == {"often": pytest.approx(often), "rotate": 15, "elastic": 0.07}
    assert any("probability" in line for line in messages) is (often < 0.6)


@pytest.mark.parametrize(
    ("changes", "overrides"),
    [
        pytest.param({"patch": [56, 40, 16]}, set(), id="patches that show another part each time"),
        pytest.param({"engine": "nnunet"}, set(), id="nnU-Net alters as it does"),
        pytest.param({"chains": [["l1", "l2"]]}, set(), id="rows of structures have their own"),
        pytest.param({}, {"augment"}, id="set by hand"),
    ],
)
def test_else_the_probability_of_augmentation_is_the_usual(changes: dict[str, Any], overrides: set[str]) -> None:
    plan = make_plan(**{"batch": 1, "patch": [56, 40, 40], "engine": "trainer", "augment": {"often": 0.6}, **changes})

    def never(_: dict[str, Any]) -> int:
        raise AssertionError("no step is timed for nothing")

    assert load("segmentation.short_training").augment_whole_images([50, 36, 36], 160, plan, never, overrides) == []
    assert plan["augment"] == {"often": 0.6}
