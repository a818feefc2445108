"""A training project whose plan decides how good it gets, for searches that take seconds."""

from __future__ import annotations

import json

from pipeline_kit import FEATURES, PREDICT_PY

from project_kit import DATALOADER, NETWORK

PLAN_PY = """
import json, sys
plan = json.load(open("plan.json"))
for text in sys.argv[sys.argv.index("--set") + 1:] if "--set" in sys.argv else []:
    key, _, value = text.partition("=")
    if key not in plan:
        sys.exit(f"--set {text}: no such setting")
    plan[key] = json.loads(value)
json.dump(plan, open("plan.json", "w"))
print(plan)
"""
TRAIN_PY = """
import argparse, json, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from features import features
parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
parser.add_argument("--minutes", type=float, default=5.0)
options = parser.parse_args()
plan = json.load(open("plan.json"))
if Path("Logout/valid_predictions.json").exists():
    sys.exit("the results of another training are there")
if plan["lr"] == BROKEN:
    sys.exit("the loss is no number")
rows = json.load(open("Datapath/train.json"))
names = list(json.load(open("Datapath/label_dict.json")))
x = np.stack([features(row["image_path"]) for row in rows])
x = np.hstack([x, np.ones((len(x), 1), np.float32)])
y = np.array([names.index(row["labels"][0]) for row in rows], np.float32)
folds = np.arange(len(x)) // 2 % plan["folds"]
Path("Logout").mkdir(exist_ok=True)
for fold in range(plan["folds"]):
    w, train = np.random.default_rng(0).normal(0, 1, x.shape[1]), folds != fold
    for _ in range(100):
        p = 1 / (1 + np.exp(-x[train] @ w))
        w -= plan["lr"] * (x[train].T @ (p - y[train]) / train.sum() + 0.001 * w)
    save_file({"w": w.astype(np.float32)}, f"Logout/fold{fold}.safetensors")
    Path(f"Logout/fold{fold}").mkdir(exist_ok=True)
    Path(f"Logout/fold{fold}/done.json").write_text(json.dumps({"steps": 100 + fold, "epochs": 50, "seconds": 1}))
json.dump([{"image": row["image_path"], "fold": int(fold)} for row, fold in zip(rows, folds)],
          open("Logout/valid_predictions.json", "w"))
with open("trainings.txt", "a") as log:
    log.write(json.dumps([plan["lr"], options.minutes, options.resume]) + chr(10))
"""
EXPORT_PY = """
import json, shutil
from pathlib import Path
out = Path("Deliver")
shutil.rmtree(out, ignore_errors=True)
out.mkdir()
plan = json.load(open("plan.json"))
weights = [f"fold{fold}.safetensors" for fold in range(plan["folds"])]
for name in weights:
    shutil.copy(f"Logout/{name}", out / name)
shutil.copy("deliver/predict.py", out / "predict.py")
shutil.copy("features.py", out / "features.py")
names = list(json.load(open("Datapath/label_dict.json")))
(out / "config.json").write_text(json.dumps({"classes": names, "multi_label": False, "weights": weights}))
(out / "README.md").write_text("# Spots" + chr(10))
(out / "requirements.txt").write_text("numpy" + chr(10) + "pillow" + chr(10) + "safetensors" + chr(10))
"""
PREDICT_FOLDS_PY = PREDICT_PY.replace(
    'w = load_file(HERE / "model.safetensors")["w"]',
    'names = json.loads((HERE / "config.json").read_text())["weights"]\n'
    '    w = np.mean([load_file(HERE / name)["w"] for name in names], axis=0)',
)
LOW, BETTER, LOWER = 0.03, 0.09, 0.01
"""Learning rate of the plan, and its alternatives in the search table; AUROC on held-out cases is about 0.86, 0.95 and 0.43."""
FILES = {
    "features.py": FEATURES,
    "plan.json": json.dumps({"lr": LOW, "folds": 2, "seed": 0}),
    "plan.py": PLAN_PY,
    "Datapath/dataloader.py": DATALOADER,
    "Model/network.py": NETWORK.replace("INPUTS", "64").replace("CLASSES", "2"),
    "Loss/loss.py": "# cross entropy, in Model/network.py\n",
    "train.py": TRAIN_PY.replace("BROKEN", "-1"),
    "export.py": EXPORT_PY,
    "deliver/predict.py": PREDICT_FOLDS_PY,
}
BROKEN_FILES = {**FILES, "train.py": TRAIN_PY.replace("BROKEN", str(LOWER))}
"""The same, and the candidate with the lowest rate cannot be trained."""
