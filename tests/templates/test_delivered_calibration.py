"""Calibration, thresholds, prediction sets and intervals are those of what is delivered: the average of several networks."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from template_kit import Run

NETWORKS = 5
HELD_OUT_CASES, SHARED_CASES, NEW_CASES = 450, 38, 2000


@pytest.fixture(scope="module")
def parts() -> dict[str, ModuleType]:
    names = {"kinds": "targets", "numbers": "regression", "averaging": "ensemble_calibration"}
    names |= {name: name for name in ("calibration", "survival", "holdout", "followup")}
    return {name: importlib.import_module(f"m3b.training.diagnosis.{module}") for name, module in names.items()}


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Simulation:
    """Logits of networks that differ from each other, and what an ensemble of them answers.

    Attributes:
        logits, labels: of cases of a training set, each by one network; `shared` (networks, M, K) by all, of the first M of them.
        new, truth: (networks, N, K) and labels of cases that come later.
    """

    def __init__(
        self, seed: int, multi: bool = False, classes: int = 3, error: float = 1.0, scale: float = 2.5
    ) -> None:
        rng = np.random.default_rng(seed)
        count = HELD_OUT_CASES + NEW_CASES
        signal = rng.normal(0, 1.2, (count, classes)) - np.arange(classes) / classes
        chances = 1 / (1 + np.exp(-signal)) if multi else softmax(signal)
        is_below_cumulative = rng.random((count, 1)) < chances.cumsum(axis=1)
        self.every = (
            (rng.random(chances.shape) < chances).astype(float)
            if multi
            else np.eye(classes)[is_below_cumulative.argmax(axis=1)]
        )
        # errors differ in size from case to case, and have a part that all cases of a network share
        size = error * rng.gamma(4, 0.25, (count, 1)) * rng.normal(0, 1, (NETWORKS, count, classes))
        offset = rng.normal(0, 0.3, (NETWORKS, 1, classes))
        scales = (
            scale * np.array([0.1, 0.8, 1.0, 1.1, 1.2])[:, None, None]
        )  # a network whose first weights were kept is nearly blind
        table = scales * (signal + size + offset)
        self.networks = np.arange(HELD_OUT_CASES) % NETWORKS
        self.logits, self.labels = table[self.networks, np.arange(HELD_OUT_CASES)], self.every[:HELD_OUT_CASES]
        self.shared = table[:, :SHARED_CASES]
        self.new, self.truth = table[:, HELD_OUT_CASES:], self.every[HELD_OUT_CASES:]
        self.patients = [f"p{case}" for case in range(HELD_OUT_CASES)]


def kind_of(parts: dict[str, ModuleType], multi: bool = False, classes: int = 3) -> Any:
    plan = {"task": "diagnosis", "classes": [f"c{k}" for k in range(classes)], "multi_label": multi}
    return parts["kinds"].get_target(plan)


def ensemble_probabilities(
    parts: dict[str, ModuleType], calibration: dict[str, Any], new: np.ndarray, multi: bool
) -> np.ndarray:
    """Probabilities as predict.py gives them."""
    adjusted = parts["calibration"].apply_calibration(new.mean(axis=0), calibration)
    return np.asarray(parts["calibration"].probabilities(adjusted, multi))


@pytest.mark.parametrize("multi", [False, True])
def test_the_delivered_average_is_as_calibrated_as_a_perfect_model_of_so_many_cases(
    multi: bool, parts: dict[str, ModuleType]
) -> None:
    """Fitted on single networks, and their probabilities averaged, it was less certain than it was right."""
    error_of, rng, cases = parts["calibration"].calibration_error, np.random.default_rng(1), 300
    errors, before, perfect = [], [], []
    for seed in range(12):
        data = Simulation(seed, multi)
        calibration = kind_of(parts, multi).calibrate(
            data.logits, data.labels, data.patients, data.shared, data.networks
        )
        p, truth = ensemble_probabilities(parts, calibration, data.new, multi)[:cases], data.truth[:cases]
        errors.append(error_of(p, truth, multi))
        single_calibration = parts["calibration"].fit_calibration(data.logits, data.labels, multi)
        alone = [
            ensemble_probabilities(parts, single_calibration, network[None], multi)[:cases] for network in data.new
        ]
        before.append(error_of(np.mean(alone, axis=0), truth, multi))
        chance = []
        for _ in range(60):
            sampled_classes = (rng.random((cases, 1)) < p.cumsum(axis=1)).argmax(axis=1)
            chance.append(error_of(p, (rng.random(p.shape) < p) * 1.0 if multi else np.eye(3)[sampled_classes], multi))
        perfect.append(np.quantile(chance, 0.95))
    assert np.mean(errors) <= np.mean(perfect) < np.mean(before), (errors, perfect, before)


@pytest.mark.parametrize(("multi", "classes"), [(False, 3), (False, 7), (True, 3)])
def test_sets_of_the_delivered_average_hold_what_they_promise(
    multi: bool, classes: int, parts: dict[str, ModuleType]
) -> None:
    """Sets of 90 % held the true class of 95 %."""
    covered = []
    for seed in range(12):
        data = Simulation(seed, multi, classes)
        calibration = kind_of(parts, multi, classes).calibrate(
            data.logits, data.labels, data.patients, data.shared, data.networks
        )
        assert calibration["sets"]["patients"] == HELD_OUT_CASES
        in_set = ensemble_probabilities(parts, calibration, data.new, multi) >= np.array(calibration["sets"]["cuts"])
        covered.append(in_set[data.truth > 0.5].mean())
    assert 0.88 <= np.mean(covered) <= 0.92, covered


def test_thresholds_of_the_delivered_average_have_its_best_f1(parts: dict[str, ModuleType]) -> None:
    def f1(scores: np.ndarray, truth: np.ndarray, cuts: Any) -> float:
        is_positive = scores >= np.array(cuts)
        return float((2 * (is_positive & (truth > 0.5)).sum(0) / (is_positive.sum(0) + truth.sum(0))).mean())

    lost = []
    for seed in range(8):
        data = Simulation(seed, multi=True)
        calibration = kind_of(parts, True).calibrate(
            data.logits, data.labels, data.patients, data.shared, data.networks
        )
        scores = ensemble_probabilities(parts, calibration, data.new, True)
        best = parts["calibration"].best_thresholds(scores, data.truth > 0.5)
        lost.append(f1(scores, data.truth, best) - f1(scores, data.truth, calibration["thresholds"]))
    assert np.mean(lost) < 0.015, lost


def test_intervals_of_the_delivered_average_hold_what_they_promise(parts: dict[str, ModuleType]) -> None:
    plan = {"task": "regression", "classes": ["age"], "multi_label": False, "number": {"centre": 50.0, "scale": 10.0}}
    kind, coverages, before = parts["numbers"].NumberTarget(plan), [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = rng.normal(0, 1, HELD_OUT_CASES + NEW_CASES)
        common = truth + rng.normal(0, 0.3, HELD_OUT_CASES + NEW_CASES)
        table = common + rng.normal(0, 0.5, (NETWORKS, HELD_OUT_CASES + NEW_CASES))
        logits = table[np.arange(HELD_OUT_CASES) % NETWORKS, np.arange(HELD_OUT_CASES)][:, None]
        labels, shared = truth[:HELD_OUT_CASES, None], table[:, :SHARED_CASES, None]
        calibration = kind.calibrate(logits, labels, [], shared, np.arange(HELD_OUT_CASES) % NETWORKS)
        errors = 10 * np.abs(table[:, HELD_OUT_CASES:].mean(axis=0) - truth[HELD_OUT_CASES:])
        coverages.append((errors <= calibration["interval"]["reach"]).mean())
        before.append((errors <= calibration["alone"][0]["interval"]["reach"]).mean())
    assert 0.88 <= np.mean(coverages) <= 0.92, coverages
    assert np.mean(before) > 0.96


def test_survival_curves_of_the_delivered_average_are_likelier(parts: dict[str, ModuleType]) -> None:
    edges, rng = [1.0, 2.0, 3.0, 4.0], np.random.default_rng(0)
    kind = parts["survival"].SurvivalTarget({"classes": ["death"], "multi_label": False, "edges": edges})
    count = HELD_OUT_CASES + NEW_CASES
    signal = rng.normal(-1.2, 1.2, (count, 1)) + np.zeros((1, 4))
    came = rng.random((count, 4)) < 1 / (1 + np.exp(-signal))
    labels = np.stack([np.where(came.any(1), came.argmax(1) + 0.5, 4.0), came.any(1)], axis=1)
    table = signal + rng.normal(0, 0.8, (NETWORKS, count, 1)) + rng.normal(0, 0.2, (NETWORKS, count, 4))
    logits = table[np.arange(HELD_OUT_CASES) % NETWORKS, np.arange(HELD_OUT_CASES)]
    calibration = kind.calibrate(
        logits, labels[:HELD_OUT_CASES], [], table[:, :SHARED_CASES], np.arange(HELD_OUT_CASES) % NETWORKS
    )
    new = table[:, HELD_OUT_CASES:].mean(axis=0)
    losses = [
        kind.view_loss(parts["calibration"].apply_calibration(new, config), labels[HELD_OUT_CASES:])
        for config in (calibration, kind.calibrate(logits, labels[:HELD_OUT_CASES], []))
    ]
    assert losses[0] < losses[1] - 0.01


def test_a_single_network_or_an_average_that_answers_itself_is_fitted_as_it_is(parts: dict[str, ModuleType]) -> None:
    data, kind = Simulation(0), kind_of(parts)
    calibration = kind.calibrate(data.logits, data.labels, data.patients)
    assert "alone" not in calibration
    again = kind.calibrate(data.logits, data.labels, data.patients, data.shared, data.networks)
    assert again["temperature"] < 0.8 * calibration["temperature"]
    temperatures = [network["temperature"] for network in again["alone"]]
    assert temperatures[0] < min(temperatures[1:]) / 3, "the logits of the network that is nearly blind are small"


def test_a_handful_of_cases_does_not_make_the_average_certain(parts: dict[str, ModuleType]) -> None:
    """With nothing fitted for single networks, the average of weak ones was made certain by a temperature of 0.4."""
    labels = np.eye(2)[np.arange(6) % 2]
    shared = 0.4 * labels[None, :2] + np.random.default_rng(0).normal(0, 0.5, (NETWORKS, 2, 2))
    calibration = kind_of(parts, classes=2).calibrate(
        0.4 * labels, labels, list("abcdef"), shared, np.arange(6) % NETWORKS
    )
    assert 0.5 < calibration["temperature"] <= 1.0


def plan_of(**changes: Any) -> dict[str, Any]:
    return {"folds": 5, "refit": False, "cross_validation": True, "validation_share": 0.15, "seed": 0} | changes


def test_each_fold_and_a_shared_part_are_held_out(parts: dict[str, ModuleType]) -> None:
    people = [f"p{case // 2}" for case in range(240)]
    strata = np.eye(3)[np.arange(240) % 3]
    holdout = parts["holdout"]
    held_out = holdout.assign_held_out(plan_of(), people, strata)
    assert held_out.shape == (5, 240)
    shared = held_out.all(axis=0)
    assert shared.sum() == pytest.approx(20, abs=2)
    assert (held_out[:, ~shared].sum(axis=0) == 1).all(), "every other case is held out once"
    assert holdout.held_out_share(plan_of()) == pytest.approx(held_out.mean(), abs=0.01)
    for row in held_out:
        assert not {people[case] for case in np.flatnonzero(row)} & {people[case] for case in np.flatnonzero(~row)}


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        pytest.param({"cross_validation": False}, 0.15, id="the same cases are held out from all networks"),
        pytest.param({"folds": 1}, 0.15, id="one network"),
        pytest.param({"refit": True}, 0.2, id="a refit is a single network, so every case is in a fold"),
    ],
)
def test_no_further_part_is_held_out_if_none_is_needed(
    changes: dict[str, Any], share: float, parts: dict[str, ModuleType]
) -> None:
    plan = plan_of(**changes)
    held_out = parts["holdout"].assign_held_out(plan, [f"p{case}" for case in range(200)], np.zeros((200, 0)))
    assert len(held_out) == plan["folds"]
    assert (
        held_out.mean()
        == pytest.approx(share, abs=0.02)
        == pytest.approx(parts["holdout"].held_out_share(plan), abs=0.02)
    )
    assert held_out.all(axis=0).any() == (not plan["refit"])


@pytest.mark.parametrize("patients", [3, 9, 12])
def test_so_few_patients_that_each_is_needed_are_still_shared_out(patients: int, parts: dict[str, ModuleType]) -> None:
    people = [f"p{case % patients}" for case in range(60)]
    held_out = parts["holdout"].assign_held_out(plan_of(folds=3), people, np.zeros((60, 0)))
    assert held_out.any(axis=1).all()
    assert (~held_out).any(axis=1).all()
    assert held_out.all(axis=0).any() == (patients >= 6)


SETTINGS = ("device=cpu", "network.width=8", "size=[24,24]", "max_steps=30", "threads=1", "precision=fp32")


def train_example(run: Run, project: Path, *settings: str, cases: int = 100) -> dict[str, Any]:
    run("example/make_example.py", "--cases", str(cases))
    run("plan.py", "--minutes", "3", "--set", *SETTINGS, *settings)
    run("train.py")
    run("export.py")
    return dict(json.loads((project / "Deliver/config.json").read_text()))


def predict_images(run: Run, project: Path, images: list[Any], **changes: Any) -> list[dict[str, Any]]:
    """What the deliverable says with some entries of its config changed."""
    file = project / "Deliver/config.json"
    text = file.read_text()
    file.write_text(json.dumps({**json.loads(text), **changes}))
    (project / "list.json").write_text(json.dumps(images))
    run("Deliver/predict.py", "--list", "list.json", "-o", "out.json")
    file.write_text(text)
    return list(json.loads((project / "out.json").read_text()))


def test_what_is_stored_follows_from_the_answers_of_the_delivered_model(
    project: Path, run: Run, parts: dict[str, ModuleType]
) -> None:
    config = train_example(run, project, "folds=3", "cross_validation=false", cases=160)
    assert len(config["weights"]) == 3
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert {row["fold"] for row in rows} == {-1}, "no network was trained on any of them, and all answer together"
    answers = predict_images(run, project, [row["image"] for row in rows], temperature=1.0, bias=0.0)
    logits = np.log([list(answer["probabilities"].values()) for answer in answers])
    labels = np.array([[float(name in row["labels"]) for name in config["classes"]] for row in rows])
    kind = parts["kinds"].get_target({"task": "diagnosis", "classes": config["classes"], "multi_label": False})
    people = importlib.import_module("m3b.training.patients").list_patients(
        [{**row, "image_path": row["image"]} for row in rows]
    )
    again = kind.calibrate(logits, labels, people)
    for name in ("temperature", "bias", "thresholds"):
        assert config[name] == pytest.approx(again[name], abs=2e-3), name
    assert config["sets"].keys() == again["sets"].keys()
    assert config["sets"].get("cuts", []) == pytest.approx(again["sets"].get("cuts", []), abs=2e-3)
    assert len(json.loads((project / "Logout/metrics.json").read_text())["networks"]) == 3


def test_folds_answer_by_themselves_what_they_have_not_seen_and_together_what_none_has(
    project: Path, run: Run, parts: dict[str, ModuleType]
) -> None:
    config = train_example(run, project, "folds=3")
    rows = json.loads((project / "Logout/valid_predictions.json").read_text())
    assert {row["fold"] for row in rows} == {0, 1, 2}
    assert len(rows) == len(json.loads((project / "Datapath/train.json").read_text()))
    stored = np.load(project / "Logout/valid_logits.npz")
    kind = parts["kinds"].get_target({"task": "diagnosis", "classes": config["classes"], "multi_label": False})
    people = importlib.import_module("m3b.training.patients").list_patients(
        [{**row, "image_path": row["image"]} for row in rows]
    )
    again = kind.calibrate(
        stored["logits"], stored["labels"], people, stored["shared"], np.array([row["fold"] for row in rows])
    )
    again["alone"] = dict(zip(config["weights"], again["alone"], strict=True))
    for name in ("temperature", "bias", "thresholds", "sets", "alone"):
        assert config[name] == again[name], name
    files, calibrated = config["weights"], parts["calibration"]
    fold_rows = [row for row in rows if row["fold"] == 1]
    answers = predict_images(run, project, [row["image"] for row in fold_rows], weights=files[1:2])
    places = [at for at, row in enumerate(rows) if row["fold"] == 1]
    expected = calibrated.probabilities(
        calibrated.apply_calibration(stored["logits"][places], config["alone"][files[1]]), False
    )
    probabilities = np.array([list(answer["probabilities"].values()) for answer in answers])
    assert probabilities == pytest.approx(expected, abs=2e-4), "a network alone is calibrated as such"
    together = predict_images(run, project, [row["image"] for row in rows])
    probabilities = np.array([list(answer["probabilities"].values()) for answer in together])
    means = calibrated.probabilities(calibrated.apply_calibration(stored["shared"].mean(axis=0), config), False)
    distances = np.abs(probabilities[:, None] - means[None]).max(axis=2)
    assert distances.min(axis=0).max() < 2e-4, "the average that is calibrated is the one that answers"
