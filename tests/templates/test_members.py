"""Several networks instead of one: what plan.py chooses, who is held out of which, how long each is trained, how they answer."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from template_kit import Run, load

members, ensemble, clock, curves = (load(name) for name in ("folds", "ensemble", "clock", "curves"))
assign_folds = load("patients").assign_folds


@pytest.mark.parametrize(
    ("cases", "patients", "rarest", "folds", "reason"),
    [
        (80, 40, 20, 5, "80 cases"),
        (80, 14, 20, 3, "80 cases"),
        (80, 8, 20, 1, "8 patients: too few for folds"),
        (80, 40, 2, 1, "2 cases of the rarest class"),
        (900, 400, 90, 1, "a held-out validation part costs little"),
    ],
)
def test_few_cases_of_enough_patients_are_worth_folds(
    cases: int, patients: int, rarest: int, folds: int, reason: str
) -> None:
    fold_count, explanation = members.max_folds(cases, patients, rarest)
    assert fold_count == folds
    assert reason in explanation


@pytest.mark.parametrize(("epochs", "folds"), [(299, 1), (300, 3), (440, 4), (9_000, 5)])
def test_many_cases_are_worth_folds_where_each_network_sees_them_a_hundred_times(epochs: int, folds: int) -> None:
    """Twenty minutes of PneumoniaMNIST were 480 epochs; one network ended after 200 and left the others unused."""
    fold_count, explanation = members.max_folds(4_000, 4_000, 900, epochs)
    assert fold_count == folds
    assert ("costs little" if folds == 1 else "enough epochs") in explanation
    plan: dict[str, Any] = {"folds": 1, "refit": False, "batch": 40}
    members.choose_folds_from_cases(plan, {"cases": 4_000, "patients": 4_000}, lambda: epochs * 100, 3_000, set())
    assert plan["folds"] == folds


@pytest.mark.parametrize(("steps", "folds"), [(2_900, 1), (3_000, 3), (4_100, 4), (90_000, 5)])
def test_each_network_gets_enough_of_the_steps(steps: int, folds: int) -> None:
    plan: dict[str, Any] = {"folds": 1, "refit": False}
    members.choose_fold_count(plan, steps, 1_000, (5, "80 cases"), set())
    assert (plan["folds"], plan["refit"]) == (folds, False)
    assert ("3 times 1000" if folds == 1 else f"for {folds} networks") in plan["why_folds"]


def test_what_is_set_stays() -> None:
    plan: dict[str, Any] = {"folds": 7, "refit": True}
    members.choose_fold_count(plan, 90_000, 1_000, (1, "900 cases"), {"folds"})
    assert (plan["folds"], plan["refit"], plan["why_folds"]) == (7, False, "set by --set")
    plan = {"folds": 1, "refit": True}
    members.choose_fold_count(plan, 90_000, 1_000, (5, "80 cases"), {"refit"})
    assert (plan["folds"], plan["refit"]) == (5, True)
    with pytest.raises(SystemExit, match="the training cases have 4 patients; at most one fold a patient"):
        members.check_fold_count(plan, 4)


@pytest.mark.parametrize(
    ("plan", "patients", "overrides", "parts"),
    [
        pytest.param({"folds": 4}, 160, set(), 8, id="half of the patients are enough to hold out"),
        pytest.param({"folds": 5}, 99, set(), 6, id="most of the patients"),
        pytest.param({"folds": 4}, 60, set(), 4, id="every patient, since they are few"),
        pytest.param({"folds": 4}, 160, {"folds"}, 4, id="folds set by hand hold out every case"),
        pytest.param({"folds": 4, "refit": True}, 160, set(), 4, id="a refit learns from every case"),
        pytest.param({"folds": 4, "parts": 9}, 160, {"parts"}, 9, id="set by hand"),
        pytest.param({"folds": 1}, 160, set(), 1, id="one network"),
    ],
)
def test_each_fold_holds_out_no_more_than_choosing_needs(
    plan: dict[str, Any], patients: int, overrides: set[str], parts: int
) -> None:
    members.choose_parts(plan, patients, overrides)
    assert members.count_parts(plan) == parts


def test_a_rare_class_has_cases_enough_among_those_that_are_held_out() -> None:
    plan: dict[str, Any] = {"folds": 4}
    members.choose_parts(plan, 400, set(), rarest=0.1)
    assert plan["parts"] == 8, "200 patients, 20 of them with the class"
    members.choose_parts(plan, 400, set(), rarest=0.0)
    assert plan["parts"] == 4


def test_what_folds_hold_out_are_not_the_largest_patients() -> None:
    """Patients are shared out from the largest down, and the first parts got four of sixty images."""
    people = [f"p{k}" for k in range(4) for _ in range(60)] + [f"q{k}" for k in range(96)]
    nothing = np.zeros((len(people), 0), np.float32)
    held_out_counts = []
    for seed in range(20):
        plan = {"folds": 4, "parts": 12, "seed": seed}
        held_out_parts = {members.held_out_part(plan, fold) for fold in range(4)}
        assert len(held_out_parts) == 4
        held_out_counts.append(np.isin(assign_folds(people, nothing, 12, seed), list(held_out_parts)).sum())
    assert np.mean(held_out_counts) == pytest.approx(len(people) / 3, rel=0.25)
    assert [members.held_out_part({"folds": 4, "parts": 1, "seed": 3}, fold) for fold in range(4)] == [0, 1, 2, 3]


def test_more_parts_than_patients_are_refused_and_told_otherwise() -> None:
    with pytest.raises(
        SystemExit, match=r"parts 9 in plan\.json: the training cases have 8 patients; at most one part"
    ):
        members.check_fold_count({"folds": 4, "parts": 9}, 8)
    members.check_fold_count({"folds": 1, "parts": 9}, 8)
    description = members.describe_folds({"folds": 4, "parts": 8, "why_folds": ""})
    assert description == "4 networks, each holding out a different 1/8 of the cases"
    assert members.describe_folds({"folds": 4, "parts": 1}) == "4 networks, one a fold"


def test_folds_share_patients_and_labels() -> None:
    random = np.random.default_rng(0)
    people = [f"p{number}" for number in random.integers(0, 40, 120)]
    columns = np.eye(3, dtype=np.float32)[random.integers(0, 3, 120)]
    assigned_folds = assign_folds(people, columns, 4)
    homes = {
        name: {int(fold) for person, fold in zip(people, assigned_folds, strict=True) if person == name}
        for name in people
    }
    assert all(len(folds) == 1 for folds in homes.values())
    for column in columns.T:
        share = np.bincount(assigned_folds[column > 0], minlength=4) / column.sum()
        assert share.min() > 0.15
        assert share.max() < 0.35
    alone = assign_folds(people, np.zeros((120, 0), np.float32), 4)
    assert np.bincount(alone).max() <= 33


def test_every_training_gets_its_part_of_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"folds": 3, "refit": True}
    assert members.list_network_names(plan) == ["fold0", "fold1", "fold2", "all"]
    now = [0.0]
    monkeypatch.setattr(members.time, "monotonic", lambda: now[0])
    turns = members.TimeShares(plan, 400.0)
    assert turns.seconds_for("fold0") == pytest.approx(100)
    now[0] = 160.0  # the first one took longer than its part
    assert [turns.seconds_for(name) for name in ("fold1", "all")] == [pytest.approx(80), pytest.approx(240)]
    _finish_fold(Path("Logout/fold0"), 50, steps=70)
    _finish_fold(Path("Logout/fold1"), 90, steps=90)
    later = members.TimeShares(plan, 400.0)  # a start anew after a kill: 140 s are used up, two trainings are left
    assert later.seconds_for("fold2") == pytest.approx(130)
    _finish_fold(Path("Logout/fold2"), 130, steps=80)
    assert members.count_refit_steps(plan) == 80


def _finish_fold(folder: Path, seconds: float, steps: int) -> None:
    folder.mkdir(parents=True)
    (folder / "done.json").write_text(json.dumps({"seconds": seconds, "steps": steps}))


def test_a_training_ends_annealed_after_enough_steps() -> None:
    timed = clock.Clock(1_000.0, 10_000, enough_steps=50)
    for step, progress in ((0, 0.0), (25, 0.5), (50, 1.0)):
        timed.step = step
        assert timed.progress() == pytest.approx(progress, abs=0.01)
        assert timed.is_over() == (step == 50)
        assert timed.count_steps_left(1_000, 10) == 50 - step
    assert clock.one_cycle(1.0) < 0.01
    short = clock.Clock(1.0, 10_000, spent=10.0, enough_steps=50)
    assert short.is_over(), "the minutes end it all the same"


def test_the_log_keeps_its_columns_where_nothing_is_scored(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    curves.append_row(file, {"fold": "0", "train_loss": 0.5, "auroc": 0.9, "seconds": 3.0})
    curves.append_row(file, {"fold": "all", "train_loss": 0.4, "seconds": 4.0})
    rows = list(csv.DictReader(file.open()))
    assert rows[1] == {"fold": "all", "train_loss": "0.4", "auroc": "", "seconds": "4.0"}


class FixedLogits(torch.nn.Module):
    """The same logits for every image."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = torch.tensor(logits).view(1, -1, 1, 1)

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.logits.expand(len(pixel_values), -1, *pixel_values.shape[2:])}


