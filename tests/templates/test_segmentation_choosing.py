"""What validation cases choose of a trained network: mirroring, largest pieces, filled holes; sides; borders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from template_kit import load

from m3b.metrics.masks import measure_mask

PLAN: dict[str, Any] = {"classes": ["disc"], "overlap": False, "dims": 2, "spacing": [1.0, 1.0], "pixels": True}
PLAN |= {"augment": {"flip": ["w"]}, "mirror": "auto", "refine": {}, "patch": [32, 32], "pad_value": 0.0, "batch": 1}
PLAN |= {"network": {"name": "unet", "strides": [[1, 1], [2, 2]]}}


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("left_kidney", True), ("KidneyL", True), ("lung-R", True), ("KIDNEY_RIGHT", True), ("linke Niere", True),
        ("L1", False), ("bright spot", False), ("LVEF", False), ("leftover", False), ("liver", False),
    ],
)  # fmt: skip
def test_what_tells_a_side_is_never_mirrored(name: str, side: bool) -> None:
    """Pictures of left and right eyes were mirrored into each other, as all colour pictures were."""
    sides = load("laterality")
    assert sides.has_side_word(["liver", name]) is side
    assert sides.allowed_flips(["h", "w"], [name]) == ([] if side else ["h", "w"])


@pytest.mark.parametrize(
    ("about_fields", "channels", "free"),
    [
        ({"request": "Tell pneumonia from normal on chest X-rays"}, 3, False),
        ({"request": "Detect cells of non-small cell lung cancer on CT"}, 3, False),
        ({"request": "Find nodules", "modality": "X-ray", "anatomy": "chest"}, 3, False),
        ({"request": "Find white blood cells in blood smears"}, 1, True),
        ({"request": "Tell melanoma from nevus in dermoscopy images"}, 3, True),
        ({"request": "Tell plain from spot"}, 3, True),
        ({"request": "Tell plain from spot"}, 1, False),
        (None, 3, True),
        (None, 1, False),
    ],
)  # fmt: skip
def test_what_images_show_decides_whether_they_are_mirrored(
    tmp_path: Path, about_fields: dict[str, str] | None, channels: int, free: bool
) -> None:
    """Chest films that were stored in colour were turned upside down, and grey cells were not."""
    about = tmp_path / "about.json"
    if about_fields is not None:
        about.write_text(json.dumps(about_fields))
    sides = load("laterality")
    assert sides.can_flip_both_axes(2, channels, about) is free
    assert not sides.can_flip_both_axes(3, channels, about)


@pytest.mark.parametrize(
    ("classes", "channels", "dims", "flips"),
    [
        (["tumour"], 1, 3, ["w"]), (["tumour"], 3, 2, ["h", "w"]), (["liver", "spleen"], 1, 3, []),
        (["cup", "disc"], 3, 2, ["h", "w"]), (["left lung", "right lung"], 3, 2, []), (["left lung"], 1, 2, []),
    ],
)  # fmt: skip
def test_class_names_decide_what_is_mirrored(classes: list[str], channels: int, dims: int, flips: list[str]) -> None:
    facts = {"classes": classes, "channels": channels, "dims": dims, "modality": "mr"}
    assert load("segmentation.plan").choose_augmentation(facts, [1.0] * dims)["flip"] == flips


def test_pieces_and_holes_by_class() -> None:
    clean_mask, mask = load("segmentation.mask_cleaning").clean_mask, np.zeros((12, 12), np.uint8)
    mask[1:8, 1:8], mask[3:5, 3:5], mask[10, 10] = 1, 0, 1
    mask[6, 6] = 2
    plan = {"classes": ["a", "b"], "overlap": False}
    assert clean_mask(mask, plan) is mask
    largest = clean_mask(mask, {**plan, "refine": {"a": ["largest"]}})
    assert largest[10, 10] == 0
    assert (largest[:9] == mask[:9]).all()
    both = clean_mask(mask, {**plan, "refine": {"a": ["largest", "fill"]}})
    assert (both[3:5, 3:5] == 1).all()
    assert both[6, 6] == 2, "what another class marks is no hole"
    layers = np.stack([mask == 1, mask == 2]).astype(np.uint8)
    over = clean_mask(layers, {**plan, "overlap": True, "refine": {"a": ["fill"]}})
    assert over[0, 6, 6] == over[1, 6, 6] == 1
    with pytest.raises(SystemExit, match="unknown operation 'smooth'"):
        clean_mask(mask, {**plan, "refine": {"a": ["smooth"]}})


class SpeckNetwork(torch.nn.Module):
    """Finds the disc, and a false speck far away; mirrored it sees the disc better."""

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = pixel_values[:, :1] * 4 - 2
        return {"logits": torch.cat([-logits, logits], dim=1)}


def _cases(count: int, speck: bool) -> list[dict[str, torch.Tensor]]:
    rng, cases = np.random.default_rng(0), []
    for _ in range(count):
        truth = np.zeros((32, 32), np.uint8)
        row, column = rng.integers(6, 14, 2)
        truth[row : row + 10, column : column + 10] = 1
        image = truth.astype(np.float32)
        image[30, 1 : 1 + int(rng.integers(1, 4))] = float(speck)
        image[row + 4, column + 4] = 0.0
        cases.append({"pixel_values": torch.from_numpy(image)[None], "labels": torch.from_numpy(truth)})
    return cases


def test_the_validation_chooses_what_helps_and_scores_it_on_the_other_half() -> None:
    choosing = load("segmentation.postprocessing_selection")
    plan = dict(PLAN)
    view_scores = choosing.score_views(SpeckNetwork(), _cases(24, True), plan, torch.device("cpu"), 60.0)
    assert np.isfinite(view_scores.table).all(), "mirrored too"
    fair = choosing.select_postprocessing(plan, view_scores, [str(k) for k in range(24)])
    assert plan["refine"] == {"disc": ["largest", "fill"]}
    assert plan["mirror"] == [], "mirroring changes nothing here"
    assert (fair == 1.0).all()
    assert view_scores.table[:, 0, 0].mean() < 1.0
    few_case_plan = dict(PLAN)
    choosing.select_postprocessing(
        few_case_plan,
        choosing.score_views(SpeckNetwork(), _cases(8, True), few_case_plan, torch.device("cpu"), 60.0),
        list("abcdefgh"),
    )
    assert few_case_plan["refine"] == {}, "eight cases choose nothing"
    fixed: dict[str, Any] = {**PLAN, "refine": {"disc": ["fill"]}, "mirror": ["w"]}
    choosing.select_postprocessing(fixed, view_scores, [str(k) for k in range(24)])
    assert (fixed["refine"], fixed["mirror"]) == ({"disc": ["fill"]}, ["w"]), "what the plan names stays"


class CoarseNetwork(torch.nn.Module):
    """Looks at every fourth voxel alone, as a network does that quarters its grid: edges depend on where the image lies on it."""

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        coarse = torch.nn.functional.interpolate(pixel_values[:, :1, 1::4, 2::4], scale_factor=4, mode="nearest")
        return {"logits": torch.cat([0.5 - coarse, coarse - 0.5], dim=1)}


def test_predictions_are_averaged_over_shifts_where_that_gains() -> None:
    choosing, plan = load("segmentation.postprocessing_selection"), {**PLAN, "mirror": [], "shifted": "auto"}
    view_scores = choosing.score_views(CoarseNetwork(), _cases(24, False), plan, torch.device("cpu"), 60.0)
    fair = choosing.select_postprocessing(plan, view_scores, [str(k) for k in range(24)])
    assert (plan["mirror"], plan["shifted"]) == ([], True)
    assert fair.mean() > view_scores.table[:, 0, 0].mean() + 0.02
    assert "averaged over 4 shifts" in choosing.describe_selection(plan)
    hurried = {**PLAN, "mirror": [], "shifted": "auto"}
    short = choosing.score_views(CoarseNetwork(), _cases(24, False), hurried, torch.device("cpu"), 0.0)
    choosing.select_postprocessing(hurried, short, [str(k) for k in range(24)])
    assert hurried["shifted"] is False, "no time to try it"
    for is_shifted in (True, False):
        fixed_plan = {**PLAN, "mirror": [], "shifted": is_shifted}
        choosing.select_postprocessing(
            fixed_plan,
            choosing.score_views(CoarseNetwork(), _cases(12, False), fixed_plan, torch.device("cpu"), 60.0),
            list("abcdefghijkl"),
        )
        assert fixed_plan["shifted"] is is_shifted, "what the plan names stays"


@pytest.mark.parametrize("shape", [(9, 14), (9, 14, 11)])
def test_what_is_the_same_everywhere_is_the_same_over_shifts(shape: tuple[int, ...]) -> None:
    """A network that looks at each voxel by itself answers as without shifts, up to the last row; padding has the fill."""
    windows, image = load("segmentation.sliding_window"), torch.randn(2, *shape)
    run_shapes = []

    def run(wide: torch.Tensor) -> torch.Tensor:
        run_shapes.append(tuple(wide.shape[1:]))
        assert wide[0].eq(7.0).any()
        assert wide[1].eq(-1.0).any()
        return 2 * wide

    torch.testing.assert_close(windows.average_over_shifts(image, run, [7.0, -1.0]), 2 * image)
    assert run_shapes == [tuple(n + 3 for n in shape)] * 4


def test_views_that_the_validation_may_choose() -> None:
    views = load("segmentation.postprocessing_selection").list_views
    plan: dict[str, Any] = {"mirror": "auto", "shifted": "auto", "augment": {"flip": ["h", "w"]}, "chains": []}
    assert [(view.axes, view.shifted, view.cost) for view in views(plan)] == [
        ((), False, 1), (("h", "w"), False, 4), ((), True, 4)]  # fmt: skip
    assert len(views({**plan, "chains": [["l1", "l2"]]})) == 2, "rows of structures are not averaged over shifts"
    assert [view.cost for view in views({**plan, "mirror": ["w"], "shifted": True})] == [8]
    older = {"mirror": [], "augment": {"flip": []}}
    assert [view.cost for view in views(older)] == [1], "a plan without the setting predicts as it did"


def test_chance_is_seldom_chosen_and_never_flatters() -> None:
    choosing, rng = load("segmentation.postprocessing_selection"), np.random.default_rng(1)
    gains, changed_choices = [], 0
    for _ in range(60):
        table = 0.8 + 0.05 * rng.standard_normal((20, 2, 4, 1))
        fair = choosing.cross_fit(table, [str(k) for k in range(20)])
        gains.append(fair.mean() - table[:, 0, 0].mean())
        changed_choices += choosing.choose_view_and_operations(table) != choosing.Choice(0, (0,))
    assert abs(np.mean(gains)) < 0.005, "the best of eight on the same cases would be 0.01 to 0.02 above"
    real = 0.8 + 0.02 * rng.standard_normal((40, 2, 4, 1))
    real[:, 1] += 0.03
    assert choosing.choose_view_and_operations(real).view == 1


def test_a_patient_lies_in_one_half() -> None:
    choosing = load("segmentation.postprocessing_selection")
    table = np.full((40, 2, 4, 1), 0.5)
    table[:20, 0, 1] = 0.9  # patient a alone is better for it
    fair = choosing.cross_fit(table, ["a"] * 20 + ["b"] * 20)
    assert (fair == 0.5).all() or (fair[:20] == 0.5).all()


@pytest.mark.parametrize("shape", [(24, 30), (12, 14, 16)])
def test_borders_are_measured_as_m3b_does(shape: tuple[int, ...]) -> None:
    rng, steps = np.random.default_rng(3), (1.0, 0.7, 2.0)[: len(shape)]
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    for _ in range(4):
        centre = np.array(shape) / 2 + rng.normal(0, 1, len(shape))
        a, b = (np.linalg.norm(grid - centre - shift, axis=-1) < 4.5 for shift in (0.0, rng.normal(0, 1, len(shape))))
        expected = measure_mask(a, b, steps)
        nsd, hd95 = load("segmentation.surfaces").surface_metrics(a, b, steps)
        assert hd95 == pytest.approx(expected.hd95)
        assert nsd == pytest.approx(expected.nsd, abs=0.2)
        assert nsd <= expected.nsd + 0.02, "of border voxels: a little below that of surfaces between voxels"
    empty = np.zeros(shape, bool)
    assert load("segmentation.surfaces").surface_metrics(empty, a, steps) == (
        0.0,
        measure_mask(empty, a, steps).max_distance,
    )
    assert np.isnan(load("segmentation.surfaces").surface_metrics(empty, empty, steps)).all()


def test_borders_worse_than_the_mean_shapes_are_said() -> None:
    """A model above the mean shape's Dice had an HD95 that was worse, and nobody told the trainer."""
    surfaces, blind = load("segmentation.surfaces"), load("segmentation.mean_shape")
    cases = _cases(12, True)
    truths = [item["labels"].numpy() for item in cases]
    mean = blind.mean_shape(truths, PLAN)
    unrefined = surfaces.compare_surfaces(SpeckNetwork(), cases, {**PLAN, "mirror": []}, torch.device("cpu"), mean)
    assert unrefined["hd95"] > unrefined["mean_shape_hd95"]
    assert "WORSE" in surfaces.describe_surfaces(unrefined, PLAN)
    refined_plan = {**PLAN, "mirror": [], "refine": {"disc": ["largest", "fill"]}}
    better = surfaces.compare_surfaces(SpeckNetwork(), cases, refined_plan, torch.device("cpu"), mean)
    assert better["hd95"] == 0.0
    assert better["nsd"] == 1.0
    assert "WORSE" not in surfaces.describe_surfaces(better, PLAN)


