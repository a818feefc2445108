"""Self-training of a classifier: pseudo-labels, whom they never come from, the choice on validation, and a whole training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from template_kit import assemble, call

import m3b
from m3b.training.diagnosis.dataset import CaseDataset
from m3b.training.diagnosis.self_training import (
    CONFIDENT_SHARE,
    MIN_CONFIDENCE,
    UnlabelledCases,
    choose_networks,
    choose_pseudo_labels,
    settle_self_training,
)
from m3b.training.folds import list_trainings, name_student

PLAN: dict[str, Any] = {
    "task": "diagnosis", "classes": ["a", "b"], "multi_label": False, "dims": 2, "folds": 2, "self_training": True,
    "network": {"name": "small_cnn"},
}  # fmt: skip


def test_sure_predictions_and_the_surest_part_of_each_class_are_pseudo_labels() -> None:
    first = np.concatenate([np.full(30, 0.97), np.linspace(0.5, 0.9, 20), np.linspace(0.49, 0.3, 10)])
    labels = choose_pseudo_labels(np.stack([first, 1 - first], axis=1), multi_label=False)
    is_labelled = ~np.isnan(labels).all(axis=1)
    assert is_labelled[:30].all()
    assert not is_labelled[30:50].any()
    assert is_labelled[50:].sum() == CONFIDENT_SHARE * 10
    assert is_labelled[-1]
    assert (labels[:30] == [1, 0]).all()
    assert (labels[58:] == [0, 1]).all()
    assert first[is_labelled & (labels[:, 0] == 1)].min() >= MIN_CONFIDENCE


def test_each_of_several_labels_is_known_for_itself() -> None:
    scores = np.stack([np.linspace(0.01, 0.99, 100), np.full(100, 0.5)], axis=1)
    labels = choose_pseudo_labels(scores, multi_label=True)
    assert (labels[:5, 0] == 0).all()
    assert (labels[-5:, 0] == 1).all()
    assert np.isnan(labels[45:55, 0]).all()
    assert not (labels[:, 1] == 1).any()


def make_cases(patients: list[str], classes: int = 2) -> CaseDataset:
    images = np.zeros((len(patients), 1, 2, 2), np.float32)
    records = [{"image_path": f"{at}.png", "patient": patient} for at, patient in enumerate(patients)]
    labels = np.eye(classes, dtype=np.float32)[np.arange(len(patients)) % classes]
    return CaseDataset(images, labels, np.arange(len(patients)), records)


def test_no_image_of_a_held_out_patient_teaches_that_fold() -> None:
    unlabelled = UnlabelledCases.__new__(UnlabelledCases)
    unlabelled.plan, unlabelled.cases = PLAN, make_cases(["v", "w", "x", "v", "y", "z"])
    sure = np.tile([0.99, 0.01], (6, 1))
    unlabelled.scores = [sure, np.flip(sure, axis=1)]
    trained, held_out = make_cases(["x", "t"]), make_cases(["v", "w"])
    cases, count = unlabelled.build_training_set(trained, held_out, 0)
    assert count == 3
    pseudo = cases.datasets[-1]
    assert {record["patient"] for record in pseudo.records} == {"x", "y", "z"}
    assert all(item["labels"].tolist() == [1.0, 0.0] for item in (pseudo[at] for at in range(3)))
    assert sum(part is trained for part in cases.datasets) == 2, "labelled cases weigh as much as pseudo-labels"
    second_fold_set, _ = unlabelled.build_training_set(trained, held_out, 1)
    assert second_fold_set.datasets[-1][0]["labels"].tolist() == [0.0, 1.0]
    assert unlabelled.build_training_set(trained, make_cases([]), None)[1] == int(CONFIDENT_SHARE * 6), "folds disagree"


def run_choice(folder: Path, strength: float, patients: int = 40) -> dict[str, Any]:
    """The choice between networks that know half and others whose logits are `strength` times right."""
    random = np.random.default_rng(0)
    results = []
    for fold in range(2):
        for name, value in ((f"fold{fold}", 0.0), (name_student(f"fold{fold}"), 1.0)):
            (folder / "Logout" / name).mkdir(parents=True)
            save_file({"weight": torch.tensor([value])}, str(folder / f"Logout/{name}/best.safetensors"))
        cases = make_cases([f"{fold}-{at}" for at in range(patients // 2)])
        weak = (0.5 * cases.labels + random.normal(0, 0.5, cases.labels.shape)).astype(np.float32)[None]
        strong = (weak + strength * cases.labels).astype(np.float32)
        shared = {"labels": cases.labels, "cases": cases}
        student = {**shared, "logits": strong, "pseudo_labels": 7}
        results.append({**shared, "logits": weak, "student": student})
    networks, choice = choose_networks(PLAN, results)
    assert (networks[0]["logits"] is results[0]["student"]["logits"]) == choice["used"]
    return choice


@pytest.mark.parametrize(("strength", "patients", "is_used"), [(3.0, 40, True), (0.0, 40, False), (3.0, 8, False)])
def test_second_networks_need_a_certain_gain(
    strength: float, patients: int, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    choice = run_choice(tmp_path, strength, patients)
    assert choice["used"] is is_used
    assert choice["images"] == 7
    delivered = tmp_path / "Logout/fold1/delivered.safetensors"
    assert delivered.exists() == is_used
    if is_used:
        assert load_file(str(delivered))["weight"].item() == 1.0
        assert choice["loss_self_trained"] < choice["loss_network"]


@pytest.mark.parametrize(
    ("change", "unlabelled"),
    [
        ({"task": "grading"}, 9),
        ({"views": 2}, 9),
        ({"dims": 3, "network": {"name": "small_cnn", "encoder": "both"}}, 9),
        ({"network": {"name": "pretrained", "config": {"builder": "timm"}, "backbone_lr": 0}}, 9),
        ({"fold_groups": "sites"}, 9),
        ({"processes": 2}, 9),
        ({}, 0),
    ],
)
def test_plans_that_cannot_self_train_say_so(change: dict[str, Any], unlabelled: int) -> None:
    plan = {**PLAN, **change}
    with pytest.raises(SystemExit, match="--set self_training=true: "):
        settle_self_training(dict(plan), unlabelled, is_requested=True)
    settle_self_training(plan, unlabelled, is_requested=False)
    assert plan["self_training"] is False


def test_a_plan_names_the_unlabelled_images() -> None:
    plan = dict(PLAN)
    assert "9 unlabelled" in settle_self_training(plan, 9, is_requested=True)[0]
    assert list_trainings(plan) == ["fold0", "fold1", "fold0-student", "fold1-student"]
    plan["self_training"] = False
    assert "self_training=true" in settle_self_training(plan, 9, is_requested=False)[0]
    assert settle_self_training(plan, 0, is_requested=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True])
def test_a_whole_training_with_unlabelled_images(refit: bool, tmp_path: Path) -> None:
    project = assemble(tmp_path / "work")
    code = "import sys; sys.path.insert(0, 'example'); from pathlib import Path; import make_example as m; "
    call(project, "-c", code + "m.make_example(Path(), 90)")
    assert "self_training=true" in call(project, "plan.py", "--set", "self_training=true", check=False).stderr
    records = json.loads((project / "Datapath/train.json").read_text())
    hidden = [{key: record[key] for key in ("image_path", "patient")} for record in records[40:]]
    (project / "Datapath/train.json").write_text(json.dumps(records[:40]))
    (project / "Datapath/unlabelled.json").write_text(json.dumps(hidden))
    assert not json.loads(call(project, "plan.py", "--set", "size=[32,32]") and (project / "plan.json").read_text())[
        "self_training"
    ]
    settings = (
        "device=cpu",
        "max_steps=4",
        "batch=8",
        "size=[32,32]",
        "folds=2",
        f"refit={str(refit).lower()}",
        "tta.use=false",
    )
    call(project, "plan.py", "--set", "self_training=true", "precision=fp32", *settings)
    call(project, "train.py")
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    choice = metrics["self_training"]
    assert choice["images"] > 0
    names = ["fold0", "fold1", *(["all"] if refit else [])]
    assert all((project / f"Logout/{name}-student/best.safetensors").exists() for name in names)
    call(project, "train.py", "--resume")
    assert json.loads((project / "Logout/metrics.json").read_text())["self_training"] == choice
    call(project, "export.py", "--out", "../out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["plan"]["self_training"] == choice
    assert choice["description"] in (tmp_path / "out/README.md").read_text()
    name = names[-1] if refit else "fold0"
    source = f"{name}-student" if choice["used"] else name
    weights = load_file(str(project / f"Logout/{source}/best.safetensors"))
    delivered = load_file(str(tmp_path / "out" / config["weights"][0]))
    key = next(key for key, value in weights.items() if value.ndim == 4)
    assert any(
        torch.equal(value, weights[key].to(value.dtype))
        for value in delivered.values()
        if value.shape == weights[key].shape
    )
    answers = m3b.load_model(tmp_path / "out").predict([project / records[0]["image_path"]], out=tmp_path / "predicted")
    assert sum(answers[0].probabilities.values()) == pytest.approx(1, abs=1e-3)
