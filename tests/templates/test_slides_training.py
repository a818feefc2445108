"""The diagnosis template on whole-slide images: tissue, tiles, attention, and the same answer however a slide is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from template_kit import Run, load

from formats.slide_kit import draw_slide, list_halved, write_slide
from m3b.dataset.formats import DataError, read_image, read_labels
from m3b.training.diagnosis.network import count_network_outputs
from m3b.training.diagnosis.recipe import DiagnosisRecipe
from m3b.training.recipe import use_recipe

tiles = load("diagnosis.tiles")
SIDE = 2048
PLAN: dict[str, Any] = {"task": "diagnosis", "classes": ["a", "b"], "multi_label": False, "dims": 2, "channels": 3, "size": [64, 64],
        "network": {"name": "small_cnn", "width": 4}, "intensity": {"mode": "unit", "mean": 0.5, "std": 0.3},
        "tiles": {"count": 64, "factor": 2, "um": None}}  # fmt: skip


# --- tissue and tiles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_tissue_is_found_by_a_threshold_of_each_slide(seed: int) -> None:
    """Tissue in any colour and strength on a white background that is as noisy as a camera's, with a black border."""
    random = np.random.default_rng(seed)
    tissue = np.zeros((256, 256), bool)
    tissue[60:200, 80:150] = True
    colour = 235 - random.uniform(25, 150) * np.array([0.4, 1.0, 0.5])[random.permutation(3)]
    picture = np.where(tissue[None], colour[:, None, None], 240.0) + random.normal(0, 3, (3, 256, 256))
    picture[:, :20] = random.integers(0, 5, (3, 20, 256))
    detected = tiles.find_tissue(picture.clip(0, 255).astype(np.uint8))
    assert (detected & tissue).sum() / (detected | tissue).sum() > 0.9


