"""A deliverable made by hand: a small network with the functions that an export needs."""

from __future__ import annotations

import json
from pathlib import Path

NETWORK = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 2)
    def forward(self, image):
        maps = torch.relu(self.conv(image)).mean((2, 3))
        return self.head(maps).softmax(1)
"""
PREDICT = """
import argparse, json, sys
from pathlib import Path
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import numpy as np, torch
from PIL import Image
from safetensors.torch import load_file
from net import Net
def load():
    net = Net(); net.load_state_dict(load_file(str(HERE / "model.safetensors"))); return net.eval()
def prepare(path):
    return torch.from_numpy(np.asarray(Image.open(path), np.float32)[None] / 255)
def answer(row):
    p = [float(v) for v in row]
    return {"probabilities": {"dark": p[0], "light": p[1]}, "prediction": "dark" if p[0] >= p[1] else "light"}
def main(argv=None):
    parser = argparse.ArgumentParser(); parser.add_argument("images", nargs="*"); parser.add_argument("--list")
    parser.add_argument("-o"); args = parser.parse_args(argv)
    paths = args.images + (json.loads(Path(args.list).read_text()) if args.list else [])
    with torch.no_grad():
        done = [{"image": p, **answer(load()(prepare(p)[None])[0])} for p in paths]
    Path(args.o).write_text(json.dumps(done))
if __name__ == "__main__":
    main()
"""
PARTS = """
import json
from pathlib import Path
import predict, torch
from net import Net
from predict import answer, prepare
def parts(weights=True):
    module = predict.load() if weights else Net()
    return {"model": {"module": module.eval(), "inputs": ["image"], "outputs": ["probabilities"]}}
def examples(paths=()):
    noise = torch.Generator().manual_seed(0)
    return {"model": [(prepare(p)[None],) for p in paths] or [(torch.rand(n, 1, 8, 8, generator=noise),) for n in (1, 3)]}
def facts():
    return {"task": "diagnosis", "classes": ["dark", "light"], "main": "model", "preprocessing": {"divide": 255}}
"""


def make_deliverable(folder: Path) -> Path:
    """The folder, with random weights."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    for name, text in (("net.py", NETWORK), ("predict.py", PREDICT), ("parts.py", PARTS)):
        (folder / name).write_text(text)
    generator = torch.Generator().manual_seed(3)
    shapes = {"conv.weight": (4, 1, 3, 3), "conv.bias": (4,), "head.weight": (2, 4), "head.bias": (2,)}
    save_file({k: torch.randn(*s, generator=generator) for k, s in shapes.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"classes": ["dark", "light"], "plan": {"dims": 2}}))
    (folder / "README.md").write_text("# Dark or light\n")
    return folder


def make_images(folder: Path, count: int = 3) -> list[str]:
    """Grey pictures of 8 x 8."""
    import numpy as np
    from PIL import Image

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / f"i{number}.png")
    return [str(folder / f"i{number}.png") for number in range(count)]
