"""Whole cells in seconds: a small kidney stand-in, a scripted model that plays all roles, and ways to cheat."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from m3b.bench.tasks import BenchmarkTask, load_tasks
from m3b.messages import Message, ToolSpec
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import combine_calls, say
from project_kit import project, script, write


def by_id(name: str) -> BenchmarkTask:
    """The task of that id."""
    return next(task for task in load_tasks() if task.id == name)


MAKE_INDEX = """
import json, re
from pathlib import Path
root = Path("data/ct-kidney")
train, test = [], []
labels = ["Normal", "Cyst", "Stone", "Tumor"]
for label in labels:
    files = sorted((root / label).glob("*.jpg"), key=lambda f: int(re.search(r"\\((\\d+)\\)", f.name)[1]))
    for n, file in enumerate(files):
        row = {"image_path": file.as_posix(), "labels": [label], "patient": f"{label}-{n * 8 // len(files)}"}
        (test if row["patient"].endswith(("-2", "-5")) else train).append(row)
Path("Datapath").mkdir(exist_ok=True)
for split, rows in (("train", train), ("test", test)):
    Path(f"Datapath/{split}.json").write_text(json.dumps(rows))
Path("Datapath/label_dict.json").write_text(json.dumps({name: k for k, name in enumerate(labels)}))
"""

FEATURES = '''
import numpy as np
from PIL import Image

def features(path):
    """80 numbers: the picture's grey values in order, fine and coarse, so that places do not matter."""
    with Image.open(path) as image:
        grey = image.convert("L").resize((64, 64), Image.Resampling.BOX)
    fine = np.sort(np.asarray(grey, np.float32).ravel())
    coarse = np.sort(np.asarray(grey.resize((16, 16), Image.Resampling.BOX), np.float32).ravel())
    parts = [fine[[int(q) for q in np.linspace(0, 4095, 48)]], coarse[[int(q) for q in np.linspace(0, 255, 32)]]]
    return np.concatenate(parts) / 64 - 1.5
'''

TRAIN_PY = """
import json
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from features import features
rows = json.load(open("Datapath/train.json"))
names = list(json.load(open("Datapath/label_dict.json")))
x = np.stack([features(row["image_path"]) for row in rows])
mean, std = x.mean(0), x.std(0) + 0.05
x = np.hstack([(x - mean) / std, np.ones((len(x), 1), np.float32)])
y = np.eye(len(names))[[names.index(row["labels"][0]) for row in rows]]
w = np.zeros((x.shape[1], len(names)))
train = np.arange(len(x)) % 4 > 0
for _ in range(600):
    e = np.exp(x[train] @ w - (x[train] @ w).max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    w -= 0.1 * (x[train].T @ ((p - y[train]) / y[train].sum(0)) / 4 + 0.003 * w)
Path("Logout").mkdir(exist_ok=True)
save_file({"w": w.astype(np.float32), "mean": mean, "std": std.astype(np.float32)}, "Logout/best.safetensors")
json.dump([{"image": row["image_path"]} for row, seen in zip(rows, train) if not seen],
          open("Logout/valid_predictions.json", "w"))
"""

PREDICT_PY = """
import argparse, json, sys
from pathlib import Path
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import numpy as np
from features import features
from safetensors.numpy import load_file

def predict(paths):
    weights = load_file(HERE / "model.safetensors")
    names = json.loads((HERE / "config.json").read_text())["classes"]
    answers = []
    for path in paths:
        x = np.append((features(path) - weights["mean"]) / weights["std"], 1.0)
        e = np.exp(x @ weights["w"] - (x @ weights["w"]).max())
        p = (e / e.sum()).tolist()
        answers.append({"image": path, "probabilities": dict(zip(names, p)), "prediction": names[int(np.argmax(p))]})
    return answers

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("images", nargs="*")
    parser.add_argument("--list")
    parser.add_argument("-o")
    given = parser.parse_args()
    paths = given.images + (json.loads(Path(given.list).read_text()) if given.list else [])
    Path(given.o).write_text(json.dumps(predict(paths)))
"""

PROJECT = project(FEATURES, TRAIN_PY, PREDICT_PY, title="Kidneys", inputs=80, classes=4)

PLAN = "Class folders; one picture a case; runs of numbers as patients; a fourth of the runs for testing."
CHOICE = {
    "data_card": "CT-Kidney",
    "task": "diagnosis",
    "metric": "auroc",
    "classes": [],
    "plan": PLAN,
    "reason": "Fits.",
}
TRAIN = "python train.py && python export.py"


def play(**changes: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """What the model does in each stage; the last step of a stage is repeated. `changes` replace stages."""
    acts: dict[str, Sequence[Any]] = {
        "selection": [say(json.dumps(CHOICE))],
        "index": [combine_calls(write({"make_index.py": MAKE_INDEX}), script("python make_index.py")), say("Indexed.")],
        "module": [combine_calls(write(PROJECT), script("python plan.py")), say("In place.")],
        "model": [script(TRAIN), say("Trained and exported.")],
    }
    return {**acts, **changes}


def actor(acts: Mapping[str, Sequence[Any]] | None = None) -> ScriptedModel:
    """A model that plays `acts`; it finds its place by the stage's message and its own replies since."""
    stage_acts = acts or play()

    def step(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Any:
        stage, replies = "", 0
        for message in messages:
            if message.role == "user" and message.text.startswith("Stage: "):
                stage, replies = message.text.splitlines()[0].removeprefix("Stage: "), 0
            elif message.role == "assistant":
                replies += 1
        return stage_acts[stage][min(replies, len(stage_acts[stage]) - 1)]

    return ScriptedModel([step], repeat=True)