@pytest.mark.parametrize("shape", [(2048, 2048), (1999, 3001), (700, 400)])
@pytest.mark.parametrize("side", [64, 128, 300])
def test_cells_of_a_reduced_mask_are_those_of_the_full_size(shape: tuple[int, int], side: int) -> None:
    mask = np.zeros(shape, bool)
    mask[shape[0] // 4 : shape[0] // 2, shape[1] // 3 : shape[1] // 2] = True
    exact = tiles.measure_cells(mask, shape, (side, side))
    assert exact.shape == (-(-shape[0] // side), -(-shape[1] // side))
    assert exact[1, 1] == mask[side : 2 * side, side : 2 * side].mean()
    assert np.abs(tiles.measure_cells(mask[::4, ::4], shape, (side, side)) - exact).max() < 16 / side


def test_tiles_hold_the_tissue_and_no_more_than_the_plan_allows(tmp_path: Path) -> None:
    pixels = draw_slide(SIDE, seed=1)
    file = str(write_slide(tmp_path / "a.tif", pixels, "subifds", um=0.5))
    bag = tiles.read_bag(file, PLAN)
    tissue = tiles.find_tissue(np.moveaxis(pixels, -1, 0))
    covered = np.zeros_like(tissue)
    for part in bag.parts:
        covered[part.row :, part.column :][: part.height, : part.width] = True
    assert bag.is_tile.sum() == len(bag.parts) < 64
    assert (covered & tissue).sum() > 0.95 * tissue.sum()
    assert covered.mean() < 0.5
    small_bag = tiles.read_bag(file, {**PLAN, "tiles": {**PLAN["tiles"], "count": 5}})
    assert len(small_bag.parts) == 5
    assert set(small_bag.parts) < set(bag.parts)


def test_magnification_is_physical_if_scanners_state_it(tmp_path: Path) -> None:
    """A slide scanned at twice the magnification has the same tiles."""
    small = draw_slide(SIDE, seed=2)
    large = small.repeat(2, axis=0).repeat(2, axis=1)
    plan = {**PLAN, "tiles": {"count": 64, "factor": 2, "um": 1.0}}
    bags = [
        tiles.read_bag(str(write_slide(tmp_path / name, pixels, "one level", um=um)), plan)
        for name, pixels, um in (("a.tif", small, 0.5), ("b.tif", large, 0.25))
    ]
    assert [part.factor for part in (bags[0].parts[0], bags[1].parts[0])] == [2, 4]
    assert np.abs(bags[0].pixels - bags[1].pixels).max() < 0.02


def test_the_planned_magnification_is_the_highest_at_which_the_tissue_fits() -> None:
    slides = {"count": 9, "tissue": [1e6] * 9, "um": 0.25}
    plans = [tiles.choose_tiles({**slides, "tissue": [area] * 9}, has_gpu=False, minutes=5) for area in (1e5, 1e6, 1e7)]
    assert [plan["tiles"]["factor"] for plan in plans] == [1, 2, 4]
    assert [plan["tiles"]["um"] for plan in plans] == [0.25, 0.5, 1.0]
    assert tiles.choose_tiles({**slides, "tissue": [1e7] * 9}, has_gpu=False, minutes=60)["tiles"]["factor"] == 2
    assert tiles.choose_tiles(None, has_gpu=False, minutes=5) == {}
    plan = plans[0]
    assert tiles.halve_magnification(plan)
    assert plan["tiles"] == {"count": 16, "factor": 2, "um": 0.5}
    assert not tiles.halve_magnification(plan)
    unknown_slides = [{"spacing": None}] * 5
    assert tiles.summarise_slides([*unknown_slides, {"tissue": 1.0, "reduced": 2, "spacing": None}]) is None


def test_what_is_no_slide_is_refused(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"")
    for case in (str(picture), [str(picture)], str(tmp_path / "gone.tif")):
        with pytest.raises(DataError):
            tiles.read_bag(case, PLAN)


def test_slides_that_cannot_be_read_are_excluded_up_to_a_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write_slide(tmp_path / "a.tif", draw_slide(SIDE, seed=3), "one level"))
    missing_file = str(tmp_path / "gone.tif")
    *tile_lists, empty = tiles.list_tiles([file] * 20 + [missing_file], PLAN, tmp_path / "cache")
    assert all(tile_lists)
    assert empty == []
    assert missing_file in capsys.readouterr().out
    with pytest.raises(load("cache").CacheError, match="2 of 4"):
        tiles.list_tiles([file, missing_file] * 2, PLAN, tmp_path / "cache")


# --- attention -------------------------------------------------------------------------------------------------------


def test_attention_is_that_of_the_paper() -> None:
    """The logits of a slide are the linear layer applied to the mean feature, weighted by the softmax of gated scores."""
    network = load("diagnosis.network")
    torch.manual_seed(0)
    pool, features = network.GatedAttention(), torch.randn(1, 5, 7)
    layer = torch.nn.Linear(7, 2 + 2 * network.ATTENTION_WIDTH)
    content, gate = (layer(features)[..., 2:]).chunk(2, dim=-1)
    weights = pool.score(torch.tanh(content) * torch.sigmoid(gate)).softmax(dim=1)
    expected = layer((weights * features).sum(dim=1))[:, :2]
    assert torch.allclose(pool(layer(features), torch.ones(1, 5)), expected, atol=1e-6)


def test_padding_and_the_order_of_tiles_do_not_matter() -> None:
    torch.manual_seed(0)
    model = load("diagnosis.network").build_model(PLAN).eval()
    bag, is_tile = torch.randn(2, 6, 3, 64, 64), torch.ones(2, 6)
    is_tile[:, 4:] = 0
    changed_bag = bag.clone()
    changed_bag[:, 4:] = 5.0
    with torch.no_grad():
        answer = model(bag, views=is_tile)["logits"]
        assert torch.allclose(answer, model(changed_bag, views=is_tile)["logits"], atol=1e-5)
        assert torch.allclose(answer, model(bag.flip(1), views=is_tile.flip(1))["logits"], atol=1e-5)
        weights = model.weigh_tiles(bag, is_tile)
    assert torch.allclose(weights.sum(dim=1), torch.ones(2))
    assert not weights[:, 4:].any()


class OwnRecipe(DiagnosisRecipe):
    """An input channel, a network and a change of the prediction, as a project may have them."""

    added_channels = 1

    def derive_channels(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.cat([pixels, pixels.mean(dim=1, keepdim=True)], dim=1)

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> torch.nn.Module:
        pool = torch.nn.AdaptiveAvgPool2d(1)
        return torch.nn.Sequential(
            pool, torch.nn.Flatten(), torch.nn.Linear(plan["channels"], count_network_outputs(plan))
        )

    def postprocess(self, plan: Mapping[str, Any], prediction: Any) -> Any:
        return prediction - prediction.mean(dim=1, keepdim=True)


def test_the_methods_of_a_recipe_apply_to_slides() -> None:
    use_recipe(OwnRecipe())
    model = load("diagnosis.network").build_model(PLAN, with_loss=False).eval()
    logits = model(torch.randn(2, 5, 3, 64, 64), views=torch.ones(2, 5))["logits"]
    assert logits.shape == (2, 2)
    assert torch.allclose(logits.sum(dim=1), torch.zeros(2), atol=1e-5)
    weights = [module for module in model.backbone.modules() if isinstance(module, torch.nn.Linear)]
    assert weights[0].in_features == 4


def test_a_network_of_the_recipe_without_attention_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = load("diagnosis.network")
    model = network.build_model(PLAN)
    model.backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(2))
    with pytest.raises(SystemExit, match=str(network.count_network_outputs(PLAN))):
        model(torch.randn(1, 2, 3, 64, 64), views=torch.ones(1, 2))


def test_a_frozen_network_computes_the_features_of_a_tile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = {"block": "basic", "depths": [1, 1, 1, 1], "width": 8}
    frozen = {
        "name": "pretrained",
        "config": {"builder": "resnet", "arch": arch},
        "pretrained": "slides",
        "backbone_lr": 0,
    }
    monkeypatch.setattr(load("pretrained.backbones"), "load_tensors", lambda *_: None)  # the weights stay random
    monkeypatch.setattr(load("pretrained.backbones"), "find_weight_files", lambda _: ())
    plan = {**PLAN, "network": {**frozen, "feature_views": 1}, "class_weights": [1.0, 1.0], "label_smoothing": 0.0}
    model = load("diagnosis.network").build_model(plan)
    bag = torch.randn(2, 3, 3, 64, 64)
    for _ in range(2):
        model(bag, torch.eye(2), views=torch.ones(2, 3))["loss"].backward()
    assert len(load("pretrained.feature_memo").get_memo("slides").maps) == 6
    assert model.attention.score.weight.grad.any()


# --- training and prediction -----------------------------------------------------------------------------------------


def test_from_slides_to_the_same_answer_in_any_storage(project: Path, run: Run) -> None:
    folder = project / "data"
    folder.mkdir()
    records = []
    for number in range(24):
        file = f"data/s{number:02d}.tif"
        pixels = draw_slide(SIDE, number, ill=number % 2 == 1)
        write_slide(project / file, pixels, ("subifds", "pages", "one level")[number % 3], um=0.5)
        records.append({"image_path": file, "labels": [("clear", "ill")[number % 2]], "patient": f"p{number}"})
    (project / "Datapath").mkdir(exist_ok=True)
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text(json.dumps({"clear": 0, "ill": 1}))
    settings = ("device=cpu", "network.width=8", "max_steps=40", "folds=1", "validation_share=0.3", "threads=1", "tta.use=false",
                "tiles.count=24", "tiles.factor=2", "tiles.um=1.0", "size=[64,64]")  # fmt: skip
    assert "gated attention" in run("plan.py", "--minutes", "1", "--set", *settings).stdout
    assert "done: validation" in run("train.py").stdout
    run("export.py")
    assert "tiles" in (project / "Deliver/README.md").read_text()

    pixels = draw_slide(SIDE, 101, ill=True)
    for storage in ("subifds", "pages", "svs", "one level", "strips"):
        write_slide(project / f"{storage}.tif", pixels, storage, um=0.5)
    write_slide(project / "lzw.tif", pixels, "one level", um=0.5, compression="lzw")
    write_slide(project / "blank.tif", draw_slide(SIDE, 7)[:8, :8].repeat(256, 0).repeat(256, 1), "one level", um=0.5)
    names = ["subifds.tif", "pages.tif", "svs.tif", "one level.tif", "strips.tif", "lzw.tif", "blank.tif"]
    run("Deliver/predict.py", *names, "--saliency", "maps", "-o", "out.json")
    *tissue_answers, blank = json.loads((project / "out.json").read_text())
    for answer in tissue_answers:
        assert answer["probabilities"] == pytest.approx(tissue_answers[0]["probabilities"], abs=0.02), answer["image"]
        assert answer["out_of_distribution"] is False, answer
    assert blank["out_of_distribution"] is True
    code = (
        "import sys, json; sys.path.insert(0, 'Deliver'); import parts\n"
        "part, [pair] = parts.parts()['model'], parts.examples(['subifds.tif'])['model']\n"
        "print(json.dumps(parts.answer(part['module'](*pair)[0])))"
    )
    graph = json.loads(run("-c", code).stdout.splitlines()[-1])
    assert graph["probabilities"] == pytest.approx(tissue_answers[0]["probabilities"], abs=1e-3)
    saliency = tissue_answers[0]["saliency"]
    assert saliency["method"] == "attention"
    levels = np.asarray(read_labels(saliency["map"], project).array)
    assert levels.shape == read_image("subifds.tif#overview=1024", project).array.shape[1:]
    assert levels.max() == 255
    tissue = tiles.find_tissue(list_halved(pixels, 2)[1].transpose(2, 0, 1))
    assert tissue[levels >= saliency["outline"]].mean() > 0.1
