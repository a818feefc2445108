"""Plans with several recipes: their networks divide the time of a training, and are delivered as one model, their mean logits."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from template_kit import Run, call

import m3b
from m3b.training.diagnosis.network import (
    RecipeAverage,
    build_delivered_model,
    build_model,
    build_network,
    list_single_networks,
)
from m3b.training.diagnosis.recipe_ensemble import average_recipes
from m3b.training.diagnosis.recipe_plans import check_recipes, combine_plans
from m3b.training.folds import (
    TimeShares,
    count_networks,
    count_rounds,
    list_network_names,
    list_recipe_plans,
    list_start_names,
    list_trainings,
)
from m3b.training.pretrained.delivered import load_delivered

PLAN: dict[str, Any] = {
    "task": "diagnosis", "classes": ["a", "b"], "multi_label": False, "dims": 2, "channels": 1, "size": [16, 16], "lr": 0.001,
    "network": {"name": "small_cnn", "width": 4, "dropout": 0.0}, "class_weights": [1.0, 1.0], "label_smoothing": 0.0, "folds": 2,
    "augment": {"rotate": 0}, "max_steps": 8,
}  # fmt: skip
WIDE = {**PLAN, "network": {**PLAN["network"], "width": 8}}


def test_recipes_divide_the_time_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = combine_plans([PLAN, WIDE, {**PLAN, "lr": 0.01}])
    names = ["fold0", "fold1", "fold0-recipe2", "fold1-recipe2", "fold0-recipe3", "fold1-recipe3"]
    assert list_trainings(plan) == list_start_names(plan) == names
    assert list_network_names(plan) == ["fold0", "fold1"]
    assert count_networks(plan) == count_rounds(plan) == 6
    shares = TimeShares(plan, 60.0)
    assert [shares.seconds_for(name) for name in names[:1]] == pytest.approx([10.0], abs=0.5)
    assert [recipe["max_steps"] for recipe in list_recipe_plans(plan)] == [3, 3, 3]
    assert list_trainings(PLAN) == ["fold0", "fold1"]


def test_the_delivered_network_is_the_mean_of_the_recipes() -> None:
    torch.manual_seed(0)
    plan = combine_plans([PLAN, WIDE])
    model, images = build_delivered_model(plan).eval(), torch.randn(3, 1, 16, 16)
    assert isinstance(model, RecipeAverage)
    first, second = list_single_networks([model])
    assert [sum(p.numel() for p in network.parameters()) for network in (first, second)] == [
        sum(p.numel() for p in build_model(recipe).parameters()) for recipe in (PLAN, WIDE)
    ]
    expected = (first(images)["logits"] + second(images)["logits"]) / 2
    assert torch.allclose(model(images)["logits"], expected)
    assert not isinstance(build_delivered_model(PLAN), RecipeAverage)
    assert list_single_networks([first]) == [first]


def test_another_training_starts_from_the_first_recipe(tmp_path: Path) -> None:
    plan = combine_plans([PLAN, WIDE])
    model = build_delivered_model(plan)
    save_file(model.state_dict(), str(tmp_path / "model.safetensors"))
    config = {"task": "diagnosis", "weights": ["model.safetensors"], "plan": plan}
    (tmp_path / "config.json").write_text(json.dumps(config))
    network = build_network(PLAN, load=False)
    assert load_delivered(network, tmp_path).unchanged == len(network.state_dict())
    first = list_single_networks([model])[0].state_dict()
    assert all(torch.equal(value, first[f"backbone.{key}"]) for key, value in network.state_dict().items())


def test_figures_are_of_the_mean_of_each_fold() -> None:
    plan, labels = combine_plans([PLAN, WIDE]), np.eye(2, dtype=np.float32)[[0, 1, 0, 1]]
    right, wrong = 4 * labels[None], -2 * labels[None]

    def result(logits: np.ndarray) -> dict[str, Any]:
        return {"logits": logits, "seen": np.full_like(logits, np.nan), "labels": labels, "case": 0.1}

    results, choice = average_recipes(plan, [{**result(right), "recipes": [result(wrong)]}] * 2)
    assert np.allclose(results[1]["logits"], labels[None])
    assert np.isnan(results[0]["seen"]).all()
    assert results[0]["case"] == pytest.approx(0.2)
    assert (choice["alone"], choice["average"]) == ([1.0, 0.0], 1.0)
    assert average_recipes(PLAN, [result(right)])[1] == {}


@pytest.mark.parametrize(
    "change",
    [
        {"refit": True},
        {"self_training": True},
        {"network": {**PLAN["network"], "encoder": "both"}},
        {"network": {**PLAN["network"], "pretrained": "folder"}},
        {"processes": 2},
    ],
)
def test_what_cannot_be_averaged_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be averaged"):
        combine_plans([PLAN, {**PLAN, **change}])
    with pytest.raises(SystemExit, match=r"recipes in plan\.json"):
        check_recipes({**PLAN, **change, "recipes": {"settings": [{}, {"lr": 0.1}]}})
    check_recipes({**PLAN, **change})


def test_plans_with_other_inputs_or_folds_are_not_combined() -> None:
    for change in ({"size": [32, 32]}, {"folds": 3}, {"seed": 1}, {"augment": {"flip": ["w"]}}):
        with pytest.raises(ValueError, match="differ in their input"):
            combine_plans([PLAN, {**PLAN, **change}])
    with pytest.raises(ValueError, match="two plans"):
        combine_plans([PLAN])


@pytest.mark.slow
@pytest.mark.parametrize("folds", [1, 2])
def test_a_whole_training_of_two_recipes(folds: int, project: Path, run: Run, tmp_path: Path) -> None:
    code = "import sys; sys.path.insert(0, 'example'); from pathlib import Path; import make_example as m; "
    run("-c", code + "m.make_example(Path(), 60)")
    settings = [
        "device=cpu",
        "precision=fp32",
        "max_steps=8",
        "batch=8",
        "size=[32,32]",
        f"folds={folds}",
        "tta.use=true",
    ]
    run("plan.py", "--set", *settings, "network.width=8", "linear_probe.weights=none")
    plan = json.loads((project / "plan.json").read_text())
    wide = {**plan, "network": {**plan["network"], "width": 12}, "lr": 0.003}
    (project / "plan.json").write_text(json.dumps(combine_plans([plan, wide])))
    run("train.py")
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    names = [f"fold{fold}{end}" for end in ("", "-recipe2") for fold in range(folds)]
    assert all(json.loads((project / f"Logout/{name}/done.json").read_text())["steps"] == 4 for name in names)
    assert len(metrics["recipes"]["alone"]) == 2
    before = {name: (project / f"Logout/{name}/best.safetensors").read_bytes() for name in names}
    run("train.py", "--resume")
    assert before == {name: (project / f"Logout/{name}/best.safetensors").read_bytes() for name in names}
    run("export.py", "--out", "../out")
    out = tmp_path / "out"
    config = json.loads((out / "config.json").read_text())
    assert len(config["weights"]) == folds
    assert config["plan"]["recipes"]["settings"][1] == {"lr": 0.003, "network": wide["network"]}
    assert config["plan"]["recipes"]["description"] in (out / "README.md").read_text()
    weights = load_file(str(out / config["weights"][0]))
    second_recipe = load_file(str(project / "Logout/fold0-recipe2/best.safetensors"))
    assert all(torch.equal(weights[f"recipes.1.{key}"], value) for key, value in second_recipe.items())
    records = json.loads((project / "Datapath/train.json").read_text())
    images = [project / record["image_path"] for record in records[:3]]
    answers = m3b.load_model(out).predict(images, out=tmp_path / "predicted")
    assert all(sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-3) for answer in answers)
    call(
        out,
        "predict.py",
        *map(str, images[:1]),
        "-o",
        str(tmp_path / "answer.json"),
        "--saliency",
        str(tmp_path / "maps"),
    )
    (answer,) = json.loads((tmp_path / "answer.json").read_text())
    assert "error" not in answer["saliency"]
    assert answer["probabilities"] == pytest.approx(answers[0].probabilities, abs=1e-4)
    if find_spec("onnxruntime"):
        assert m3b.export_model(out, "onnx", tmp_path / "onnx").largest_difference <= 1e-4