@pytest.mark.parametrize("dims", [2, 3])
def test_surface_metrics_are_those_of_all_pairs_of_border_voxels(dims: int) -> None:
    """Masks also touch the edge of the image, where their voxels belong to the border."""
    surfaces, rng = load("segmentation.surfaces"), np.random.default_rng(dims)
    for _ in range(5):
        masks = [rng.random((7,) * dims) < 0.7 for _ in range(2)]
        borders = []
        for mask in masks:
            neighbours = [np.roll(np.pad(mask, 1), step, axis) for axis in range(dims) for step in (-1, 1)]
            borders.append(np.argwhere(mask & ~np.logical_and.reduce(neighbours)[(slice(1, -1),) * dims]))
        distances = np.linalg.norm(borders[0][:, None] - borders[1][None], axis=2)
        nearest = [distances.min(1), distances.min(0)]
        nsd, hd95 = surfaces.surface_metrics(*masks, (1.0,) * dims)
        assert nsd == pytest.approx(np.mean(np.concatenate(nearest) <= 1))
        assert hd95 == pytest.approx(max(np.percentile(values, 95) for values in nearest))


@pytest.mark.parametrize(
    ("refine", "lr", "changed"),
    [
        ({}, 0.01, []),
        (None, 0.01, []),
        ({"disc": ["fill"]}, 0.01, []),
        ({"disc": []}, 0.01, ["refine"]),
        ({}, 0.1, ["lr"]),
    ],
)
def test_what_the_training_chose_is_no_change_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refine: Any, lr: float, changed: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(json.dumps({"mirror": "auto", "refine": refine, "lr": lr, "minutes": 5}))
    trained_plan = {"mirror": ["h"], "refine": {"disc": ["fill"]}, "lr": 0.01}
    assert load("segmentation.export").list_changed_settings(trained_plan) == changed
