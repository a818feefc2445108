"""The environment of a command in the sandbox."""

from __future__ import annotations

import pytest

from m3b.sandbox.environment import variables


def test_threads_wait_without_spinning_and_nothing_of_the_caller_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "of the caller")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    made = variables("/tmp", {"MORE": "1"})
    assert made["OMP_WAIT_POLICY"] == "PASSIVE"
    assert (made["HOME"], made["MORE"]) == ("/tmp", "1")
    assert "SECRET_KEY" not in made
