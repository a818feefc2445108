"""The cases that networks are not trained on have every class in its share, by patient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from template_kit import load

SEEDS = range(20)


@pytest.fixture
def holdout() -> Any:
    return load("diagnosis.holdout")


def draw_cases(seed: int, cases: int, rare: int, largest: int = 1) -> tuple[list[str], np.ndarray]:
    """Patients, and (N, 2) labels; `rare` patients have the second class, each patient up to `largest` cases."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, largest + 1, cases)
    patients = [f"p{number}" for number, size in enumerate(sizes) for _ in range(size)]
    ill = {f"p{number}" for number in random.permutation(cases)[:rare]}
    labels = np.array([[patient not in ill, patient in ill] for patient in patients], np.float32)
    return patients, labels


@pytest.mark.parametrize(("cases", "rare", "largest"), [(60, 3, 1), (60, 2, 1), (40, 4, 6), (10, 5, 4), (200, 40, 3)])
def test_the_part_that_is_held_out_has_every_class(holdout: Any, cases: int, rare: int, largest: int) -> None:
    """Of a class that few patients have, no case was held out with some seeds."""
    for seed in SEEDS:
        patients, labels = draw_cases(seed, cases, rare, largest)
        plan = {"folds": 1, "validation_share": 0.15, "seed": seed}
        (held_out,) = holdout.assign_held_out(plan, patients, labels)
        assert 0 < labels[held_out, 1].sum() < labels[:, 1].sum()
        assert labels[held_out, 0].sum() > 0
        assert not set(np.array(patients)[held_out]) & set(np.array(patients)[~held_out])
        if rare == 40:
            assert held_out.mean() == pytest.approx(1 / 7, abs=0.02)
            assert labels[held_out, 1].mean() == pytest.approx(labels[:, 1].mean(), abs=0.04)


@pytest.mark.parametrize("rare", [6, 12])
def test_the_part_that_all_folds_hold_out_has_every_class(holdout: Any, rare: int) -> None:
    for seed in SEEDS:
        patients, labels = draw_cases(seed, 80, rare)
        held_out = holdout.assign_held_out({"folds": 5, "cross_validation": True, "seed": seed}, patients, labels)
        shared = held_out.all(axis=0)
        assert 0 < labels[shared, 1].sum() < rare
        assert (labels[:, 1] @ ~held_out.T > 0).all(), "each network is trained on some"


@pytest.mark.parametrize("patients", [2, 3, 4])
def test_few_patients_are_split_too(holdout: Any, patients: int) -> None:
    for seed in SEEDS:
        names, labels = draw_cases(seed, patients, 1, 3)
        (held_out,) = holdout.assign_held_out({"folds": 1, "validation_share": 0.15, "seed": seed}, names, labels)
        assert 0 < held_out.sum() < len(names)


def test_folds_of_sites_hold_out_a_site_and_all_cases_of_its_patients(holdout: Any) -> None:
    sites = ["b", "a", "", "b", "a", "c", ""]
    patients = ["1", "2", "3", "4", "4", "5", "1"]
    plan = {"folds": 3, "fold_groups": "sites", "seed": 0}
    held_out = holdout.assign_held_out(plan, patients, np.ones((7, 1), np.float32), sites)
    assert held_out.astype(int).tolist() == [[0, 1, 0, 1, 1, 0, 0], [1, 0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1, 0]]
    assert holdout.held_out_share(plan) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("sites", "count"), [(["a", "b", "", "b"], 2), (["a", "", "a"], 1), ([f"s{n}" for n in range(21)], 21)]
)
def test_a_fold_a_site_needs_two_to_twenty_sites(sites: list[str], count: int) -> None:
    folds = load("folds")
    plan: dict[str, Any] = {"fold_groups": "sites", "folds": 0}
    assert folds.use_site_folds({"fold_groups": "patients"}, sites) == []
    if count != 2:
        with pytest.raises(SystemExit, match=f"name {count} sites"):
            folds.use_site_folds(plan, sites)
        return
    assert folds.use_site_folds(plan, sites) == ["folds=2"]
    assert (plan["folds"], plan["cross_validation"]) == (2, True)
