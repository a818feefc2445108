"""kill -9 at the events of a run: the next process makes the same Result of it, asks no model again, runs no call again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kill_kit import STAGED, check_survived, ended, outcome
from pipeline_kit import journal

KILLED = -9


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, spots: Path) -> tuple[dict[str, Any], list[str]]:
    """The outcome of a run that nobody kills, and the kinds of its events."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert ended(run, spots) == 0
    expected = outcome(run)
    assert expected["status"] == "completed"
    return expected, [event["kind"] for event in journal(run)]


def survives(run: Path, spots: Path, at: int, expected: dict[str, Any]) -> None:
    assert ended(run, spots, at) == KILLED
    assert ended(run, spots) == 0
    check_survived(run, expected)


@pytest.mark.parametrize("kind", ["call", pytest.param("reply", marks=[pytest.mark.slow, pytest.mark.confined])])
def test_a_kill_at_an_event(
    tmp_path: Path, spots: Path, undisturbed: tuple[dict[str, Any], list[str]], kind: str
) -> None:
    """At the last event of this kind: within the Model Trainer's work."""
    expected, kinds = undisturbed
    at = len(kinds) - kinds[::-1].index(kind)
    survives(tmp_path / "run", spots, at, expected)


def test_a_kill_while_test_images_are_staged(
    tmp_path: Path, spots: Path, undisturbed: tuple[dict[str, Any], list[str]]
) -> None:
    """The copies that it left behind are removed when the run goes on."""
    run = tmp_path / "run"
    assert ended(run, spots, STAGED) == KILLED
    assert len(list(run.glob(".staged-*/cases/case_*"))) > 1
    assert ended(run, spots) == 0
    check_survived(run, undisturbed[0])


@pytest.mark.slow
@pytest.mark.confined
def test_kills_one_after_the_other(tmp_path: Path, spots: Path, undisturbed: tuple[dict[str, Any], list[str]]) -> None:
    """Each process lives for some events: what it made of the run is enough for the next to get further.

    A check that was cut short is made again as a whole, so that a life has to be longer than that of the index, which
    tells ten events from `run_started` to the accepted artifact.
    """
    run, expected = tmp_path / "run", undisturbed[0]
    ends = []
    while not ends or (ends[-1] == KILLED and len(ends) < 20):
        ends.append(ended(run, spots, 12))
    assert ends[-1] == 0, f"no end after {len(ends)} processes"
    assert len(ends) > 3
    check_survived(run, expected)


@pytest.mark.slow
@pytest.mark.confined
def test_a_kill_at_every_event(tmp_path: Path, spots: Path, undisturbed: tuple[dict[str, Any], list[str]]) -> None:
    expected, kinds = undisturbed
    for at in range(1, len(kinds)):
        survives(tmp_path / str(at) / "run", spots, at, expected)
