"""The diagnosis template with covariates beside the image: what becomes of their values, and a training of a few steps."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from template_kit import Run

RECORDS: list[dict[str, Any]] = [
    {"image_path": f"{at}.png", "covariates": {"age": 40.0 + at if at else None, "sex": "FM"[at % 2]}}
    for at in range(41)
]


@pytest.fixture
def covariates() -> ModuleType:
    return importlib.import_module("m3b.training.diagnosis.covariates")


def test_numbers_are_standardised_and_unknown_ones_said(covariates: ModuleType) -> None:
    age, sex = rules = covariates.make_covariate_rules(RECORDS)
    assert (age["kind"], age["centre"], age["unknown"]) == ("number", 60.5, 1)
    assert (sex["kind"], sex["values"], sex["unknown"]) == ("category", ["F", "M"], 0)
    table = covariates.encode([{"age": 60.5, "sex": "M"}, {"age": None, "sex": "X"}, {"age": 1e9, "sex": None}], rules)
    assert table.tolist() == [[0, 0, 0, 1, 0], [0, 1, 0, 0, 1], [5, 0, 0, 0, 1]]
    spread = covariates.encode([record["covariates"] for record in RECORDS[1:]], rules)[:, 0]
    assert abs(np.median(spread)) < 1e-6
    assert 0.7 < spread.std() < 1.3
    assert "unknown of 1 training cases" in covariates.describe_covariates(rules)[0]


def test_blanked_covariates_look_like_unknown_ones(covariates: ModuleType) -> None:
    import torch

    rules = covariates.make_covariate_rules(RECORDS)
    table = torch.from_numpy(covariates.encode([{"age": 50.0, "sex": "F"}] * 400, rules))
    torch.manual_seed(0)
    blanked = covariates.drop_covariates(table, rules, 0.25)
    unknown = torch.from_numpy(covariates.encode([{}], rules))[0]
    is_dropped = blanked[:, 1] == 1
    assert 0.15 < float(is_dropped.float().mean()) < 0.35
    assert torch.equal(blanked[is_dropped][:, :2], unknown[:2].expand(int(is_dropped.sum()), 2))
    assert torch.equal(blanked[~is_dropped][:, :2], table[~is_dropped][:, :2])
    assert float(table[:, 1].sum()) == 0, "the batch itself stays"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("a.png", "age, sex missing"),
        ({"image": "a.png", "age": 3}, "sex missing"),
        ({"image": "a.png", "age": 3, "sex": "F", "weight": 70}, "unexpected weight"),
        ({"image": "a.png", "age": "old", "sex": "F"}, "age must be a number"),
    ],
)
def test_a_case_that_is_not_whole_is_refused(covariates: ModuleType, case: Any, message: str) -> None:
    error = sys.modules["m3b.dataset.formats"].DataError
    with pytest.raises(error, match=message) as excinfo:
        covariates.split_case(case, covariates.make_covariate_rules(RECORDS))
    assert '"image": path, "age": 60.5, "sex": "F"' in str(excinfo.value)


def test_the_network_learns_what_only_both_tell_together(covariates: ModuleType) -> None:
    """Ill is who is dark and old, or bright and young: neither alone tells more than chance."""
    import torch

    network = importlib.import_module("m3b.training.diagnosis.network")
    rules = covariates.make_covariate_rules(RECORDS)
    plan = {"task": "diagnosis", "classes": ["a", "b"], "multi_label": False, "dims": 2, "channels": 1, "size": [16, 16],
            "network": {"name": "small_cnn", "width": 4}, "covariates": rules}  # fmt: skip
    torch.manual_seed(0)
    model = network.build_model(plan)
    bright, old = torch.arange(64) % 2, torch.arange(64) // 2 % 2
    images = (2.0 * bright - 1).view(-1, 1, 1, 1) + 0.1 * torch.randn(64, 1, 16, 16)
    patient_covariates = torch.from_numpy(
        covariates.encode([{"age": 45.0 + 30 * float(is_old), "sex": "F"} for is_old in old], rules)
    )
    labels = torch.eye(2)[bright ^ old]
    with pytest.raises(ValueError, match="`covariates` is required"):
        model(images, labels)
    steps = torch.optim.AdamW(
        [{"params": parameters, "lr": 3e-3 * factor} for parameters, factor in model.groups(plan)]
    )
    for _ in range(60):
        steps.zero_grad()
        model(images, labels, patient_covariates)["loss"].backward()
        steps.step()
    decided = model.eval()(images, covariates=patient_covariates)["logits"].argmax(1)
    assert float((decided == (bright ^ old)).float().mean()) > 0.9


@pytest.mark.slow
def test_from_data_to_prediction(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "80")
    file = project / "Datapath/train.json"
    records = json.loads(file.read_text())
    for at, record in enumerate(records):
        ill = record["labels"] == ["square"]
        record["covariates"] = {"age": None if at == 3 else 40.0 + 30 * ill + at % 5, "sex": "FM"[at % 2]}
    file.write_text(json.dumps(records))
    printed = run(
        "plan.py", "--minutes", "1", "--set", "device=cpu", "network.width=4", "max_steps=30", "threads=1"
    ).stdout
    assert "age (median" in printed
    assert "done: validation" in run("train.py").stdout
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert metrics["validation"]["auroc"] > 0.95, "the age tells the label"
    run("export.py")
    image = records[0]["image_path"]
    cases = [{"image": image, "age": 72, "sex": "F"}, {"image": image, "age": 41, "sex": "F"},
             {"image": image, "age": None, "sex": None}, image]  # fmt: skip
    (project / "cases.json").write_text(json.dumps(cases))
    run("Deliver/predict.py", "--list", "cases.json", "-o", "out.json", check=False)
    old, young, unknown, without_covariates = json.loads((project / "out.json").read_text())
    assert old["image"] == image
    assert old["probabilities"]["square"] > young["probabilities"]["square"] + 0.1
    assert 0 < unknown["probabilities"]["square"] < 1
    assert "age, sex missing" in without_covariates["error"]
    line = json.loads(run("Deliver/predict.py", image, "--with", "age=72", "sex=F").stdout)
    assert line[0]["probabilities"] == pytest.approx(old["probabilities"], abs=1e-5)
    assert "age must be a number" in run("Deliver/predict.py", image, "--with", "age=x", check=False).stderr
    code = (
        f"import sys, json; sys.path.insert(0, 'Deliver'); import parts; case = {cases[0]!r}\n"
        "part = parts.parts()['model']; [pair] = parts.examples([case])['model']\n"
        "print(json.dumps([part['inputs'], parts.answer(part['module'](*pair)[0])]))"
    )
    inputs, graph = json.loads(run("-c", code).stdout.splitlines()[-1])
    assert inputs == ["image", "covariates"]
    assert graph["probabilities"] == pytest.approx(old["probabilities"], abs=1e-3)
