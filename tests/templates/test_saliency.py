"""Saliency of classifiers: it peaks on what the answer depends on, for feature maps and occlusion, and depends on the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from m3b.dataset.formats import Image
from m3b.training.diagnosis import saliency
from m3b.training.diagnosis.network import build_model
from m3b.training.diagnosis.recipe import DiagnosisRecipe
from m3b.training.preprocess import map_to_image, preprocess
from m3b.training.pretrained.backbones import FrozenBackbone, Pooled
from m3b.training.recipe import use_recipe

SIDES = {2: 24, 3: 16}
SPOT = 4
"""Side of a spot in pixels."""


def make_plan(dims: int) -> dict[str, Any]:
    network = {"name": "small_cnn", "width": 8, "dropout": 0.0}
    return {"task": "diagnosis", "classes": ["bright", "dark"], "multi_label": True, "dims": dims, "channels": 1,
            "size": [SIDES[dims]] * dims, "network": network, "loss": {"name": "bce"}}  # fmt: skip


def draw_spots(count: int, dims: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Return noise with a bright and a dark spot, or one of them; the labels; and the corners of both spots."""
    random, side = np.random.default_rng(seed), SIDES[dims]
    images = random.normal(0, 0.5, (count, 1, *[side] * dims)).astype(np.float32)
    labels = random.random((count, 2)) < 0.5
    corners = random.integers(1, side - SPOT, (count, 2, dims))
    for image, present, places in zip(images, labels, corners, strict=True):
        for sign, is_present, corner in zip((3, -3), present, places, strict=True):
            if is_present:
                image[0][tuple(slice(place, place + SPOT) for place in corner)] += sign
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.float32)), corners


def train_network(dims: int) -> nn.Module:
    torch.manual_seed(0)
    model = build_model(make_plan(dims))
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for step in range(50):
        images, labels, _ = draw_spots(16, dims, step)
        optimizer.zero_grad()
        model(images, labels)["loss"].backward()
        optimizer.step()
    return model.eval()


def explain(
    model: nn.Module, plan: Mapping[str, Any], image: torch.Tensor, target: int | None, multi_label: bool = True
) -> saliency.SaliencyMap:
    config = {"plan": plan, "multi_label": multi_label}
    return saliency.compute_saliency([model], lambda batch, _: model(batch)["logits"], image[None], config, target)


def count_hits(model: nn.Module, dims: int, count: int = 10) -> float:
    """Return in which share of images with both spots each label's map peaks on its own spot."""
    images, labels, corners = draw_spots(8 * count, dims, 1000)
    both = [n for n in range(len(images)) if labels[n].all()][:count]
    hits = []
    for n in both:
        for target in (0, 1):
            values = explain(model, make_plan(dims), images[n], target).values
            peak = np.array(np.unravel_index(values.argmax(), values.shape))
            hits.append(bool((np.abs(peak - corners[n, target] - SPOT / 2) <= SPOT).all()))
    return float(np.mean(hits))


@pytest.mark.parametrize("dims", [2, 3])
def test_the_map_of_a_label_peaks_on_its_own_finding_and_not_with_random_weights(
    dims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saliency, "OCCLUSION_S", 0.1)
    assert count_hits(train_network(dims), dims) >= 0.9
    random_hits = []
    for seed in range(5):
        torch.manual_seed(seed)
        random_hits.append(count_hits(build_model(make_plan(dims)).eval(), dims, 4))
    assert np.mean(random_hits) <= 0.65, "about every second: a random network cannot tell the two findings apart"


def test_networks_of_an_average_are_explained_together() -> None:
    torch.manual_seed(0)
    plan = make_plan(2)
    first, second = build_model(plan).eval(), build_model(plan).eval()
    images, _, _ = draw_spots(1, 2, 0)

    def compute_logits(batch: torch.Tensor, models: Sequence[nn.Module]) -> torch.Tensor:
        return torch.stack([model(batch)["logits"] for model in models]).mean(0)

    def compute(*models: nn.Module) -> np.ndarray:
        score = saliency._compute_hirescam(models, compute_logits, lambda logits: logits[:, 0], images, 2, False)
        assert score is not None
        return score

    assert compute(first, first) == pytest.approx(compute(first), rel=1e-4, abs=1e-6)
    assert compute(first, second) == pytest.approx(compute(second, first), rel=1e-4, abs=1e-6)
    assert not np.allclose(compute(first, second), compute(first), rtol=0.1)


