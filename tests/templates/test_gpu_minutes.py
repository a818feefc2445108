"""Plans of classifiers for GPUs that are not here use the minutes that are paid for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from template_kit import assemble


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = assemble(tmp_path / "work")
    monkeypatch.chdir(place)
    return place


def write_cases(shape: tuple[int, ...], cases: int) -> None:
    """Two files of noise, which all cases name in turn."""
    for number in range(2):
        np.save(f"{number}.npy", np.random.default_rng(number).integers(0, 255, shape, np.uint8))
    records = [
        {"image_path": f"{number % 2}.npy", "labels": ["ab"[number % 2]], "patient": f"p{number}"}
        for number in range(cases)
    ]
    Path("Datapath").mkdir(exist_ok=True)
    Path("Datapath/train.json").write_text(json.dumps(records))
    Path("Datapath/label_dict.json").write_text('{"a": 0, "b": 1}')


def make_dry_plan(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[dict[str, Any], str]:
    from m3b.training.diagnosis import plan as planning

    planning.main(list(options))
    return json.loads(Path("plan.json").read_text()), capsys.readouterr().out


@pytest.mark.parametrize("memory", ["24GB", "80GB"])
@pytest.mark.parametrize(("shape", "cases"), [((96, 96), 60), ((96, 96), 800), ((32, 32, 16), 60)], ids=str)
def test_no_plan_ends_before_its_minutes(
    project: Path, capsys: pytest.CaptureFixture[str], shape: tuple[int, ...], cases: int, memory: str
) -> None:
    """`max_epochs` ended plans of 60 minutes after 4 to 68 % of them."""
    write_cases(shape, cases)
    plan, output = make_dry_plan(capsys, "--device", f"cuda:{memory}", "--minutes", "60")
    assert "max_epochs" not in output
    match = re.search(r"of (\d+) s: (\d+) steps of ([\d.]+) s", output)
    assert match is not None, output
    seconds, steps, step = (float(part) for part in match.groups())
    assert plan["expected"]["steps"] == steps
    assert steps * (step + 0.0005) > 0.8 * seconds, "the time of a step is printed to a millisecond"
    assert plan["patience"] == 0, "the learning rate falls until the minutes are over"


@pytest.mark.parametrize(
    ("setting", "text"), [("max_epochs=1000000", "epochs of"), ("max_epochs=900000", "of max_epochs=900000 epochs of")]
)
def test_epochs_that_were_set_and_do_not_fit_are_told(
    project: Path, capsys: pytest.CaptureFixture[str], setting: str, text: str
) -> None:
    write_cases((32, 32), 24)
    _, output = make_dry_plan(capsys, "--device", "cuda:24GB", "--minutes", "1", "--set", setting)
    assert text in output.splitlines()[-1]


def test_steps_that_were_set_are_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan of `max_steps` said how many steps its minutes hold, such as none."""
    write_cases((32, 32), 24)
    plan, output = make_dry_plan(capsys, "--device", "cuda:24GB", "--minutes", "0.01", "--set", "max_steps=20")
    assert "20 steps (max_steps) of " in output.splitlines()[-1]
    assert plan["expected"]["steps"] == 20
