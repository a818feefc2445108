"""Write the deliverable: python export.py [--out Deliver]"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("Deliver"))
out = parser.parse_args().out
plan = json.loads(Path("plan.json").read_text())
(out / "Model").mkdir(parents=True, exist_ok=True)
shutil.copy("Model/network.py", out / "Model")
shutil.copy("deliver/predict.py", out)
shutil.copy("Logout/best.safetensors", out / "model.safetensors")
(out / "config.json").write_text(json.dumps({"task": "landmarks", "classes": [], "plan": plan}, indent=1))
(out / "requirements.txt").write_text("torch\nnumpy\npillow\nsafetensors\n")
(out / "README.md").write_text("# Landmark finder\n\nA point in each picture. Not a medical device.\n")
print(f"wrote {out}")