def test_networks_answer_together_by_their_mean_chances() -> None:
    image = torch.zeros(2, 1, 4, 4)
    pair = [FixedLogits(2.0, -1.0, 0.5), FixedLogits(-3.0, 1.0, 0.1)]
    stack = torch.stack([network(image)["logits"] for network in pair])
    classes = ensemble.build_ensemble(pair, "classes")(pixel_values=image)["logits"]
    assert torch.allclose(classes.softmax(1), stack.softmax(2).mean(0), atol=1e-5)
    chances = ensemble.build_ensemble(pair, "chances", 2)(pixel_values=image)["logits"]
    assert torch.allclose(chances[:, :2].sigmoid(), stack[:, :, :2].sigmoid().mean(0), atol=1e-5)
    assert torch.allclose(chances[:, 2], stack[:, :, 2].mean(0)), "distances are averaged as they are"
    assert torch.allclose(ensemble.build_ensemble(pair, "values")(pixel_values=image)["logits"], stack.mean(0))
    assert ensemble.build_ensemble(pair[:1], "classes") is pair[0]
    with pytest.raises(ValueError, match="kind 'votes'"):
        ensemble.build_ensemble(pair, "votes")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("folds=0", "--set folds=0: must be a whole number from 1 to 20"),
        ("folds=2.5", "must be a whole number from 1 to 20"),
        ("refit=maybe", "--set refit=maybe: must be true or false"),
        ("why_folds=fun", "why_folds follows from the data"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, message: str) -> None:
    plan = {"task": "diagnosis", "folds": 1, "refit": False, "why_folds": "", "seed": 0}
    with pytest.raises(SystemExit, match=message):
        load("plan_settings").apply_override(plan, setting)


