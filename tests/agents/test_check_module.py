"""What the third role hands over: a project that is really run for a moment, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from m3b.agents.artifacts import TrainingModule
from m3b.agents.check_result import CheckResult
from m3b.agents.checks.module import OWN_CODE_FILES, PROBE_SCRIPT, REQUIRED_FILES, CommandResult, check_module
from m3b.isolation.sandbox import choose_sandbox
from m3b.run.folder import RunFolder
from m3b.run.sandbox_executor import SandboxExecutor

CLASSES = ("a", "b")
LOADER = """
import torch

class Cases:
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, at):
        torch.manual_seed(at)
        label = torch.tensor([float(at % 2 == 0), float(at % 2 == 1)])
        pixels = PIXELS
        return {"pixel_values": pixels, "labels": label}

def build_datasets(plan):
    return Cases(plan["train"]), Cases(4)
"""
NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU())
        self.drop = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(16, outputs)
    def forward(self, pixel_values, labels=None):
        logits = self.head(self.drop(self.body(pixel_values)))
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": torch.nn.functional.cross_entropy(logits, LABELS)}

def build_model(plan):
    return Net(plan["outputs"])
"""


def make_project(
    work: Path, *, pixels: str = "torch.randn(1, 8, 8)", labels: str = "labels", network: str = NETWORK, **plan: Any
) -> Path:
    files = dict.fromkeys((*REQUIRED_FILES, *OWN_CODE_FILES), "")
    files["plan.json"] = json.dumps({"train": 32, "outputs": 2, **plan})
    files["Datapath/dataloader.py"] = LOADER.replace("PIXELS", pixels)
    files["Model/network.py"] = network.replace("LABELS", labels)
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    return work


class Place:
    """A run folder and m3b's own way of running its probe in it."""

    def __init__(self, folder: Path, sandbox: str) -> None:
        self.run = RunFolder.create(folder)
        self.executor = SandboxExecutor(choose_sandbox(sandbox), self.run, (), lambda: False)

    def check(self, **project: Any) -> CheckResult:
        make_project(self.run.work, **project)
        return check_module(self.run.work, CLASSES, self.executor.run_probe)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "run", "auto")


# --- really run --------------------------------------------------------------------------------------------------


def test_a_good_project_in_the_sandbox(tmp_path: Path) -> None:
    place = Place(tmp_path / "run", "auto")
    verdict = place.check()
    assert verdict.is_accepted, verdict.agent_messages
    assert verdict.warnings == ()
    module = verdict.artifact
    assert isinstance(module, TrainingModule)
    assert module.batch_shape == (8, 1, 8, 8)
    assert module.parameters == 64 * 16 + 16 + 16 * 2 + 2
    assert module.overfit[1] < 0.7 * module.overfit[0]
    assert module.plan == {"train": 32, "outputs": 2}
    assert [path.name for path in place.run.path.iterdir() if path.name.startswith(".output")] == []


def test_a_project_with_several_things_wrong_names_them_all(place: Place) -> None:
    pixels = "torch.full((1, 8, 8), float('nan') if at % 2 else 100.0, dtype=torch.float64).to(torch.float32)"
    verdict = place.check(pixels=pixels, outputs=3, labels="torch.nn.functional.pad(labels, (0, 1))")
    assert {"wrong_outputs", "input_not_finite", "loss_not_finite"} <= set(verdict.to_rejection().codes)


def test_a_constant_input_and_a_loss_that_does_not_fall(place: Place) -> None:
    verdict = place.check(pixels="torch.zeros(1, 8, 8)")
    assert verdict.to_rejection().codes == ("constant_input", "does_not_overfit")


@pytest.mark.parametrize(
    ("project", "words"),
    [
        ({"train": 0}, "fails in build_datasets: ValueError: build_datasets gives 0 training"),
        ({"network": "import nowhere\n"}, "fails in the import of the project: ModuleNotFoundError"),
        ({"pixels": "torch.randn(1, 8, 8 + at)"}, "fails in a batch of build_datasets"),
        ({"network": NETWORK.replace("Linear(64", "Linear(65")}, "fails in one batch through the model: RuntimeError"),
        ({"network": "import os\nos._exit(7)\n"}, "does not run (exit code 7)"),
    ],
)
def test_the_step_that_fails_is_named(place: Place, project: dict[str, Any], words: str) -> None:
    verdict = place.check(**project)
    assert len(verdict.agent_messages) == 1
    assert words in verdict.agent_messages[0]


