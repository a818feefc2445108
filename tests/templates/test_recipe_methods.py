"""One method of recipe.py changes what is trained, scored and delivered, and an engine that does not call it refuses the change.

A marker in each method says that it was called, and with what; the whole run is that of an agent: plan, train, export, predict.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from detectors_kit import ask
from fewshot_kit import conv_backbone, pictures
from starts_kit import vit, write_weights
from template_kit import call, load
from test_one_file_edits import SMALL, put_together, run

from m3b.resources import copy_template
from m3b.training.recipe import RECIPE_METHODS, use_recipe
from m3b.training.recipe_check import list_changed_methods
from m3b.training.sampling import CaseSampler

MARKERS = """

from pathlib import Path


class Recipe(Recipe):
    def build_transforms(self, plan, training):
        def fill(batch):
            Path(f"filled-{training}").touch()
            return {**batch, "pixel_values": torch.full_like(batch["pixel_values"], 7.0)}

        return [*super().build_transforms(plan, training), fill]

    def build_network(self, plan, load=True):
        network = super().build_network(plan, load)
        network.register_forward_pre_hook(note_input)
        return network

    def build_sampler(self, plan, dataset):
        return FirstCase(dataset)

    def postprocess(self, plan, prediction):
        Path("postprocessed").touch()
        return dict.fromkeys(prediction, "marked") if isinstance(prediction, dict) else 0 * prediction + 1


def note_input(network, inputs):
    if float(inputs[0].min()) != 7.0 and torch.count_nonzero(inputs[0]):  # of zeros only shapes are asked
        Path("unfilled").touch()


class FirstCase(Sampler):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return 8

    def __iter__(self):
        Path("drawn").touch()
        return iter([0] * 8)
"""


def is_marked(answer: dict[str, Any], folder: Path) -> bool:
    """Return whether an answer is that of the marker's `postprocess`: equal outputs, a class everywhere, or its word."""
    from m3b.dataset.formats import read_image

    if "probabilities" in answer:
        return set(answer["probabilities"].values()) == {0.5}
    if "impression" in answer:
        return {answer["findings"], answer["impression"]} == {"marked"}
    file = answer.get("mask") or next(iter(answer["masks"].values()))
    return bool((read_image(str(folder / file)).array > 0).all())


@pytest.mark.parametrize(
    "template",
    [
        "segmentation",
        pytest.param("diagnosis", marks=pytest.mark.slow),
        pytest.param("detection", marks=pytest.mark.slow),
        pytest.param("report", marks=pytest.mark.slow),
    ],
)
def test_changed_methods_hold_from_plan_to_delivered_model(tmp_path: Path, template: str) -> None:
    project = put_together(template, tmp_path / "project")
    file = project / "recipe.py"
    file.write_text(file.read_text() + MARKERS)
    run(project, "plan.py", "--minutes", "1", "--set", "device=cpu", "precision=fp32", *SMALL[template])
    assert (project / "filled-True").exists(), "the step that is timed has the augmentation"
    (project / "filled-True").unlink()
    (project / "unfilled").unlink(missing_ok=True)
    run(project, "train.py")
    assert (project / "filled-True").exists()
    assert (project / "filled-False").exists()
    assert (project / "drawn").exists()
    assert not (project / "unfilled").exists(), "no input of the network was without the transform"
    assert (project / "postprocessed").exists()
    run(project, "export.py", "--out", "Deliver")
    image = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    shutil.copytree(project / "Deliver", tmp_path / "alone")
    run(tmp_path, "alone/predict.py", str(project / (image if isinstance(image, str) else image[0])), "-o", "out.json")
    assert (tmp_path / "filled-False").exists()
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    assert (tmp_path / "postprocessed").exists()
    assert is_marked(answer, tmp_path)


def test_an_epoch_shows_every_case_equally_often_and_has_its_order_again_after_a_restart() -> None:
    sampler = CaseSampler(5, 12, seed=3)
    first = list(sampler)
    assert len(first) == len(sampler) == 12
    assert set(Counter(first).values()) == {2, 3}
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    resumed = CaseSampler(5, 12, seed=3)
    resumed.set_epoch(1)
    assert list(resumed) == second