@pytest.mark.slow
def test_a_classifier_trained_on_every_case(project: Path, run: Run) -> None:
    """For as many steps as its folds; each case of the validation was seen by the others alone."""
    run("example/make_example.py", "--cases", "45")
    settings = ("device=cpu", "network.width=8", "size=[16,16]", "max_steps=6", "threads=1", "tta.use=false")
    run("plan.py", "--minutes", "2", "--set", *settings, "folds=2", "refit=true")
    printed = run("train.py").stdout
    assert "refit: all" in printed
    assert "all: kept the last weights, no case held out" in printed
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert {row["fold"] for row in rows} == {0, 1}
    assert len(rows) == len(json.loads((project / "Datapath/train.json").read_text()))
    member_record = json.loads((project / "Logout/members.json").read_text())
    assert member_record == {"weights": [f"Logout/fold{fold}/best.safetensors" for fold in (0, 1)], "refit": True}
    assert json.loads((project / "Logout/all/done.json").read_text())["steps"] == 6
    run("export.py", "--out", "Deliver")
    config = json.loads((project / "Deliver/config.json").read_text())
    assert (config["refit"], config["weights"]) == (True, ["model.safetensors"])
    refit_weights = (project / "Logout/all/best.safetensors").read_bytes()
    assert (project / "Deliver/model.safetensors").read_bytes() == refit_weights
    assert "has no validation figure of its own" in (project / "Deliver/README.md").read_text()


@pytest.mark.slow
def test_a_network_is_trained_without_each_site(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "60")
    index = project / "Datapath/train.json"
    records = json.loads(index.read_text())
    for number, record in enumerate(records):
        record["attributes"] = {"site": f"site{1 + number % 3}"}
    index.write_text(json.dumps(records))
    planned = run("plan.py", "--minutes", "0.3", "--set", "device=cpu", "fold_groups=sites", "max_epochs=2").stdout
    assert "each on all sites but one" in planned
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["folds"], plan["fold_groups"]) == (3, "sites")
    printed = run("train.py").stdout
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert set(metrics["sites"]) == {"site1", "site2", "site3"}
    assert all(f"{site}: cases {values['cases']}, " in printed for site, values in metrics["sites"].items())
    assert (
        sum(values["cases"] for values in metrics["sites"].values()) == len(records) == metrics["validation"]["cases"]
    )
    run("export.py")
    assert len(list((project / "Deliver").glob("model-*.safetensors"))) == 3
    refused = run("plan.py", "--set", "fold_groups=site", check=False)
    assert refused.returncode == 1