def test_a_broken_plan(place: Place) -> None:
    make_project(place.run.work)
    (place.run.work / "plan.json").write_text("{")
    verdict = check_module(place.run.work, CLASSES, place.executor.run_probe)
    assert "fails in plan.json: JSONDecodeError" in verdict.agent_messages[0]


# --- judged ------------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "step": "done", "error": "", "shape": [8, 1, 8, 8], "dtype": "float32", "label_width": 2, "finite": True,
    "range": [-2.0, 3.0], "parameters": 10, "outputs": 2, "same_outputs": False, "loss_before": 0.7, "loss_after": 0.1,
    "steps": 40, "loss_finite": True,
}  # fmt: skip


def printed(text: str, code: int = 0, reason: str = "exit") -> Callable[[Path], CommandResult]:
    def run(file: Path, *words: str) -> CommandResult:
        assert file == PROBE_SCRIPT
        return CommandResult(code, reason, text)

    return run


def report(**changes: Any) -> Callable[[Path], CommandResult]:
    return printed(f"a warning\nM3B-PROBE {json.dumps({**GOOD, **changes})}\n")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"outputs": 1}, "wrong_outputs"),
        ({"label_width": 1}, "wrong_label_width"),
        ({"dtype": "float64"}, "wrong_dtype"),
        ({"finite": False, "range": [float("nan")] * 2}, "input_not_finite"),
        ({"range": [1.0, 1.0]}, "constant_input"),
        ({"range": [0.0, 255.0]}, "input_range"),
        ({"loss_finite": False, "loss_after": float("nan")}, "loss_not_finite"),
        ({"loss_after": 0.69}, "does_not_overfit"),
    ],
)
def test_each_fault_alone(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    verdict = check_module(make_project(tmp_path), CLASSES, report(**changes))
    assert [issue.code for issue in verdict.issues] == [code]


@pytest.mark.parametrize(
    ("plan", "outputs", "fits"),
    [
        ({"target": "boxes", "dims": 2}, 10, True),  # a heat map and four sides for each of two classes
        ({"target": "boxes", "dims": 3}, 14, True),
        ({"target": "boxes", "dims": 3}, 10, False),
        ({"target": "boxes", "dims": 2}, 2, False),
        ({"target": "masks", "dims": 2}, 10, False),
        ({"target": "masks", "dims": 2}, 3, True),  # the background has a channel of its own
    ],
)
def test_the_outputs_of_a_detector(tmp_path: Path, plan: dict[str, Any], outputs: int, fits: bool) -> None:
    work = make_project(tmp_path, **plan)
    verdict = check_module(work, CLASSES, report(outputs=outputs), "detection")
    assert verdict.is_accepted == fits, verdict.agent_messages
    assert fits or verdict.issues[0].code == "wrong_outputs"


def test_outputs_that_ignore_the_image_are_a_note(tmp_path: Path) -> None:
    verdict = check_module(make_project(tmp_path), CLASSES, report(same_outputs=True))
    assert verdict.is_accepted
    assert "same output" in verdict.warnings[0]


@pytest.mark.parametrize("name", REQUIRED_FILES)
def test_each_file_is_needed(tmp_path: Path, name: str) -> None:
    work = make_project(tmp_path)
    (work / name).unlink()
    verdict = check_module(work, CLASSES, report())
    assert verdict.issues[0].code == "project_incomplete"
    assert name in verdict.agent_messages[0]
    assert ("Run `python plan.py`" in verdict.agent_messages[0]) == (name == "plan.json")


@pytest.mark.parametrize(
    "text", ["", "M3B-PROBE {", "M3B-PROBE []", "M3B-PROBE {}", 'M3B-PROBE {"error": "x"}', "M3B-PROBE " + "[" * 99_999]
)
def test_no_report(tmp_path: Path, text: str) -> None:
    verdict = check_module(make_project(tmp_path), CLASSES, printed(text, 139))
    assert verdict.issues[0].code == "project_does_not_run"
    assert "139" in verdict.agent_messages[0], "the exit code"


def test_a_probe_that_was_ended(tmp_path: Path) -> None:
    lines = "\n".join(f"line {number}" for number in range(50))
    verdict = check_module(make_project(tmp_path), CLASSES, printed(lines, 137, "memory"))
    assert "ended by m3b: memory" in verdict.agent_messages[0]
    assert "line 49" in verdict.agent_messages[0]
    assert "line 3\n" not in verdict.agent_messages[0], "the tail is enough"