class _Volumes:
    """An image whose first half is class 0 and whose second half is class 1."""

    def image(self, row: int) -> np.ndarray:
        return np.zeros((1, 8, 40), np.float32)

    def mask(self, row: int) -> np.ndarray:
        return np.repeat([1, 2], 20)[None].repeat(8, 0).astype(np.uint8)

    def points(self, row: int) -> np.ndarray:
        return np.array([[0, 4, 5], [1, 4, 34]])

    def classes(self, row: int) -> dict[int, tuple[int, int]]:
        return {0: (0, 1), 1: (1, 2)}


@pytest.mark.parametrize("class_index", [0, 1])
def test_a_sampler_of_segmentation_chooses_the_class_that_patches_show(class_index: int) -> None:
    plan = {"patch": [8, 8], "foreground": 0.0, "pad_value": 0.0}
    patches = load("segmentation.dataset").Patches(_Volumes(), np.array([0]), [{}], plan)
    torch.manual_seed(0)
    patch_labels = {int(patches[0, class_index]["labels"].unique().item()) for _ in range(20)}
    assert patch_labels == {class_index + 1}


class Cleared:
    """A recipe's `postprocess` that leaves nothing of a prediction."""

    def postprocess(self, plan: Any, prediction: Any) -> Any:
        return tuple(values[:0] for values in prediction) if isinstance(prediction, tuple) else 0 * prediction


def test_outputs_of_a_classifier_are_postprocessed_outside_training() -> None:
    from m3b.training.diagnosis.recipe import DiagnosisRecipe

    class Recipe(Cleared, DiagnosisRecipe):
        pass

    use_recipe(Recipe())
    plan = {"classes": ["a", "b"], "multi_label": False, "dims": 2, "channels": 1, "size": [16, 16]}
    plan |= {"task": "diagnosis", "network": {"name": "small_cnn", "width": 4, "dropout": 0.0}}
    model, images = load("diagnosis.network").build_model(plan, with_loss=False), torch.randn(2, 1, 16, 16)
    assert torch.count_nonzero(model.train()(images)["logits"])
    assert not torch.count_nonzero(model.eval()(images)["logits"])


class Lesions(torch.nn.Module):
    """Calls every pixel a lesion, in masks or in a heat map of boxes."""

    cell = (4, 4)

    def __init__(self, has_boxes: bool) -> None:
        super().__init__()
        self.has_boxes = has_boxes

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        heat = torch.ones_like(pixel_values)[:, :, ::4, ::4] if self.has_boxes else torch.ones_like(pixel_values)
        return {
            "logits": torch.cat([heat, torch.zeros_like(heat).repeat(1, 4, 1, 1)], dim=1) if self.has_boxes else heat
        }


def test_boxes_and_probabilities_are_postprocessed_where_they_are_scored_and_delivered() -> None:
    from m3b.training.detection.inference import find_boxes, mask_probabilities
    from m3b.training.detection.recipe import DetectionRecipe

    class Recipe(Cleared, DetectionRecipe):
        pass

    image, plan = np.arange(1024.0).reshape(1, 32, 32), {"patch": [32, 32], "classes": ["a"], "dims": 2}
    for recipe, is_empty in ((DetectionRecipe(), False), (Recipe(), True)):
        use_recipe(recipe)
        boxes, scores, labels = find_boxes(Lesions(True), image, plan, torch.device("cpu"))
        assert len(boxes) == len(scores) == len(labels)
        assert (len(boxes) == 0) == is_empty
        assert (not mask_probabilities(Lesions(False), image, plan, torch.device("cpu")).any()) == is_empty


def test_each_set_of_operations_is_scored_as_the_recipe_applies_it() -> None:
    from m3b.training.segmentation.recipe import SegmentationRecipe

    class Recipe(Cleared, SegmentationRecipe):
        pass

    truth = np.ones((4, 4), np.uint8)
    score = load("segmentation.postprocessing_selection")._score_operations
    plan = {"classes": ["a"], "overlap": False}
    use_recipe(SegmentationRecipe())
    assert (score(truth, truth, plan) == 1.0).all()
    use_recipe(Recipe())
    assert (score(truth, truth, plan) == 0.0).all()


