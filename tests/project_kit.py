"""The parts that the tests' tiny training projects have in common, and the calls of the scripted models that write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from m3b.messages import Reply
from m3b.testing.scripted_model import call

DATALOADER = """
import json
import torch
from features import features

class Cases:
    def __init__(self, rows, names):
        self.rows, self.names = rows, names
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, at):
        row = self.rows[at]
        labels = torch.tensor([float(name in row["labels"]) for name in self.names])
        return {"pixel_values": torch.from_numpy(features(row["image_path"])), "labels": labels}

def build_datasets(plan):
    rows = json.load(open("Datapath/train.json"))
    names = list(json.load(open("Datapath/label_dict.json")))
    return Cases(rows[::2], names), Cases(rows[1::2], names)
"""

NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(INPUTS, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    def forward(self, pixel_values, labels=None):
        logits = self.layers(pixel_values)
        answer = {"logits": logits}
        if labels is not None:
            answer["loss"] = torch.nn.functional.cross_entropy(logits, labels)
        return answer

def build_model(plan):
    return Net()
"""

EXPORT = """
import json, shutil
from pathlib import Path
out = Path("Deliver")
out.mkdir(exist_ok=True)
shutil.copy("Logout/best.safetensors", out / "model.safetensors")
shutil.copy("deliver/predict.py", out / "predict.py")
shutil.copy("features.py", out / "features.py")
names = list(json.load(open("Datapath/label_dict.json")))
(out / "config.json").write_text(json.dumps({"classes": names, "multi_label": False}))
(out / "README.md").write_text("# TITLE" + chr(10))
(out / "requirements.txt").write_text("numpy" + chr(10) + "pillow" + chr(10) + "safetensors" + chr(10))
print("exported")
"""


def project(features: str, train: str, predict: str, *, title: str, inputs: int, classes: int) -> dict[str, str]:
    """Files of a project whose network sees `inputs` numbers of an image, by path.

    Args:
        features, train, predict: the sources of features.py, train.py and deliver/predict.py.
    """
    return {
        "features.py": features,
        "plan.json": json.dumps({"seed": 0}),
        "plan.py": "print(open('plan.json').read())\n",
        "Datapath/dataloader.py": DATALOADER,
        "Model/network.py": NETWORK.replace("INPUTS", str(inputs)).replace("CLASSES", str(classes)),
        "Loss/loss.py": "# cross entropy, in Model/network.py\n",
        "train.py": train,
        "export.py": EXPORT.replace("TITLE", title),
        "deliver/predict.py": predict,
    }


def write(files: Mapping[str, str]) -> Reply:
    """A call that writes files."""
    return call("write_files", files=[{"path": name, "content": text} for name, text in files.items()])


def script(command: str, **options: Any) -> Reply:
    return call("run_script", command=command, **options)
