"""The order of the cases in several processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SHOW_ORDER = """
import json
from pathlib import Path
import numpy as np
import torch
from accelerate.state import AcceleratorState
from torch.utils.data import Sampler, SubsetRandomSampler, WeightedRandomSampler
from m3b.training.clock import Clock
from m3b.training.diagnosis.recipe import DiagnosisRecipe
from m3b.training.distributed import rank, start_group
from m3b.training.loop import TrainingLoop, TrainingParts
from m3b.training.recipe import use_recipe

class NumpySampler(Sampler):
    def __len__(self):
        return 12

    def __iter__(self):
        yield from np.random.default_rng().permutation(12).tolist()

SAMPLERS = {
    "weighted": lambda: WeightedRandomSampler([1.0] * 12, 12, replacement=False),
    "subset": lambda: SubsetRandomSampler(range(12)),
    "numpy": NumpySampler,
}

class Cases(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, item):
        return {"pixel_values": torch.full((1, 4, 4), float(item))}

class Recipe(DiagnosisRecipe):
    def build_sampler(self, plan, dataset):
        return SAMPLERS[plan["sampler"]]()

class Network(torch.nn.Linear):
    def forward(self, pixel_values):
        return {"loss": super().forward(pixel_values).sum()}

start_group(on_cpu=True)
use_recipe(Recipe())
plan = {"device": "cpu", "precision": "fp32", "workers": 0, "batch": 4, "lr": 0.1, "weight_decay": 0.0, "dims": 2}
plan |= {"max_epochs": 2, "seed": 0}
shown = {name: [] for name in SAMPLERS}
for name, epochs in shown.items():
    parts = TrainingParts(Network(4, 1), Cases(), None)
    loop = TrainingLoop({**plan, "sampler": name}, Path("."), Clock(60.0, 2), parts, "x", seed=0)
    for epoch in range(2):
        loop.clock.step = epoch * loop.epoch_steps
        batches = [batch["pixel_values"][:, 0, 0, 0] for step in loop.steps_of(epoch) for batch in step]
        epochs.append(torch.cat(batches).int().tolist())
Path(f"{rank()}.json").write_text(json.dumps(shown))
"""


@pytest.mark.slow
def test_processes_share_the_items_of_an_epoch(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW_ORDER)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    group = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "show.py"]
    processes = [
        subprocess.Popen(command, cwd=tmp_path, env={**group, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    orders = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for name in ("weighted", "subset", "numpy"):
        epochs = [[*first, *second] for first, second in zip(*(order[name] for order in orders), strict=True)]
        assert [sorted(epoch) for epoch in epochs] == [list(range(12))] * 2, "every case once, in one of the processes"
        assert epochs[0] != epochs[1]