CHANGES = {
    "build_loss": "def build_loss(self, plan, cell=None):\n        return nn.Identity()",
    "build_network": "def build_network(self, plan, load=True):\n        return nn.Identity()",
    "build_sampler": "def build_sampler(self, plan, dataset):\n        return None",
    "build_transforms": "def build_transforms(self, plan, training):\n        return []",
    "build_datasets": "def build_datasets(self, plan, fold=0):\n        return None",
    "build_schedule": "def build_schedule(self, plan):\n        return None",
    "derive_channels": "added_channels = 1\n\n    def derive_channels(self, pixels):\n        return pixels",
    "postprocess": "def postprocess(self, plan, prediction):\n        return 0 * prediction",
}


@pytest.mark.parametrize(
    ("template", "settings", "refused"),
    [
        ("segmentation", {"engine": "nnunet"}, set(CHANGES) - {"build_schedule", "postprocess"}),
        ("segmentation", {"engine": "trainer"}, set()),
        ("detection", {"engine": "fewshot", "target": "masks"}, set(CHANGES) - {"postprocess"}),
        ("detection", {"engine": "fewshot", "target": "states"}, set(CHANGES)),
        ("detection", {"engine": "image", "target": "states"}, set(CHANGES)),
        ("detection", {"target": "boxes", "network": {"detector": "fcos"}}, {"build_loss", "build_network"}),
        ("detection", {"engine": "patches", "target": "boxes", "network": {}}, set()),
        ("report", {}, set()),
        ("diagnosis", {}, set()),
    ],
)
def test_an_engine_refuses_what_it_does_not_call(
    tmp_path: Path, template: str, settings: dict[str, Any], refused: set[str]
) -> None:
    project = put_together(template, tmp_path / "project")
    file = project / "recipe.py"
    text = file.read_text()
    script = f"from m3b.training.plan_settings import save_plan\nsave_plan({settings!r})\nprint('saved')\n"
    (project / "check.py").write_text(script)
    assert call(project, "check.py").stdout.split() == ["saved"], "the template itself changes nothing"
    stopped = set()
    for name, code in CHANGES.items():
        file.write_text(f"{text}\n\nclass Recipe(Recipe):\n    {code}\n")
        ended = call(project, "check.py", check=False)
        if ended.returncode:
            assert f"recipe.py changes {name}," in ended.stderr
            stopped.add(name)
    assert stopped == refused


def test_only_changed_methods_are_listed(tmp_path: Path) -> None:
    project = put_together("diagnosis", tmp_path / "project")
    file = project / "recipe.py"
    text = file.read_text()
    for name in RECIPE_METHODS:
        assert f"def {name}(" in text, "each method is in the project's file"
    changed = text.replace("return super().build_schedule(plan)", "return lambda progress: 1.0 - progress")
    file.write_text(changed)
    from m3b.training.recipe import _load_recipe

    assert list_changed_methods(_load_recipe(file)) == ["build_schedule"]


def predict_alone(project: Path, place: Path, image: str) -> dict[str, Any]:
    """Export the model of a project and return its answer about an image, from the delivered files alone."""
    run(project, "export.py", "--out", "Deliver")
    shutil.copytree(project / "Deliver", place / "alone")
    run(place, "alone/predict.py", str(project / image), "-o", "out.json")
    answer: dict[str, Any] = json.loads((place / "out.json").read_text())[0]
    return answer


FIXED_PARTS = """

class Recipe(Recipe):
    def build_schedule(self, plan):
        return lambda progress: 0.25

    def postprocess(self, plan, prediction):
        return 0 * prediction + 1
"""


