"""The commands of docs/templates.md, as they stand there but for the minutes, and its examples of recipes."""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from m3b.resources import copy_template
from m3b.training.recipe import RECIPE_METHODS
from warm.commands import run_python

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_template_by_hand(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
    block = re.search(r"^```sh\n(.+?)^```", page, re.MULTILINE | re.DOTALL)
    assert block
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    commands = block.group(1).replace("--minutes 20", "--minutes 0.5").replace("python ", f"{sys.executable} ")
    done = subprocess.run(["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (answer,) = json.loads((tmp_path / "project" / "predictions.json").read_text())
    assert set(answer["volumes_ml"]) == {"box", "ball"}
    assert (tmp_path / "project" / answer["mask"]).is_file()


EXAMPLES = {
    "diagnosis": (
        "build_network",
        "build_loss",
        "build_transforms",
        "build_sampler",
        "build_datasets",
        "build_schedule",
    ),
    "segmentation": ("derive_channels", "build_transforms", "build_datasets", "build_schedule", "postprocess"),
}


def example_methods() -> dict[str, str]:
    """Return the code of each method in the section about recipes."""
    page = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
    section = page.split("## Methods of a recipe")[1].split("\n## ")[0]
    codes = re.findall(r"^```py\n(.+?)^```", section, re.MULTILINE | re.DOTALL)
    return {re.findall(r"^def (\w+)", code, re.MULTILINE)[0]: textwrap.indent(code, "    ") for code in codes}


def test_each_method_of_a_recipe_has_an_example() -> None:
    assert set(example_methods()) == RECIPE_METHODS == {name for names in EXAMPLES.values() for name in names}


@pytest.mark.parametrize("template", ["diagnosis", pytest.param("segmentation", marks=pytest.mark.slow)])
def test_the_examples_of_recipes_are_trained_and_delivered(tmp_path: Path, template: str) -> None:
    from m3b.dataset.formats import read_labels

    project = tmp_path / "project"
    copy_template(template, project)
    file = project / "recipe.py"
    for name in EXAMPLES[template]:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        methods = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.FunctionDef)]
        (method,) = [node for node in methods if node.name == name]
        lines[method.lineno - 1 : method.end_lineno] = [example_methods()[name]]
        file.write_text("".join(lines), encoding="utf-8")

    def run(*command: str) -> None:
        run_python(*command, cwd=project, check=True)

    run("example/make_example.py")
    patch = ["patch=[16,16,16]"] if template == "segmentation" else []
    run(
        "plan.py",
        "--minutes",
        "1",
        "--set",
        "device=cpu",
        "precision=fp32",
        "lr=0.01",
        "folds=1",
        "max_steps=8",
        *patch,
    )
    run("train.py")
    with (project / "Logout/log.csv").open(newline="") as stream:
        rates = [float(row["lr"]) for row in csv.DictReader(stream)]
    assert rates[-1] < 0.002, "the schedule of the page falls to 0"
    run("export.py", "--out", "Deliver")
    image = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    run("Deliver/predict.py", image, "-o", "out.json")
    (answer,) = json.loads((project / "out.json").read_text())
    assert "error" not in answer
    if template == "segmentation":
        components, count = ndimage.label(read_labels(str(project / answer["mask"])).array)
        assert not count or np.bincount(components.ravel())[1:].min() >= 20
