"""What an agent most often adds, an input channel or a term of the loss, is one file of at most 400 lines to read and edit.

Each template is taken as m3b assembles it, with its own example as data; after the edit it is trained for a few steps, delivered,
and predicts from the delivered files alone.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from template_kit import TEMPLATES, call

from m3b.resources import copy_template

EDGES = """
    added_channels = 1

    def derive_channels(self, pixels):
        steps = [torch.diff(pixels, dim=axis, prepend=pixels.narrow(axis, 0, 1)) for axis in range(2, pixels.ndim)]
        return torch.cat([pixels, sum(step**2 for step in steps).sum(1, keepdim=True).sqrt()], dim=1)
"""
LOSS = "return super().build_loss(plan, cell)"
CONFIDENT = '''

class Confident(nn.Module):
    """The loss, and a little of the square of the outputs."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, outputs, labels):
        first = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        from pathlib import Path

        Path("asked").touch()
        return self.inner(outputs, labels) + 0.001 * (first.float() ** 2).mean()
'''
CONSTANT = """

class Recipe(Recipe):
    def build_schedule(self, plan):
        return lambda progress: 0.5 if progress < 0.5 else 0.25
"""
SMALL = {
    "diagnosis": ["network.name=small_cnn", "network.width=4", "max_steps=6"],
    "segmentation": ["patch=[16,16,16]", "max_steps=6"],
    "detection": ["max_steps=6"],
    "report": ["network.image_width=8", "network.width=32", "network.layers=1", "max_steps=6"],
}


def put_together(template: str, place: Path) -> Path:
    copy_template(template, place)
    run(place, "example/make_example.py", *(["--truth", "masks"] if template == "detection" else []))
    return place


def run(project: Path, *command: str) -> str:
    return call(project, *command).stdout


def lines(*files: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


@pytest.mark.parametrize("template", ["diagnosis", "segmentation", "detection", "report"])
def test_what_has_to_be_read_is_short(template: str) -> None:
    readme, recipe = TEMPLATES / template / "README.md", TEMPLATES / template / "recipe.py"
    assert lines(readme, recipe) <= 400
    assert recipe.name in readme.read_text(), "the README says which file it is"


def edit(project: Path, template: str) -> None:
    """Add a channel of edges, and a term of the loss where the loss is of one kind."""
    file = project / "recipe.py"
    head, tail = file.read_text().split("\n    added_channels = 0\n", 1)
    text = head + EDGES + "\n    def build_network(" + tail.split("    def build_network(", 1)[1]
    if template != "report":
        assert LOSS in text
        text = text.replace(LOSS, "return Confident(super().build_loss(plan, cell))") + CONFIDENT
    file.write_text(text)


@pytest.mark.parametrize(
    "template",
    [
        "diagnosis",
        pytest.param("segmentation", marks=pytest.mark.slow),
        pytest.param("detection", marks=pytest.mark.slow),
        pytest.param("report", marks=pytest.mark.slow),
    ],
)
def test_a_channel_and_a_term_more_go_through_to_the_delivered_model(tmp_path: Path, template: str) -> None:
    from safetensors.numpy import load_file

    project = put_together(template, tmp_path / "project")
    edit(project, template)
    run(project, "plan.py", "--minutes", "1", "--set", "device=cpu", "precision=fp32", *SMALL[template])
    run(project, "train.py")
    assert (project / "asked").exists() == (template != "report")
    run(project, "export.py", "--out", "Deliver")
    config = json.loads((project / "Deliver/config.json").read_text())
    channels = int(config["plan"]["channels"])
    kernels = [value for file in (project / "Deliver").glob("model*.safetensors") for value in load_file(file).values()]
    first = next(value for value in kernels if value.ndim in (4, 5) and value.shape[1] in (channels, channels + 1))
    assert first.shape[1] == channels + 1
    image = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    shutil.copytree(project / "Deliver", tmp_path / "alone")
    image = image if isinstance(image, str) else image[0]
    run(tmp_path, "alone/predict.py", str(project / image), "-o", "out.json")
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    assert "error" not in answer


def test_another_schedule_is_one_method(tmp_path: Path) -> None:
    project = put_together("diagnosis", tmp_path / "project")
    recipe = project / "recipe.py"
    recipe.write_text(recipe.read_text() + CONSTANT)
    run(project, "plan.py", "--minutes", "1", "--set", "device=cpu", "precision=fp32", "lr=0.002", *SMALL["diagnosis"])
    run(project, "plan.py", "--keep", "--set", "max_steps=12")
    run(project, "train.py")
    with (project / "Logout/log.csv").open(newline="") as stream:
        rates = [float(row["lr"]) for row in csv.DictReader(stream)]
    assert rates[0] == 0.001
    assert rates[-1] == 0.0005


def test_a_recipe_without_a_loss_is_named(tmp_path: Path) -> None:
    project = put_together("diagnosis", tmp_path / "project")
    run(project, "plan.py", "--minutes", "1", "--set", "device=cpu", "precision=fp32", *SMALL["diagnosis"])
    file = project / "recipe.py"
    file.write_text(file.read_text().replace(LOSS, "return None"))
    ended = call(project, "train.py", check=False)
    assert ended.returncode == 1
    assert "build_loss" in ended.stderr.splitlines()[-1]
