"""Plan, train, export, predict: the four commands, for real, on tiny data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from template_kit import NO_MEMORY, Run, train_until_killed

FAST = ("--minutes", "0.18", "--set", "device=cpu", "lr=0.003", "network.width=8")


def _train(run: Run, *example: str, plan: tuple[str, ...] = ()) -> None:
    run("example/make_example.py", *example)
    run("plan.py", *FAST, *plan)
    run("train.py")
    run("export.py")


def test_2d_from_data_to_prediction_in_a_clean_process(project: Path, run: Run, tmp_path: Path) -> None:
    _train(run, "--cases", "60", plan=("max_epochs=3",))
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert set(metrics) >= {"validation", "epochs", "seconds"}
    assert (project / "Logout/curves.png").stat().st_size > 1000
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert set(rows[0]) == {"image", "patient", "fold", "labels", "probabilities"}
    moved = tmp_path / "elsewhere"
    (project / "Deliver").rename(moved)
    paths = [record["image_path"] for record in json.loads((project / "Datapath/test.json").read_text())]
    (project / "list.json").write_text(json.dumps([*paths, "data/example/gone.png"]))
    arguments = ("--list", "list.json", "-o", "out.json", "--batch", "3", "--saliency", "maps")
    done = run(str(moved / "predict.py"), *arguments, check=False)
    assert done.returncode == 1, done.stderr
    results = json.loads((project / "out.json").read_text())
    assert "gone.png" in results[-1]["error"]
    for result in results[:-1]:
        saliency = result["saliency"]
        assert saliency["score"] == pytest.approx(result["probabilities"][result["prediction"]])
        assert saliency["class"] == result["prediction"]
        assert Image.open(project / saliency["map"]).size == Image.open(project / result["image"]).size
    assert {result["saliency"]["method"] for result in results[:-1]} <= {"hirescam", "occlusion"}
    assert [result["image"] for result in results[:-1]] == paths
    assert all(sum(result["probabilities"].values()) == pytest.approx(1) for result in results[:-1])
    assert sum(result["out_of_distribution"] for result in results[:-1]) <= 2
    rng = np.random.default_rng(0)
    strange = {"noise": rng.integers(0, 255, (32, 32, 3)), "blank": np.full((32, 32), 90)}
    for name, pixels in strange.items():
        Image.fromarray(pixels.astype(np.uint8)).save(project / f"{name}.png")
    strange_answers = json.loads(run(str(moved / "predict.py"), "noise.png", "blank.png").stdout)
    assert [answer["out_of_distribution"] for answer in strange_answers] == [True, True], strange_answers
    assert strange_answers[1]["why"].startswith("the image is blank")
    config = json.loads((moved / "config.json").read_text())
    assert config["familiar"]["typical"].keys() == {"look", "features"}
    assert "20 are needed" in config["sets"]["unavailable"]
    assert (moved / "familiar.safetensors").stat().st_size < 100_000, "means and spreads, and no image"
    code = f"import sys, json; sys.path.insert(0, {str(moved)!r}); from predict import predict; "
    code += f"print(json.dumps(predict({paths!r}, batch=1)))"
    single = json.loads(run("-c", code).stdout)
    for single_answer, batch_answer in zip(single, results, strict=False):
        assert single_answer["probabilities"] == pytest.approx(batch_answer["probabilities"], abs=1e-5)


@pytest.mark.slow
def test_3d_multi_label_with_folds(project: Path, run: Run) -> None:
    options = ("folds=2", "minutes=0.3", "max_epochs=3")
    _train(run, "--cases", "40", "--dims", "3", "--size", "16", "--multi-label", plan=options)
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["dims"], plan["multi_label"], plan["size"]) == (3, True, [16, 16, 16])
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert len(rows) == len(json.loads((project / "Datapath/train.json").read_text()))  # out of fold: every case once
    result = json.loads(run("Deliver/predict.py", rows[0]["image"], "--saliency", "maps").stdout)[0]
    assert set(result["probabilities"]) == {"disc", "square"}
    assert (project / result["saliency"]["map"]).is_file()
    assert isinstance(result["prediction"], list)
    assert len(list((project / "Deliver").glob("model-*.safetensors"))) == 2


def test_a_killed_training_goes_on_with_the_same_schedule(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "60")
    run("plan.py", *FAST, "--set", "device=cpu", "folds=1", "max_steps=40")
    spent = train_until_killed(project)
    assert not (project / "Logout/log.csv").exists(), "killed long before the end of the first epoch"
    printed = run("train.py", "--resume").stdout
    assert "going on from checkpoint-1 " in printed
    rows = list(csv.DictReader((project / "Logout/log.csv").open()))
    epoch = json.loads((project / "plan.json").read_text())["expected"]["epoch_steps"]
    assert int(rows[0]["step"]) == epoch > 2, "the rest of the first epoch"
    assert int(rows[-1]["step"]) == 40, "earlier steps are counted"
    assert float(rows[0]["lr"]) <= 0.0003 * 10  # never above the peak
    assert float(rows[-1]["lr"]) < 0.1 * max(float(row["lr"]) for row in rows)  # and annealed at the end
    assert float(rows[0]["seconds"]) >= round(spent, 1), "earlier seconds are counted"


@pytest.mark.parametrize(
    "steps", [pytest.param(1, id="in the only step"), pytest.param(20, id="in twenty", marks=pytest.mark.slow)]
)
def test_a_loss_that_is_not_finite_ends_clearly(run: Run, project: Path, steps: int) -> None:
    run("example/make_example.py", "--cases", "30")
    run("plan.py", *FAST, "--set", "lr=1e38", "device=cpu", "ema=0", f"max_steps={steps}")
    done = run("train.py", check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "loss" in done.stdout
    assert not (project / "Logout/metrics.json").exists()


@pytest.mark.slow
def test_out_of_memory_halves_the_batch_then_ends(run: Run, project: Path) -> None:
    run("example/make_example.py", "--cases", "30")
    run("plan.py", *FAST, "--set", "batch=8", "device=cpu")
    recipe = project / "recipe.py"
    recipe.write_text(recipe.read_text() + NO_MEMORY)
    done = run("train.py", check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "going on with batch 4" in done.stdout
    assert "even with batch 2" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "resnet18"])
def test_monai_networks_train(run: Run, name: str) -> None:
    run("example/make_example.py", "--cases", "30", "--dims", "3", "--size", "32")
    run("plan.py", *FAST, "--set", f"network.name={name}", "max_epochs=1", "minutes=2", "device=cpu")
    run("train.py")
    run("export.py")
