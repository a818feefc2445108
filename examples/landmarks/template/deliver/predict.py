"""Predict a point for each image: python predict.py [IMAGE...] [--list LIST.json] -o predictions.json"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import numpy as np
import torch
from Model.network import build_model
from PIL import Image
from safetensors.torch import load_file


def main() -> int:
    """Predict all images; return 1 if one could not be read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", nargs="*")
    parser.add_argument("--list", type=Path)
    parser.add_argument("-o", type=Path, required=True)
    options = parser.parse_args()
    plan = json.loads((HERE / "config.json").read_text())["plan"]
    model = build_model(plan)
    model.load_state_dict(load_file(HERE / "model.safetensors"))
    model.eval()
    paths = options.images + (json.loads(options.list.read_text()) if options.list else [])
    answers = [answer(model, path, plan["size"]) for path in paths]
    options.o.write_text(json.dumps(answers))
    return int(any("error" in prediction for prediction in answers))


def answer(model: torch.nn.Module, path: str, size: int) -> dict[str, Any]:
    """Return the answer for one image."""
    try:
        with Image.open(path) as image:
            grey = image.convert("L")
            pixels = np.asarray(grey.resize((size, size)), dtype=np.float32) / 255
    except OSError as error:
        return {"image": path, "error": str(error)}
    with torch.no_grad():
        x, y = model(torch.from_numpy(pixels)[None, None])["logits"][0].tolist()
    return {"image": path, "point": [x * grey.width, y * grey.height]}


if __name__ == "__main__":
    sys.exit(main())
