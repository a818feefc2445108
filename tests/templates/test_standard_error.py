"""The standard error of validation figures."""

from __future__ import annotations

import numpy as np
import pytest

from m3b.training.standard_error import MAX_GROUPS, describe_errors, jackknife_errors


def test_the_error_of_a_mean_is_the_usual_one() -> None:
    values = np.random.default_rng(0).normal(0, 1, 23)
    errors = jackknife_errors(range(23), lambda rows: {"dice": float(values[rows].mean())})
    assert errors == {"dice": pytest.approx(values.std(ddof=1) / 23**0.5, abs=1e-4)}
    assert f"{errors['dice']:.3g}" in describe_errors(errors)


def test_cases_of_one_patient_are_left_out_together() -> None:
    """Ten equal cases of each of eight patients say no more than eight cases."""
    values = np.repeat(np.random.default_rng(1).normal(0, 1, 8), 10)

    def measure(rows: np.ndarray) -> dict[str, float]:
        return {"dice": float(values[rows].mean())}

    clustered = jackknife_errors(np.repeat(range(8), 10).tolist(), measure)
    assert clustered["dice"] == pytest.approx(values[::10].std(ddof=1) / 8**0.5, abs=1e-4)
    assert clustered["dice"] > 2 * jackknife_errors(range(80), measure)["dice"]


def test_many_patients_are_left_out_in_groups() -> None:
    values, calls = np.random.default_rng(2).normal(0, 1, 5000), list[int]()

    def measure(rows: np.ndarray) -> dict[str, float]:
        calls.append(len(rows))
        return {"mae": float(values[rows].mean())}

    error = jackknife_errors(range(5000), measure)["mae"]
    assert error == pytest.approx(1 / 5000**0.5, rel=0.3)
    assert len(calls) == MAX_GROUPS


def test_undefined_figures_have_no_error() -> None:
    """Without the one case of a class, its AUROC is no number."""

    def measure(rows: np.ndarray) -> dict[str, float]:
        return {"auroc": 0.9 if 0 in rows else float("nan"), "accuracy": 0.5}

    assert jackknife_errors(range(12), measure) == {"accuracy": 0.0}
    assert jackknife_errors(["p"] * 4, measure) == {}
    assert describe_errors({}) == ""