class TemplateNetwork(nn.Module):
    """A linear layer on all pixels: no feature map, and weights in one corner alone."""

    def __init__(self, size: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(int(np.prod(size)), 2)
        weights = np.zeros((2, *size), np.float32)
        weights[(1, *[slice(0, side // 4) for side in size])] = 1
        self.layer.load_state_dict({"weight": torch.from_numpy(weights.reshape(2, -1)), "bias": torch.zeros(2)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.layer(x.flatten(1)))


class FrozenNetwork(TemplateNetwork):
    """A network without gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return super().forward(x)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("network_class", [TemplateNetwork, FrozenNetwork])
def test_a_network_of_a_recipe_without_feature_maps_is_explained_by_occlusion(
    network_class: type[TemplateNetwork], dims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recipe(DiagnosisRecipe):
        def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
            return network_class(list(plan["size"]))

    monkeypatch.setattr(saliency, "OCCLUSION_S", 0.3)
    use_recipe(Recipe())
    plan = make_plan(dims)
    image = torch.zeros(1, *plan["size"])
    image[(0, *[slice(0, side // 4) for side in plan["size"]])] = 2.0
    for is_multi_label in (False, True):
        saliency_map = explain(build_model(plan).eval(), plan, image, 1, is_multi_label)
        assert saliency_map.method == "occlusion"
        peak = np.unravel_index(saliency_map.values.argmax(), saliency_map.values.shape)
        assert max(peak) < plan["size"][0] // 4
        assert 0 < saliency_map.marked.mean() < 0.11
    absent_map = explain(build_model(plan).eval(), plan, image, 0, False)
    assert not absent_map.marked.any(), "no part speaks for the class whose evidence is missing"


class ConvBody(nn.Module):
    """A backbone: a list of maps of the image at a quarter of its resolution."""

    widths, steps, multiple, taken = [4], [[4, 4]], 4, None

    def __init__(self) -> None:
        super().__init__()
        first = nn.Conv2d(1, 4, 4, 4, bias=False)
        nn.init.constant_(first.weight, 1.0)
        self.layers = nn.Sequential(first, *(nn.ReLU() for _ in range(8)))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [self.layers(x) + 0.0]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_maps_of_a_backbone_are_used_also_if_it_is_frozen(is_frozen: bool) -> None:
    class Recipe(DiagnosisRecipe):
        def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
            torch.manual_seed(0)
            return Pooled(FrozenBackbone(ConvBody()) if is_frozen else ConvBody(), 2, 0.0)

    use_recipe(Recipe())
    plan = make_plan(2)
    model = build_model(plan).eval()
    model.backbone.head[1] = nn.Identity()
    nn.init.constant_(model.backbone.head[2].weight, 1.0)
    image = torch.zeros(1, 24, 24)
    image[0, 4:8, 16:20] = 1
    saliency_map = explain(model, plan, image, 0)
    assert saliency_map.method == "hirescam"
    assert saliency_map.values[4:8, 16:20].min() > saliency_map.values.max() / 3
    assert saliency_map.values[12:, :].max() == 0


@pytest.mark.parametrize("fit", [{}, {"fit": "pad"}, {"spacing": [1.0, 1.0]}, {"fit": "field", "field": [30.0, 60.0]}])
def test_a_map_lies_on_the_grid_of_its_image(fit: dict[str, Any]) -> None:
    array = np.zeros((1, 60, 40), np.float32)
    array[0, 20:28, 10:16] = 100
    array += np.random.default_rng(0).random(array.shape, np.float32)
    image = Image(array, (0.5, 1.5), 2)
    plan = {"dims": 2, "channels": 1, "size": [32, 32], "intensity": {"mode": "percentile"}, **fit}
    values = preprocess(image, plan)[0]
    back = map_to_image((values > values.max() / 2).astype(np.float32), image, plan)
    assert back.shape == (60, 40)
    rows, columns = np.nonzero(back > 0.5)
    assert rows.mean() == pytest.approx(23.5, abs=1.5)
    assert columns.mean() == pytest.approx(12.5, abs=1.5)


def test_a_map_of_a_picture_in_a_3d_network_and_of_a_thin_volume_in_a_2d_one_has_the_shape_of_the_image() -> None:
    for dims, shape in ((3, (20, 30)), (2, (20, 30, 5))):
        size = [16, 16, 8][:dims]
        image = Image(np.zeros((1, *shape), np.float32), None, len(shape))
        plan = {"dims": dims, "channels": 1, "size": size, "intensity": {"mode": "percentile"}}
        assert map_to_image(np.ones(size, np.float32), image, plan).shape == shape


def test_the_explained_class_is_the_decided_one() -> None:
    config = {"classes": ["a", "b", "c"]}
    probabilities = {"a": 0.5, "b": 0.4, "c": 0.1}
    assert saliency.choose_target(config, {"probabilities": probabilities, "prediction": "b"}) == 1
    assert saliency.choose_target(config, {"probabilities": probabilities, "prediction": ["c", "b"]}) == 1
    assert saliency.choose_target(config, {"probabilities": probabilities, "prediction": []}) == 0
    assert saliency.choose_target(config, {"value": 3.0}) is None


@pytest.mark.parametrize("dims", [2, 3])
def test_a_hidden_part_looks_like_its_surroundings(dims: int) -> None:
    """A bright spot on a ramp is gone, and nothing else has changed; of a study, the first view alone."""
    side = 24
    ramp = np.broadcast_to(np.linspace(0, 1, side, dtype=np.float32).reshape(-1, *[1] * (dims - 1)), [side] * dims)
    part = np.zeros([side] * dims, bool)
    part[tuple(slice(9, 14) for _ in range(dims))] = True
    image = torch.from_numpy(np.where(part, 5, ramp).astype(np.float32))[None, None]
    hidden = saliency.hide_part(image, part, dims).numpy()[0, 0]
    assert np.abs(hidden - ramp)[part].max() < 0.2
    assert np.array_equal(hidden[~part], ramp[~part])
    study = saliency.hide_part(torch.stack([image, image], dim=1), part, dims).numpy()
    assert np.array_equal(study[0, 0, 0], hidden)
    assert np.array_equal(study[0, 1], image.numpy()[0])
    everything = saliency.hide_part(image, np.ones_like(part), dims)
    assert torch.isfinite(everything).all()
