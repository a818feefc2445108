"""Plans for machines that are not here: of projects, in a copy that leaves them as they are; wrong use is refused in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from m3b.errors import DataError, UsageError
from m3b.isolation.sandbox import choose_sandbox
from m3b.resources import copy_template
from m3b.run.dry_run import PlanOptions, is_project, make_dry_plan
from warm.commands import run_python

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "resources" / "templates"


def test_the_command_line_of_plan_py() -> None:
    assert PlanOptions().to_arguments() == ["--device", "auto", "--minutes", "10"]
    options = PlanOptions("cuda:80GB", 8, 60, ("lr=0.1", "batch=4"))
    assert options.to_arguments() == [
        "--device", "cuda:80GB", "--minutes", "60", "--gpus", "8", "--set", "lr=0.1", "batch=4"
    ]  # fmt: skip


def test_raw_data_needs_a_request(tmp_path: Path) -> None:
    assert not is_project(tmp_path)
    with pytest.raises(UsageError, match="what the model should do"):
        make_dry_plan(tmp_path, PlanOptions("cuda:24GB"), choose_sandbox())


def test_what_a_plan_ends_with_is_said(tmp_path: Path) -> None:
    """A project whose plan.py refuses: its last line is the answer, and the project stays as it is."""
    (tmp_path / "Datapath").mkdir()
    (tmp_path / "Datapath/train.json").write_text("[]")
    for line, kind in (("--device gpu: known are auto", UsageError), ("the images cannot be read", DataError)):
        (tmp_path / "plan.py").write_text(f"open('here', 'w')\nraise SystemExit({line!r})\n")
        with pytest.raises(kind, match=line.split(":")[0]):
            make_dry_plan(tmp_path, PlanOptions("gpu"), choose_sandbox())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["Datapath", "plan.py"]


def test_a_file_that_goes_away_with_the_copy_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "Datapath").mkdir()
    (tmp_path / "Datapath/train.json").write_text("[]")
    print_lines = "print('2 cases'); print('wrote plan.json (every run starts afresh)'); print('1 step')\n"
    (tmp_path / "plan.py").write_text(f"{print_lines}open('plan.json', 'w').write('{{}}')\n")
    assert make_dry_plan(tmp_path, PlanOptions(), choose_sandbox()).output.splitlines() == ["2 cases", "1 step"]


@pytest.mark.slow
def test_plans_for_8_and_140_gb_differ_and_the_project_stays(tmp_path: Path) -> None:
    """Large volumes of four channels: the patch, or its parts, follow from the memory."""
    project = tmp_path / "project"
    copy_template("segmentation", project)
    run_python("example/make_example.py", cwd=project, check=True)
    plan = project / "plan.py"
    larger_shapes = (
        "import numpy as np\n\nfrom m3b.training.segmentation import plan\n\nmeasure_cases = plan.measure_cases\n"
        "def measure_larger_cases(*arguments):\n    facts = measure_cases(*arguments)\n"
        "    return {**facts, 'shapes': np.tile([320, 320, 240], (len(facts['shapes']), 1))}\n\n"
        "plan.measure_cases = measure_larger_cases\n"
    )
    plan.write_text(plan.read_text().replace("\nif __name__", f"{larger_shapes}\nif __name__"))
    before = sorted(file.name for file in project.iterdir())
    dry_plans = {gb: make_dry_plan(project, PlanOptions(f"cuda:{gb}GB", 1, 240), choose_sandbox()) for gb in (8, 140)}
    small, wide = (dry_plans[gb].plan for gb in (8, 140))
    assert small["machine"]["memory_gb"] == 8
    assert json.dumps([small["patch"], small["batch"]]) != json.dumps([wide["patch"], wide["batch"]])
    assert wide["batch"] * wide["patch"][0] > small["batch"] * small["patch"][0] / small.get("accumulate", 1)
    for dry_plan in dry_plans.values():
        assert "GPU memory" in dry_plan.output
        assert "nothing is measured" in dry_plan.output
    assert sorted(file.name for file in project.iterdir()) == before


@pytest.mark.slow
def test_the_benchmark_of_gpus_runs_without_one_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "gpu.py", "classes-28-few", "--set", "network.width=8", "--seconds", "1"],
        capture_output=True,
        text=True,
        cwd=ROOT / "benchmarks",
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "NO GPU HERE" in done.stdout
    assert any(line.startswith("| classes-28-few | 16 |") for line in done.stdout.splitlines())
