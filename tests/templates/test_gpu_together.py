"""Several processes train one model (gloo, on processors): the same figures, one log, one checkpoint; a killed one ends all."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest
from template_kit import Run

pytestmark = pytest.mark.slow
SMALL = ("device=cpu", "precision=fp32", "network.width=8", "batch=8", "max_steps=30", "patience=1000")

KILLED_IN_EPOCH = """
from pathlib import Path
from m3b.training.distributed import rank
from m3b.training.loop import TrainingLoop

def die_once(loop, update_average=TrainingLoop.update_average):
    if rank() == 1 and loop.clock.step == 12 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), 9)
    update_average(loop)

TrainingLoop.is_checkpoint_due = lambda loop: True
TrainingLoop.update_average = die_once
"""
LITTLE_MEMORY = """

class Recipe(Recipe):
    def build_network(self, plan, load=True):
        network = super().build_network(plan, load)
        network.register_forward_pre_hook(refuse_large_batch)
        return network


def refuse_large_batch(network, inputs):
    import os

    if network.training and os.environ.get("RANK") == "1" and len(inputs[0]) > 2:
        raise MemoryError("out of memory")
"""
NO_SEARCH_FOR_UNUSED = """
from m3b.training.loop import TrainingLoop

def run_without_search(loop, run=TrainingLoop.run):
    assert loop.model.find_unused_parameters is False
    run(loop)

TrainingLoop.run = run_without_search
"""
SCORED_IN_HALF_PRECISION = """
from m3b.training.precision import autocast
from m3b.training.loop import TrainingLoop

def score_in_half_precision(loop, score=TrainingLoop.score):
    with autocast(loop.plan, loop.device):
        return score(loop)

TrainingLoop.score = score_in_half_precision
"""


def make_plan(project: Path, run: Run, *settings: str) -> None:
    run("example/make_example.py", "--cases", "40")
    run("plan.py", "--minutes", "2", "--set", *SMALL, *settings)


def read_log(project: Path) -> list[dict[str, str]]:
    with (project / "Logout/log.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def insert(file: Path, code: str) -> None:
    """Put code before the last part of a script, or after the class of a recipe."""
    head, mark, tail = file.read_text().partition("\nif __name__")
    file.write_text(head + code + mark + tail)


def test_two_processes_train_as_one_does(project: Path, run: Run) -> None:
    make_plan(project, run, "folds=1")
    assert "processes" not in run("train.py").stdout
    alone = read_log(project)
    run("plan.py", "--keep", "--set", "processes=2")
    insert(project / "train.py", NO_SEARCH_FOR_UNUSED)
    printed = run("train.py").stdout
    both = read_log(project)
    assert "training with 2 processes" in printed
    assert printed.count("done: ") == 1
    assert [row["step"] for row in both] == [row["step"] for row in alone], (
        "as many steps an epoch: the batch is shared"
    )
    assert abs(float(both[-1]["valid_loss"]) - float(alone[-1]["valid_loss"])) < 0.3
    assert json.loads((project / "Logout/fold0/done.json").read_text())["steps"] == 30
    assert not list(project.glob("Logout/*/checkpoint-*"))


@pytest.mark.parametrize("processes", [2, 1])
def test_a_killed_process_ends_the_other_and_the_training_goes_on(project: Path, run: Run, processes: int) -> None:
    make_plan(project, run, "folds=1", "processes=2")
    insert(project / "train.py", KILLED_IN_EPOCH)
    done = run("train.py", check=False)
    ended = time.time() - (project / "killed").stat().st_mtime
    assert done.returncode not in (0, 3, 4)
    assert ended < 60, "the other one was ended, it did not wait for hours"
    assert len(list(project.glob("Logout/fold0/checkpoint-*/complete.json"))) == 1
    run("plan.py", "--keep", "--set", f"processes={processes}")
    printed = run("train.py", "--resume").stdout
    assert ("training with 2 processes" in printed) == (processes == 2)
    assert "going on from checkpoint-" in printed
    assert json.loads((project / "Logout/fold0/done.json").read_text())["steps"] == 30
    assert (project / "Logout/log.csv").read_text().count("valid_loss") == 1


def test_too_little_memory_in_one_process_makes_all_start_again_smaller(project: Path, run: Run) -> None:
    make_plan(project, run, "folds=1", "processes=2")
    insert(project / "recipe.py", LITTLE_MEMORY)
    done = run("train.py")
    assert done.stdout.count("training with 2 processes") == 2
    smaller_plan = json.loads((project / "Logout/fold0/smaller.json").read_text())
    assert (smaller_plan["batch"], smaller_plan["accumulate"]) == (8, 2)
    assert (project / "Logout/metrics.json").exists()


def test_folds_are_trained_side_by_side(project: Path, run: Run) -> None:
    make_plan(project, run, "folds=2", "processes=2")
    printed = run("train.py").stdout
    assert "2 folds, 2 at a time" in printed
    assert {row["fold"] for row in read_log(project)} == {"0", "1"}


def test_scoring_in_half_precision_gives_figures(project: Path, run: Run) -> None:
    """As on a GPU: the scorer runs under autocast."""
    make_plan(project, run, "folds=1")
    run("plan.py", "--keep", "--set", "precision=bf16", "max_steps=8")
    insert(project / "train.py", SCORED_IN_HALF_PRECISION)
    run("train.py")
    assert (project / "Logout/metrics.json").exists()