@pytest.mark.slow
def test_nnunet_calls_schedule_and_postprocessing(tmp_path: Path) -> None:
    pytest.importorskip("nnunetv2")
    project = tmp_path / "project"
    copy_template("segmentation", project)
    run(project, "example/make_example.py", "--cases", "24", "--size", "16", "--dims", "2")
    (project / "recipe.py").write_text((project / "recipe.py").read_text() + FIXED_PARTS)
    run(project, "plan.py", "--minutes", "5", "--set", "engine=nnunet", "device=cpu", "workers=1")
    plan = json.loads((project / "plan.json").read_text())
    (project / "plan.json").write_text(json.dumps({**plan, "max_steps": 2, "threads": 1}))
    run(project, "train.py")
    with (project / "Logout/log.csv").open(newline="") as stream:
        assert {float(row["lr"]) for row in csv.DictReader(stream)} == {0.25 * 0.01}
    image = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    assert is_marked(predict_alone(project, tmp_path, image), tmp_path)


@pytest.mark.slow
def test_the_engine_that_a_few_shot_plan_names_calls_every_method(tmp_path: Path) -> None:
    project = tmp_path / "project"
    copy_template("detection", project)
    pictures(project, 8, 8, masks=True)
    recipe = project / "recipe.py"
    recipe.write_text(f"{recipe.read_text()}\n\nclass Recipe(Recipe):\n    {CHANGES['build_transforms']}\n")
    backbone = f"backbone={conv_backbone(tmp_path / 'backbone')}"
    refused = call(project, "plan.py", "--minutes", "1", "--set", backbone, check=False)
    assert refused.returncode == 1
    assert "--set engine=patches" in refused.stderr
    run(project, "plan.py", "--minutes", "1", "--set", "engine=patches", backbone, "device=cpu", "max_steps=2")
    plan = json.loads((project / "plan.json").read_text())
    assert plan.get("engine", "patches") == "patches"
    assert plan["folds"]


NO_LESIONS = """

class Recipe(Recipe):
    def postprocess(self, plan, prediction):
        return 0 * prediction
"""


@pytest.mark.slow
def test_masks_of_a_few_shot_detector_are_postprocessed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    copy_template("detection", project)
    pictures(project, 14, 14, masks=True)
    recipe, template = project / "recipe.py", (project / "recipe.py").read_text()
    recipe.write_text(template + NO_LESIONS)
    settings = [f"backbone={conv_backbone(tmp_path / 'backbone')}", "fewshot.epochs=2", "network.width=4"]
    run(project, "plan.py", "--minutes", "0.3", "--set", *settings)
    assert "few-shot against ordinary: dice 0.000 against 0.000, " in run(project, "train.py")
    recipe.write_text(template + NO_LESIONS.replace("0 * prediction", "0 * prediction + 1"))
    answer = predict_alone(project, tmp_path, "data/x/20.png")
    assert json.loads((project / "Deliver/config.json").read_text())["plan"]["engine"] == "fewshot"
    assert is_marked(answer, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "settings"), [("diagnosis", ["size=[32,32]", "tta.use=false"]), ("segmentation", ["patch=[32,32]"])]
)
def test_frozen_backbones_call_every_method(tmp_path: Path, template: str, settings: list[str]) -> None:
    project = tmp_path / "project"
    copy_template(template, project)
    dims = ["--dims", "2"] if template == "segmentation" else []
    run(project, "example/make_example.py", "--cases", "24", *dims)
    recipe = project / "recipe.py"
    recipe.write_text(recipe.read_text() + MARKERS)
    tensors, arch = vit()
    folder = write_weights(tmp_path / "weights", tensors, "timm/vit_small_patch16_224.augreg_in21k", arch)
    settings += [f"network.pretrained={folder}", "network.backbone_lr=0", "network.feature_views=2", "network.trial=0"]
    settings += ["device=cpu", "precision=fp32", "batch=4", "max_steps=6", "folds=1"]
    run(project, "plan.py", "--minutes", "1", "--set", *settings)
    (project / "filled-True").unlink()
    (project / "unfilled").unlink(missing_ok=True)
    run(project, "train.py")
    assert (project / "filled-True").exists()
    assert (project / "filled-False").exists()
    assert (project / "drawn").exists()
    assert not (project / "unfilled").exists()
    image = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    answer = predict_alone(project, tmp_path, image)
    assert (tmp_path / "postprocessed").exists()
    assert is_marked(answer, tmp_path)


