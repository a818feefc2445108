"""The environment of a command in the sandbox."""

from __future__ import annotations

import pytest

from m3b.isolation.sandbox import environment
from m3b.isolation.sandbox.environment import command_environment


def test_nothing_of_the_caller_is_passed_on_but_devices_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "of the caller")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # two threads that sleep at every wait are slower than one
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    variables = command_environment("/tmp", {"MORE": "1"})
    assert (variables["HOME"], variables["MORE"], variables["CUDA_VISIBLE_DEVICES"]) == ("/tmp", "1", "1")
    assert not {"SECRET_KEY", "OMP_WAIT_POLICY"} & set(variables)


@pytest.mark.parametrize(
    ("omp_num_threads", "threads"),
    [("", "4"), ("1", "1"), ("3,1", "3"), ("64", "4"), ("0", "1"), ("many", "4"), ("-2", "4")],
)
def test_omp_num_threads_lowers_the_threads(
    monkeypatch: pytest.MonkeyPatch, omp_num_threads: str, threads: str
) -> None:
    monkeypatch.setattr(environment, "count_usable_cpus", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", omp_num_threads)
    variables = command_environment("/tmp", {})
    assert {variables[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS")} == {threads}
