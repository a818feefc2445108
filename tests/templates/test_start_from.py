"""`train.py --start-from`: a training that goes on from the weights of a finished one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from template_kit import Run, call

from m3b.resources import copy_template
from m3b.training.earlier_weights import RECORD_FILE, START_FILE, copy_start_weights

SETTINGS = ("--minutes", "0.2", "--set", "device=cpu", "max_steps=2", "batch=4")
EXAMPLES = {
    "diagnosis": ("--cases", "24"),
    "segmentation": (),
    "detection": ("--cases", "16"),
    "report": ("--cases", "40"),
}
NETWORKS = {"diagnosis": ("network.width=8",), "detection": ("network.width=8",)}


def read_parameters(folder: Path) -> dict[str, torch.Tensor]:
    """The kept weights of a network without the statistics of its norms, which change with each batch."""
    tensors = load_file(str(folder / "best.safetensors"))
    return {name: value for name, value in tensors.items() if "running_" not in name and "num_batches" not in name}


@pytest.mark.parametrize(
    ("task", "names", "settings"),
    [
        ("diagnosis", ["fold0"], ()),
        pytest.param("diagnosis", ["fold0", "fold1", "all"], ("folds=2", "refit=true"), marks=pytest.mark.slow),
        pytest.param("segmentation", ["fold0"], ("folds=1",), marks=pytest.mark.slow),
        pytest.param("detection", ["fold0"], ("folds=1",), marks=pytest.mark.slow),
        pytest.param("report", ["report"], (), marks=pytest.mark.slow),
    ],
)
def test_each_network_starts_from_its_earlier_weights(
    tmp_path: Path, task: str, names: list[str], settings: tuple[str, ...]
) -> None:
    project = tmp_path / "work"
    copy_template(task, project)
    call(project, "example/make_example.py", *EXAMPLES[task])
    call(project, "plan.py", *SETTINGS, *NETWORKS.get(task, ()), *settings)
    call(project, "train.py")
    (project / "Logout").rename(project / "Earlier")
    plan = json.loads((project / "plan.json").read_text())
    (project / "plan.json").write_text(json.dumps({**plan, "lr": 0.0}))
    output = call(project, "train.py", "--resume", "--start-from", "Earlier").stdout
    for name in names:
        earlier, now = (read_parameters(project / folder / name) for folder in ("Earlier", "Logout"))
        assert now.keys() == earlier.keys()
        assert all(torch.allclose(now[key], earlier[key]) for key in now), name
        assert f"{name}: starts from the weights" in output
    call(project, "export.py")
    assert (project / "Deliver/predict.py").is_file()


def test_weights_that_are_not_there_or_cannot_be_used(tmp_path: Path) -> None:
    earlier, logout = tmp_path / "Earlier", tmp_path / "Logout"
    logout.mkdir()
    (earlier / "fold0").mkdir(parents=True)
    (earlier / "fold0/best.safetensors").write_bytes(b"weights")
    with pytest.raises(SystemExit, match=r"fold1.best.safetensors missing"):
        copy_start_weights({}, earlier, ["fold0", "fold1"], logout)
    with pytest.raises(SystemExit, match="engine nnunet"):
        copy_start_weights({"engine": "nnunet"}, earlier, ["fold0"], logout)
    assert not list(logout.iterdir())
    (earlier / "start.json").write_text('{"chosen": "scratch"}')
    copy_start_weights({}, earlier, ["fold0"], logout)
    assert (logout / "fold0" / START_FILE).read_bytes() == b"weights"
    assert (logout / "start.json").is_file()
    (earlier / "fold0/best.safetensors").write_bytes(b"others")
    copy_start_weights({}, earlier, ["fold0"], logout)
    assert (logout / "fold0" / START_FILE).read_bytes() == b"weights", "an interrupted training keeps its start"
    assert json.loads((logout / RECORD_FILE).read_text())["networks"] == ["fold0"]


def test_weights_of_another_network(project: Path, run: Run) -> None:
    run("example/make_example.py", *EXAMPLES["diagnosis"])
    run("plan.py", *SETTINGS, "network.width=8")
    from safetensors.torch import save_file

    (project / "Earlier/fold0").mkdir(parents=True)
    save_file({"backbone.head.1.weight": torch.zeros(3, 3)}, project / "Earlier/fold0/best.safetensors")
    done = run("train.py", "--start-from", "Earlier", check=False)
    assert done.returncode == 1
    assert "do not fit the network of this project" in done.stderr
