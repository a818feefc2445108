"""A classifier by hand: the grey value of a picture is its logit, calibrated as config.json says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

PREDICT = """
import argparse, json, math
from pathlib import Path
from PIL import Image
parser = argparse.ArgumentParser()
parser.add_argument("images", nargs="*")
parser.add_argument("--list")
parser.add_argument("-o")
given = parser.parse_args()
config = json.loads((Path(__file__).resolve().parent / "config.json").read_text())
answers = []
for path in given.images + (json.loads(Path(given.list).read_text()) if given.list else []):
    grey = Image.open(path).getpixel((0, 0))
    logits = [-(grey - 100) / 20, (grey - 100) / 20]
    powers = [math.exp(z / config["temperature"] + b) for z, b in zip(logits, config["bias"])]
    chances = {name: power / sum(powers) for name, power in zip(config["classes"], powers)}
    answers.append({"image": path, "probabilities": chances, "prediction": max(chances, key=chances.get)})
Path(given.o).write_text(json.dumps(answers))
"""


def make_grey_model(folder: Path) -> Path:
    """Write a model of the classes c0 and c1 that says c1 from a grey value of 100 on."""
    folder.mkdir(parents=True)
    (folder / "predict.py").write_text(PREDICT)
    names = ["c0", "c1"]
    config = {"task": "diagnosis", "classes": names, "multi_label": False, "weights": ["model.safetensors"]}
    config |= {"plan": {"task": "diagnosis", "classes": names, "multi_label": False}}
    config |= {"temperature": 0.2, "bias": [0.0, 0.0], "thresholds": [0.5, 0.5]}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"w": np.zeros(1, np.float32)}, folder / "model.safetensors")
    (folder / "README.md").write_text("# By hand\n")
    (folder / "requirements.txt").write_text("pillow\n")
    return folder


def write_site(folder: Path, patients: int, boundary: float = 130, name: str = "site.json") -> Path:
    """Write pictures whose class is c1 from a grey value of about `boundary` on, and their index."""
    random, rows = np.random.default_rng(0), []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(patients):
        grey = int(random.integers(60, 200))
        is_second = random.random() < 1 / (1 + np.exp(-(grey - boundary) / 10))
        Image.new("L", (4, 4), grey).save(folder / f"{number}.png")
        rows.append({"image_path": f"{number}.png", "labels": [f"c{int(is_second)}"], "patient": f"p{number}"})
    index = folder / name
    index.write_text(json.dumps(rows))
    return index
