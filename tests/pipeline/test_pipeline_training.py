"""Training overrides in whole runs: agents are told them, and what they change is not accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import PROJECT, actor, check_end, combine_calls, of_kind, play, script, texts, write

from m3b import Pipeline, TrainingOverrides, load_model
from m3b.errors import SettingError
from m3b.testing.scripted_model import say
from warm.commands import run_m3b

EXPECTED = {"steps": 60, "epochs": 1.5, "epoch_steps": 40}


def with_plan(**plan: Any) -> list[Any]:
    """A Module Architect that sets up the project with this plan.json."""
    files = {**PROJECT, "plan.json": json.dumps({"task": "diagnosis", "minutes": 2.0, **plan})}
    return [combine_calls(write(files), script("python plan.py")), say("The project is in place.")]


def test_what_the_user_fixed_is_told_and_shown_and_kept(build, tmp_path: Path) -> None:
    training = TrainingOverrides(metric="AUC", epochs=30, network="resnet18")
    plan = {"max_epochs": 30, "patience": 0, "network": {"name": "resnet18"}, "expected": EXPECTED}
    result = build(module=with_plan(**plan), training=training)
    run = Path(result.run_dir)
    assert result.primary is not None
    assert result.primary.name == "auroc"
    transcript = "\n".join(texts(run))
    assert "--set max_epochs=30 patience=0 network.name=resnet18" in transcript
    assert json.loads((run / "run.json").read_text())["training"] == training.to_json()
    kept_plan = json.loads((run / "work" / "plan.json").read_text())
    assert kept_plan["minutes"] == 50, "the minutes follow the epochs: 2 minutes hold 1.5 of 30"
    assert next(event["value"]["plan"]["minutes"] for event in of_kind(run, "artifact", "module_architect")) == 50
    assert "epochs 30" in (run / "model" / "README.md").read_text()


def test_a_changed_plan_is_not_accepted(build) -> None:
    result = build(module=with_plan(max_steps=8), training=TrainingOverrides(steps=9), max_iterations=1)
    check_end(result, "failed", "max_steps")
    codes = [event for event in of_kind(Path(result.run_dir), "checked") if "override_changed" in json.dumps(event)]
    assert codes or "max_steps" in result.reason


def test_a_plan_that_is_changed_before_training_is_not_measured(build) -> None:
    change = "import json; p = json.load(open('plan.json')); p['max_steps'] = 1; json.dump(p, open('plan.json', 'w'))"
    result = build(
        module=with_plan(max_steps=9),
        model=[script(f'python -c "{change}" && python train.py && python export.py'), say("Trained.")],
        training=TrainingOverrides(steps=9),
        max_iterations=1,
    )
    check_end(result, "failed", "max_steps")


def test_few_epochs_are_said_before_training(build) -> None:
    result = build(module=with_plan(expected=EXPECTED), train_minutes=2)
    notes = [note["text"] for note in of_kind(Path(result.run_dir), "note", "module_architect")]
    assert any("60 steps, 1.5 epochs" in note and "--train-minutes" in note for note in notes)


def test_wishes_of_a_request_are_set_and_shown(tmp_path: Path, spots: Path) -> None:
    request = "Tell bright spots from plain tissue on these drawn scans, report accuracy after 9 training steps in 3 folds; 12 steps"
    result = Pipeline(actor(play(module=with_plan(max_steps=12, folds=3))), data=[spots], out=tmp_path / "run").run(
        request
    )
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["training"] == {"metric": "accuracy", "folds": 3, "from_request": ["metric", "folds"]}
    assert result.primary is not None
    assert result.primary.name == "accuracy"


def test_what_cannot_be_served_is_refused_before_anything_is_made(tmp_path: Path, spots: Path) -> None:
    pipeline = Pipeline(actor(), data=[spots], out=tmp_path / "run", training=TrainingOverrides(network="resnet18"))
    with pytest.raises(SettingError) as caught:
        pipeline.run("Segment the bright spots")
    assert caught.value.code == "unknown_network"
    assert not (tmp_path / "run").exists()


def test_a_metric_that_the_chosen_task_has_not_ends_the_run(build) -> None:
    result = build(request="Detect bright spots on these drawn scans", training=TrainingOverrides(metric="dice"))
    check_end(result, "failed", "dice")


def test_gpus_that_are_not_there_are_refused_before_anything_is_made(tmp_path: Path, spots: Path) -> None:
    request = "Tell bright spots from plain tissue on these drawn scans"
    ended = run_m3b("run", request, "--data", spots, "--gpus", "60", "--out", tmp_path / "run", cwd=tmp_path)
    assert ended.returncode == 2
    assert "--gpus 60" in ended.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_starts_from_the_weights_in_a_folder(tmp_path: Path, spots: Path) -> None:
    """From a network of the Transformers library to a delivered model, which does not need the folder."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=2)
    weights = tmp_path / "weights"
    ResNetForImageClassification(config).save_pretrained(weights)
    training = TrainingOverrides(pretrained=str(weights), steps=4)
    pipeline = Pipeline("rules", data=[spots], out=tmp_path / "run", training=training, train_minutes=0.2)
    result = pipeline.run("Tell bright spots from plain tissue on these drawn scans")
    assert result.status in ("completed", "below_range"), result.reason
    plan = json.loads((tmp_path / "run/work/plan.json").read_text())
    assert plan["network"]["name"] == "pretrained"
    weights.rename(tmp_path / "gone")
    images = sorted(path for path in spots.rglob("*.png"))[:2]
    with load_model(tmp_path / "run") as model:
        assert [len(prediction.probabilities) for prediction in model.predict(images)] == [2, 2]