NO_BOXES = """

class Recipe(Recipe):
    def postprocess(self, plan, prediction):
        return tuple(values[:0] for values in prediction)
"""


@pytest.mark.slow
@pytest.mark.parametrize("detector", ["own", "fcos"])
def test_boxes_are_drawn_transformed_and_postprocessed(tmp_path: Path, detector: str) -> None:
    project = tmp_path / "project"
    copy_template("detection", project)
    ask(project, "example/make_example.py", "--cases", "12", "--truth", "boxes", "--dims", "2", "--size", "32")
    recipe = project / "recipe.py"
    markers = MARKERS if detector == "own" else MARKERS.replace("def build_network", "def wrap_network")
    recipe.write_text(recipe.read_text() + markers + NO_BOXES)
    settings = [f"network.detector={detector}", "device=cpu", "precision=fp32", "max_steps=4"]
    ask(project, "plan.py", "--minutes", "1", "--set", *settings)
    ask(project, "train.py")
    assert (project / "filled-True").exists()
    assert (project / "filled-False").exists()
    assert (project / "drawn").exists()
    assert json.loads((project / "Logout/metrics.json").read_text())["validation"]["map_50"] == 0
    ask(project, "export.py", "--out", "Deliver")
    image = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    shutil.copytree(project / "Deliver", tmp_path / "alone")
    ask(tmp_path, "alone/predict.py", str(project / image), "-o", "out.json")
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    assert answer["boxes"] == []
    assert (tmp_path / "filled-False").exists()


class Numbered(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Images whose values are their number."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.full((1, 4, 4), float(item))}


def test_the_loop_shows_the_items_of_the_sampler_after_the_transforms(tmp_path: Path) -> None:
    from m3b.training.clock import Clock
    from m3b.training.diagnosis.recipe import DiagnosisRecipe
    from m3b.training.loop import TrainingLoop, TrainingParts

    class Recipe(DiagnosisRecipe):
        def build_sampler(self, plan: Any, dataset: Any) -> Any:
            return torch.utils.data.SubsetRandomSampler([5] * 6)

    def shift(batch: dict[str, Any]) -> dict[str, Any]:
        return {"pixel_values": batch["pixel_values"] + 0.5}

    use_recipe(Recipe())
    plan = {"device": "cpu", "precision": "fp32", "workers": 0, "batch": 2, "lr": 0.1, "weight_decay": 0.0, "dims": 2}
    plan |= {"max_epochs": 1, "seed": 0}
    parts = TrainingParts(torch.nn.Linear(4, 1), Numbered(), None, [shift])
    loop = TrainingLoop(plan, tmp_path, Clock(60.0, 1), parts, "x", seed=0)
    batches = [loop.prepare_batch(batch)["pixel_values"] for step in loop.steps_of(0) for batch in step]
    assert [len(images) for images in batches] == [2, 2, 2]
    assert set(torch.cat(batches).unique().tolist()) == {5.5}


CLEANING = """
from m3b.training.lesions import dice


def clean(prediction):
    return dice(prediction > 0, prediction > 0)
"""
OWN_MODULE = """

class Recipe(Recipe):
    def postprocess(self, plan, prediction):
        from cleaning import clean

        return clean(prediction)
"""


def test_modules_that_a_postprocess_imports_are_delivered(tmp_path: Path) -> None:
    from m3b.training.deliverable import copy_code

    project = tmp_path / "project"
    copy_template("diagnosis", project)
    (project / "recipe.py").write_text((project / "recipe.py").read_text() + OWN_MODULE)
    (project / "cleaning.py").write_text(CLEANING)
    out = tmp_path / "Deliver"
    copy_code(out, {}, {"predict.py": project / "predict.py", "recipe.py": project / "recipe.py"})
    script = "import sys; sys.modules['m3b'] = None; import numpy, recipe; "
    script += "print(recipe.Recipe().postprocess({}, numpy.ones(4)))"
    assert call(out, "-c", script).stdout.split() == ["1.0"]
